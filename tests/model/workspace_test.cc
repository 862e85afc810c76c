// What is reserved before the first step, from the configuration alone.
#include "model/workspace.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(Workspace, EachOutputGroupIsPaddedToAWholeChunkOfTheDotOrder) {
  ModelConfig config;  // the release's widths
  config.num_attention_heads = 1024;
  config.head_dim = 32;
  config.o_groups = 1024;
  config.o_lora_rank = 32;
  const ScratchLimits limits = ScratchLimitsFor(config, WorkspaceLimits{}, 128);
  EXPECT_GE(limits.columns, 1024 * 128);  // groups of 32 channels, 128 columns each
}

}  // namespace
}  // namespace deepinfer
