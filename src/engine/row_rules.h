// RowRules: from a request's parameters and its text so far to the TokenRule of each row of logits.
//
// Row i of a verification stands behind the pending token and the first i drafts, so penalties, bad words and
// min_tokens see these drafts as if they were accepted: if one is not, the rows behind it are not used.
//
// Thread-safety: one thread. Ownership: the lists that rules point to, valid until Clear(). Allocates only while its
// lists grow to their largest size.
#ifndef DEEPINFER_ENGINE_ROW_RULES_H_
#define DEEPINFER_ENGINE_ROW_RULES_H_

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "engine/decode_slot.h"
#include "ops/sampling.h"

namespace deepinfer {

class RowRules {
 public:
  void Clear();

  /// The rule for the token at `position`, which follows `text`, then `unfed` (pending token and drafts).
  TokenRule Make(const DecodeSlot& slot, std::span<const int32_t> text, std::span<const int32_t> unfed,
                 int64_t position);

  /// min_tokens gives way where the grammar's `mask` leaves nothing but an end.
  static void LetEnd(const DecodeSlot& slot, std::span<const uint32_t> mask, TokenRule* rule);

  /// Whether a request needs SeenToken lists.
  static bool HasPenalties(const SamplingParams& params);

  /// Adds one token of the output to `seen`.
  static void See(std::vector<SeenToken>* seen, int32_t id, bool in_prompt);

 private:
  std::vector<int32_t>& NextBarred();
  std::vector<SeenToken>& NextSeen();

  // Lists are reused, so that steady decoding allocates nothing.
  std::deque<std::vector<int32_t>> barred_;
  std::deque<std::vector<SeenToken>> seen_;
  size_t barred_used_ = 0;
  size_t seen_used_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_ROW_RULES_H_
