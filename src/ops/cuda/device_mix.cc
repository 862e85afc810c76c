#include "ops/cuda/device_mix.h"

#include "ops/cuda/kernels.h"

namespace deepinfer::cuda {
namespace {

constexpr int64_t kSquaresBytes = PreparedRows::kFewRows * static_cast<int64_t>(sizeof(float));

}  // namespace

void DeviceMix::Mix(Staging& s, ConstFloatView streams, int n, const MixWeights& weights, FloatView out) {
  const ConstFloatView x = s.In(streams);
  const FloatView mix = s.Out(out);
  const WeightMatrix fn = s.Weight(weights.fn);
  float* squares = nullptr;
  if (x.rows <= PreparedRows::kFewRows) {
    squares = s.Room<float>(x.rows);
    s.Launch(&LinearAndSquares, x, fn, mix, squares);
  } else if (LinearAndSquaresOfManyFits(x, fn)) {
    squares = s.Room<float>(x.rows);
    s.Launch(&LinearAndSquaresOfMany, x, fn, mix, squares);
  } else {
    s.Launch(&CanonicalLinear, x, fn, 1, mix);
  }
  s.Launch(&FinishMix, x, squares, n, s.Vector(weights.base), s.Vector(weights.scale), weights.sinkhorn_iterations,
           weights.hc_eps, weights.rms_eps, mix);
}

void DeviceMix::MixAndCollapse(Staging& s, ConstFloatView streams, int n, const MixWeights& weights, FloatView mix,
                               ConstFloatView pre, const WeightVector& norm, FloatView normed) {
  CommandList& commands = s.commands();
  if (squares_ == nullptr) squares_ = static_cast<float*>(kept_.Take(kSquaresBytes));
  if (squares_ == nullptr) commands.Check(cudaErrorMemoryAllocation, "squares");
  const ConstFloatView x = s.In(streams);
  const FloatView coefficients = s.Out(mix);
  const FloatView out = s.Out(normed);
  const FloatView collapsed = s.Temporary(out.rows, out.columns);
  commands.WillWrite(squares_, kSquaresBytes);
  s.Launch(&ProjectAndCollapse, x, s.Weight(weights.fn), coefficients, squares_, n, s.In(pre), collapsed);
  commands.BeginBeside();
  commands.WillRead(squares_, kSquaresBytes);
  s.WillWrite(coefficients);
  s.Launch(&FinishMix, x, squares_, n, s.Vector(weights.base), s.Vector(weights.scale), weights.sinkhorn_iterations,
           weights.hc_eps, weights.rms_eps, coefficients);
  commands.EndBeside();
  s.Launch(&RmsNorm, collapsed, s.Vector(norm), weights.rms_eps, out, s.Forms(out));
}

}  // namespace deepinfer::cuda
