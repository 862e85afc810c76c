#include "engine/rehearsal.h"

#include <span>
#include <utility>

namespace deepinfer {

Result<Rehearsal> Rehearsal::Create(Model& model, Ops& ops, int64_t rows) {
  const std::shared_ptr<const SequenceLayout> layout = model.layout();
  Rehearsal rehearsal(model, ops);
  rehearsal.blocks_ = (rows + SequenceState::kPageTokens - 1) / SequenceState::kPageTokens;
  DEEPINFER_ASSIGN_OR_RETURN(rehearsal.memory_,
                             ops.Allocate(layout->PieceBytes() + rehearsal.blocks_ * layout->BlockBytes()));
  DEEPINFER_ASSIGN_OR_RETURN(rehearsal.state_, SequenceState::CreateLent(layout, rows, rehearsal.memory_.data(), ops));
  // Ids that spread over the experts.
  rehearsal.ids_.resize(static_cast<size_t>(rows));
  for (size_t i = 0; i < rehearsal.ids_.size(); ++i) {
    rehearsal.ids_[i] =
        static_cast<int32_t>((i * 2654435761U + 12345) % static_cast<uint64_t>(model.config().vocab_size));
  }
  rehearsal.rules_.resize(rehearsal.ids_.size());
  for (TokenRule& rule : rehearsal.rules_) rule.temperature = 0;
  rehearsal.choices_.resize(rehearsal.ids_.size());
  return rehearsal;
}

Result<ForwardResult> Rehearsal::Run(int64_t rows, LogitsRows logits) {
  const std::shared_ptr<const SequenceLayout> layout = model_->layout();
  state_->Clear();
  for (int64_t i = 0; i < blocks_; ++i) {
    state_->AttachBlock(memory_.data() + layout->PieceBytes() + i * layout->BlockBytes());
  }
  const BatchItem item{state_.get(), std::span(ids_).first(static_cast<size_t>(rows)), logits};
  DEEPINFER_ASSIGN_OR_RETURN(const ForwardResult result, model_->Forward({{&item, 1}}));
  const auto chosen = static_cast<size_t>(result.logits.rows);
  ops_->ChooseTokens(result.logits, std::span(rules_).first(chosen), std::span(choices_).first(chosen));
  return result;
}

}  // namespace deepinfer
