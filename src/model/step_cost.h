// StepCost: the work of tokens, counted from the configuration: what a perfect machine would have to do.
//
// bytes are distinct bytes that must come from memory at least once for one token of one sequence (weights that work on
// it, KV rows it attends, index keys it scores); flops are multiply-adds (2 each) of matrix products, attention and
// index scores. Benchmarks divide by time and by the machine's limits.
//
// Thread-safety: pure functions. Source: spec sections (b), (c) and c.7 for the row sizes.
#ifndef DEEPINFER_MODEL_STEP_COST_H_
#define DEEPINFER_MODEL_STEP_COST_H_

#include <cstdint>
#include <span>

#include "checkpoint/model_config.h"

namespace deepinfer {

struct StepCost {
  double bytes = 0;
  double flops = 0;
};

/// One token at `position` that gets logits.
StepCost DecodeCost(const ModelConfig& config, int64_t position);

/// One step of `rows` rows that all get logits, of sequences whose last rows stand at `positions` (one a sequence, so
/// drafts under verification are rows beyond positions.size()). Weights that every token uses count once; of E routed
/// experts of which a token uses K, as many as independent choices are expected to touch, E * (1 - (1 - K/E)^rows);
/// the KV of a sequence counts once. Drafting itself is not counted.
StepCost DecodeCost(const ModelConfig& config, int64_t rows, std::span<const int64_t> positions);

/// flops of `count` prompt tokens from `first_position` on, logits for the last one only. bytes: those of the weights
/// of a single token, once; prefill is not bound by them.
StepCost PrefillCost(const ModelConfig& config, int64_t first_position, int64_t count);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_STEP_COST_H_
