// The vector passes over one row of logits that sampling is made of. Contracts of the ops: ops/sampling.h.
//
// Thread-safety: pure functions. Ownership: none. Rows are F32 [V] at any address; -inf bars an id. The functions give
// the bits of the reference on every instruction set.
#ifndef DEEPINFER_OPS_CPU_SAMPLING_KERNELS_H_
#define DEEPINFER_OPS_CPU_SAMPLING_KERNELS_H_

#include <cstdint>
#include <limits>

#include "ops/sampling.h"

namespace deepinfer::cpu {

/// What filters keep, a prefix of the ranks: ids above `value`, and of those equal to it the ids up to `id`. At the
/// start: whatever is not barred.
struct RankCut {
  float value = std::numeric_limits<float>::lowest();
  int32_t id = std::numeric_limits<int32_t>::max();

  bool Keeps(float logit, int32_t token) const { return logit > value || (logit == value && token <= id); }
};

/// What the token of a row is drawn from.
struct RowLaw {
  const float* logits = nullptr;  // [V]
  int64_t vocabulary = 0;
  float largest = 0;
  double temperature = 1;  ///< > 0
  RankCut cut;
};

struct SamplingKernels {
  /// The lowest id with the largest logit; -1: a logit is NaN or +inf, or all are -inf.
  int32_t (*likeliest)(const float* logits, int64_t vocabulary);

  /// out = the row, -inf where a bit of `allowed` (may be null) is 0. False: a logit is NaN or +inf.
  bool (*copy_allowed)(const float* logits, int64_t vocabulary, const uint32_t* allowed, float* out);

  /// Appends the RankKey of every id with low <= logit < high, by ascending id; returns how many.
  int64_t (*collect_band)(const float* logits, int64_t vocabulary, float low, float high, uint64_t* keys);

  /// The sum of the weights.
  double (*sum_weights)(const RowLaw& law);

  /// probabilities [V] = weights / total.
  void (*fill_probabilities)(const RowLaw& law, double total, double* probabilities);

  /// p = max(p - q, 0), [V] each; returns its sum.
  double (*subtract)(double* p, const double* q, int64_t vocabulary);

  /// The largest score plus noise, from `likeliest`, the first rank.
  int32_t (*draw)(const RowLaw& law, int32_t likeliest, const TokenRule& rule);
};

const SamplingKernels& GetSamplingKernels();

/// Ascending keys are ranks: descending logit (-0 equals +0), ascending id.
uint64_t RankKey(float logit, int32_t id);
float LogitOfKey(uint64_t key);
inline int32_t IdOfKey(uint64_t key) { return static_cast<int32_t>(key & 0x7fffffff); }

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_SAMPLING_KERNELS_H_
