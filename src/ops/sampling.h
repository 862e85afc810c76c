// Values of the two sampling ops (Ops::ChooseTokens, Ops::AcceptDrafts): what is asked of one row of logits, and what
// comes back (docs/sampling.md).
//
// The token at position p is   argmax over the kept ids v of  z[v] / T + gumbel(seed, p, v),   in this order:
//   1. ids that `barred` lists or `allowed` lacks become -inf;
//   2. `bias` is added;
//   3. repetition penalty (z > 0 ? z / r : z * r) over `seen`, then frequency (z -= f * output_count), then presence
//      (z -= p where output_count > 0); 2 and 3 compute in F64 and round to F32 once each. A finite logit stays finite:
//      what overflows becomes the largest F32 of its sign. -inf stays -inf: it bars an id;
//   4. temperature: scores (z - largest) / T in F64, weights e^score (ops/sampling_order.h);
//   5. top-k, top-p (on the probabilities renormalised after top-k), min-p; ids rank by z, equal ones by ascending id,
//      and the first rank always stays;
//   6. Gumbel noise; equal sums: the lowest id.
// T = 0 takes the largest z, equal ones the lowest id: 5 and 6 play no part. Every sum has a fixed order (promise 1).
// Log probabilities are those of softmax(logits) before step 1.
//
// Thread-safety: values. Ownership: spans point to the caller's memory. Errors: TokenChoice::id = -1.
#ifndef DEEPINFER_OPS_SAMPLING_H_
#define DEEPINFER_OPS_SAMPLING_H_

#include <cstdint>
#include <span>

#include "base/counter_rng.h"
#include "base/tensor_view.h"
#include "deepinfer/generation.h"
#include "deepinfer/sampling_params.h"

namespace deepinfer {

/// A token of the text so far, for the penalties.
struct SeenToken {
  int32_t id = 0;
  int32_t output_count = 0;  ///< times in the output
  bool in_prompt = false;
};

/// How the token of one row is chosen. Ids are 0..V-1; those of `seen` are distinct.
struct TokenRule {
  double temperature = 1;
  double top_p = 1;
  double min_p = 0;
  int64_t top_k = 0;     ///< 0 or less: all
  uint64_t seed = 0;     ///< with position: the key of the noise
  int64_t position = 0;  ///< the absolute position that the token takes
  std::span<const LogitBias> bias;
  std::span<const SeenToken> seen;
  double repetition_penalty = 1;  ///< > 0; every listed token counts, whether of the prompt or the output
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::span<const int32_t> barred;
  const uint32_t* allowed = nullptr;  ///< [ceil(V / 32)]: bit (id % 32) of word id / 32; null: all are allowed
  int32_t known_id = -1;              ///< >= 0: nothing is drawn, the choice is this id (for its log probability)
  int32_t top_logprobs = -1;          ///< -1: none; 0 and more: of the choice and of this many most likely ids
  RandomPurpose purpose = RandomPurpose::kToken;
};

struct TokenChoice {
  int32_t id = -1;              ///< -1: a logit is NaN or +inf, or every id is barred; the other results are then 0
  double logprob = 0;           ///< of id; only with rule.top_logprobs >= 0
  int32_t top_count = 0;        ///< entries of `top` that were written: min(rule.top_logprobs, V)
  std::span<TokenLogprob> top;  ///< the caller's, >= rule.top_logprobs entries; most likely first, equal: ascending id
};

/// The drafts of one sequence and what they are checked against, by standard rejection sampling (spec serving.md 3.3).
/// p_k and q_k are the distributions after steps 1 to 5; T = 0 makes them one-hot.
struct DraftCheck {
  ConstFloatView target_logits;             // [k + 1, V]: row i is of the position that drafts[i] takes
  std::span<const TokenRule> target_rules;  // [k + 1]
  ConstFloatView draft_logits;              // [k, V]: what the drafts were drawn from; not read where draft T = 0
  std::span<const TokenRule> draft_rules;   // [k]; T = 0: q is one-hot at the draft, whoever proposed it
  std::span<const int32_t> drafts;          // [k]
};

struct DraftVerdict {
  int32_t accepted = 0;  ///< the first drafts that stand
  int32_t token = -1;    ///< the token after them; -1 as in TokenChoice
};

}  // namespace deepinfer

#endif  // DEEPINFER_OPS_SAMPLING_H_
