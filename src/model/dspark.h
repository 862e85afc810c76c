// DSpark: the draft module. A few stages read the backbone's tapped streams and propose a block of tokens at once; a
// Markov head lets each proposal know the one before it (spec c.11).
//
// Thread-safety: as the StepContext.
#ifndef DEEPINFER_MODEL_DSPARK_H_
#define DEEPINFER_MODEL_DSPARK_H_

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/weights.h"
#include "model/step.h"
#include "ops/sampling.h"

namespace deepinfer {

struct DraftContext;
struct DraftItem;
struct DraftResult;

/// Lists of RunDraftBlocks, reserved once.
struct DraftScratch {
  void Reserve(int64_t sequences, int64_t block);

  std::vector<TokenRule> rules;        // [S]
  std::vector<TokenChoice> choices;    // [S]
  std::vector<int32_t> previous;       // [S]
  std::vector<int32_t> proposal_rows;  // [b*S] sequence-major row of each proposal
  std::vector<int32_t> block_ids;      // [b]
  std::vector<int32_t> ids;            // [b*S]
  std::vector<float> confidence;       // [b*S]
};

/// Feeds rows of taps [T, taps * D] to every stage's draft ring of their sequences. Positions that do not continue the
/// rings start them anew; rows that the ring cannot hold any more are skipped. The context's step is overwritten.
void ExtendDraftRings(StepContext& context, const DraftWeights& weights, std::span<const float> plain_frequencies,
                      ConstFloatView taps, std::span<const DraftContext> items);

/// `length` proposals for each item. The draft rings are not empty. The context's step is overwritten, the result
/// buffers are not.
DraftResult RunDraftBlocks(StepContext& context, const Weights& weights, std::span<const float> plain_frequencies,
                           std::span<const DraftItem> items, int64_t length, DraftScratch* scratch);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_DSPARK_H_
