#include "ops/reference/moe.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/reference/linear.h"
#include "ops/reference/rows.h"
#include "ops/reference/top_k.h"
#include "ops/reference/unpack.h"

namespace deepinfer::reference {
namespace {

// log(1 + e^x) without overflow.
float Softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))); }

}  // namespace

void Route(ConstFloatView x, const WeightMatrix& gate, const WeightVector& bias, bool normalise, float scaling,
           TensorView<int32_t> picks, FloatView weights) {
  const std::vector<float> b = UnpackVector(bias);
  const size_t experts = static_cast<size_t>(gate.rows);
  std::vector<float> scores(experts);
  std::vector<float> biased(experts);
  for (int64_t t = 0; t < x.rows; ++t) {
    Linear(x.RowRange(t, t + 1), gate, ActivationFormat::kExact, 1, FloatView(scores.data(), 1, gate.rows));
    for (size_t e = 0; e < experts; ++e) {
      scores[e] = std::sqrt(Softplus(scores[e]));
      biased[e] = scores[e] + b[e];  // the bias decides who is picked, never the weight
    }
    const std::vector<int32_t> best = TopK(biased, picks.columns);
    float sum = 0;
    for (const int32_t e : best) sum += scores[static_cast<size_t>(e)];
    const float divisor = normalise ? sum + 1e-20f : 1.0f;
    for (size_t k = 0; k < best.size(); ++k) {
      picks.row(t)[k] = best[k];
      weights.row(t)[k] = scores[static_cast<size_t>(best[k])] / divisor * scaling;
    }
  }
}

void Experts(ConstFloatView x, TensorView<const int32_t> picks, ConstFloatView weights,
             std::span<const ExpertWeights> experts, float limit, ActivationFormat activation, FloatView out) {
  for (int64_t t = 0; t < x.rows; ++t) {
    std::fill_n(out.row(t), out.columns, 0.0f);
    for (int64_t k = 0; k < picks.columns; ++k) {
      const ExpertWeights& expert = experts[static_cast<size_t>(picks.row(t)[k])];
      const int64_t inner = expert.w1.rows;
      std::vector<float> gate(static_cast<size_t>(inner));
      std::vector<float> up(static_cast<size_t>(inner));
      std::vector<float> down(static_cast<size_t>(out.columns));
      Linear(x.RowRange(t, t + 1), expert.w1, activation, 1, FloatView(gate.data(), 1, inner));
      Linear(x.RowRange(t, t + 1), expert.w3, activation, 1, FloatView(up.data(), 1, inner));
      // The routing weight multiplies before w2 and its activation quantisation.
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = SwiGluValue(gate[i], up[i], limit) * weights.row(t)[k];
      Linear(FloatView(gate.data(), 1, inner), expert.w2, activation, 1, FloatView(down.data(), 1, out.columns));
      for (int64_t d = 0; d < out.columns; ++d) out.row(t)[d] += down[static_cast<size_t>(d)];
    }
  }
}

}  // namespace deepinfer::reference
