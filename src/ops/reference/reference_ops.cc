#include "ops/reference/reference_ops.h"

#include "ops/reference/attention.h"
#include "ops/reference/cache_rows.h"
#include "ops/reference/engram.h"
#include "ops/reference/index.h"
#include "ops/reference/linear.h"
#include "ops/reference/moe.h"
#include "ops/reference/rows.h"
#include "ops/reference/sampling.h"
#include "ops/reference/streams.h"

namespace deepinfer {

void ReferenceOps::Embed(const WeightMatrix& table, std::span<const int32_t> ids, FloatView out) {
  reference::Embed(table, ids, out);
}

void ReferenceOps::Linear(ConstFloatView x, const WeightMatrix& weight, ActivationFormat activation, int groups,
                          FloatView out) {
  reference::Linear(x, weight, activation, groups, out);
}

void ReferenceOps::RmsNorm(ConstFloatView x, const WeightVector& weight, float eps, FloatView out) {
  reference::RmsNorm(x, weight, eps, out);
}

void ReferenceOps::RopeTable(std::span<const int64_t> positions, std::span<const float> frequencies,
                             FloatView cos_sin) {
  reference::RopeTable(positions, frequencies, cos_sin);
}

void ReferenceOps::Rope(FloatView x, int heads, ConstFloatView cos_sin, bool inverse) {
  reference::Rope(x, heads, cos_sin, inverse);
}

void ReferenceOps::MixStreams(ConstFloatView streams, int n, const WeightMatrix& fn, const WeightVector& base,
                              const WeightVector& scale, int sinkhorn_iterations, float hc_eps, float rms_eps,
                              FloatView out) {
  reference::MixStreams(streams, n, fn, base, scale, sinkhorn_iterations, hc_eps, rms_eps, out);
}

void ReferenceOps::CollapseNorm(ConstFloatView streams, int n, ConstFloatView pre, const WeightVector& weight,
                                float eps, FloatView normed, FloatView collapsed) {
  reference::CollapseNorm(streams, n, pre, weight, eps, normed, collapsed);
}

void ReferenceOps::SpreadStreams(ConstFloatView y, ConstFloatView mix, int n, FloatView streams) {
  reference::SpreadStreams(y, mix, n, streams);
}

void ReferenceOps::MeanStreams(ConstFloatView streams, int n, FloatView out) {
  reference::MeanStreams(streams, n, out);
}

void ReferenceOps::StoreRows(ConstFloatView x, const PackedRows& rows, std::span<const int64_t> destination) {
  reference::StoreRows(x, rows, destination);
}

void ReferenceOps::CopyRows(const PackedRows& from, std::span<const int64_t> source, const PackedRows& to,
                            std::span<const int64_t> destination) {
  reference::CopyRows(from, source, to, destination);
}

void ReferenceOps::CopyFloats(std::span<const float* const> from, int64_t columns, std::span<float* const> to) {
  reference::CopyFloats(from, columns, to);
}

void ReferenceOps::KeepRows(std::span<const int32_t> rows, FloatView x) { reference::KeepRows(rows, x); }

void ReferenceOps::Attention(ConstFloatView q, int heads, std::span<const AttentionSequence> sequences, int window,
                             const SelectedRows& selected, const WeightVector& sink, float scale, FloatView out) {
  reference::Attention(q, heads, sequences, window, selected, sink, scale, out);
}

void ReferenceOps::PoolPairs(std::span<const float* const> first, std::span<const float* const> second, FloatView out) {
  reference::PoolPairs(first, second, out);
}

void ReferenceOps::SelectRows(ConstFloatView q, ConstFloatView head_weights, std::span<const IndexSequence> sequences,
                              const IndexSettings& settings, const CandidateBlocks& candidates,
                              const SelectedRows& selected) {
  reference::SelectRows(q, head_weights, sequences, settings, candidates, selected);
}

void ReferenceOps::Route(ConstFloatView x, const WeightMatrix& gate, const WeightVector& bias, bool normalise,
                         float scaling, TensorView<int32_t> picks, FloatView weights) {
  reference::Route(x, gate, bias, normalise, scaling, picks, weights);
}

void ReferenceOps::Experts(ConstFloatView x, TensorView<const int32_t> picks, ConstFloatView weights,
                           std::span<const ExpertWeights> experts, float limit, ActivationFormat activation,
                           FloatView out) {
  reference::Experts(x, picks, weights, experts, limit, activation, out);
}

void ReferenceOps::SwiGlu(ConstFloatView gate, ConstFloatView up, float limit, FloatView hidden) {
  reference::SwiGlu(gate, up, limit, hidden);
}

void ReferenceOps::Scale(float factor, FloatView x) { reference::Scale(factor, x); }

void ReferenceOps::Add(ConstFloatView y, FloatView out) { reference::Add(y, out); }

void ReferenceOps::GatherRows(const WeightMatrix& table, TensorView<const int64_t> rows, FloatView out) {
  reference::GatherRows(table, rows, out);
}

void ReferenceOps::EngramInject(ConstFloatView kv, const WeightVector& q_weight, const WeightVector& k_weight, int n,
                                float eps, FloatView streams) {
  reference::EngramInject(kv, q_weight, k_weight, n, eps, streams);
}

void ReferenceOps::ChooseTokens(ConstFloatView logits, std::span<const TokenRule> rules,
                                std::span<TokenChoice> choices) {
  reference::ChooseTokens(logits, rules, choices);
}

void ReferenceOps::AcceptDrafts(std::span<const DraftCheck> checks, std::span<DraftVerdict> verdicts) {
  reference::AcceptDrafts(checks, verdicts);
}

std::unique_ptr<Ops> MakeReferenceOps() { return std::make_unique<ReferenceOps>(); }

}  // namespace deepinfer
