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

// Moves the newest raw rows of every sequence into its tail.
void KeepTails(StepContext& context, int32_t tail_slot, ConstFloatView raw) {
  Step& step = context.step;
  step.copy_from.clear();
  step.copy_to.clear();
  for (const StepItem& item : step.items()) {
    const FloatView tail = item.sequence->Tail(tail_slot);
    const int64_t end = item.first_position + item.row_count;
    for (int64_t position = std::max(item.first_position, end - tail.rows); position < end; ++position) {
      step.copy_from.push_back(raw.row(item.first_row + position - item.first_position));
      step.copy_to.push_back(tail.row(position % tail.rows));
    }
  }
  context.ops.CopyFloats(step.copy_from, raw.columns, step.copy_to);
}

// Stores rows [count, .] of the step as the newest rows of each sequence's `pages`, but for those that a cached prefix
// holds already: a run of rows without a gap at once, which is all of them where nothing is recomputed.
template <typename PagesOf>
void StoreGroups(StepContext& context, int32_t ratio, ConstFloatView rows, const PagesOf& pages_of) {
  Step& step = context.step;
  PackedRows pages;
  int64_t first_of_run = 0;
  const auto store = [&] {
    const int64_t count = std::ssize(step.destinations);
    pages.pages = step.pages.data();
    pages.device_pages = nullptr;
    context.ops.StoreRows(rows.RowRange(first_of_run, first_of_run + count), pages, step.destinations);
    step.pages.clear();
    step.destinations.clear();
  };
  step.pages.clear();
  step.destinations.clear();
  for (const StepItem& item : step.items()) {
    const int64_t first_row = ratio == 1 ? item.first_row : item.first_pair_row;
    const int64_t count = ratio == 1 ? item.row_count : item.pair_count;
    const int64_t first_group = ratio == 1 ? item.first_position : item.first_pair;
    const int64_t cached = std::clamp<int64_t>(item.sequence->kv_floor() / ratio - first_group, 0, count);
    if (cached > 0 && !step.destinations.empty()) store();
    if (count == cached) continue;
    pages = pages_of(*item.sequence);
    if (step.destinations.empty()) first_of_run = first_row + cached;
    const int64_t per_page = pages.rows_per_page;
    int64_t last_page = -1;
    for (int64_t group = first_group + cached; group < first_group + count; ++group) {
      if (group / per_page != last_page) {
        last_page = group / per_page;
        step.pages.push_back(pages.pages[last_page]);
      }
      step.destinations.push_back((std::ssize(step.pages) - 1) * per_page + group % per_page);
    }
  }
  if (!step.destinations.empty()) store();
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
