#include "ops/cuda/device_linear.h"

#include <vector>

#include "ops/cuda/exact_linear.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/skinny.h"
#include "ops/cuda/wide.h"

namespace deepinfer::cuda {
namespace {

constexpr int64_t kMostDirectRows = 64;  // from there on a weight has blocks for the whole GPU
// Weights of so many outputs have them from half of that on: wq_b of 64 rows takes 31 us by the wide product, 64 us by
// DirectLinear, whose blocks read each row once for 64 outputs.
constexpr int64_t kManyOutputs = 16384;

// Speed hangs on it, bits do not.
bool TakesWide(const WeightMatrix& weight, int64_t rows, int groups) {
  return rows > (weight.rows >= kManyOutputs ? kMostDirectRows / 2 : kMostDirectRows) && WideFits(weight, groups);
}

}  // namespace

void DeviceLinear(Staging& s, CudaProducts products, ConstFloatView x, const WeightMatrix& weight,
                  ActivationFormat activation, int groups, FloatView out) {
  if (!s.ok() || x.rows == 0) return;
  const bool quantised = weight.scale != nullptr && activation == ActivationFormat::kFp8Groups32;
  const bool tensor_cores = products == CudaProducts::kTensorCores;
  if (tensor_cores && DirectLinearFits(weight, groups)) {
    const bool wide = TakesWide(weight, x.rows, groups);
    const Bf16Rows rows = s.Prepare(x, quantised ? Preparation::kQuantised : Preparation::kTerms,
                                    wide ? ColumnOrder::kFp8Wide : ColumnOrder::kFp8);
    const FloatView results = quantised ? out : s.Temporary(kExactTerms * x.rows, out.columns);
    if (wide) {
      s.Launch(&WideLinear, rows, results.rows, weight, groups, results);
    } else {
      s.Launch(&DirectLinear, rows, results.rows, weight, groups, results);
    }
    if (!quantised) s.Launch(&JoinTerms, results, out, s.Forms(out));
    return;
  }
  if (tensor_cores && Bf16LinearFits(weight, groups)) {
    const Bf16Rows terms = s.Prepare(x, Preparation::kTerms, ColumnOrder::kPlain);
    s.Launch(&Bf16Linear, terms, x.rows, weight, out);
    return;
  }
  if (quantised) {
    const FloatView rounded = s.Temporary(x.rows, x.columns);
    s.Launch(&QuantiseActivations, x, rounded);
    x = rounded;
  }
  s.Launch(&CanonicalLinear, x, weight, groups, out);
}

void DeviceLinearPair(Staging& s, CudaProducts products, ConstFloatView x, const WeightMatrix& first,
                      const WeightMatrix& second, ActivationFormat activation, FloatView first_out,
                      FloatView second_out) {
  if (!s.ok() || x.rows == 0) return;
  if (products == CudaProducts::kTensorCores && activation == ActivationFormat::kFp8Groups32 &&
      x.rows <= kMostDirectRows && DirectLinearPairFits(first, second)) {
    const Bf16Rows rows = s.Prepare(x, Preparation::kQuantised, ColumnOrder::kFp8);
    s.Launch(&DirectLinearPair, rows, x.rows, first, second, first_out, second_out);
    return;
  }
  DeviceLinear(s, products, x, first, activation, 1, first_out);
  DeviceLinear(s, products, x, second, activation, 1, second_out);
}

void RunExperts(Staging& s, CudaProducts products, ConstFloatView x, const Routing& routing,
                std::span<const ExpertWeights> experts, float limit, ActivationFormat activation, FloatView out) {
  const int64_t slots = static_cast<int64_t>(routing.order.size());
  std::vector<int32_t> tokens, places(static_cast<size_t>(slots));
  std::vector<float> weights;
  for (int64_t i = 0; i < slots; ++i) {
    const int32_t slot = routing.order[static_cast<size_t>(i)];
    tokens.push_back(slot / routing.per_token);
    weights.push_back(routing.weights[static_cast<size_t>(slot)]);
    places[static_cast<size_t>(slot)] = static_cast<int32_t>(i);
  }
  const int32_t* device_tokens = s.Array(std::span<const int32_t>(tokens));
  const int32_t* device_places = s.Array(std::span<const int32_t>(places));
  const float* device_weights = s.Array(std::span<const float>(weights));
  const FloatView parts = s.Temporary(slots, out.columns);
  for (const int32_t e : routing.active) {
    const ExpertWeights& expert = experts[static_cast<size_t>(e)];
    const int64_t first = routing.offsets[static_cast<size_t>(e)];
    const int64_t rows = routing.offsets[static_cast<size_t>(e) + 1] - first;
    const FloatView input = s.Temporary(rows, x.columns);
    const FloatView gate = s.Temporary(rows, expert.w1.rows);
    const FloatView up = s.Temporary(rows, expert.w1.rows);
    if (!s.ok()) return;
    s.Launch(&GatherFloatRows, x, device_tokens + first, input);
    DeviceLinear(s, products, input, s.Weight(expert.w1), activation, 1, gate);
    DeviceLinear(s, products, input, s.Weight(expert.w3), activation, 1, up);
    s.Launch(&WeightedSwiGlu, gate, up, device_weights + first, limit, gate);
    DeviceLinear(s, products, gate, s.Weight(expert.w2), activation, 1, parts.RowRange(first, first + rows));
  }
  s.Launch(&SumParts, parts, device_places, routing.per_token, out);
}

}  // namespace deepinfer::cuda
