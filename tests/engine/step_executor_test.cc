// The device side alone: steady decoding allocates nothing, with and without drafts.
#include "engine/step_executor.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/engine_plan.h"
#include "engine/model_files.h"
#include "tests/allocation_counter.h"

namespace deepinfer::test {
namespace {

class SteadyDecoding : public testing::TestWithParam<int> {};

TEST_P(SteadyDecoding, AllocatesNothing) {
  if (!CountsAllocations()) GTEST_SKIP() << "allocations are not counted under a sanitizer";
  const std::filesystem::path source = DEEPINFER_SOURCE_DIR;
  Result<ModelFiles> files =
      ModelFiles::Load(source / "tests/data/models/tiny2", source / "models/nano/tokenizer.json");
  ASSERT_TRUE(files.ok()) << files.status().message();
  EngineOptions options;
  options.threads = 2;
  options.max_num_seqs = 2;
  options.max_model_len = 512;
  options.draft_length = GetParam();
  options.variable_drafts = false;
  Result<EnginePlan> plan = PlanEngine(options, files->checkpoint->config(), {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto ops = MakeCpuOps(2);
  Result<std::unique_ptr<Model>> model = Model::Create(*files->checkpoint, files->token_map, *ops, plan->model);
  ASSERT_TRUE(model.ok()) << model.status().message();
  AlignedBuffer<uint8_t> pieces;
  ASSERT_TRUE(pieces.Allocate(2 * plan->piece_bytes));
  AlignedBuffer<uint8_t> blocks;
  constexpr int64_t kBlocks = 6;  // of each sequence
  ASSERT_TRUE(blocks.Allocate(2 * kBlocks * plan->kv.block_bytes));
  Result<std::unique_ptr<StepExecutor>> executor =
      StepExecutor::Create(**model, *ops, plan->executor, pieces.data(), StepProfile());
  ASSERT_TRUE(executor.ok()) << executor.status().message();

  StepPlan step;
  StepResult result;
  for (int32_t slot = 0; slot < 2; ++slot) {
    auto input = std::make_shared<RequestInput>();
    for (int32_t i = 0; i < 40; ++i) input->ids.push_back(5 + 13 * i + slot);
    input->prompt_tokens = 40;
    input->most_tokens = 512;
    input->replay = plan->bounded;
    input->sampling.temperature = slot;
    input->sampling.logprobs = 3;
    input->sampling.min_tokens = slot == 0 ? 300 : 0;
    input->end_ids = {8191};
    step.starts.push_back({slot, 1, input, {}, nullptr, {}});
    for (int64_t i = 0; i < kBlocks; ++i) {
      step.grants.push_back({slot, blocks.data() + (slot * kBlocks + i) * plan->kv.block_bytes});
    }
    step.items.push_back({slot, 0, 40, true, 0, nullptr});
  }
  (*executor)->Run(step, &result);
  int64_t tokens = 0;
  const auto decode = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      (*executor)->Run(step, &result);
      tokens += std::ssize(result.tokens);
    }
  };
  step.Clear();
  for (int32_t slot = 0; slot < 2; ++slot) step.items.push_back({slot, 0, 0, false, GetParam(), nullptr});
  decode(8);  // lists grow to their size
  const int64_t before = AllocationCount();
  decode(24);
  EXPECT_EQ(AllocationCount() - before, 0);
  EXPECT_GE(tokens, 2 * 32);
}

INSTANTIATE_TEST_SUITE_P(DraftLengths, SteadyDecoding, testing::Values(0, 4));

}  // namespace
}  // namespace deepinfer::test
