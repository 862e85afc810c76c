// What the CUDA kernels decide on the host, checked without a GPU: how rows are sorted by expert, how many one is
// likely to have.
#include <gtest/gtest.h>

#include <vector>

#include "ops/cuda/memory_ranges.h"
#include "ops/cuda/routing.h"
#include "ops/cuda/skinny_plan.h"

namespace deepinfer::test {
namespace {

TEST(CudaPlan, SlotsAreSortedByExpertAndThenByToken) {
  const std::vector<int32_t> picks = {1, 3, 0, 3, 1, 2};
  const std::vector<float> weights = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f};
  const cuda::Routing routing =
      cuda::SortByExpert(TensorView<const int32_t>(picks.data(), 3, 2), ConstFloatView(weights.data(), 3, 2), 6);
  EXPECT_EQ(routing.per_token, 2);
  EXPECT_EQ(routing.offsets, (std::vector<int32_t>{0, 1, 3, 4, 6, 6, 6}));
  EXPECT_EQ(routing.order, (std::vector<int32_t>{2, 0, 4, 5, 1, 3}));
  EXPECT_EQ(routing.active, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(routing.weights, weights);
}

TEST(CudaPlan, LikelyRowsOfAnExpert) {
  EXPECT_EQ(cuda::LikelyRowsOfExpert(1, 6, 384), 1);
  EXPECT_EQ(cuda::LikelyRowsOfExpert(8, 6, 12), 8);
  EXPECT_EQ(cuda::LikelyRowsOfExpert(64, 6, 384), 4);
  EXPECT_EQ(cuda::LikelyRowsOfExpert(256, 6, 384), 10);
  EXPECT_EQ(cuda::LikelyRowsOfExpert(64, 8, 8), 64);
}

TEST(CudaPlan, MemoryRangesTouchBytesThatTheyShare) {
  const std::vector<uint8_t> bytes(100);
  const uint8_t* const at = bytes.data();
  cuda::MemoryRanges ranges;
  EXPECT_FALSE(ranges.Touch(at, 100));
  ranges.Add(at + 10, 20);
  ranges.Add(nullptr, 20);
  ranges.Add(at + 50, 0);
  EXPECT_FALSE(ranges.Touch(at, 10));
  EXPECT_TRUE(ranges.Touch(at, 11));
  EXPECT_TRUE(ranges.Touch(at + 29, 1));
  EXPECT_FALSE(ranges.Touch(at + 30, 70));
  EXPECT_FALSE(ranges.Touch(at + 15, 0));
  EXPECT_FALSE(ranges.Touch(nullptr, 100));
  // More than they hold: everything may be one of them.
  for (size_t i = 0; i < cuda::MemoryRanges::kMost; ++i) ranges.Add(at + 10, 1);
  EXPECT_TRUE(ranges.Touch(at + 90, 1));
  ranges.Clear();
  EXPECT_FALSE(ranges.Touch(at + 10, 20));
}

}  // namespace
}  // namespace deepinfer::test
