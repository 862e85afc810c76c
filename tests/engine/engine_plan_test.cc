#include "engine/engine_plan.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace deepinfer {
namespace {

constexpr int64_t kGigabyte = int64_t{1} << 30;

ModelConfig ReadConfig(const std::filesystem::path& folder) {
  std::ifstream file(std::filesystem::path(DEEPINFER_SOURCE_DIR) / folder / "config.json");
  std::stringstream text;
  text << file.rdbuf();
  Result<ModelConfig> config = ParseModelConfig(text.str());
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? std::move(*config) : ModelConfig();
}

ModelConfig Nano() { return ReadConfig("models/nano"); }

EnginePlan Plan(const EngineOptions& options, const ModelConfig& config, int64_t free_bytes = 0) {
  Result<EnginePlan> plan = PlanEngine(options, config, free_bytes);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? std::move(*plan) : EnginePlan();
}

/// The plan is refused, and the message has all of these.
void ExpectRefused(const EngineOptions& options, StatusCode code, const std::vector<std::string>& parts,
                   int64_t free_bytes = 0) {
  const Result<EnginePlan> plan = PlanEngine(options, Nano(), free_bytes);
  ASSERT_FALSE(plan.ok()) << parts.front();
  EXPECT_EQ(plan.status().code(), code);
  for (const std::string& part : parts) {
    EXPECT_NE(plan.status().message().find(part), std::string::npos) << part << "\nin: " << plan.status().message();
  }
}

TEST(EnginePlan, Defaults) {
  const ModelConfig config = Nano();
  const EnginePlan plan = Plan({}, config);
  EXPECT_EQ(plan.options.replay_keep, config.sliding_window + 12);
  EXPECT_EQ(plan.options.max_model_len, config.max_position_embeddings);
  EXPECT_EQ(plan.options.draft_length, 5);
  EXPECT_GE(plan.options.threads, 1);
  EXPECT_EQ(plan.bounded.keep, 140);
  EXPECT_EQ(plan.bounded.replay, 140);
  EXPECT_EQ(plan.bounded.grid, 2048);
  EXPECT_TRUE(plan.bounded.bounded);
  EXPECT_FALSE(plan.exact.bounded);
  EXPECT_EQ(plan.exact.receptive_field, 10 * 127);
  EXPECT_EQ(&plan.settings(ReplayMode::kBounded), &plan.bounded);
  EXPECT_EQ(&plan.settings(ReplayMode::kExact), &plan.exact);
  // Five of ten layers lie below the decoder.
  EXPECT_DOUBLE_EQ(plan.encoder_cost, 0.5);
  EXPECT_EQ(plan.model.activation, ActivationFormat::kFp8Groups32);
  // Every sequence can be as long as the context: 8192 tokens and the one that is chosen last.
  EXPECT_EQ(plan.kv.blocks, 16 * 129);
  EXPECT_EQ(plan.options.kv_memory_bytes, plan.kv.blocks * plan.kv.block_bytes);
  EXPECT_EQ(plan.kv.snapshots, 16 * kRollingSnapshots + 64);
  EXPECT_EQ(plan.options.snapshot_memory_bytes, plan.kv.snapshots * plan.kv.snapshot_bytes);
  EXPECT_EQ(plan.kv.block_bytes % 64, 0);
  EXPECT_EQ(plan.kv.snapshot_bytes % 64, 0);
}

TEST(EnginePlan, SizesAreThoseOfTheLayout) {
  const ModelConfig config = Nano();
  const auto layout = SequenceLayout::FromConfig(config);
  const EnginePlan plan = Plan({}, config);
  EXPECT_EQ(plan.kv.block_bytes, layout->BlockBytes());
  EXPECT_EQ(plan.kv.snapshot_bytes, layout->SnapshotBytes());
  EXPECT_EQ(plan.piece_bytes, layout->PieceBytes());
}

TEST(EnginePlan, OptionsReachTheirPlaces) {
  EngineOptions options;
  options.exact_activations = true;
  options.max_num_seqs = 3;
  options.max_model_len = 1000;
  options.draft_length = 2;
  options.variable_drafts = false;
  options.speculation_rule = SpeculationRule::kRejection;
  options.replay_keep = 151;
  options.replay_grid = 192;
  options.threads = 1;
  const EnginePlan plan = Plan(options, Nano());
  EXPECT_EQ(plan.model.activation, ActivationFormat::kExact);
  EXPECT_EQ(plan.model.max_context, 1000);
  EXPECT_EQ(plan.model.max_draft_sequences, 3);
  EXPECT_EQ(plan.executor.slots, 3);
  EXPECT_EQ(plan.executor.max_model_len, 1000);
  EXPECT_EQ(plan.executor.drafts.draft_length, 2);
  EXPECT_FALSE(plan.executor.drafts.variable_drafts);
  EXPECT_EQ(plan.executor.drafts.rule, SpeculationRule::kRejection);
  EXPECT_EQ(plan.bounded.keep, 151);
  EXPECT_EQ(plan.bounded.replay, 152);  // even: pairs are pooled
  EXPECT_EQ(plan.bounded.grid, 192);
  EXPECT_EQ(plan.options.threads, 1);
  EXPECT_EQ(plan.kv.blocks, 3 * 16);
}

TEST(EnginePlan, DraftsAreLimitedByTheBlock) {
  EngineOptions options;
  for (const auto& [asked, planned] : std::vector<std::pair<int, int>>{{0, 0}, {1, 1}, {5, 5}, {6, 5}, {1000, 5}}) {
    options.draft_length = asked;
    const EnginePlan plan = Plan(options, Nano());
    EXPECT_EQ(plan.options.draft_length, planned);
    EXPECT_EQ(plan.executor.drafts.draft_length, planned);
    // Results must not depend on it.
    EXPECT_EQ(plan.bounded.keep, 140);
  }
  ModelConfig none = Nano();
  none.num_nextn_predict_layers = 0;
  options.draft_length = 5;
  EXPECT_EQ(Plan(options, none).options.draft_length, 0);
}

TEST(EnginePlan, AStepHasRoomForEverySequence) {
  EngineOptions options;
  for (const int64_t sequences : {1, 16, 100, 1000}) {
    for (const int drafts : {0, 5}) {
      for (const int64_t batched : {1, 512, 4096}) {
        for (const ReplayMode mode : {ReplayMode::kBounded, ReplayMode::kExact}) {
          options.max_num_seqs = sequences;
          options.draft_length = drafts;
          options.max_num_batched_tokens = batched;
          options.replay = mode;
          const EnginePlan plan = Plan(options, Nano());
          const int64_t decode_rows = sequences * (1 + drafts);
          // All decode, and a prefill goes on beside them.
          EXPECT_GE(plan.model.max_rows_per_step, decode_rows + kKvBlockTokens);
          EXPECT_GE(plan.options.max_num_batched_tokens, sequences + kKvBlockTokens);
          EXPECT_GE(plan.model.max_rows_per_step, plan.options.max_num_batched_tokens);
          // All decode, and every prefill may end.
          EXPECT_GE(plan.model.max_logits_rows, decode_rows + 1);
          EXPECT_GE(plan.model.max_logits_rows, decode_rows + sequences);
          // Chunks below the decoder are longer for the same cost.
          if (mode == ReplayMode::kBounded) {
            const int64_t cheap = 2 * plan.options.max_num_batched_tokens;
            EXPECT_GE(plan.model.max_rows_per_step, std::min(cheap, plan.options.max_model_len));
          }
        }
      }
    }
  }
}

TEST(EnginePlan, RefusalsNameFieldAndNumbers) {
  const auto refused = [](const auto& change, const std::vector<std::string>& parts) {
    EngineOptions options;
    change(options);
    ExpectRefused(options, StatusCode::kInvalidArgument, parts);
  };
  refused([](EngineOptions& o) { o.max_model_len = 8193; }, {"max_model_len", "8192", "8193"});
  refused([](EngineOptions& o) { o.max_model_len = 1; }, {"max_model_len", "1"});
  refused([](EngineOptions& o) { o.replay_keep = 139; }, {"replay_keep", "140", "128", "12", "139"});
  refused([](EngineOptions& o) { o.replay_grid = 128; }, {"replay_grid", "64", "192", "128"});
  refused([](EngineOptions& o) { o.replay_grid = 200; }, {"replay_grid", "64", "192", "200"});
  refused([](EngineOptions& o) { o.max_num_seqs = 0; }, {"max_num_seqs", "0"});
  refused([](EngineOptions& o) { o.max_num_seqs = 5000; }, {"max_num_seqs", "4096", "5000"});
  refused([](EngineOptions& o) { o.max_num_batched_tokens = 0; }, {"max_num_batched_tokens", "0"});
  refused([](EngineOptions& o) { o.draft_length = -1; }, {"draft_length", "-1"});
  refused([](EngineOptions& o) { o.threads = -2; }, {"threads", "-2"});
  refused([](EngineOptions& o) { o.tpot_target_ms = -1; }, {"tpot_target_ms", "-1"});
  refused([](EngineOptions& o) { o.kv_memory_bytes = 100; }, {"kv_memory_bytes", "100"});
}

TEST(EnginePlan, PoolFitsWhatIsGiven) {
  const ModelConfig config = Nano();
  const int64_t block = SequenceLayout::FromConfig(config)->BlockBytes();
  EngineOptions options;
  options.kv_memory_bytes = 10 * block + block / 2;
  const EnginePlan given = Plan(options, config);
  EXPECT_EQ(given.kv.blocks, 10);
  EXPECT_EQ(given.options.kv_memory_bytes, 10 * block);

  // Half of what is free, but one whole context.
  options = {};
  options.max_model_len = 1000;  // 16 blocks
  options.max_num_seqs = 1000;
  options.prefix_cache = false;
  const int64_t pieces = 1000 * SequenceLayout::FromConfig(config)->PieceBytes();
  const int64_t free_bytes = 4 * pieces;
  const EnginePlan half = Plan(options, config, free_bytes);
  EXPECT_EQ(half.kv.blocks, std::min<int64_t>(16000, free_bytes / 2 / block));
  EXPECT_EQ(half.kv.snapshots, 0);
  options.max_num_seqs = 1;
  const EnginePlan one = Plan(options, config, 20 * block + pieces / 1000);
  EXPECT_EQ(one.kv.blocks, 16);
}

TEST(EnginePlan, SnapshotsFitWhatIsGiven) {
  const ModelConfig config = Nano();
  const int64_t snapshot = SequenceLayout::FromConfig(config)->SnapshotBytes();
  EngineOptions options;
  options.snapshot_memory_bytes = 7 * snapshot + 1;
  EXPECT_EQ(Plan(options, config).kv.snapshots, 7);
  options.snapshot_memory_bytes = 0;
  options.max_num_seqs = 1;
  options.max_model_len = 1000;
  // A tenth of what is free.
  EXPECT_EQ(Plan(options, config, 100 * snapshot).kv.snapshots, 10);
  EXPECT_EQ(Plan(options, config, 10000 * snapshot).kv.snapshots, kRollingSnapshots + 64);
  options.prefix_cache = false;
  EXPECT_EQ(Plan(options, config).kv.snapshots, 0);
  EXPECT_FALSE(Plan(options, config).kv.prefix_cache);
}

TEST(EnginePlan, MoreThanIsFreeIsRefused) {
  EngineOptions options;
  options.kv_memory_bytes = 2 * kGigabyte;
  ExpectRefused(options, StatusCode::kResourceExhausted, {"1.0 GiB", "16 running", "8192", "max_num_seqs", "kv_memory"},
                kGigabyte);
  // One whole context is needed whatever is free.
  ExpectRefused({}, StatusCode::kResourceExhausted, {"max_model_len"}, 1 << 20);
  // Unknown: not judged.
  EXPECT_TRUE(PlanEngine(options, Nano(), 0).ok());
  EXPECT_TRUE(PlanEngine(options, Nano(), 16 * kGigabyte).ok());
}

}  // namespace
}  // namespace deepinfer
