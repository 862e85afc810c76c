#include "engine/engine_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/machine.h"

namespace deepinfer {
namespace {

/// Snapshots beside the rolling ones, for prefixes that nobody runs at the moment.
constexpr int64_t kIdleSnapshots = 64;

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// Drafts of a step at most: a step's rows can all be taken back.
int64_t MostDrafts(const ModelConfig& config) {
  return config.num_nextn_predict_layers > 0 ? std::min<int64_t>(config.dspark_block_size, SequenceState::kRollback - 1)
                                             : 0;
}

Status PlanReplaySettings(const EngineOptions& options, const ModelConfig& config, const SequenceLayout& layout,
                          EnginePlan* plan) {
  EngineOptions& chosen = plan->options;
  // Beside the window the kept suffix covers two steps' rows (spec serving.md 1.3); 12 for blocks of 5 drafts. It
  // depends on the model alone: results must not depend on the draft length.
  const int64_t rollback = std::max<int64_t>(12, 2 * (1 + MostDrafts(config)));
  const int64_t least = layout.window + rollback;
  if (chosen.replay_keep == 0) chosen.replay_keep = least;
  if (chosen.replay_keep < least) {
    return Status::InvalidArgument(
        fmt::format("replay_keep: expected at least {} (the window of {} tokens and a rollback of {}), found {}", least,
                    layout.window, rollback, chosen.replay_keep));
  }
  const int64_t replay = RoundUp(chosen.replay_keep, 2);
  if (chosen.replay_grid < replay || chosen.replay_grid % kKvBlockTokens != 0) {
    return Status::InvalidArgument(fmt::format("replay_grid: expected a multiple of {} that is at least {}, found {}",
                                               kKvBlockTokens, RoundUp(replay, kKvBlockTokens), options.replay_grid));
  }
  plan->bounded.bounded = true;
  plan->bounded.keep = chosen.replay_keep;
  plan->bounded.grid = chosen.replay_grid;
  plan->bounded.replay = replay;
  plan->exact.bounded = false;
  plan->exact.receptive_field = layout.ReceptiveField();
  DEEPINFER_RETURN_IF_ERROR(CheckReplaySettings(plan->bounded));
  return CheckReplaySettings(plan->exact);
}

// Of a GPU: what kernels, lists and the driver take. Temporaries of a step are taken, and counted, at the start.
constexpr int64_t kDeviceReserveBytes = int64_t{512} << 20;

/// The most layers that may stay on a GPU with `device` bytes; -1: not even none.
int64_t MostResidentLayers(const Checkpoint& checkpoint, WeightPlacement placement, int64_t device) {
  for (placement.resident_layers = checkpoint.config().num_hidden_layers - 1; placement.resident_layers >= 0;
       --placement.resident_layers) {
    if (TotalsOf(ListWeights(checkpoint, placement)).on_device() <= device) break;
  }
  return placement.resident_layers;
}

}  // namespace

WeightPlacement PlacementOf(const EngineOptions& options, const ModelConfig& config, const Ops& ops) {
  WeightPlacement placement;
  if (options.gpu_layers < config.num_hidden_layers) placement.resident_layers = options.gpu_layers;
  const bool one_memory = ops.computes_on_host_memory();
  placement.engram_on_device = options.engram == EngramPlace::kDevice && !one_memory;
  placement.engram_in_memory =
      options.engram == EngramPlace::kHost || (options.engram == EngramPlace::kDevice && one_memory);
  return placement;
}

int64_t TablesInHostMemory(const Checkpoint& checkpoint, const WeightPlacement& placement) {
  if (!placement.engram_in_memory) return 0;
  int64_t bytes = 0;
  for (const CheckpointWeight& weight : checkpoint.list()) bytes += weight.engram_table ? weight.view.total_bytes() : 0;
  return bytes;
}

Result<int64_t> LeaveRoomForTables(const Checkpoint& checkpoint, const WeightPlacement& placement, int64_t host) {
  const int64_t tables = TablesInHostMemory(checkpoint, placement);
  if (host == 0 || tables < host) return std::max<int64_t>(host - tables, 0);
  return Status::ResourceExhausted(
      fmt::format("engram: the tables take {} of host memory, {} are free; leave them on the disk", HumanBytes(tables),
                  HumanBytes(host)));
}

Result<FreeMemory> FindFreeMemory(const Ops& ops, const Checkpoint& checkpoint, const WeightPlacement& placement) {
  DEEPINFER_ASSIGN_OR_RETURN(const int64_t host, LeaveRoomForTables(checkpoint, placement, FindMemory().available));
  if (ops.computes_on_host_memory()) return FreeMemory{host, host, true};
  return LeaveRoomForWeights(checkpoint, placement, ops.free_bytes(), host);
}

Result<FreeMemory> LeaveRoomForWeights(const Checkpoint& checkpoint, const WeightPlacement& placement, int64_t device,
                                       int64_t host) {
  const WeightTotals totals = TotalsOf(ListWeights(checkpoint, placement));
  const int64_t room = device - kDeviceReserveBytes;
  if (totals.on_device() >= room) {
    const int64_t layers = MostResidentLayers(checkpoint, placement, room);
    return Status::ResourceExhausted(fmt::format(
        "device: the weights take {}{}, the GPU has {} free and {} are kept for kernels and lists; {}{}use --device "
        "cpu or a GPU with more memory",
        HumanBytes(totals.on_device()), placement.engram_on_device ? " with the tables of engram" : "",
        HumanBytes(device), HumanBytes(kDeviceReserveBytes),
        placement.engram_on_device ? "leave engram on the disk or the host, " : "",
        layers < 0 ? "" : fmt::format("lower gpu_layers ({} would leave the other layers in host memory), ", layers)));
  }
  if (host > 0 && totals.passing >= host) {
    return Status::ResourceExhausted(
        fmt::format("gpu_layers: the layers that do not stay on the GPU take {} of host memory, {} are free; raise it",
                    HumanBytes(totals.passing), HumanBytes(host)));
  }
  return FreeMemory{room - totals.on_device(), host > 0 ? host - totals.passing : 0, false};
}

Status CheckPlan(const std::vector<PlannedMemory>& lines, const FreeMemory& free) {
  int64_t device = 0;
  int64_t host = 0;
  int64_t tiers = 0;
  int64_t passing = 0;
  int64_t tables = 0;
  for (const PlannedMemory& line : lines) {
    if (line.key == "weights_passing") passing = line.bytes;
    if (line.key == "weights_engram") tables = line.bytes;
    if (!line.at_start || line.key.starts_with("weights")) continue;
    (line.on_device ? device : host) += line.bytes;
    if (line.key == "kv_tiers") tiers = line.bytes;
  }
  if (!free.is_one && free.device > 0 && device > free.device) {
    return Status::ResourceExhausted(
        fmt::format("the engine needs {} of the GPU's memory beside the weights, {} are free; lower max_num_seqs, "
                    "max_num_batched_tokens, max_model_len, kv_memory or gpu_layers",
                    HumanBytes(device), HumanBytes(free.device)));
  }
  if (free.is_one) host += device;
  if (free.host == 0 || host <= free.host) return Status::Ok();
  return Status::ResourceExhausted(
      fmt::format("the engine needs {} of memory{}, {} are free; lower {}{}", HumanBytes(host),
                  tables > 0 ? " beside the tables of engram" : "", HumanBytes(free.host),
                  tiers > host / 2 ? "kv_host_bytes, kv_disk_bytes or kv_shared_bytes (the index of a folder grows "
                                     "with its budget)"
                  : free.is_one    ? "max_num_seqs, max_num_batched_tokens, max_model_len or kv_memory"
                  : passing > 0    ? "max_num_seqs or snapshot_memory, or raise gpu_layers"
                                   : "max_num_seqs or snapshot_memory",
                  tables > 0 ? ", or leave engram on the disk" : ""));
}

Result<EnginePlan> PlanEngine(const EngineOptions& options, const ModelConfig& config, const FreeMemory& free) {
  DEEPINFER_RETURN_IF_ERROR(options.Validate());
  EnginePlan plan;
  plan.options = options;
  EngineOptions& chosen = plan.options;
  const std::shared_ptr<const SequenceLayout> layout = SequenceLayout::FromConfig(config);
  DEEPINFER_RETURN_IF_ERROR(PlanReplaySettings(options, config, *layout, &plan));

  if (chosen.threads == 0) chosen.threads = AvailableThreads();
  if (chosen.max_model_len > config.max_position_embeddings) {
    return Status::InvalidArgument(fmt::format("max_model_len: the model holds at most {} tokens, found {}",
                                               config.max_position_embeddings, chosen.max_model_len));
  }
  if (chosen.max_model_len == 0) chosen.max_model_len = config.max_position_embeddings;
  chosen.draft_length = static_cast<int>(std::min<int64_t>(chosen.draft_length, MostDrafts(config)));
  // A step has room for every sequence and for some prefill beside them.
  const int64_t decode_rows = chosen.max_num_seqs * (1 + chosen.draft_length);
  chosen.max_num_batched_tokens = std::max(chosen.max_num_batched_tokens, chosen.max_num_seqs + kKvBlockTokens);
  plan.encoder_cost = std::max(0.05, static_cast<double>(layout->first_decoder_layer) / layout->layers);
  const auto cheap_rows =
      static_cast<int64_t>(std::ceil(static_cast<double>(chosen.max_num_batched_tokens) / plan.encoder_cost));

  plan.model.activation = chosen.exact_activations ? ActivationFormat::kExact : ActivationFormat::kFp8Groups32;
  plan.model.max_rows_per_step =
      std::max({decode_rows + kKvBlockTokens, chosen.max_num_batched_tokens,
                chosen.replay == ReplayMode::kBounded ? std::min(cheap_rows, chosen.max_model_len) : int64_t{0}});
  plan.model.max_context = chosen.max_model_len;
  plan.model.max_logits_rows = decode_rows + std::max<int64_t>(chosen.max_num_seqs, 16);
  plan.model.max_draft_sequences = chosen.max_num_seqs;

  plan.executor.slots = chosen.max_num_seqs;
  plan.executor.max_model_len = chosen.max_model_len;
  plan.executor.drafts.draft_length = chosen.draft_length;
  plan.executor.drafts.variable_drafts = chosen.variable_drafts;
  plan.executor.drafts.rule = chosen.speculation_rule;
  plan.piece_bytes = layout->PieceBytes();

  KvManagerOptions& kv = plan.kv;
  kv.block_bytes = std::max<int64_t>(layout->BlockBytes(), 64);
  kv.snapshot_bytes = layout->SnapshotBytes();
  kv.prefix_cache = chosen.prefix_cache;
  const int64_t context_blocks = (chosen.max_model_len + 1 + kKvBlockTokens - 1) / kKvBlockTokens;
  const int64_t wanted_blocks = context_blocks * chosen.max_num_seqs;
  if (chosen.kv_memory_bytes > 0) {
    kv.blocks = chosen.kv_memory_bytes / kv.block_bytes;
    if (kv.blocks < 2) {
      return Status::InvalidArgument(
          fmt::format("kv_memory_bytes: expected at least {} (two blocks of {} tokens), found {}", 2 * kv.block_bytes,
                      kKvBlockTokens, chosen.kv_memory_bytes));
    }
  } else {
    // Half of what is free, but room for one whole context.
    const int64_t half = free.device > 0 ? free.device / 2 / kv.block_bytes : wanted_blocks;
    kv.blocks = std::max(context_blocks, std::min(wanted_blocks, half));
  }
  chosen.kv_memory_bytes = kv.blocks * kv.block_bytes;
  if (!chosen.prefix_cache) {
    kv.snapshots = 0;
  } else if (chosen.snapshot_memory_bytes > 0) {
    kv.snapshots = chosen.snapshot_memory_bytes / kv.snapshot_bytes;
  } else {
    const int64_t wanted = chosen.max_num_seqs * kRollingSnapshots + kIdleSnapshots;
    const int64_t tenth = free.host > 0 ? free.host / 10 / kv.snapshot_bytes : wanted;
    kv.snapshots = std::min(wanted, tenth);
  }
  chosen.snapshot_memory_bytes = kv.snapshots * kv.snapshot_bytes;

  const int64_t device = chosen.kv_memory_bytes + plan.piece_bytes * chosen.max_num_seqs;
  const int64_t needed = free.is_one ? device + chosen.snapshot_memory_bytes : device;
  if (free.device > 0 && needed > free.device) {
    return Status::ResourceExhausted(fmt::format(
        "the KV pool{} and {} running sequences need {} of memory{}, {} are free; lower max_model_len ({}), "
        "max_num_seqs{}",
        free.is_one ? ", snapshots" : "", chosen.max_num_seqs, HumanBytes(needed), free.is_one ? "" : " of the GPU",
        HumanBytes(free.device), chosen.max_model_len,
        free.is_one ? ", kv_memory or snapshot_memory" : ", kv_memory or gpu_layers"));
  }
  if (!free.is_one && free.host > 0 && chosen.snapshot_memory_bytes > free.host) {
    return Status::ResourceExhausted(
        fmt::format("ring snapshots need {} of host memory, {} are free; lower snapshot_memory",
                    HumanBytes(chosen.snapshot_memory_bytes), HumanBytes(free.host)));
  }
  return plan;
}

}  // namespace deepinfer
