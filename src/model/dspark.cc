#include "model/dspark.h"

#include <algorithm>
#include <cassert>

#include "model/attention.h"
#include "model/embedding.h"
#include "model/layer.h"
#include "model/model.h"

namespace deepinfer {

void DraftScratch::Reserve(int64_t sequences, int64_t block) {
  const auto count = static_cast<size_t>(sequences);
  const auto rows = static_cast<size_t>(sequences * block);
  rules.reserve(count);
  choices.reserve(count);
  previous.reserve(count);
  proposal_rows.reserve(rows);
  block_ids.reserve(static_cast<size_t>(block));
  ids.resize(rows);
  confidence.resize(rows);
}

void ExtendDraftRings(StepContext& context, const DraftWeights& weights, std::span<const float> plain_frequencies,
                      ConstFloatView taps, std::span<const DraftContext> items) {
  Ops& ops = context.ops;
  Step& step = context.step;
  const SequenceLayout& layout = items.front().sequence->layout();
  const int64_t slots = layout.ring_slots;
  // Rows that a ring cannot hold any more are not computed.
  const auto skipped = [slots](const DraftContext& item) { return std::max<int64_t>(0, item.row_count - slots); };

  step.row_ids.clear();
  step.sources.clear();
  step.destinations.clear();
  for (size_t s = 0; s < items.size(); ++s) {
    const DraftContext& item = items[s];
    for (int64_t i = skipped(item); i < item.row_count; ++i) {
      step.row_ids.push_back(static_cast<int32_t>(item.first_tap + i));
      step.sources.push_back(item.first_position + i);
      step.destinations.push_back(static_cast<int64_t>(s) * slots + (item.first_position + i) % slots);
    }
  }
  const int64_t count = std::ssize(step.row_ids);
  const DraftBuffers& buffers = context.workspace.draft;
  const FloatView input = buffers.taps.RowRange(0, count);
  const FloatView main = buffers.main.RowRange(0, count);
  const FloatView kv = buffers.kv.RowRange(0, count);
  const FloatView rope = context.workspace.step.plain_rope.RowRange(0, count);
  GatherFloatRows(ops, taps, step.row_ids, input);
  ops.RopeTable(step.sources, plain_frequencies, rope);
  ops.Linear(input, weights.main_proj, context.activation, 1, main);
  ops.RmsNorm(main, weights.main_norm, context.rms_eps(), main);
  for (int stage = 0; stage < layout.stages; ++stage) {
    WindowVectors(context, weights.stages[static_cast<size_t>(stage)].attention, main, rope, kv);
    step.pages.clear();
    for (const DraftContext& item : items) step.pages.push_back(item.sequence->DraftRing(stage).pages[0]);
    PackedRows rings = items.front().sequence->DraftRing(stage);
    rings.pages = step.pages.data();
    rings.device_pages = nullptr;
    ops.StoreRows(kv, rings, step.destinations);
  }
  for (const DraftContext& item : items) {
    SequenceState& sequence = *item.sequence;
    const bool continues = item.first_position == sequence.draft_end() && skipped(item) == 0;
    sequence.SetDraftRange(continues ? sequence.draft_begin() : item.first_position + skipped(item),
                           item.first_position + item.row_count);
  }
}

DraftResult RunDraftBlocks(StepContext& context, const Weights& weights, std::span<const float> plain_frequencies,
                           std::span<const DraftItem> items, int64_t length, DraftScratch* scratch) {
  const ModelConfig& config = context.config;
  Ops& ops = context.ops;
  Step& step = context.step;
  const int64_t block = config.dspark_block_size;
  const int64_t hidden = config.hidden_size;
  const int64_t sequences = std::ssize(items);
  const SequenceLayout& layout = items.front().sequence->layout();

  // The whole block goes through the stages whatever the length: its rows attend each other.
  step.Clear();
  scratch->block_ids.assign(static_cast<size_t>(block), static_cast<int32_t>(config.dspark_noise_token_id));
  for (const DraftItem& item : items) {
    scratch->block_ids[0] = item.token;
    step.Add(*item.sequence, item.sequence->draft_end(), scratch->block_ids);
  }
  ops.RopeTable(step.positions(), plain_frequencies, context.Rows(context.workspace.step.plain_rope));
  ConstFloatView pre = EmbedStreams(context, weights.embed);
  for (int stage = 0; stage < layout.stages; ++stage) {
    pre = RunLayer(context, layout.layers + stage, weights.mtp.stages[static_cast<size_t>(stage)], pre);
  }

  const DraftBuffers& buffers = context.workspace.draft;
  const FloatView normed = context.Rows(buffers.normed);
  const FloatView collapsed = context.Rows(buffers.collapsed);
  ops.CollapseNorm(context.Rows(context.workspace.step.streams), static_cast<int>(config.hc_mult), pre,
                   weights.mtp.norm, context.rms_eps(), normed, collapsed);
  scratch->proposal_rows.clear();
  for (int64_t k = 0; k < length; ++k) {
    for (int64_t s = 0; s < sequences; ++s) scratch->proposal_rows.push_back(static_cast<int32_t>(s * block + k));
  }
  const int64_t rows = length * sequences;
  const FloatView proposals = buffers.proposals.RowRange(0, rows);
  const FloatView confidence_input = buffers.confidence_input.RowRange(0, rows);
  const FloatView logits = buffers.logits.RowRange(0, rows);
  const FloatView confidence = buffers.confidence.RowRange(0, rows);
  GatherFloatRows(ops, normed, scratch->proposal_rows, proposals);
  GatherFloatRows(ops, collapsed, scratch->proposal_rows, confidence_input.ColumnRange(0, hidden));
  ops.Linear(proposals, weights.head, ActivationFormat::kExact, 1, logits);

  const FloatView markov = confidence_input.ColumnRange(hidden, hidden + config.dspark_markov_rank);
  const FloatView bias = buffers.bias.RowRange(0, sequences);
  scratch->previous.clear();
  scratch->rules.clear();
  for (const DraftItem& item : items) {
    scratch->previous.push_back(item.token);
    scratch->rules.push_back(item.rule);
    scratch->rules.back().top_logprobs = -1;
  }
  scratch->choices.resize(static_cast<size_t>(sequences));
  for (int64_t k = 0; k < length; ++k) {
    const FloatView embedded = markov.RowRange(k * sequences, (k + 1) * sequences);
    const FloatView proposal_logits = logits.RowRange(k * sequences, (k + 1) * sequences);
    ops.Embed(weights.mtp.markov_embed, scratch->previous, embedded);
    ops.Linear(embedded, weights.mtp.markov_head, ActivationFormat::kExact, 1, bias);
    ops.Add(bias, proposal_logits);
    for (int64_t s = 0; s < sequences; ++s) {
      const auto at = static_cast<size_t>(s);
      scratch->rules[at].position = items[at].sequence->draft_end() + 1 + k;
    }
    ops.ChooseTokens(proposal_logits, scratch->rules, scratch->choices);
    for (int64_t s = 0; s < sequences; ++s) {
      const auto at = static_cast<size_t>(s);
      // Logits that are no numbers give no proposal; any id will do, for verification refuses it or fails itself.
      scratch->previous[at] = std::max(scratch->choices[at].id, 0);
      scratch->ids[static_cast<size_t>(k * sequences + s)] = scratch->previous[at];
    }
  }
  ops.Linear(confidence_input, weights.mtp.confidence_proj, ActivationFormat::kExact, 1, confidence);
  assert(confidence.stride == 1);
  const auto count = static_cast<size_t>(rows);
  ops.CopyOut(confidence.data, scratch->confidence.data(), rows * static_cast<int64_t>(sizeof(float)));
  return {std::span(scratch->ids).first(count), std::span(scratch->confidence).first(count), logits};
}

}  // namespace deepinfer
