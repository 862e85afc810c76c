#include "model/compressor.h"

#include <algorithm>

namespace deepinfer {
namespace {

// Lists the two raw rows of each pair: from the step where they are fresh, else from the tail.
void ListPairs(StepContext& context, int32_t tail_slot, ConstFloatView raw) {
  Step& step = context.step;
  step.first_of_pair.clear();
  step.second_of_pair.clear();
  for (const StepItem& item : step.items()) {
    const FloatView tail = item.sequence->Tail(tail_slot);
    const auto row_of = [&](int64_t position) -> const float* {
      const int64_t offset = position - item.first_position;
      return offset >= 0 ? raw.row(item.first_row + offset) : tail.row(position % tail.rows);
    };
    for (int64_t pair = item.first_pair; pair < item.first_pair + item.pair_count; ++pair) {
      step.first_of_pair.push_back(row_of(2 * pair));
      step.second_of_pair.push_back(row_of(2 * pair + 1));
    }
  }
}

// Moves the newest raw rows of every sequence into its tail: at most two runs of consecutive slots.
void KeepTails(StepContext& context, int32_t tail_slot, ConstFloatView raw) {
  Step& step = context.step;
  for (const StepItem& item : step.items()) {
    const FloatView tail = item.sequence->Tail(tail_slot);
    const int64_t end = item.first_position + item.row_count;
    int64_t position = std::max(item.first_position, end - tail.rows);
    while (position < end) {
      const int64_t slot = position % tail.rows;
      const int64_t count = std::min(end - position, tail.rows - slot);
      step.row_ids.clear();
      for (int64_t i = 0; i < count; ++i) {
        step.row_ids.push_back(static_cast<int32_t>(item.first_row + position + i - item.first_position));
      }
      GatherFloatRows(context.ops, raw, step.row_ids, tail.RowRange(slot, slot + count));
      position += count;
    }
  }
}

// Stores rows [count, .] of the step as the newest rows of each sequence's `pages`, but for those that a cached prefix
// holds already.
template <typename PagesOf>
void StoreGroups(StepContext& context, int32_t ratio, ConstFloatView rows, const PagesOf& pages_of) {
  Step& step = context.step;
  for (const StepItem& item : step.items()) {
    int64_t first_row = ratio == 1 ? item.first_row : item.first_pair_row;
    int64_t count = ratio == 1 ? item.row_count : item.pair_count;
    int64_t first_group = ratio == 1 ? item.first_position : item.first_pair;
    const int64_t cached = std::clamp<int64_t>(item.sequence->kv_floor() / ratio - first_group, 0, count);
    first_row += cached;
    first_group += cached;
    count -= cached;
    if (count == 0) continue;
    step.destinations.clear();
    for (int64_t i = 0; i < count; ++i) step.destinations.push_back(first_group + i);
    context.ops.StoreRows(rows.RowRange(first_row, first_row + count), pages_of(*item.sequence), step.destinations);
  }
}

}  // namespace

void PublishCompressedRows(StepContext& context, int layer, const AttentionWeights& weights, ConstFloatView input) {
  const ModelConfig& config = context.config;
  Ops& ops = context.ops;
  Step& step = context.step;
  const AttentionBuffers& buffers = context.workspace.attention;
  const CompressorWeights& compressor = *weights.compressor;
  const SequenceLayout& layout = step.items().front().sequence->layout();
  const int32_t source = layout.source_of_layer[static_cast<size_t>(layer)];
  const int32_t ratio = config.ratio(layer);
  const int64_t groups = ratio == 1 ? step.rows() : std::ssize(step.pair_positions());
  const FloatView latent = buffers.latent.RowRange(0, groups);
  const FloatView key = buffers.index_key.RowRange(0, groups);
  const FloatView rope = ratio == 1 ? context.RopeOf(layer) : context.workspace.step.pair_rope.RowRange(0, groups);

  if (ratio == 1) {
    ops.Linear(input, compressor.wkv, ActivationFormat::kExact, 1, latent);
  } else {
    const FloatView raw = context.Rows(buffers.raw);
    const int32_t tail_slot = layout.sources[static_cast<size_t>(source)].tail_slot;
    ops.Linear(input, compressor.wkv, ActivationFormat::kExact, 1, raw.ColumnRange(0, config.head_dim));
    ops.Linear(input, compressor.wgate, ActivationFormat::kExact, 1,
               raw.ColumnRange(config.head_dim, 2 * config.head_dim));
    ListPairs(context, tail_slot, raw);
    ops.PoolPairs(step.first_of_pair, step.second_of_pair, latent);
    KeepTails(context, tail_slot, raw);
  }
  if (groups == 0) return;

  ops.RmsNorm(latent, compressor.norm, context.rms_eps(), latent);
  // The key comes from the latent before its rotation.
  ops.Linear(latent, weights.indexer->wk, ActivationFormat::kExact, 1, key);
  ops.RmsNorm(key, weights.indexer->k_norm, context.rms_eps(), key);
  ops.Rope(key, 1, rope, false);
  ops.Rope(latent, 1, rope, false);
  StoreGroups(context, ratio, key, [source](const SequenceState& state) { return state.IndexKeys(source); });
  StoreGroups(context, ratio, latent, [source](const SequenceState& state) { return state.CompressedRows(source); });
}

}  // namespace deepinfer
