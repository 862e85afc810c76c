#include "model/attention.h"

#include <algorithm>
#include <cmath>

#include "model/indexer.h"

namespace deepinfer {
namespace {

// The keys of every sequence of the step, as `layer` sees them.
void ListSequences(StepContext& context, int layer) {
  const ModelConfig& config = context.config;
  const bool stage = config.IsStage(layer);
  context.step.attention.clear();
  for (const StepItem& item : context.step.items()) {
    if (item.row_count == 0) continue;
    const SequenceState& state = *item.sequence;
    const SequenceLayout& layout = state.layout();
    AttentionSequence sequence;
    sequence.first_row = item.first_row;
    sequence.row_count = item.row_count;
    sequence.first_position = item.first_position;
    sequence.ring_slots = layout.ring_slots;
    sequence.fresh = context.workspace.FreshRows(item.first_row);
    if (stage) {
      sequence.ring = state.DraftRing(layer - layout.layers);
      sequence.window_start = state.draft_begin();
      sequence.whole_block = true;
    } else {
      sequence.ring = state.WindowRing(layer);
      sequence.window_start = state.window_start(layer);
      const int32_t source = layout.source_of_layer[static_cast<size_t>(layer)];
      if (source >= 0) sequence.compressed = state.CompressedRows(source);
    }
    context.step.attention.push_back(sequence);
  }
}

// Moves the newest fresh rows of every sequence into its ring.
void KeepWindowRows(StepContext& context, int layer) {
  Step& step = context.step;
  const SequenceLayout& layout = step.items().front().sequence->layout();
  const int64_t slots = layout.ring_slots;
  step.pages.clear();
  step.sources.clear();
  step.destinations.clear();
  for (const StepItem& item : step.items()) {
    const int64_t kept = std::min<int64_t>(item.row_count, slots);
    for (int64_t row = item.row_count - kept; row < item.row_count; ++row) {
      step.sources.push_back(item.first_row + row);
      step.destinations.push_back(std::ssize(step.pages) * slots + (item.first_position + row) % slots);
    }
    step.pages.push_back(item.sequence->WindowRing(layer).pages[0]);
  }
  PackedRows rings = step.items().front().sequence->WindowRing(layer);
  rings.pages = step.pages.data();
  rings.device_pages = nullptr;
  context.ops.CopyRows(context.workspace.FreshRows(0), step.sources, rings, step.destinations);
}

}  // namespace

void WindowVectors(StepContext& context, const AttentionWeights& weights, ConstFloatView input, ConstFloatView rope,
                   FloatView kv) {
  context.ops.Linear(input, weights.wkv, context.activation, 1, kv);
  context.ops.RmsNorm(kv, weights.kv_norm, context.rms_eps(), kv);
  context.ops.Rope(kv, 1, rope, false);
}

void Attend(StepContext& context, int layer, const AttentionWeights& weights, ConstFloatView input, FloatView output) {
  const ModelConfig& config = context.config;
  Ops& ops = context.ops;
  const AttentionBuffers& buffers = context.workspace.attention;
  const FloatView query_latent = context.Rows(buffers.query_latent);
  const FloatView queries = context.Rows(buffers.queries);
  const FloatView attended = context.Rows(buffers.attended);
  const FloatView kv = context.Rows(buffers.kv);
  const FloatView output_latent = context.Rows(buffers.output_latent);
  const FloatView rope = context.RopeOf(layer);
  const int heads = static_cast<int>(config.num_attention_heads);

  ops.LinearPair(input, weights.wq_a, weights.wkv, context.activation, query_latent, kv);
  ops.RmsNorm(query_latent, weights.q_norm, context.rms_eps(), query_latent);
  ops.Linear(query_latent, weights.wq_b, context.activation, 1, queries);
  ops.FinishQueriesAndKeys(queries, heads, kv, weights.kv_norm, context.rms_eps(), rope, context.workspace.FreshRows(0),
                           context.step.Iota(context.rows()));

  const bool compressed = config.ratio(layer) > 0;
  if (compressed && config.IsIndexSource(layer))
    SelectCompressedRows(context, layer, *weights.indexer, input, query_latent);

  ListSequences(context, layer);
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  ops.AttentionRotatedBack(queries, heads, context.step.attention, static_cast<int>(config.sliding_window),
                           compressed ? SelectionOf(context) : SelectedRows(), weights.attn_sink, scale, rope,
                           attended);
  if (!config.IsStage(layer)) KeepWindowRows(context, layer);

  // The official converter keeps wo_a for unquantised activations (spec c.1).
  ops.Linear(attended, weights.wo_a, ActivationFormat::kExact, static_cast<int>(config.o_groups), output_latent);
  ops.Linear(output_latent, weights.wo_b, context.activation, 1, output);
}

}  // namespace deepinfer
