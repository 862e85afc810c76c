// ReferenceOps: every op as readable scalar code, the oracle of all op tests and the place to learn what an op does.
//
// One family of ops per file pair: rows (small per-row ops), linear, streams (hyper-connections), cache_rows (packed
// KV), attention, index, moe, engram; unpack and quantise hold the number formats, top_k the tie rule, dot the one
// summation order. Single threaded. Unlike the other backends it allocates temporaries inside an op, so Reserve() has
// nothing to do.
//
// Thread-safety: stateless; any number of threads may use one object. Ownership: none.
#ifndef DEEPINFER_OPS_REFERENCE_REFERENCE_OPS_H_
#define DEEPINFER_OPS_REFERENCE_REFERENCE_OPS_H_

#include "ops/ops.h"

namespace deepinfer {

class ReferenceOps final : public Ops {
 public:
  std::string_view name() const override { return "reference"; }
  Status Reserve(const ScratchLimits&) override { return Status::Ok(); }
  int64_t scratch_bytes() const override { return 0; }
  void Embed(const WeightMatrix& table, std::span<const int32_t> ids, FloatView out) override;
  void Linear(ConstFloatView x, const WeightMatrix& weight, ActivationFormat activation, int groups,
              FloatView out) override;
  void RmsNorm(ConstFloatView x, const WeightVector& weight, float eps, FloatView out) override;
  void RopeTable(std::span<const int64_t> positions, std::span<const float> frequencies, FloatView cos_sin) override;
  void Rope(FloatView x, int heads, ConstFloatView cos_sin, bool inverse) override;
  void MixStreams(ConstFloatView streams, int n, const WeightMatrix& fn, const WeightVector& base,
                  const WeightVector& scale, int sinkhorn_iterations, float hc_eps, float rms_eps,
                  FloatView out) override;
  void CollapseNorm(ConstFloatView streams, int n, ConstFloatView pre, const WeightVector& weight, float eps,
                    FloatView normed, FloatView collapsed) override;
  void SpreadStreams(ConstFloatView y, ConstFloatView mix, int n, FloatView streams) override;
  void MeanStreams(ConstFloatView streams, int n, FloatView out) override;
  void StoreRows(ConstFloatView x, const PackedRows& rows, std::span<const int64_t> destination) override;
  void CopyRows(const PackedRows& from, std::span<const int64_t> source, const PackedRows& to,
                std::span<const int64_t> destination) override;
  void CopyFloats(std::span<const float* const> from, int64_t columns, std::span<float* const> to) override;
  void KeepRows(std::span<const int32_t> rows, FloatView x) override;
  void Attention(ConstFloatView q, int heads, std::span<const AttentionSequence> sequences, int window,
                 const SelectedRows& selected, const WeightVector& sink, float scale, FloatView out) override;
  void PoolPairs(std::span<const float* const> first, std::span<const float* const> second, FloatView out) override;
  void SelectRows(ConstFloatView q, ConstFloatView head_weights, std::span<const IndexSequence> sequences,
                  const IndexSettings& settings, const CandidateBlocks& candidates,
                  const SelectedRows& selected) override;
  void Route(ConstFloatView x, const WeightMatrix& gate, const WeightVector& bias, bool normalise, float scaling,
             TensorView<int32_t> picks, FloatView weights) override;
  void Experts(ConstFloatView x, TensorView<const int32_t> picks, ConstFloatView weights,
               std::span<const ExpertWeights> experts, float limit, ActivationFormat activation,
               FloatView out) override;
  void SwiGlu(ConstFloatView gate, ConstFloatView up, float limit, FloatView hidden) override;
  void Scale(float factor, FloatView x) override;
  void Add(ConstFloatView y, FloatView out) override;
  void GatherRows(const WeightMatrix& table, TensorView<const int64_t> rows, FloatView out) override;
  void EngramInject(ConstFloatView kv, const WeightVector& q_weight, const WeightVector& k_weight, int n, float eps,
                    FloatView streams) override;
  void ChooseTokens(ConstFloatView logits, std::span<const TokenRule> rules, std::span<TokenChoice> choices) override;
  void AcceptDrafts(std::span<const DraftCheck> checks, std::span<DraftVerdict> verdicts) override;
};

}  // namespace deepinfer

#endif  // DEEPINFER_OPS_REFERENCE_REFERENCE_OPS_H_
