// SlotConstraint: where one running answer stands in its grammar, and the masks of the rows of a step.
//
// An answer that begins inside the reasoning is free up to the token that ends it; the text behind that token belongs
// to the grammar. Masks are pure functions of the grammar and the tokens, so they depend on nobody else (promise 1).
// The automaton behind them grows while it is used, so a constrained request may allocate in a step.
//
// Thread-safety: one thread at a time: the device thread, and the mask worker between its Begin() and Wait().
// Ownership: shares the constraint; owns its matcher and masks. Errors: kResourceExhausted when the grammar needs more
// memory than one request may use; the request then ends, there is no unconstrained fallback.
// Source: spec serving.md section 10.6.
#ifndef DEEPINFER_ENGINE_SLOT_CONSTRAINT_H_
#define DEEPINFER_ENGINE_SLOT_CONSTRAINT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "deepinfer/status.h"
#include "grammar/compiled_grammar.h"
#include "grammar/matcher.h"
#include "text/tokenizer.h"

namespace deepinfer {

/// What an answer must be; of a request, shared by its choices, never changed.
struct OutputConstraint {
  std::shared_ptr<const CompiledGrammar> grammar;
  std::vector<int32_t> end_ids;        ///< admitted exactly where the text may end
  int32_t begins_behind = -1;          ///< everything before this token is free; -1: the grammar holds from the start
  std::vector<int32_t> barred_before;  ///< ids that may not come in the free part
  int64_t prompt_tokens = 0;           ///< the last ones of the prompt, part of the constrained text
};

class SlotConstraint {
 public:
  /// `most_drafts`: of one step.
  SlotConstraint(std::shared_ptr<const OutputConstraint> constraint, int64_t most_drafts);

  /// Takes a token that was chosen, or one of the prompt's. kInvalidArgument: the grammar does not admit it.
  Status Accept(int32_t id);

  // Questions about drafts never end a request: where one passes a limit of the grammar, this answer is drafted no
  // more.

  /// How many of `drafts` may follow one another from here.
  Result<int32_t> Admitted(std::span<const int32_t> drafts);

  /// Appends to `ids` the tokens that every text continues with behind `drafts` (admitted ones), at most `most`. They
  /// are the tokenizer's spelling; the last one is left out where the text that follows could change it.
  Status Continuation(std::span<const int32_t> drafts, const Tokenizer& tokenizer, int64_t most,
                      std::vector<int32_t>* ids);

  /// Makes the masks of the rows behind here and behind each of `drafts`, all admitted. Where that takes long it stops
  /// after the first one: others wait for the step. Failure at the first one: status().
  void FillMasks(std::span<const int32_t> drafts);
  /// Drafts that have a mask behind them.
  int32_t masked_drafts() const { return masked_drafts_; }
  /// Of the row behind `drafts` drafts: [ceil(V / 32)], bit (id % 32) of word id / 32.
  std::span<const uint32_t> mask(int32_t drafts) const;
  const Status& status() const { return status_; }

 private:
  /// Takes one token that may be taken back; false: not admitted.
  Result<bool> Step(int32_t id);
  void TakeBack();
  /// A draft led past a limit: what was accepted is matched anew, and no draft is followed any more.
  Status StopDrafting();

  std::shared_ptr<const OutputConstraint> constraint_;
  bool free_;
  bool free_before_steps_ = false;
  bool follows_drafts_ = true;
  size_t steps_in_matcher_ = 0;
  Matcher matcher_;
  size_t words_ = 0;
  int32_t masked_drafts_ = 0;
  std::vector<uint32_t> masks_;  // [1 + most_drafts, words_]
  Status status_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_SLOT_CONSTRAINT_H_
