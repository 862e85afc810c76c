// The kernels for prefill on device memory: wide products (wide.h) and what quantises their rows, against the
// reference, and bit for bit the same wherever a row lies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "cuda_test_util.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/wide.h"
#include "ops/reference/quantise.h"
#include "ops_test_util.h"

namespace deepinfer::test {
namespace {

using cuda::Bf16Rows;
using cuda::ColumnOrder;

// Of the size of a typical output of the row: one chain of MMA sums over all columns, which cuts off at each step.
constexpr double kWideTolerance = 2e-4;

Tensor Reference(const Tensor& x, const WeightMatrix& weight, int groups) {
  Tensor out(x.rows(), weight.rows);
  MakeReferenceOps()->Linear(x, weight, ActivationFormat::kFp8Groups32, groups, out);
  return out;
}

/// Largest difference, in sizes of a typical output of its row.
double Difference(const Tensor& actual, const Tensor& expected) {
  double most = 0;
  for (int64_t t = 0; t < expected.rows(); ++t) {
    double norm = 0;
    for (int64_t c = 0; c < expected.columns(); ++c) norm += double{expected.row(t)[c]} * double{expected.row(t)[c]};
    const double typical = std::sqrt(norm / static_cast<double>(expected.columns()));
    for (int64_t c = 0; c < expected.columns(); ++c) {
      const double difference = std::abs(double{actual.row(t)[c]} - double{expected.row(t)[c]}) / typical;
      most = difference <= most ? most : difference;  // NaN stays
    }
  }
  return most;
}

std::vector<int64_t> Range(int64_t first, int64_t count) {
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

Tensor RunWide(const DeviceRows& x, int64_t first, int64_t count, const WeightMatrix& weight, int groups) {
  const DeviceFloats out(count, weight.rows);
  EXPECT_TRUE(cuda::WideLinear(nullptr, x.From(first), count, weight, groups, out.view()));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  return out.Get();
}

class CudaWide : public testing::Test {
 protected:
  void SetUp() override {
    WeightMatrix any;
    any.format = WeightFormat::kF8Block32;
    any.rows = any.columns = 128;
    if (!cuda::WideFits(any, 1)) GTEST_SKIP() << "not SM90";
  }
  void Linear(int64_t outputs, int64_t columns, int groups, int64_t most, const std::vector<int64_t>& counts) {
    SCOPED_TRACE(testing::Message() << "N " << outputs << " K " << columns << " groups " << groups);
    Random random(11);
    const OwnedWeight weight = RandomWeight(WeightFormat::kF8Block32, outputs, columns, random);
    ASSERT_TRUE(cuda::WideFits(weight, groups));
    const Tensor x = RandomTensor(most, columns * groups, random);
    const DeviceWeight device_weight(weight);
    const DeviceRows device_x(x, ColumnOrder::kFp8);
    const Tensor all = RunWide(device_x, 0, most, device_weight.view, groups);
    const double difference = Difference(all, Reference(x, weight, groups));
    RecordProperty("N" + std::to_string(outputs) + "K" + std::to_string(columns), std::to_string(difference * 1e6));
    EXPECT_LE(difference, kWideTolerance);
    for (const int64_t count : counts) {
      for (const int64_t first : {int64_t{0}, int64_t{37}, most - count}) {
        if (first < 0 || first + count > most) continue;
        ASSERT_TRUE(SameBits(RunWide(device_x, first, count, device_weight.view, groups).view(),
                             all.Gather(Range(first, count)).view()))
            << count << " rows from row " << first;
      }
    }
  }
};

TEST_F(CudaWide, Linear) {
  const std::vector<int64_t> counts = {1, 63, 64, 65, 127, 128, 129, 200, 256, 257};
  Linear(128, 64, 1, 300, counts);
  Linear(384, 192, 1, 300, counts);
  Linear(256, 1280, 1, 300, counts);
  Linear(384, 320, 3, 300, counts);
  Linear(128, 5120, 1, 70, {1, 63, 64, 65});
}

/// Rows of the pool for each expert.
using Layout = std::vector<std::vector<int64_t>>;

class CudaWideExperts : public CudaWide {
 protected:
  // D 320 is an odd number of steps; N 256 two blocks of outputs.
  void Make(int64_t experts, int64_t outputs, int64_t columns, int64_t pool) {
    outputs_ = outputs;
    pool_ = RandomTensor(pool, columns, random_);
    std::vector<const uint8_t*> values, scales;
    for (int64_t e = 0; e < experts; ++e) {
      host_.push_back(RandomWeight(WeightFormat::kF4Row32, outputs, columns, random_));
      device_.emplace_back(host_.back().view());
      values.push_back(device_.back().view.data);
      scales.push_back(device_.back().view.scale);
    }
    tables_.emplace_back(values);
    tables_.emplace_back(scales);
  }
  /// most_rows 0: the largest count. every: experts without rows are listed as active too.
  Tensor Run(const Layout& layout, int most_rows, bool every) {
    std::vector<int32_t> active, offsets(1, 0);
    std::vector<int64_t> rows;
    int largest = 0;
    for (size_t e = 0; e < layout.size(); ++e) {
      rows.insert(rows.end(), layout[e].begin(), layout[e].end());
      offsets.push_back(static_cast<int32_t>(rows.size()));
      if (every || !layout[e].empty()) active.push_back(static_cast<int32_t>(e));
      largest = std::max(largest, static_cast<int>(layout[e].size()));
    }
    const DeviceBytes device_active(active), device_offsets(offsets);
    const DeviceRows x(pool_.Gather(rows), ColumnOrder::kFp4);
    cuda::WideExperts experts;
    experts.values = tables_[0].as<const uint8_t*>();
    experts.scales = tables_[1].as<const uint8_t*>();
    experts.active = device_active.as<int32_t>();
    experts.offsets = device_offsets.as<int32_t>();
    experts.active_count = static_cast<int>(active.size());
    experts.most_rows = most_rows == 0 ? largest : most_rows;
    experts.outputs = outputs_;
    experts.columns = pool_.columns();
    const DeviceFloats out(std::ssize(rows), outputs_);
    EXPECT_TRUE(cuda::WideExpertsProduct(nullptr, x.From(0), std::ssize(rows), experts, out.view()));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    return out.Get();
  }
  /// `base` has the whole pool for every expert.
  void ExpectRows(const Layout& layout, const Tensor& actual, const Tensor& base) {
    std::vector<int64_t> from;
    for (size_t e = 0; e < layout.size(); ++e) {
      for (const int64_t row : layout[e]) from.push_back(static_cast<int64_t>(e) * pool_.rows() + row);
    }
    ASSERT_TRUE(SameBits(actual.view(), base.Gather(from).view()));
  }
  Tensor Base() {
    const Tensor base = Run(Layout(host_.size(), Range(0, pool_.rows())), 0, true);
    double difference = 0;
    for (size_t e = 0; e < host_.size(); ++e) {
      const Tensor expected = Reference(pool_, host_[e], 1);
      const Tensor actual = base.Gather(Range(static_cast<int64_t>(e) * pool_.rows(), pool_.rows()));
      difference = std::max(difference, Difference(actual, expected));
    }
    RecordProperty("difference", std::to_string(difference * 1e6));
    EXPECT_LE(difference, kWideTolerance);
    return base;
  }

  Random random_{12};
  Tensor pool_{0, 0};
  std::vector<OwnedWeight> host_;
  std::vector<DeviceWeight> device_;
  std::vector<DeviceBytes> tables_;
  int64_t outputs_ = 0;
};

TEST_F(CudaWideExperts, UnevenRows) {
  Make(7, 256, 320, 300);
  const Tensor base = Base();
  for (const std::vector<int64_t>& counts : std::vector<std::vector<int64_t>>{{0, 1, 63, 64, 65, 0, 128},
                                                                              {1, 0, 0, 0, 0, 0, 0},
                                                                              {127, 128, 1, 0, 63, 65, 0},
                                                                              {0, 200, 1, 129, 64, 0, 257},
                                                                              {300, 0, 65, 0, 256, 191, 193}}) {
    SCOPED_TRACE(testing::PrintToString(counts));
    Layout layout;
    for (const int64_t count : counts) {
      // Other rows at other places of a tile for every expert, in descending order for every second one.
      std::vector<int64_t> rows = Range(std::min<int64_t>(300 - count, 17 + std::ssize(layout)), count);
      if (layout.size() % 2 == 1) std::reverse(rows.begin(), rows.end());
      layout.push_back(rows);
    }
    for (const int most_rows : {0, 520}) {  // 520: the other height of blocks where counts are small
      for (const bool every : {false, true}) ExpectRows(layout, Run(layout, most_rows, every), base);
    }
  }
}

TEST_F(CudaWideExperts, ReleasedDepth) {
  Make(2, 128, 5120, 66);
  const Tensor base = Base();
  const Layout layout = {Range(1, 65), Range(30, 1)};
  ExpectRows(layout, Run(layout, 0, false), base);
}

TEST(CudaQuantise, RowsLikeReference) {
  Random random(13);
  for (const int64_t columns : {32, 96, 1280, 5120}) {
    for (const int64_t rows : {1, 63, 65, 200}) {
      const Tensor x = RandomTensor(rows, columns, random);
      Tensor expected(rows, columns);
      for (int64_t t = 0; t < rows; ++t) reference::QuantiseActivations(x.row(t), columns, expected.row(t));
      for (const ColumnOrder order : {ColumnOrder::kPlain, ColumnOrder::kFp8, ColumnOrder::kFp4}) {
        SCOPED_TRACE(testing::Message() << rows << " rows of " << columns << ", order " << static_cast<int>(order));
        ASSERT_TRUE(SameBits(DeviceRows(x, order).Plain(order).view(), expected.view()));
      }
    }
  }
}

TEST(CudaQuantise, SwiGluLikeReference) {
  Random random(14);
  for (const int64_t columns : {32, 96, 2304}) {
    for (const int64_t rows : {1, 63, 65, 200}) {
      for (const float limit : {0.0f, 10.0f}) {
        SCOPED_TRACE(testing::Message() << rows << " rows of " << columns << ", limit " << limit);
        const Tensor gate = RandomTensor(rows, columns, random), up = RandomTensor(rows, columns, random);
        std::vector<float> weights;
        for (int64_t t = 0; t < rows; ++t) weights.push_back(random.Uniform(0.05f, 1.5f));
        const DeviceFloats device_gate(gate), device_up(up), hidden(rows, columns);
        const DeviceBytes device_weights(weights);
        const DeviceRows quantised(rows, columns), in_two_steps(rows, columns);
        cuda::SwiGluQuantise(nullptr, device_gate.view(), device_up.view(), device_weights.as<float>(), limit,
                             quantised.From(0));
        cuda::WeightedSwiGlu(nullptr, device_gate.view(), device_up.view(), device_weights.as<float>(), limit,
                             hidden.view());
        cuda::QuantiseRows(nullptr, hidden.view(), ColumnOrder::kFp4, in_two_steps.From(0));
        ASSERT_EQ(quantised.Get(), in_two_steps.Get());

        Tensor expected(rows, columns);
        MakeReferenceOps()->SwiGlu(gate, up, limit, expected);
        for (int64_t t = 0; t < rows; ++t) {
          for (int64_t c = 0; c < columns; ++c) expected.row(t)[c] *= weights[static_cast<size_t>(t)];
          reference::QuantiseActivations(expected.row(t), columns, expected.row(t));
        }
        // An ulp of the exponential can be one step of E4M3: an eighth of the value, or 2^-9 of the group's scale,
        // which is at most 2^-7 of its largest value; twice that, since the scale itself can flip.
        const Tensor actual = quantised.Plain(ColumnOrder::kFp4);
        int64_t different = 0;
        for (int64_t t = 0; t < rows; ++t) {
          for (int64_t group = 0; group < columns; group += 32) {
            float largest = 1e-4f;
            for (int64_t c = group; c < group + 32; ++c) largest = std::max(largest, std::abs(expected.row(t)[c]));
            for (int64_t c = group; c < group + 32; ++c) {
              const float value = expected.row(t)[c];
              different += actual.row(t)[c] == value ? 0 : 1;
              ASSERT_NEAR(actual.row(t)[c], value, std::max(std::abs(value) / 8, largest * 0x1p-15f))
                  << "row " << t << " column " << c;
            }
          }
        }
        EXPECT_LE(different, 2 + rows * columns / 1000);
      }
    }
  }
}

// Shapes for tools that are a thousand times slower (bench/gpu.sh racecheck).
class CudaSmall : public CudaWideExperts {};

TEST_F(CudaSmall, WideLinear) { Linear(128, 384, 1, 130, {65}); }

TEST_F(CudaSmall, WideExperts) {
  Make(3, 128, 384, 70);
  const Tensor base = Base();
  const Layout layout = {Range(3, 65), {}, Range(0, 1)};
  ExpectRows(layout, Run(layout, 0, true), base);
  ExpectRows(layout, Run(layout, 260, false), base);
}

TEST_F(CudaSmall, Skinny) {
  CudaOptions options;
  options.keep_weights = false;
  auto ops = MakeCudaOps(options);
  ASSERT_TRUE(ops.ok()) << ops.status().message();
  const OwnedWeight weight = RandomWeight(WeightFormat::kF8Block32, 128, 1280, random_);
  const OwnedWeight plain = RandomWeight(WeightFormat::kBF16, 16, 1280, random_);
  const OwnedWeight w1 = RandomWeight(WeightFormat::kF4Row32, 256, 768, random_);
  const OwnedWeight w3 = RandomWeight(WeightFormat::kF4Row32, 256, 768, random_);
  const OwnedWeight w2 = RandomWeight(WeightFormat::kF4Row32, 768, 256, random_);
  ASSERT_TRUE(cuda::SkinnyExpertsFit(w1, w2));
  const std::vector<ExpertWeights> experts(2, {w1, w2, w3});
  const auto reference = MakeReferenceOps();
  for (const auto& [rows, feed] : {std::pair{3, cuda::SkinnyFeed::kThreads},
                                   {17, cuda::SkinnyFeed::kThreads},
                                   {3, cuda::SkinnyFeed::kBulk},
                                   {17, cuda::SkinnyFeed::kBulk},
                                   {3, cuda::SkinnyFeed::kDirect},
                                   {17, cuda::SkinnyFeed::kDirect}}) {
    cuda::UseSkinnyFeed(feed);
    const Tensor x = RandomTensor(rows, 1280, random_), y = RandomTensor(rows, 768, random_);
    Tensor linear(rows, 128), mixed(rows, 768), expected(rows, 768), routing(rows, 2);
    ops.value()->Linear(x, weight, ActivationFormat::kFp8Groups32, 1, linear);
    EXPECT_LE(Difference(linear, Reference(x, weight, 1)), 2e-5);
    for (const WeightMatrix& exact : {weight.view(), plain.view()}) {
      Tensor actual(rows, exact.rows), like(rows, exact.rows);
      ops.value()->Linear(x, exact, ActivationFormat::kExact, 1, actual);
      reference->Linear(x, exact, ActivationFormat::kExact, 1, like);
      EXPECT_LE(Difference(actual, like), 2e-5);
    }
    routing.Fill(0.5f);
    std::vector<int32_t> picks;
    for (int64_t t = 0; t < rows; ++t) picks.insert(picks.end(), {0, 1});
    const TensorView<const int32_t> picked(picks.data(), rows, 2);
    ops.value()->Experts(y, picked, routing, experts, 10, ActivationFormat::kFp8Groups32, mixed);
    reference->Experts(y, picked, routing, experts, 10, ActivationFormat::kFp8Groups32, expected);
    EXPECT_TRUE(Near(mixed, expected, 2e-2f));
  }
  cuda::UseSkinnyFeed(cuda::SkinnyFeed::kAuto);
}

}  // namespace
}  // namespace deepinfer::test
