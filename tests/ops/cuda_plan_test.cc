// What the CUDA kernels decide on the host, checked without a GPU: how rows are sorted by expert, how columns are cut.
#include <gtest/gtest.h>

#include <vector>

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

TEST(CudaPlan, PartsCoverTheColumnsOnce) {
  for (const int64_t columns : {128, 256, 1280, 2304, 4096, 5120, 8192, 15360}) {
    for (const int64_t row_blocks : {1, 4, 40, 200, 256}) {
      const int parts = cuda::SkinnyParts(row_blocks, columns);
      const int chunks = static_cast<int>(columns / cuda::kSkinnyChunk);
      ASSERT_TRUE(parts == 1 || parts == 2 || parts == 4 || parts == 8);
      EXPECT_EQ(cuda::SkinnyFirstChunk(chunks, parts, 0), 0);
      EXPECT_EQ(cuda::SkinnyFirstChunk(chunks, parts, parts), chunks);
      for (int part = 0; part < parts && parts > 1; ++part) {
        EXPECT_GE(cuda::SkinnyFirstChunk(chunks, parts, part + 1) - cuda::SkinnyFirstChunk(chunks, parts, part), 4);
      }
    }
  }
}

TEST(CudaPlan, LikelyRowsOfAnExpert) {
  EXPECT_EQ(cuda::LikelyRowsOfExpert(1, 6, 384), 1);
  EXPECT_EQ(cuda::LikelyRowsOfExpert(8, 6, 12), 8);
  EXPECT_EQ(cuda::LikelyRowsOfExpert(64, 6, 384), 4);
  EXPECT_EQ(cuda::LikelyRowsOfExpert(256, 6, 384), 10);
  EXPECT_EQ(cuda::LikelyRowsOfExpert(64, 8, 8), 64);
}

}  // namespace
}  // namespace deepinfer::test
