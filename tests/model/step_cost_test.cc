// What a step costs at least, counted from a configuration.
#include "model/step_cost.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "checkpoint/parameter_summary.h"
#include "model_fixture.h"

namespace deepinfer {
namespace {

ModelConfig NanoConfig() { return Checkpoint::Open(test::ModelFolder("nano")).value().config(); }

TEST(StepCost, OneRowOfABatchIsOneToken) {
  const ModelConfig config = NanoConfig();
  for (const int64_t position : {0, 63, 500}) {
    const StepCost token = DecodeCost(config, position);
    const StepCost batch = DecodeCost(config, 1, std::array{position});
    EXPECT_DOUBLE_EQ(batch.bytes, token.bytes);
    EXPECT_DOUBLE_EQ(batch.flops, token.flops);
  }
}

TEST(StepCost, ABatchReadsDenseWeightsOnceAndExpertsAsOftenAsTheyDiffer) {
  const ModelConfig config = NanoConfig();
  const ParameterSummary summary = SummariseParameters(config);
  const std::array<int64_t, 2> positions = {100, 100};
  const StepCost one = DecodeCost(config, 100);
  const StepCost two = DecodeCost(config, 2, positions);
  EXPECT_DOUBLE_EQ(two.flops, 2 * one.flops);

  const double share = static_cast<double>(config.num_experts_per_tok) / static_cast<double>(config.n_routed_experts);
  const double more_experts =
      static_cast<double>(summary.part(ModelPart::kRoutedExperts).bytes) * (1 - std::pow(1 - share, 2) - share);
  const StepCost nothing_shared = DecodeCost(config, 2, std::array<int64_t, 1>{100});
  const double kv = two.bytes - nothing_shared.bytes;  // of the second sequence
  EXPECT_GT(kv, 0);
  const double rows_looked_up = static_cast<double>(summary.part(ModelPart::kEmbedding).active_bytes +
                                                    summary.part(ModelPart::kEngramTables).active_bytes);
  EXPECT_NEAR(two.bytes, one.bytes + more_experts + kv + rows_looked_up, 1e-6 * two.bytes);
  // However many rows: never more than the whole model and what each row looks up.
  const StepCost many = DecodeCost(config, 4096, positions);
  EXPECT_LT(many.bytes - 4096 * rows_looked_up, static_cast<double>(summary.total.bytes));
}

}  // namespace
}  // namespace deepinfer
