// Sampler: draws the token at one position from its logits (promise 2).
//
//   token at position p = argmax over the kept ids v of  logits[v] / T + gumbel(seed, p, v)
//
// which is a draw from softmax(logits / T) over the kept ids. The noise is a pure function of (seed, p, v), so the same
// call gives the same token wherever and whenever it is made; a draft is right iff it equals this token.
//  1. T = 0: the largest logit, equal ones: the lowest id. Filters and noise play no part.
//  2. Filters apply in the order temperature, top-k, top-p, min-p; equal logits rank by ascending id. top-p works on
//  the
//     probabilities renormalised after top-k. The most likely id always stays.
//  3. Sums run in double and in an order fixed by the logits alone.
//  4. -inf bars an id. NaN, +inf or nothing but -inf is an error (kInternal): the forward pass is broken.
// Thread-safety: one thread drives a Sampler. Ownership: its scratch only.
#ifndef DEEPINFER_ENGINE_SAMPLER_H_
#define DEEPINFER_ENGINE_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "deepinfer/sampling_params.h"
#include "deepinfer/status.h"
#include "ops/sampling.h"

namespace deepinfer {

class Sampler {
 public:
  /// `logits` [V]: of the row before `position`, the absolute position that the token will take. `params` is valid.
  Result<int32_t> Sample(std::span<const float> logits, const SamplingParams& params, int64_t position);

 private:
  /// Fills kept_ with the ids that pass the filters, most likely first where a filter needs the order.
  void Filter(std::span<const float> logits, const SamplingParams& params, float largest);

  std::vector<int32_t> kept_;
};

/// The largest logit's id, equal ones: the lowest. kInternal as in 4.
Result<int32_t> ArgMax(std::span<const float> logits);

/// What OpenAI calls logprobs: natural logarithms of softmax(logits), before temperature and filters.
struct PositionLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // [n], most likely first, equal ones by ascending id
};
PositionLogprobs ComputeLogprobs(std::span<const float> logits, int32_t chosen, int top);

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_SAMPLER_H_
