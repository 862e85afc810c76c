// The tensor core products on shapes they take: against the reference, and bit for bit the same in any batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <vector>

#include "cuda_test_util.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/direct_experts.h"
#include "ops/cuda/exact_linear.h"
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

/// A linear on the tensor cores: DirectLinear of quantised rows or of three terms, or Bf16Linear.
struct Case {
  const char* name;
  WeightFormat format;
  ActivationFormat activation;
};
constexpr Case kCases[] = {{"quantised", WeightFormat::kF8Block32, ActivationFormat::kFp8Groups32},
                           {"terms", WeightFormat::kF8Block32, ActivationFormat::kExact},
                           {"bf16", WeightFormat::kBF16, ActivationFormat::kExact}};

Tensor RunLinear(Ops& ops, const Tensor& x, const WeightMatrix& weight, ActivationFormat activation, int groups) {
  Tensor out(x.rows(), weight.rows);
  ops.Linear(x, weight, activation, groups, out);
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

// Outputs that are no multiple of 64, of a group too; columns that leave warps without any.
constexpr Shape kShapes[] = {{16, 64, 1},    {48, 192, 1},   {80, 320, 1},   {128, 256, 1}, {256, 768, 1},
                             {192, 2304, 1}, {384, 5120, 1}, {256, 1280, 2}, {96, 128, 2},  {384, 4096, 3}};

bool Fits(WeightMatrix weight, int groups) {
  weight.data = nullptr;  // the GPU's copy is aligned
  return weight.format == WeightFormat::kBF16 ? cuda::Bf16LinearFits(weight, groups)
                                              : cuda::DirectLinearFits(weight, groups);
}

/// run() with the bulk feed and that many stages has the bits it has by threads.
template <typename Run>
void ExpectSameBits(std::initializer_list<int> stages, const Run& run) {
  cuda::UseSkinnyFeed(cuda::SkinnyFeed::kThreads);
  const Tensor expected = run();
  for (const int most : stages) {
    cuda::UseSkinnyFeed(cuda::SkinnyFeed::kBulk, most);
    const int64_t launches = cuda::BulkSkinnyLaunches();
    const Tensor actual = run();
    cuda::UseSkinnyFeed(cuda::SkinnyFeed::kAuto);
    ASSERT_GT(cuda::BulkSkinnyLaunches(), launches) << "no tensor map";
    ASSERT_TRUE(SameBits(actual.view(), expected.view())) << most << " stages";
  }
}

TEST(CudaSkinny, LinearLikeReference) {
  Random random(1);
  const auto ops = MakeTensorOps();
  const auto reference = MakeReferenceOps();
  for (const Case& c : kCases) {
    for (const Shape& shape : kShapes) {
      if (c.format == WeightFormat::kBF16 && shape.groups > 1) continue;
      const OwnedWeight weight = RandomWeight(c.format, shape.outputs, shape.columns, random);
      ASSERT_TRUE(Fits(weight, shape.groups));
      for (const int64_t rows : {1, 3, 8, 9, 16, 17, 32, 40, 64, 65}) {
        SCOPED_TRACE(testing::Message() << c.name << " N " << shape.outputs << " K " << shape.columns << " T " << rows);
        const Tensor x = RandomTensor(rows, shape.columns * shape.groups, random);
        ExpectClose(RunLinear(*ops, x, weight, c.activation, shape.groups),
                    RunLinear(*reference, x, weight, c.activation, shape.groups), c.name);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Every form of the kernels has the same bits: 48 outputs a group never take the blocks of 64, 16384 of BF16 do.
TEST(CudaSkinny, LinearRowsAreIndependent) {
  constexpr int64_t kMost = 70;
  Random random(2);
  const auto ops = MakeTensorOps();
  const auto peer = MakeTensorOps();
  for (const Case& c : kCases) {
    for (const Shape& shape :
         {Shape{64, 2304, 1}, Shape{48, 1280, 1}, Shape{96, 320, 2}, Shape{128, 320, 2}, Shape{16384, 128, 1}}) {
      if (c.format == WeightFormat::kBF16 && shape.groups > 1) continue;
      SCOPED_TRACE(testing::Message() << c.name << " N " << shape.outputs << " K " << shape.columns);
      const OwnedWeight weight = RandomWeight(c.format, shape.outputs, shape.columns, random);
      const Tensor x = RandomTensor(kMost, shape.columns * shape.groups, random);
      const auto run = [&](Ops& each, const std::vector<int64_t>& rows) {
        return RunLinear(each, x.Gather(rows), weight, c.activation, shape.groups);
      };
      ExpectRowIndependence(*ops, *peer, kMost, run);
      std::vector<int64_t> rows(kMost);
      std::iota(rows.begin(), rows.end(), 0);
      const Tensor all = run(*ops, rows);
      for (; !rows.empty(); rows.pop_back()) {
        ASSERT_TRUE(SameBits(run(*ops, rows).view(), all.Gather(rows).view())) << rows.size() << " rows";
      }
    }
  }
}

// A pair in one launch, or not: outputs that are a multiple of 64 in one of the two only, and rows beyond a pair's
// most.
TEST(CudaSkinny, LinearPairIsTwoLinears) {
  Random random(5);
  const auto ops = MakeTensorOps();
  for (const int64_t second_outputs : {16, 80, 512}) {
    for (const int64_t columns : {64, 320, 2304}) {
      const OwnedWeight first = RandomWeight(WeightFormat::kF8Block32, 192, columns, random);
      const OwnedWeight second = RandomWeight(WeightFormat::kF8Block32, second_outputs, columns, random);
      for (const int64_t rows : {0, 1, 8, 9, 16, 17, 33, 64, 65}) {
        for (const ActivationFormat activation : {ActivationFormat::kFp8Groups32, ActivationFormat::kExact}) {
          SCOPED_TRACE(testing::Message() << second_outputs << " x " << columns << ", rows " << rows);
          const Tensor x = RandomTensor(rows, columns, random);
          Tensor first_out(rows, 192), second_out(rows, second_outputs);
          ops->LinearPair(x, first, second, activation, first_out, second_out);
          ASSERT_TRUE(SameBits(first_out, RunLinear(*ops, x, first, activation, 1)));
          ASSERT_TRUE(SameBits(second_out, RunLinear(*ops, x, second, activation, 1)));
          ASSERT_TRUE(first_out.GapsUntouched());
          ASSERT_TRUE(second_out.GapsUntouched());
        }
      }
    }
  }
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

// The last rows are more than a form takes at once.
TEST_F(CudaSkinnyExperts, SameBitsDirect) {
  const auto ops = MakeTensorOps();
  const Tensor x = RandomTensor(50, kWidth, random_);
  for (const bool crowded : {false, true}) {
    for (const int64_t rows : {1, 2, 3, 5, 8, 9, 17, 50}) {
      cuda::UseSkinnyFeed(cuda::SkinnyFeed::kThreads);
      const Tensor expected = Run(*ops, x, FirstRows(rows), crowded);
      for (const cuda::DirectForm form : {cuda::DirectForm::kAuto, cuda::DirectForm::kFewExperts,
                                          cuda::DirectForm::kManyExperts, cuda::DirectForm::kTwoTiles}) {
        cuda::UseSkinnyFeed(cuda::SkinnyFeed::kDirect);
        cuda::UseDirectForm(form);
        const int64_t launches = cuda::DirectExpertsLaunches();
        const Tensor actual = Run(*ops, x, FirstRows(rows), crowded);
        cuda::UseDirectForm(cuda::DirectForm::kAuto);
        cuda::UseSkinnyFeed(cuda::SkinnyFeed::kAuto);
        ASSERT_GT(cuda::DirectExpertsLaunches(), launches) << "does not fit";
        ASSERT_TRUE(SameBits(actual.view(), expected.view())) << rows << " rows, form " << static_cast<int>(form);
      }
    }
  }
}

TEST_F(CudaSkinnyExperts, RowsAreIndependent) {
  const auto ops = MakeTensorOps();
  const auto peer = MakeTensorOps();
  const Tensor x = RandomTensor(45, kWidth, random_);
  for (const cuda::SkinnyFeed feed : {cuda::SkinnyFeed::kAuto, cuda::SkinnyFeed::kDirect}) {
    for (const bool crowded : {false, true}) {
      cuda::UseSkinnyFeed(feed);
      ExpectRowIndependence(*ops, *peer, 45,
                            [&](Ops& each, const std::vector<int64_t>& rows) { return Run(each, x, rows, crowded); });
    }
  }
  cuda::UseSkinnyFeed(cuda::SkinnyFeed::kAuto);
}

}  // namespace
}  // namespace deepinfer::test
