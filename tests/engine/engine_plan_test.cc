#include "engine/engine_plan.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "checkpoint/parameter_summary.h"

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
  Result<EnginePlan> plan = PlanEngine(options, config, {free_bytes, free_bytes});
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? std::move(*plan) : EnginePlan();
}

/// The plan is refused, and the message has all of these.
void ExpectRefused(const EngineOptions& options, StatusCode code, const std::vector<std::string>& parts,
                   int64_t free_bytes = 0) {
  const Result<EnginePlan> plan = PlanEngine(options, Nano(), {free_bytes, free_bytes});
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
  refused([](EngineOptions& o) { o.threads = 5000; }, {"threads", "1024", "5000"});
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
  ExpectRefused(options, StatusCode::kResourceExhausted,
                {"1.0 GiB", "16 running", "8192", "max_num_seqs", "kv_memory", "snapshot_memory"}, kGigabyte);
  // One whole context is needed whatever is free.
  ExpectRefused({}, StatusCode::kResourceExhausted, {"max_model_len"}, 1 << 20);
  // Unknown: not judged.
  EXPECT_TRUE(PlanEngine(options, Nano(), {}).ok());
  EXPECT_TRUE(PlanEngine(options, Nano(), {16 * kGigabyte, 16 * kGigabyte}).ok());
}

// A GPU of any size, without one: what is left of it and of the host beside the weights.
class PlanOnGpu : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    Result<Checkpoint> nano = Checkpoint::Open(std::filesystem::path(DEEPINFER_SOURCE_DIR) / "models/nano");
    ASSERT_TRUE(nano.ok()) << nano.status().message();
    checkpoint = std::make_unique<Checkpoint>(std::move(*nano));
  }
  static void TearDownTestSuite() { checkpoint.reset(); }
  static WeightTotals Totals(const WeightPlacement& placement) { return TotalsOf(ListWeights(*checkpoint, placement)); }
  static void ExpectNoRoom(const Result<FreeMemory>& room, const std::vector<std::string>& parts) {
    ASSERT_FALSE(room.ok());
    EXPECT_EQ(room.status().code(), StatusCode::kResourceExhausted);
    for (const std::string& part : parts) {
      EXPECT_NE(room.status().message().find(part), std::string::npos) << part << "\nin: " << room.status().message();
    }
  }

  static inline std::unique_ptr<Checkpoint> checkpoint;
};

TEST_F(PlanOnGpu, EveryWeightIsListedOnce) {
  const WeightTotals all = Totals({});
  EXPECT_EQ(all.passing, 0);
  EXPECT_EQ(all.window, 0);
  WeightPlacement with_tables;
  with_tables.engram_on_device = true;
  const WeightList list = ListWeights(*checkpoint, with_tables);
  int64_t bytes = 0;
  std::set<const uint8_t*> addresses;
  std::map<const uint8_t*, WeightBytes> kinds;
  for (const ListedBytes& weight : list) {
    bytes += weight.bytes;
    EXPECT_TRUE(addresses.insert(weight.data).second);
    kinds[weight.data] = weight.kind;
  }
  // Codes of FP4, and nothing else, are marked as such.
  int64_t fp4 = 0;
  for (const CheckpointWeight& weight : checkpoint->list()) {
    const bool is_fp4 = weight.view.format == WeightFormat::kF4Row32;
    fp4 += is_fp4;
    EXPECT_EQ(kinds.at(weight.view.data) == WeightBytes::kFp4Codes, is_fp4);
    if (weight.view.scale == nullptr) continue;
    EXPECT_EQ(kinds.at(weight.view.scale), WeightBytes::kPlain);
  }
  EXPECT_GT(fp4, 0);
  // Files have headers beside tensors.
  EXPECT_EQ(bytes, SummariseParameters(checkpoint->config()).total.bytes);
  EXPECT_LT(bytes, checkpoint->bytes());
  EXPECT_GT(Totals(with_tables).resident, all.resident);
}

TEST_F(PlanOnGpu, FurtherLayersPass) {
  const WeightTotals all = Totals({});
  const int64_t layers = checkpoint->config().num_hidden_layers;
  int64_t passing = 0;
  for (int64_t resident = layers; resident >= 0; --resident) {
    WeightPlacement placement;
    placement.resident_layers = resident;
    const WeightTotals totals = Totals(placement);
    EXPECT_EQ(totals.resident + totals.passing, all.resident);
    EXPECT_EQ(totals.passing > passing, resident < layers) << resident;
    EXPECT_LE(totals.window, totals.passing);
    EXPECT_EQ(totals.window == totals.passing, resident >= layers - 1) << resident;
    passing = totals.passing;
    for (const ListedBytes& weight : ListWeights(*checkpoint, placement)) {
      if (!weight.resident) {
        EXPECT_GE(weight.layer, resident);
      }
    }
  }
}

TEST_F(PlanOnGpu, RoomBesideTheWeights) {
  const WeightTotals all = Totals({});
  const Result<FreeMemory> room = LeaveRoomForWeights(*checkpoint, {}, kGigabyte + all.resident, 4 * kGigabyte);
  ASSERT_TRUE(room.ok()) << room.status().message();
  EXPECT_FALSE(room->is_one);
  EXPECT_EQ(room->device, kGigabyte / 2);  // half a gigabyte is kept for kernels and lists
  EXPECT_EQ(room->host, 4 * kGigabyte);
  WeightPlacement half;
  half.resident_layers = checkpoint->config().num_hidden_layers / 2;
  const WeightTotals totals = Totals(half);
  const Result<FreeMemory> more = LeaveRoomForWeights(*checkpoint, half, kGigabyte + all.resident, 4 * kGigabyte);
  ASSERT_TRUE(more.ok()) << more.status().message();
  EXPECT_EQ(more->device, kGigabyte / 2 + all.resident - totals.on_device());
  EXPECT_EQ(more->host, 4 * kGigabyte - totals.passing);
}

TEST_F(PlanOnGpu, NoRoomSaysHowManyLayersFit) {
  const WeightTotals all = Totals({});
  const int64_t layers = checkpoint->config().num_hidden_layers;
  ExpectNoRoom(LeaveRoomForWeights(*checkpoint, {}, kGigabyte / 2 + all.resident, kGigabyte),
               {"device: the weights take", "--device cpu", "512.0 MiB", "lower gpu_layers"});
  WeightPlacement with_tables;
  with_tables.engram_on_device = true;
  ExpectNoRoom(LeaveRoomForWeights(*checkpoint, with_tables, kGigabyte / 2 + all.resident, kGigabyte),
               {"with the tables of engram", "leave engram on the disk"});
  // What it says fits, and one more does not.
  for (int64_t fits = 0; fits < layers - 1; ++fits) {
    WeightPlacement placement;
    placement.resident_layers = fits;
    const int64_t device = kGigabyte / 2 + Totals(placement).on_device() + 1;
    EXPECT_TRUE(LeaveRoomForWeights(*checkpoint, placement, device, 4 * kGigabyte).ok());
    placement.resident_layers = fits + 1;
    if (Totals(placement).on_device() < device) continue;
    ExpectNoRoom(LeaveRoomForWeights(*checkpoint, {}, device, kGigabyte),
                 {"lower gpu_layers (" + std::to_string(fits) + " would"});
  }
  const Result<FreeMemory> tiny = LeaveRoomForWeights(*checkpoint, {}, 1000, kGigabyte);
  ExpectNoRoom(tiny, {"1000 B free"});
  EXPECT_EQ(tiny.status().message().find("gpu_layers"), std::string::npos);
  WeightPlacement none;
  none.resident_layers = 0;
  ExpectNoRoom(LeaveRoomForWeights(*checkpoint, none, 4 * kGigabyte, 1000), {"gpu_layers: ", "1000 B are free"});
}

TEST_F(PlanOnGpu, GpuAndHostAreApart) {
  EngineOptions options;
  options.max_num_seqs = 2;
  const FreeMemory plenty{kGigabyte, kGigabyte, false};
  const Result<EnginePlan> plan = PlanEngine(options, checkpoint->config(), plenty);
  ASSERT_TRUE(plan.ok());
  const int64_t device = plan->options.kv_memory_bytes + 2 * plan->piece_bytes;
  // Snapshots are host memory: the GPU needs none for them.
  options.kv_memory_bytes = plan->options.kv_memory_bytes;
  options.snapshot_memory_bytes = plan->options.snapshot_memory_bytes;
  EXPECT_TRUE(PlanEngine(options, checkpoint->config(), {device, options.snapshot_memory_bytes, false}).ok());
  const Result<EnginePlan> small = PlanEngine(options, checkpoint->config(), {device - 1, kGigabyte, false});
  ASSERT_FALSE(small.ok());
  EXPECT_NE(small.status().message().find("of the GPU"), std::string::npos) << small.status().message();
  EXPECT_NE(small.status().message().find("gpu_layers"), std::string::npos);
  const Result<EnginePlan> host = PlanEngine(options, checkpoint->config(), {kGigabyte, 1000, false});
  ASSERT_FALSE(host.ok());
  EXPECT_NE(host.status().message().find("snapshot_memory"), std::string::npos) << host.status().message();
}

TEST_F(PlanOnGpu, TablesInHostMemoryLeaveTheRest) {
  int64_t tables = 0;
  for (const CheckpointWeight& weight : checkpoint->list()) {
    if (weight.engram_table) tables += weight.view.total_bytes();
  }
  ASSERT_GT(tables, 0);
  EXPECT_EQ(TablesInHostMemory(*checkpoint, {}), 0);
  EXPECT_EQ(*LeaveRoomForTables(*checkpoint, {}, 1), 1);
  WeightPlacement placement;
  placement.engram_in_memory = true;
  EXPECT_EQ(TablesInHostMemory(*checkpoint, placement), tables);
  EXPECT_EQ(*LeaveRoomForTables(*checkpoint, placement, tables + 5), 5);
  EXPECT_EQ(*LeaveRoomForTables(*checkpoint, placement, 0), 0);  // the system does not say
  const Result<int64_t> none = LeaveRoomForTables(*checkpoint, placement, tables);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(none.status().message().starts_with("engram: the tables take ")) << none.status().message();
  // They are read with a total of their own, by which LoadBar knows them.
  const std::unique_ptr<Ops> ops = MakeCpuOps(1);
  std::set<int64_t> totals;
  int64_t read = 0;
  ASSERT_TRUE(PlaceWeights(*checkpoint, placement, *ops, [&](int64_t done, int64_t total) {
                totals.insert(total);
                read = done;
              }).ok());
  EXPECT_EQ(totals, std::set<int64_t>{tables});
  EXPECT_EQ(read, tables);
}

TEST(CheckPlan, TablesAreASuggestionAndNoPartOfTheSum) {
  const std::vector<PlannedMemory> lines = {{"snapshots", "", 30}, {"weights_engram", "", 500}};
  EXPECT_TRUE(CheckPlan(lines, {30, 30, true}).ok());
  const Status status = CheckPlan(lines, {29, 29, true});
  EXPECT_NE(status.message().find("30 B of memory beside the tables of engram, 29 B are free"), std::string::npos)
      << status.message();
  EXPECT_TRUE(status.message().ends_with(", or leave engram on the disk")) << status.message();
}

TEST(CheckPlan, LinesOfEitherMemory) {
  std::vector<PlannedMemory> lines = {
      {"weights", "", 1000, true, true}, {"kv_pool", "", 60, true, true}, {"snapshots", "", 30},
      {"grammars", "", 500, false},      {"weights_passing", "", 4000},   {"temporaries", "", 10, true, true}};
  EXPECT_TRUE(CheckPlan(lines, {70, 30, false}).ok());
  EXPECT_TRUE(CheckPlan(lines, {0, 0, false}).ok());
  const Status device = CheckPlan(lines, {69, 30, false});
  EXPECT_EQ(device.code(), StatusCode::kResourceExhausted);
  for (const char* part : {"70 B", "69 B", "gpu_layers", "kv_memory", "GPU"}) {
    EXPECT_NE(device.message().find(part), std::string::npos) << device.message();
  }
  const Status host = CheckPlan(lines, {70, 29, false});
  for (const char* part : {"snapshot_memory", "raise gpu_layers"}) {
    EXPECT_NE(host.message().find(part), std::string::npos) << host.message();
  }
  // On a CPU everything is one memory.
  for (PlannedMemory& line : lines) line.on_device = false;
  EXPECT_TRUE(CheckPlan(lines, {100, 100, true}).ok());
  EXPECT_FALSE(CheckPlan(lines, {99, 99, true}).ok());
}

}  // namespace
}  // namespace deepinfer
