#include "model/feed_forward.h"

#include "model/model.h"

namespace deepinfer {

void FeedForward(StepContext& context, int layer, const FeedForwardWeights& weights, ConstFloatView input,
                 FloatView output, ConstFloatView mix) {
  const ModelConfig& config = context.config;
  Ops& ops = context.ops;
  const FeedForwardBuffers& buffers = context.workspace.feed_forward;
  const int64_t experts_per_token = config.ExpertsPerToken(layer);
  const TensorView<int32_t> picks = context.Rows(buffers.picks).ColumnRange(0, experts_per_token);
  const FloatView gains = context.Rows(buffers.weights).ColumnRange(0, experts_per_token);
  const FloatView gate = context.Rows(buffers.gate);
  const FloatView up = context.Rows(buffers.up);
  const FloatView shared = context.Rows(buffers.shared);
  const float limit = static_cast<float>(config.swiglu_limit);

  // A single expert keeps its score as it is (spec c.9 leaves this open; the oracle's convention).
  const bool normalise = config.norm_topk_prob && experts_per_token > 1;
  // Beside the router, and the experts that it picks.
  ops.BeginBeside(context.rows());
  ops.LinearPair(input, weights.shared_experts.w1, weights.shared_experts.w3, context.activation, gate, up);
  ops.SwiGlu(gate, up, limit, gate);
  ops.Linear(gate, weights.shared_experts.w2, context.activation, 1, shared);
  ops.EndBeside();
  ops.Route(input, weights.gate, weights.gate_bias, normalise, static_cast<float>(config.routed_scaling_factor), picks,
            gains);
  if (context.probe != nullptr) context.probe->OnExperts(layer, picks, gains);
  ops.ExpertsAndSpread(input, picks, gains, weights.experts, limit, context.activation, shared, output, mix,
                       static_cast<int>(config.hc_mult), context.Rows(context.workspace.step.streams));
}

}  // namespace deepinfer
