#include "engine/slot_constraint.h"

#include <algorithm>
#include <string>

#include "base/clock.h"

namespace deepinfer {
namespace {

/// As far as forced text is followed: more than one step can verify.
constexpr size_t kMostForcedBytes = 96;
/// After this long drafts are not worth more masks; no output depends on how many are verified.
constexpr double kMostMaskSeconds = 0.002;

void Clear(std::span<uint32_t> words, const std::vector<int32_t>& ids) {
  for (const int32_t id : ids) words[static_cast<size_t>(id) / 32] &= ~(1U << (id % 32));
}

}  // namespace

SlotConstraint::SlotConstraint(std::shared_ptr<const OutputConstraint> constraint, int64_t most_drafts)
    : constraint_(std::move(constraint)),
      free_(constraint_->begins_behind >= 0),
      matcher_(constraint_->grammar, constraint_->end_ids),
      words_(constraint_->grammar->trie().words()),
      masks_(words_ * static_cast<size_t>(1 + most_drafts)) {}

Result<bool> SlotConstraint::Step(int32_t id) {
  if (free_) {
    const std::vector<int32_t>& barred = constraint_->barred_before;
    if (std::find(barred.begin(), barred.end(), id) != barred.end()) return false;
    if (id == constraint_->begins_behind) free_ = false;
    return true;
  }
  DEEPINFER_ASSIGN_OR_RETURN(const bool admitted, matcher_.Accept(id));
  if (admitted) ++steps_in_matcher_;
  return admitted;
}

void SlotConstraint::TakeBack() {
  matcher_.Rollback(steps_in_matcher_);
  steps_in_matcher_ = 0;
  free_ = free_before_steps_;
}

Status SlotConstraint::StopDrafting() {
  follows_drafts_ = false;
  TakeBack();
  return matcher_.Restart();
}

Status SlotConstraint::Accept(int32_t id) {
  Result<bool> admitted = Step(id);
  if (!admitted.ok()) {
    // What drafts have used up must not fail a token: once more, from nothing.
    DEEPINFER_RETURN_IF_ERROR(matcher_.Restart());
    admitted = Step(id);
  }
  steps_in_matcher_ = 0;
  DEEPINFER_RETURN_IF_ERROR(admitted.status());
  if (!*admitted) return Status::InvalidArgument("token " + std::to_string(id) + " does not continue the grammar");
  return Status::Ok();
}

Result<int32_t> SlotConstraint::Admitted(std::span<const int32_t> drafts) {
  if (!follows_drafts_) return 0;
  free_before_steps_ = free_;
  int32_t count = 0;
  for (const int32_t id : drafts) {
    const Result<bool> admitted = Step(id);
    if (!admitted.ok()) {
      DEEPINFER_RETURN_IF_ERROR(StopDrafting());
      return 0;
    }
    if (!*admitted) break;
    ++count;
  }
  TakeBack();
  return count;
}

Status SlotConstraint::Continuation(std::span<const int32_t> drafts, const Tokenizer& tokenizer, int64_t most,
                                    std::vector<int32_t>* ids) {
  if (!follows_drafts_) return Status::Ok();
  free_before_steps_ = free_;
  for (const int32_t id : drafts) {
    const Result<bool> admitted = Step(id);
    if (!admitted.ok() || !*admitted) return StopDrafting();
  }
  std::vector<int32_t> forced;
  if (!free_) {
    Result<std::vector<int32_t>> tokens = matcher_.ForcedTokens(tokenizer, kMostForcedBytes);
    if (!tokens.ok()) return StopDrafting();
    forced = std::move(*tokens);
  }
  TakeBack();
  const auto count = std::min<std::ptrdiff_t>(std::ssize(forced), most);
  ids->insert(ids->end(), forced.begin(), forced.begin() + count);
  return Status::Ok();
}

void SlotConstraint::FillMasks(std::span<const int32_t> drafts) {
  free_before_steps_ = free_;
  masked_drafts_ = 0;
  const double begin = NowSeconds();
  for (size_t row = 0; row <= drafts.size() && status_.ok(); ++row) {
    if (row > 0 && NowSeconds() - begin > kMostMaskSeconds) break;
    const auto words = std::span(masks_).subspan(row * words_, words_);
    if (free_) {
      std::fill(words.begin(), words.end(), ~0U);
      Clear(words, constraint_->barred_before);
    } else {
      Status filled = matcher_.FillMask(words);
      if (!filled.ok()) {
        if (row > 0) {
          status_ = StopDrafting();
          return;
        }
        // As in Accept().
        filled = matcher_.Restart();
        if (filled.ok()) filled = matcher_.FillMask(words);
        status_ = filled;
        if (!filled.ok()) return;
      }
    }
    masked_drafts_ = static_cast<int32_t>(row);
    if (row == drafts.size()) break;
    const Result<bool> admitted = Step(drafts[row]);
    if (!admitted.ok()) {
      status_ = StopDrafting();
      return;
    }
    if (!*admitted) status_ = Status::Internal("a draft that the grammar does not admit is verified");
  }
  TakeBack();
}

std::span<const uint32_t> SlotConstraint::mask(int32_t drafts) const {
  return std::span(masks_).subspan(static_cast<size_t>(drafts) * words_, words_);
}

}  // namespace deepinfer
