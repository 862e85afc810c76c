#include "model/hyper_connection.h"

namespace deepinfer {
namespace {

int StreamCount(const StepContext& context) { return static_cast<int>(context.config.hc_mult); }

}  // namespace

void SublayerInput(StepContext& context, ConstFloatView pre, const WeightVector& norm, FloatView input) {
  context.ops.CollapseNorm(context.Rows(context.workspace.step.streams), StreamCount(context), pre, norm,
                           context.rms_eps(), input, FloatView());
}

void EnterSublayer(StepContext& context, const HyperConnectionWeights& weights, ConstFloatView pre,
                   const WeightVector& norm, FloatView mix, FloatView input) {
  const ModelConfig& config = context.config;
  context.ops.MixAndCollapse(context.Rows(context.workspace.step.streams), StreamCount(context), weights.fn,
                             weights.base, weights.scale, static_cast<int>(config.hc_sinkhorn_iters),
                             static_cast<float>(config.hc_eps), context.rms_eps(), mix, pre, norm, input);
}

void SpreadOutput(StepContext& context, ConstFloatView output, ConstFloatView mix) {
  context.ops.SpreadStreams(output, mix, StreamCount(context), context.Rows(context.workspace.step.streams));
}

}  // namespace deepinfer
