#include "engine/row_rules.h"

#include <algorithm>

namespace deepinfer {
namespace {

// Id `back` places before the end of the fed ids followed by `unfed` (0: the last); -1 before the beginning.
int32_t IdFromEnd(std::span<const int32_t> fed, std::span<const int32_t> unfed, size_t back) {
  if (back < unfed.size()) return unfed[unfed.size() - 1 - back];
  back -= unfed.size();
  return back < fed.size() ? fed[fed.size() - 1 - back] : -1;
}

bool EndsWith(std::span<const int32_t> fed, std::span<const int32_t> unfed, std::span<const int32_t> ids) {
  for (size_t back = 0; back < ids.size(); ++back) {
    if (IdFromEnd(fed, unfed, back) != ids[ids.size() - 1 - back]) return false;
  }
  return true;
}

}  // namespace

void RowRules::Clear() {
  barred_used_ = 0;
  seen_used_ = 0;
}

std::vector<int32_t>& RowRules::NextBarred() {
  if (barred_used_ == barred_.size()) barred_.emplace_back();
  barred_[barred_used_].clear();
  return barred_[barred_used_++];
}

std::vector<SeenToken>& RowRules::NextSeen() {
  if (seen_used_ == seen_.size()) seen_.emplace_back();
  seen_[seen_used_].clear();
  return seen_[seen_used_++];
}

bool RowRules::HasPenalties(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0;
}

void RowRules::See(std::vector<SeenToken>* seen, int32_t id, bool in_prompt) {
  // Sorted by id.
  auto at = std::lower_bound(seen->begin(), seen->end(), id,
                             [](const SeenToken& token, int32_t value) { return token.id < value; });
  if (at == seen->end() || at->id != id) at = seen->insert(at, {id, 0, false});
  if (in_prompt) {
    at->in_prompt = true;
  } else {
    ++at->output_count;
  }
}

TokenRule RowRules::Make(const DecodeSlot& slot, std::span<const int32_t> text, std::span<const int32_t> unfed,
                         int64_t position) {
  const SamplingParams& params = slot.input->sampling;
  TokenRule rule;
  rule.temperature = params.temperature;
  rule.top_p = params.top_p;
  rule.min_p = params.min_p;
  rule.top_k = params.top_k;
  rule.seed = params.seed;
  rule.position = position;
  rule.bias = params.logit_bias;
  rule.top_logprobs = params.logprobs;

  if (HasPenalties(params)) {
    rule.repetition_penalty = params.repetition_penalty;
    rule.presence_penalty = params.presence_penalty;
    rule.frequency_penalty = params.frequency_penalty;
    // The pending token is in slot.seen already.
    if (unfed.size() > 1) {
      std::vector<SeenToken>& seen = NextSeen();
      seen.assign(slot.seen.begin(), slot.seen.end());
      for (const int32_t id : unfed.subspan(1)) See(&seen, id, false);
      rule.seen = seen;
    } else {
      rule.seen = slot.seen;
    }
  }

  const int64_t output_index = position - slot.input->prompt_tokens;
  const bool too_early = output_index < params.min_tokens;
  if (too_early || !params.bad_token_sequences.empty()) {
    std::vector<int32_t>& barred = NextBarred();
    if (too_early) barred.assign(slot.input->end_ids.begin(), slot.input->end_ids.end());
    for (const std::vector<int32_t>& sequence : params.bad_token_sequences) {
      const std::span<const int32_t> before = std::span(sequence).first(sequence.size() - 1);
      // As many tokens of the prompt as it takes may begin the sequence.
      if (EndsWith(text, unfed, before)) barred.push_back(sequence.back());
    }
    rule.barred = barred;
  }
  return rule;
}

void RowRules::LetEnd(const DecodeSlot& slot, std::span<const uint32_t> mask, TokenRule* rule) {
  const int64_t output_index = rule->position - slot.input->prompt_tokens;
  if (output_index >= slot.input->sampling.min_tokens) return;
  const std::vector<int32_t>& ends = slot.input->end_ids;
  const auto ends_of_word = [&](size_t word) {
    uint32_t bits = 0;
    for (const int32_t id : ends) {
      if (static_cast<size_t>(id) / 32 == word) bits |= 1U << (id % 32);
    }
    return bits;
  };
  for (size_t word = 0; word < mask.size(); ++word) {
    if (mask[word] != 0 && (mask[word] & ~ends_of_word(word)) != 0) return;  // most words are 0
  }
  // Make() has put the end ids first.
  rule->barred = rule->barred.subspan(ends.size());
}

}  // namespace deepinfer
