#include "ops/cpu/cpu_ops.h"

#include "hwy/highway.h"
#include "ops/cpu/engram.h"
#include "ops/cpu/pack.h"
#include "ops/cpu/rope.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/streams.h"

namespace deepinfer {
namespace {

// The instruction set that dynamic dispatch picks: the lowest bit, of those compiled in, is the best one.
std::string TargetName() {
  const std::string best = hwy::TargetName(hwy::SupportedAndGeneratedTargets().front());
  const bool pairs =
      cpu::ChooseLinearPath(WeightFormat::kF8Block32, ActivationFormat::kFp8Groups32) == cpu::LinearPath::kBf16Pairs;
  return pairs ? best + " + AVX512_BF16" : best;
}

}  // namespace

CpuOps::CpuOps(int threads) : pool_(threads), name_("cpu (" + TargetName() + ")") {}

Status CpuOps::Reserve(const ScratchLimits& limits) {
  DEEPINFER_RETURN_IF_ERROR(linear_.Reserve(limits, pool_.workers()));
  DEEPINFER_RETURN_IF_ERROR(experts_.Reserve(limits, pool_.workers()));
  DEEPINFER_RETURN_IF_ERROR(attention_.Reserve(limits, pool_.workers()));
  DEEPINFER_RETURN_IF_ERROR(index_.Reserve(limits, pool_.workers()));
  DEEPINFER_RETURN_IF_ERROR(sampling_.Reserve(limits, pool_.workers()));
  return route_.Reserve(limits);
}

int64_t CpuOps::scratch_bytes() const {
  return linear_.bytes() + experts_.bytes() + attention_.bytes() + index_.bytes() + route_.bytes() + sampling_.bytes();
}

void CpuOps::Embed(const WeightMatrix& table, std::span<const int32_t> ids, FloatView out) {
  cpu::Embed(pool_, table, ids, out);
}

void CpuOps::Linear(ConstFloatView x, const WeightMatrix& weight, ActivationFormat activation, int groups,
                    FloatView out) {
  cpu::Linear(pool_, linear_, x, weight, activation, groups, out);
}

void CpuOps::RmsNorm(ConstFloatView x, const WeightVector& weight, float eps, FloatView out) {
  cpu::RmsNorm(pool_, x, weight, eps, out);
}

void CpuOps::RopeTable(std::span<const int64_t> positions, std::span<const float> frequencies, FloatView cos_sin) {
  cpu::RopeTable(pool_, positions, frequencies, cos_sin);
}

void CpuOps::Rope(FloatView x, int heads, ConstFloatView cos_sin, bool inverse) {
  cpu::Rope(pool_, x, heads, cos_sin, inverse);
}

void CpuOps::MixStreams(ConstFloatView streams, int n, const WeightMatrix& fn, const WeightVector& base,
                        const WeightVector& scale, int sinkhorn_iterations, float hc_eps, float rms_eps,
                        FloatView out) {
  cpu::MixStreams(pool_, linear_, streams, n, fn, base, scale, sinkhorn_iterations, hc_eps, rms_eps, out);
}

void CpuOps::CollapseNorm(ConstFloatView streams, int n, ConstFloatView pre, const WeightVector& weight, float eps,
                          FloatView normed, FloatView collapsed) {
  cpu::CollapseNorm(pool_, streams, n, pre, weight, eps, normed, collapsed);
}

void CpuOps::SpreadStreams(ConstFloatView y, ConstFloatView mix, int n, FloatView streams) {
  cpu::SpreadStreams(pool_, y, mix, n, streams);
}

void CpuOps::MeanStreams(ConstFloatView streams, int n, FloatView out) { cpu::MeanStreams(pool_, streams, n, out); }

void CpuOps::StoreRows(ConstFloatView x, const PackedRows& rows, std::span<const int64_t> destination) {
  cpu::StoreRows(x, rows, destination);
}

void CpuOps::CopyRows(const PackedRows& from, std::span<const int64_t> source, const PackedRows& to,
                      std::span<const int64_t> destination) {
  cpu::CopyRows(from, source, to, destination);
}

void CpuOps::CopyFloats(std::span<const float* const> from, int64_t columns, std::span<float* const> to) {
  cpu::CopyFloats(from, columns, to);
}

void CpuOps::KeepRows(std::span<const int32_t> rows, FloatView x) { cpu::KeepRows(rows, x); }

void CpuOps::Attention(ConstFloatView q, int heads, std::span<const AttentionSequence> sequences, int window,
                       const SelectedRows& selected, const WeightVector& sink, float scale, FloatView out) {
  cpu::Attention(pool_, attention_, q, heads, sequences, window, selected, sink, scale, out);
}

void CpuOps::PoolPairs(std::span<const float* const> first, std::span<const float* const> second, FloatView out) {
  cpu::PoolPairs(pool_, first, second, out);
}

void CpuOps::SelectRows(ConstFloatView q, ConstFloatView head_weights, std::span<const IndexSequence> sequences,
                        const IndexSettings& settings, const CandidateBlocks& candidates,
                        const SelectedRows& selected) {
  cpu::SelectRows(pool_, index_, q, head_weights, sequences, settings, candidates, selected);
}

void CpuOps::Route(ConstFloatView x, const WeightMatrix& gate, const WeightVector& bias, bool normalise, float scaling,
                   TensorView<int32_t> picks, FloatView weights) {
  cpu::Route(pool_, linear_, route_, x, gate, bias, normalise, scaling, picks, weights);
}

void CpuOps::Experts(ConstFloatView x, TensorView<const int32_t> picks, ConstFloatView weights,
                     std::span<const ExpertWeights> experts, float limit, ActivationFormat activation, FloatView out) {
  cpu::Experts(pool_, linear_, experts_, x, picks, weights, experts, limit, activation, out);
}

void CpuOps::SwiGlu(ConstFloatView gate, ConstFloatView up, float limit, FloatView hidden) {
  cpu::SwiGlu(pool_, gate, up, limit, hidden);
}

void CpuOps::Scale(float factor, FloatView x) { cpu::Scale(factor, x); }

void CpuOps::Add(ConstFloatView y, FloatView out) { cpu::Add(pool_, y, out); }

void CpuOps::GatherRows(const WeightMatrix& table, TensorView<const int64_t> rows, FloatView out) {
  cpu::GatherRows(pool_, table, rows, out);
}

void CpuOps::EngramInject(ConstFloatView kv, const WeightVector& q_weight, const WeightVector& k_weight, int n,
                          float eps, FloatView streams) {
  cpu::EngramInject(pool_, kv, q_weight, k_weight, n, eps, streams);
}

void CpuOps::ChooseTokens(ConstFloatView logits, std::span<const TokenRule> rules, std::span<TokenChoice> choices) {
  cpu::ChooseTokens(pool_, sampling_, logits, rules, choices);
}

void CpuOps::AcceptDrafts(std::span<const DraftCheck> checks, std::span<DraftVerdict> verdicts) {
  cpu::AcceptDrafts(pool_, sampling_, checks, verdicts);
}

std::unique_ptr<Ops> MakeCpuOps(int threads) { return std::make_unique<CpuOps>(threads); }

}  // namespace deepinfer
