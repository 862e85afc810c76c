// A step allocates nothing: activations, lists and pages are planned when model and sequence are made (promise 5).
#include <gtest/gtest.h>

#include <vector>

#include "model_fixture.h"
#include "tests/allocation_counter.h"

namespace deepinfer::test {
namespace {

TEST(Allocation, StepsAllocateNothing) {
  if (!CountsAllocations()) GTEST_SKIP() << "allocations are not counted under a sanitizer";
  ModelOptions options;
  options.max_rows_per_step = 64;
  options.max_context = 256;
  LoadedModel model(ModelFolder("tiny2"), MakeCpuOps(2), options);
  const auto first = model.NewSequence(200);
  const auto second = model.NewSequence(200);
  const std::vector<int32_t> ids = RandomIds(130, model.config().vocab_size, 1);

  const int64_t before = AllocationCount();
  size_t fed = 0;
  for (const size_t count : {50, 1, 1, 13, 62, 3}) {
    const auto part = std::span(ids).subspan(fed, count);
    const BatchItem items[] = {{first.get(), part, LogitsRows::kAll}, {second.get(), part.first(1), LogitsRows::kLast}};
    const Result<ForwardResult> result = model->Forward({items});
    ASSERT_TRUE(result.ok());
    ASSERT_TRUE(
        model.ExtendDraft(*first, result->taps.RowRange(0, static_cast<int64_t>(count)), static_cast<int64_t>(fed))
            .ok());
    fed += count;
  }
  ASSERT_TRUE(model->Truncate(*first, first->length() - 9).ok());
  EXPECT_EQ(AllocationCount() - before, 0);
}

TEST(Allocation, WorkspaceIsStated) {
  ModelOptions options;
  options.max_rows_per_step = 16;
  LoadedModel small(ModelFolder("tiny2"), MakeCpuOps(1), options);
  options.max_rows_per_step = 256;
  LoadedModel large(ModelFolder("tiny2"), MakeCpuOps(1), options);
  // Logits alone take 4 * 8192 bytes a row.
  EXPECT_GT(small->workspace_bytes(), 16 * 4 * 8192);
  EXPECT_GT(large->workspace_bytes(), 256 * 4 * 8192);
  EXPECT_EQ(small->sequence_bytes(100), small.NewSequence(100)->bytes());
}

}  // namespace
}  // namespace deepinfer::test
