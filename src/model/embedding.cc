#include "model/embedding.h"

namespace deepinfer {

FloatView EmbedStreams(StepContext& context, const WeightMatrix& table) {
  const int64_t hidden = context.config.hidden_size;
  const FloatView streams = context.Rows(context.workspace.step.streams);
  for (int64_t stream = 0; stream < context.config.hc_mult; ++stream) {
    context.ops.Embed(table, context.step.ids(), streams.ColumnRange(stream * hidden, (stream + 1) * hidden));
  }
  return context.Rows(context.workspace.step.first_pre);
}

FloatView ComputeLogits(StepContext& context, const Weights& weights, ConstFloatView pre,
                        std::span<const int32_t> rows) {
  const int64_t count = std::ssize(rows);
  const FloatView logits = context.workspace.result.logits.RowRange(0, count);
  if (count == 0) return logits;
  const HeadBuffers& buffers = context.workspace.head;
  const FloatView normed = buffers.normed.RowRange(0, count);
  ConstFloatView streams = context.Rows(context.workspace.step.streams);
  if (count < context.rows()) {
    const FloatView kept_streams = buffers.streams.RowRange(0, count);
    const FloatView kept_pre = buffers.pre.RowRange(0, count).ColumnRange(0, pre.columns);
    GatherFloatRows(context.ops, streams, rows, kept_streams);
    GatherFloatRows(context.ops, pre, rows, kept_pre);
    streams = kept_streams;
    pre = kept_pre;
  }
  context.ops.CollapseNorm(streams, static_cast<int>(context.config.hc_mult), pre, weights.norm, context.rms_eps(),
                           normed, FloatView());
  context.ops.Linear(normed, weights.head, ActivationFormat::kExact, 1, logits);
  return logits;
}

void TapStreams(StepContext& context, int slot) {
  const int64_t hidden = context.config.hidden_size;
  const FloatView taps = context.Rows(context.workspace.result.taps);
  context.ops.MeanStreams(context.Rows(context.workspace.step.streams), static_cast<int>(context.config.hc_mult),
                          taps.ColumnRange(slot * hidden, (slot + 1) * hidden));
}

}  // namespace deepinfer
