#include "model/layer.h"

#include "model/attention.h"
#include "model/compressor.h"
#include "model/feed_forward.h"
#include "model/hyper_connection.h"

namespace deepinfer {

void PublishLayer(StepContext& context, int layer, const LayerWeights& weights, ConstFloatView pre) {
  const FloatView input = context.Rows(context.workspace.step.input);
  SublayerInput(context, pre, weights.attn_norm, input);
  PublishCompressedRows(context, layer, weights.attention, input);
}

FloatView RunLayer(StepContext& context, int layer, const LayerWeights& weights, ConstFloatView pre, bool publish) {
  const StepBuffers& buffers = context.workspace.step;
  const FloatView attention_mix = context.Rows(buffers.attention_mix);
  const FloatView feed_forward_mix = context.Rows(buffers.feed_forward_mix);
  const FloatView input = context.Rows(buffers.input);
  const FloatView output = context.Rows(buffers.output);

  // Each sublayer collapses with the coefficients of the one before it, then writes back with its own. `pre` may be
  // feed_forward_mix itself, so it is read before that is overwritten.
  EnterSublayer(context, weights.hc_attn, pre, weights.attn_norm, attention_mix, input);
  if (publish && context.config.IsKvSource(layer)) PublishCompressedRows(context, layer, weights.attention, input);
  Attend(context, layer, weights.attention, input, output);
  SpreadOutput(context, output, attention_mix);

  EnterSublayer(context, weights.hc_ffn, attention_mix, weights.ffn_norm, feed_forward_mix, input);
  FeedForward(context, layer, weights.ffn, input, output, feed_forward_mix);
  return feed_forward_mix;
}

}  // namespace deepinfer
