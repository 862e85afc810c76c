#include "model/dspark.h"

#include <algorithm>

#include "model/attention.h"
#include "model/embedding.h"
#include "model/layer.h"
#include "model/model.h"

namespace deepinfer {
namespace {

// The largest value; the lowest id among equals.
int32_t ArgMax(const float* values, int64_t count) {
  return static_cast<int32_t>(std::max_element(values, values + count) - values);
}

}  // namespace

void ExtendDraftRings(StepContext& context, const DraftWeights& weights, std::span<const float> plain_frequencies,
                      SequenceState& sequence, ConstFloatView taps, int64_t first_position) {
  const int64_t end = first_position + taps.rows;
  const int64_t slots = sequence.layout().ring_slots;
  const bool continues = first_position == sequence.draft_end();
  // Rows that the ring cannot hold any more are not computed.
  const int64_t skipped = std::max<int64_t>(0, taps.rows - slots);
  const int64_t count = taps.rows - skipped;
  const int64_t begin = first_position + skipped;
  const ConstFloatView input = taps.RowRange(skipped, taps.rows);

  Ops& ops = context.ops;
  Step& step = context.step;
  const FloatView main = context.workspace.draft.main.RowRange(0, count);
  const FloatView kv = context.workspace.draft.kv.RowRange(0, count);
  const FloatView rope = context.workspace.step.plain_rope.RowRange(0, count);
  step.sources.clear();
  step.destinations.clear();
  for (int64_t row = 0; row < count; ++row) {
    step.sources.push_back(begin + row);
    step.destinations.push_back((begin + row) % slots);
  }
  ops.RopeTable(step.sources, plain_frequencies, rope);
  ops.Linear(input, weights.main_proj, context.activation, 1, main);
  ops.RmsNorm(main, weights.main_norm, context.rms_eps(), main);
  for (int stage = 0; stage < sequence.layout().stages; ++stage) {
    WindowVectors(context, weights.stages[static_cast<size_t>(stage)].attention, main, rope, kv);
    ops.StoreRows(kv, sequence.DraftRing(stage), step.destinations);
  }
  sequence.SetDraftRange(continues && skipped == 0 ? sequence.draft_begin() : begin, end);
}

void RunDraftBlock(StepContext& context, const Weights& weights, std::span<const float> plain_frequencies,
                   SequenceState& sequence, int32_t token, Draft* draft) {
  const ModelConfig& config = context.config;
  Ops& ops = context.ops;
  Step& step = context.step;
  const int64_t block = config.dspark_block_size;
  const int64_t vocabulary = config.vocab_size;
  const int64_t hidden = config.hidden_size;

  step.row_ids.assign(static_cast<size_t>(block), static_cast<int32_t>(config.dspark_noise_token_id));
  step.row_ids[0] = token;
  step.Clear();
  step.Add(sequence, sequence.draft_end(), step.row_ids);
  ops.RopeTable(step.positions(), plain_frequencies, context.Rows(context.workspace.step.plain_rope));

  ConstFloatView pre = EmbedStreams(context, weights.embed);
  for (int stage = 0; stage < sequence.layout().stages; ++stage) {
    pre = RunLayer(context, sequence.layout().layers + stage, weights.mtp.stages[static_cast<size_t>(stage)], pre);
  }

  const DraftBuffers& buffers = context.workspace.draft;
  const FloatView collapsed = buffers.confidence_input.ColumnRange(0, hidden);
  const FloatView markov = buffers.confidence_input.ColumnRange(hidden, hidden + config.dspark_markov_rank);
  ops.CollapseNorm(context.Rows(context.workspace.step.streams), static_cast<int>(config.hc_mult), pre,
                   weights.mtp.norm, context.rms_eps(), buffers.normed, collapsed);
  ops.Linear(buffers.normed, weights.head, ActivationFormat::kExact, 1, buffers.logits);

  draft->ids.clear();
  int32_t previous = token;
  for (int64_t i = 0; i < block; ++i) {
    const FloatView row = markov.RowRange(i, i + 1);
    const FloatView logits = buffers.logits.RowRange(i, i + 1);
    ops.Embed(weights.mtp.markov_embed, std::span(&previous, 1), row);
    ops.Linear(row, weights.mtp.markov_head, ActivationFormat::kExact, 1, buffers.bias);
    ops.Add(buffers.bias, logits);
    previous = ArgMax(logits.data, vocabulary);
    draft->ids.push_back(previous);
  }
  ops.Linear(buffers.confidence_input, weights.mtp.confidence_proj, ActivationFormat::kExact, 1, buffers.confidence);
  draft->confidence.assign(buffers.confidence.data, buffers.confidence.data + block);
  draft->logits.assign(buffers.logits.data, buffers.logits.data + block * vocabulary);
}

}  // namespace deepinfer
