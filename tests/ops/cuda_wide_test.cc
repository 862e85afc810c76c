// The kernels for prompts on device memory: wide products (wide.h), bit for bit DirectLinear's wherever a row lies, and
// what quantises their rows, against the reference.
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

using cuda::ColumnOrder;

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

// Promise 1: a prompt takes the wide products and an answer DirectLinear, so the bits must be the same. The op tests
// compare DirectLinear with the reference.
class CudaWide : public testing::Test {
 protected:
  void SetUp() override {
    WeightMatrix any;
    any.format = WeightFormat::kF8Block32;
    any.rows = any.columns = 512;
    if (!cuda::WideFits(any, 1)) GTEST_SKIP() << "not SM90";
  }
  void Linear(int64_t outputs, int64_t columns, int groups, int64_t most, const std::vector<int64_t>& counts) {
    SCOPED_TRACE(testing::Message() << "N " << outputs << " K " << columns << " groups " << groups);
    Random random(11);
    const OwnedWeight weight = RandomWeight(WeightFormat::kF8Block32, outputs, columns, random);
    const DeviceWeight device_weight(weight);
    ASSERT_TRUE(cuda::WideFits(device_weight.view, groups));
    const Tensor x = RandomTensor(most, columns * groups, random);
    const DeviceRows wide_x(x, ColumnOrder::kFp8Wide), direct_x(x, ColumnOrder::kFp8);
    const DeviceFloats direct(most, outputs);
    cuda::DirectLinear(nullptr, direct_x.From(0), most, device_weight.view, groups, direct.view());
    const Tensor all = direct.Get();
    for (const int64_t count : counts) {
      for (const int64_t first : {int64_t{0}, int64_t{37}, most - count}) {
        if (first < 0 || first + count > most) continue;
        const DeviceFloats out(count, outputs);
        ASSERT_TRUE(cuda::WideLinear(nullptr, wide_x.From(first), count, device_weight.view, groups, out.view()));
        ASSERT_EQ(cudaGetLastError(), cudaSuccess);
        ASSERT_TRUE(SameBits(out.Get().view(), all.Gather(Range(first, count)).view()))
            << count << " rows from row " << first;
      }
    }
  }
};

TEST_F(CudaWide, LinearHasTheBitsOfDirectLinear) {
  const std::vector<int64_t> counts = {1, 63, 64, 65, 127, 128, 129, 200, 256, 257, 300};
  Linear(256, 512, 1, 300, counts);
  Linear(768, 576, 1, 300, counts);  // nine steps: one stretch of the columns has two
  Linear(256, 1280, 1, 300, counts);
  Linear(768, 704, 3, 300, counts);
  Linear(256, 5120, 1, 70, {1, 63, 64, 65, 70});
}

// Promise 1: which kernel DirectLinear takes hangs on the rows and on the number of tiles, a row's bits do not.
TEST(CudaDirect, ARowHasTheSameBitsAmongAnyNumberOfRows) {
  constexpr int64_t kMost = 130;
  for (const int64_t outputs : {1280, 2304, 5120, 8192}) {
    for (const int64_t columns : {448, 1280}) {
      SCOPED_TRACE(testing::Message() << "N " << outputs << " K " << columns);
      Random random(12);
      const OwnedWeight weight = RandomWeight(WeightFormat::kF8Block32, outputs, columns, random);
      const DeviceWeight device_weight(weight);
      const Tensor x = RandomTensor(kMost, columns, random);
      const DeviceRows rows(x, ColumnOrder::kFp8);
      const DeviceFloats whole(kMost, outputs);
      cuda::DirectLinear(nullptr, rows.From(0), kMost, device_weight.view, 1, whole.view());
      const Tensor all = whole.Get();
      for (const int64_t count : {1, 8, 9, 16, 17, 32, 33, 64, 65}) {
        const int64_t first = kMost - count;
        const DeviceFloats out(count, outputs);
        cuda::DirectLinear(nullptr, rows.From(first), count, device_weight.view, 1, out.view());
        ASSERT_EQ(cudaGetLastError(), cudaSuccess);
        ASSERT_TRUE(SameBits(out.Get().view(), all.Gather(Range(first, count)).view())) << count << " rows";
      }
    }
  }
}

TEST_F(CudaWide, TakesNoShapeThatWouldRoundOtherwise) {
  WeightMatrix weight;
  weight.format = WeightFormat::kF8Block32;
  weight.rows = 256;
  weight.columns = 448;  // a warp of DirectLinear would have no columns
  EXPECT_FALSE(cuda::WideFits(weight, 1));
  weight.columns = 512;
  EXPECT_TRUE(cuda::WideFits(weight, 1));
  EXPECT_FALSE(cuda::WideFits(weight, 2));  // half a cluster a group
}

TEST(CudaQuantise, RowsLikeReference) {
  Random random(13);
  for (const int64_t columns : {32, 96, 1280, 5120}) {
    for (const int64_t rows : {1, 63, 65, 200}) {
      const Tensor x = RandomTensor(rows, columns, random);
      Tensor expected(rows, columns);
      for (int64_t t = 0; t < rows; ++t) reference::QuantiseActivations(x.row(t), columns, expected.row(t));
      for (const ColumnOrder order :
           {ColumnOrder::kPlain, ColumnOrder::kFp8, ColumnOrder::kFp4, ColumnOrder::kFp8Wide, ColumnOrder::kFp4Wide}) {
        if (columns % 128 != 0 && order > ColumnOrder::kFp4) continue;
        SCOPED_TRACE(testing::Message() << rows << " rows of " << columns << ", order " << static_cast<int>(order));
        ASSERT_TRUE(SameBits(DeviceRows(x, order).Plain(order).view(), expected.view()));
      }
    }
  }
}

TEST(CudaQuantise, SwiGluLikeReference) {
  Random random(14);
  for (const int64_t columns : {128, 384, 2304}) {
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
        cuda::QuantiseRows(nullptr, hidden.view(), ColumnOrder::kFp4Wide, in_two_steps.From(0));
        ASSERT_EQ(quantised.Get(), in_two_steps.Get());

        Tensor expected(rows, columns);
        MakeReferenceOps()->SwiGlu(gate, up, limit, expected);
        for (int64_t t = 0; t < rows; ++t) {
          for (int64_t c = 0; c < columns; ++c) expected.row(t)[c] *= weights[static_cast<size_t>(t)];
          reference::QuantiseActivations(expected.row(t), columns, expected.row(t));
        }
        // An ulp of the exponential can be one step of E4M3: an eighth of the value, or 2^-9 of the group's scale,
        // which is at most 2^-7 of its largest value; twice that, since the scale itself can flip.
        const Tensor actual = quantised.Plain(ColumnOrder::kFp4Wide);
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
class CudaSmall : public CudaWide {
 protected:
  Random random_{12};
};

TEST_F(CudaSmall, WideLinear) { Linear(256, 576, 1, 130, {65, 130}); }

TEST_F(CudaSmall, Skinny) {
  CudaOptions options;
  options.keep_weights = false;
  auto ops = MakeCudaOps(options);
  ASSERT_TRUE(ops.ok()) << ops.status().message();
  const OwnedWeight weight = RandomWeight(WeightFormat::kF8Block32, 256, 1280, random_);
  const OwnedWeight plain = RandomWeight(WeightFormat::kBF16, 16, 1280, random_);
  const OwnedWeight w1 = RandomWeight(WeightFormat::kF4Row32, 512, 768, random_);
  const OwnedWeight w3 = RandomWeight(WeightFormat::kF4Row32, 512, 768, random_);
  const OwnedWeight w2 = RandomWeight(WeightFormat::kF4Row32, 768, 512, random_);
  ASSERT_TRUE(cuda::SkinnyExpertsFit(w1, w2));
  const std::vector<ExpertWeights> experts(2, {w1, w2, w3});
  const auto reference = MakeReferenceOps();
  for (const auto& [rows, feed] : {std::pair{3, cuda::SkinnyFeed::kThreads},
                                   {15, cuda::SkinnyFeed::kThreads},
                                   {3, cuda::SkinnyFeed::kBulk},
                                   {15, cuda::SkinnyFeed::kBulk},
                                   {3, cuda::SkinnyFeed::kDirect},
                                   {15, cuda::SkinnyFeed::kDirect},
                                   {70, cuda::SkinnyFeed::kAuto}}) {  // the wide products
    cuda::UseSkinnyFeed(feed);
    const Tensor x = RandomTensor(rows, 1280, random_), y = RandomTensor(rows, 768, random_);
    Tensor linear(rows, 256), mixed(rows, 768), expected(rows, 768), routing(rows, 2);
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
