// DSpark: the draft module. A few stages read the backbone's tapped streams and propose a block of tokens at once; a
// Markov head lets each proposal know the one before it (spec c.11).
//
// Thread-safety: as the StepContext.
#ifndef DEEPINFER_MODEL_DSPARK_H_
#define DEEPINFER_MODEL_DSPARK_H_

#include <cstdint>

#include "checkpoint/weights.h"
#include "model/step.h"

namespace deepinfer {

struct Draft;

/// Feeds taps [rows, taps * D] of positions first_position, ... to every stage's draft ring. Positions that do not
/// continue the rings start them anew. The context's step is overwritten.
void ExtendDraftRings(StepContext& context, const DraftWeights& weights, std::span<const float> plain_frequencies,
                      SequenceState& sequence, ConstFloatView taps, int64_t first_position);

/// Greedy drafts after `token` at position draft_end(). The draft rings are not empty. The context's step is
/// overwritten, the result buffers are not.
void RunDraftBlock(StepContext& context, const Weights& weights, std::span<const float> plain_frequencies,
                   SequenceState& sequence, int32_t token, Draft* draft);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_DSPARK_H_
