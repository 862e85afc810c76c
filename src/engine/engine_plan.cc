#include "engine/engine_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/machine.h"
#include "checkpoint/parameter_summary.h"

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

// Of a GPU: what kernels, temporaries and the driver take.
constexpr int64_t kDeviceReserveBytes = int64_t{1} << 30;

}  // namespace

Result<int64_t> FreeBytes(const Ops& ops, const Checkpoint& checkpoint) {
  if (ops.computes_on_host_memory()) return FindMemory().available;
  const int64_t weights =
      checkpoint.bytes() - SummariseParameters(checkpoint.config()).part(ModelPart::kEngramTables).bytes;
  const int64_t free = ops.free_bytes() - kDeviceReserveBytes - weights;
  if (free > 0) return free;
  return Status::ResourceExhausted(fmt::format(
      "device: the weights take {}, the GPU has {} free and {} are kept for temporaries; use --device cpu or "
      "a GPU with more memory",
      HumanBytes(weights), HumanBytes(ops.free_bytes()), HumanBytes(kDeviceReserveBytes)));
}

Result<EnginePlan> PlanEngine(const EngineOptions& options, const ModelConfig& config, int64_t free_bytes) {
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
    const int64_t half = free_bytes > 0 ? free_bytes / 2 / kv.block_bytes : wanted_blocks;
    kv.blocks = std::max(context_blocks, std::min(wanted_blocks, half));
  }
  chosen.kv_memory_bytes = kv.blocks * kv.block_bytes;
  if (!chosen.prefix_cache) {
    kv.snapshots = 0;
  } else if (chosen.snapshot_memory_bytes > 0) {
    kv.snapshots = chosen.snapshot_memory_bytes / kv.snapshot_bytes;
  } else {
    const int64_t wanted = chosen.max_num_seqs * kRollingSnapshots + kIdleSnapshots;
    const int64_t tenth = free_bytes > 0 ? free_bytes / 10 / kv.snapshot_bytes : wanted;
    kv.snapshots = std::min(wanted, tenth);
  }
  chosen.snapshot_memory_bytes = kv.snapshots * kv.snapshot_bytes;

  const int64_t needed = chosen.kv_memory_bytes + chosen.snapshot_memory_bytes + plan.piece_bytes * chosen.max_num_seqs;
  if (free_bytes > 0 && needed > free_bytes) {
    return Status::ResourceExhausted(fmt::format(
        "the KV pool, snapshots and {} running sequences need {} of memory, {} are free; lower max_model_len ({}), "
        "max_num_seqs or kv_memory",
        chosen.max_num_seqs, HumanBytes(needed), HumanBytes(free_bytes), chosen.max_model_len));
  }
  return plan;
}

}  // namespace deepinfer
