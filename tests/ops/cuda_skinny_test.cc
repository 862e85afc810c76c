// The tensor core products on shapes they take: against the reference, and bit for bit the same in any batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <vector>

#include "cuda_test_util.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/skinny.h"
#include "ops_test_util.h"

namespace deepinfer::test {
namespace {

std::unique_ptr<Ops> MakeTensorOps() {
  CudaOptions options;
  options.keep_weights = false;
  Result<std::unique_ptr<Ops>> ops = MakeCudaOps(options);
  EXPECT_TRUE(ops.ok()) << ops.status().message();
  return std::move(ops).value();
}

Tensor RunLinear(Ops& ops, const Tensor& x, const WeightMatrix& weight, int groups) {
  Tensor out(x.rows(), weight.rows);
  ops.Linear(x, weight, ActivationFormat::kFp8Groups32, groups, out);
  EXPECT_TRUE(out.GapsUntouched());
  return out;
}

/// Sums may cancel, and the MMAs cut off what does not fit: within 2e-5 of the size of a typical output of the row.
void ExpectClose(const Tensor& actual, const Tensor& expected, const char* what) {
  for (int64_t t = 0; t < expected.rows(); ++t) {
    double norm = 0;
    for (int64_t c = 0; c < expected.columns(); ++c) norm += double{expected.row(t)[c]} * double{expected.row(t)[c]};
    const double typical = std::sqrt(norm / static_cast<double>(expected.columns()));
    for (int64_t c = 0; c < expected.columns(); ++c) {
      ASSERT_NEAR(actual.row(t)[c], expected.row(t)[c], 2e-5 * typical) << what << " row " << t << " column " << c;
    }
  }
}

struct Shape {
  int64_t outputs, columns;
  int groups;
};

constexpr Shape kShapes[] = {{128, 256, 1},  {256, 768, 1},  {128, 1280, 1}, {128, 2304, 1},
                             {128, 4096, 1}, {384, 5120, 1}, {256, 1280, 2}, {384, 4096, 3}};

/// run() with the bulk feed and that many stages has the bits it has with the other one.
template <typename Run>
void ExpectSameBits(std::initializer_list<int> stages, const Run& run) {
  const Tensor expected = run();
  for (const int most : stages) {
    cuda::UseSkinnyFeed(cuda::SkinnyFeed::kBulk, most);
    const int64_t launches = cuda::BulkSkinnyLaunches();
    const Tensor actual = run();
    cuda::UseSkinnyFeed(cuda::SkinnyFeed::kThreads);
    ASSERT_GT(cuda::BulkSkinnyLaunches(), launches) << "no tensor map";
    ASSERT_TRUE(SameBits(actual.view(), expected.view())) << most << " stages";
  }
}

TEST(CudaSkinny, LinearLikeReference) {
  Random random(1);
  const auto ops = MakeTensorOps();
  const auto reference = MakeReferenceOps();
  for (const Shape& shape : kShapes) {
    const OwnedWeight weight = RandomWeight(WeightFormat::kF8Block32, shape.outputs, shape.columns, random);
    ASSERT_TRUE(cuda::SkinnyFits(weight, shape.groups));
    for (const int64_t rows : {1, 3, 8, 9, 16, 17, 32, 40, 64, 65}) {
      SCOPED_TRACE(testing::Message() << "N " << shape.outputs << " K " << shape.columns << " T " << rows);
      const Tensor x = RandomTensor(rows, shape.columns * shape.groups, random);
      ExpectClose(RunLinear(*ops, x, weight, shape.groups), RunLinear(*reference, x, weight, shape.groups), "linear");
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(CudaSkinny, LinearHasTheSameBitsByBulk) {
  Random random(4);
  const auto ops = MakeTensorOps();
  for (const Shape& shape : kShapes) {
    const OwnedWeight weight = RandomWeight(WeightFormat::kF8Block32, shape.outputs, shape.columns, random);
    for (const int64_t rows : {1, 3, 8, 9, 16, 17, 32, 40, 64, 65}) {
      SCOPED_TRACE(testing::Message() << "N " << shape.outputs << " K " << shape.columns << " T " << rows);
      const Tensor x = RandomTensor(rows, shape.columns * shape.groups, random);
      ExpectSameBits({0, 2, 3, 8}, [&] { return RunLinear(*ops, x, weight, shape.groups); });
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(CudaSkinny, SeveralLinearsHaveTheBitsOfEach) {
  constexpr int64_t kColumns = 1280;
  Random random(5);
  // 2 parts, 2, 1 (so many row blocks), 2.
  const int64_t outputs[] = {128, 384, 128 * 170, 256};
  std::vector<DeviceWeight> weights;
  for (const int64_t n : outputs) weights.emplace_back(RandomWeight(WeightFormat::kF8Block32, n, kColumns, random));
  for (const int64_t rows : {1, 9, 70}) {
    const DeviceRows x(RandomTensor(rows, kColumns, random), cuda::ColumnOrder::kFp8);
    for (const cuda::SkinnyFeed feed : {cuda::SkinnyFeed::kThreads, cuda::SkinnyFeed::kBulk}) {
      for (int count = 1; count <= cuda::kMostSkinnyProducts; ++count) {
        SCOPED_TRACE(testing::Message() << rows << " rows, " << count << " weights");
        std::vector<DeviceFloats> outs;
        cuda::SkinnyProducts products;
        for (int i = 0; i < count; ++i) {
          const auto at = static_cast<size_t>(i);
          outs.emplace_back(rows, outputs[at]);
          products[at] = {weights[at].view, outs.back().view()};
        }
        cuda::UseSkinnyFeed(feed);
        cuda::SkinnyLinears(nullptr, x.From(0), rows, products, count);
        cuda::UseSkinnyFeed(cuda::SkinnyFeed::kThreads);
        for (int i = 0; i < count; ++i) {
          const DeviceFloats alone(rows, outputs[i]);
          cuda::SkinnyLinear(nullptr, x.From(0), rows, weights[static_cast<size_t>(i)].view, 1, alone.view());
          ASSERT_TRUE(SameBits(outs[static_cast<size_t>(i)].Get().view(), alone.Get().view())) << i;
        }
      }
    }
  }
}

TEST(CudaSkinny, LinearRowsAreIndependent) {
  Random random(2);
  const auto ops = MakeTensorOps();
  const auto peer = MakeTensorOps();
  const OwnedWeight weight = RandomWeight(WeightFormat::kF8Block32, 128, 2304, random);
  const Tensor x = RandomTensor(70, 2304, random);
  ExpectRowIndependence(*ops, *peer, 70, [&](Ops& each, const std::vector<int64_t>& rows) {
    return RunLinear(each, x.Gather(rows), weight, 1);
  });
}

// Experts of small release-like shapes: D 512, I 768.
class CudaSkinnyExperts : public testing::Test {
 protected:
  static constexpr int64_t kWidth = 512, kInner = 768, kExperts = 12, kPerToken = 3;

  CudaSkinnyExperts() : random_(3) {
    for (int64_t e = 0; e < kExperts; ++e) {
      w1_.push_back(RandomWeight(WeightFormat::kF4Row32, kInner, kWidth, random_));
      w2_.push_back(RandomWeight(WeightFormat::kF4Row32, kWidth, kInner, random_));
      w3_.push_back(RandomWeight(WeightFormat::kF4Row32, kInner, kWidth, random_));
      experts_.push_back({w1_.back(), w2_.back(), w3_.back()});
    }
  }
  /// Row t of x with picks and weights that depend on `rows[t]` alone.
  Tensor Run(Ops& ops, const Tensor& x, const std::vector<int64_t>& rows, bool crowded) {
    std::vector<int32_t> picks;
    Tensor weights(static_cast<int64_t>(rows.size()), kPerToken);
    for (size_t i = 0; i < rows.size(); ++i) {
      for (int64_t k = 0; k < kPerToken; ++k) {
        picks.push_back(static_cast<int32_t>(crowded ? 2 * k : k * 4 + (rows[i] * (k + 1)) % 4));
        weights.row(static_cast<int64_t>(i))[k] = 0.25f + 0.125f * static_cast<float>((rows[i] + k) % 7);
      }
    }
    Tensor out(static_cast<int64_t>(rows.size()), kWidth);
    ops.Experts(x.Gather(rows), TensorView<const int32_t>(picks.data(), out.rows(), kPerToken), weights, experts_, 10,
                ActivationFormat::kFp8Groups32, out);
    EXPECT_TRUE(out.GapsUntouched());
    return out;
  }
  static std::vector<int64_t> FirstRows(int64_t count) {
    std::vector<int64_t> rows;
    for (int64_t t = 0; t < count; ++t) rows.push_back(t);
    return rows;
  }

  Random random_;
  std::vector<OwnedWeight> w1_, w2_, w3_;
  std::vector<ExpertWeights> experts_;
};

TEST_F(CudaSkinnyExperts, LikeReference) {
  ASSERT_TRUE(cuda::SkinnyExpertsFit(w1_[0], w2_[0]));
  const auto ops = MakeTensorOps();
  const auto reference = MakeReferenceOps();
  const Tensor x = RandomTensor(50, kWidth, random_);
  for (const bool crowded : {false, true}) {
    for (const int64_t rows : {1, 2, 8, 9, 31, 32, 33, 50}) {
      // An ulp of a hidden value can be one step of E4M3 (moe_test.cc).
      ASSERT_TRUE(Near(Run(*ops, x, FirstRows(rows), crowded), Run(*reference, x, FirstRows(rows), crowded), 2e-2f))
          << rows;
    }
  }
}

TEST_F(CudaSkinnyExperts, SameBitsByBulk) {
  const auto ops = MakeTensorOps();
  const Tensor x = RandomTensor(50, kWidth, random_);
  for (const bool crowded : {false, true}) {
    for (const int64_t rows : {1, 2, 8, 9, 31, 32, 33, 50}) {
      ExpectSameBits({0, 2, 3, 8}, [&] { return Run(*ops, x, FirstRows(rows), crowded); });
      if (testing::Test::HasFatalFailure()) FAIL() << rows << " rows";
    }
  }
}

TEST_F(CudaSkinnyExperts, RowsAreIndependent) {
  const auto ops = MakeTensorOps();
  const auto peer = MakeTensorOps();
  const Tensor x = RandomTensor(45, kWidth, random_);
  for (const bool crowded : {false, true}) {
    ExpectRowIndependence(*ops, *peer, 45,
                          [&](Ops& each, const std::vector<int64_t>& rows) { return Run(each, x, rows, crowded); });
  }
}

}  // namespace
}  // namespace deepinfer::test
