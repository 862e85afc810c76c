#include "engine/step_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/clock.h"

namespace deepinfer {
namespace {

Status NothingToChoose(const DecodeSlot& slot) {
  if (slot.constraint == nullptr) {
    return Status::Internal("logits: expected finite numbers and a token that is not barred");
  }
  return Status::InvalidArgument(
      "structured output: bad_words and logit_bias bar everything that the grammar leaves (or logits are not finite)");
}

}  // namespace

Status DeviceFailed(const Status& cause) {
  return Status::Internal(
      fmt::format("the device has failed and computes nothing more: {}; restart the program", cause.message()));
}

Result<std::unique_ptr<StepExecutor>> StepExecutor::Create(Model& model, Ops& ops, const ExecutorOptions& options,
                                                           uint8_t* pieces, StepProfile profile) {
  std::unique_ptr<StepExecutor> executor(new StepExecutor(model, ops, options));
  for (size_t i = 0; i < executor->slots_.size(); ++i) {
    uint8_t* const piece = pieces + static_cast<int64_t>(i) * executor->layout_->PieceBytes();
    DEEPINFER_ASSIGN_OR_RETURN(executor->slots_[i].state,
                               SequenceState::CreateLent(executor->layout_, options.max_model_len, piece, ops));
  }
  DEEPINFER_ASSIGN_OR_RETURN(executor->drafter_,
                             Drafter::Create(model, ops, executor->slots_, options.drafts, std::move(profile)));
  return executor;
}

StepExecutor::StepExecutor(Model& model, Ops& ops, const ExecutorOptions& options)
    : model_(model), ops_(ops), options_(options), layout_(model.layout()), slots_(static_cast<size_t>(options.slots)) {
  mask_worker_.Reserve(slots_.size());
  const auto most_rows = static_cast<size_t>(model.options().max_rows_per_step);
  rows_.reserve(slots_.size());
  ids_.reserve(most_rows);
  batch_.reserve(slots_.size());
  rules_.reserve(most_rows);
  choices_.reserve(most_rows);
  one_draft_rules_.reserve(static_cast<size_t>(options.drafts.draft_length));
}

int64_t StepExecutor::bytes() const {
  const int64_t pages = 1 + (options_.max_model_len + SequenceState::kPageTokens - 1) / SequenceState::kPageTokens;
  const int64_t block = options_.drafts.draft_length > 0 ? model_.config().dspark_block_size : 0;
  const bool keeps_logits = options_.drafts.rule == SpeculationRule::kRejection;
  const int64_t draft_floats = block * (5 + (keeps_logits ? model_.config().vocab_size : 0));
  const int64_t slot = pages * static_cast<int64_t>(sizeof(uint8_t*)) +
                       options_.max_model_len * static_cast<int64_t>(sizeof(int32_t)) +
                       draft_floats * static_cast<int64_t>(sizeof(float));
  const int64_t row = static_cast<int64_t>(sizeof(TokenRule) + sizeof(TokenChoice) + sizeof(int32_t));
  return drafter_->bytes() + options_.slots * slot + model_.options().max_rows_per_step * row;
}

void StepExecutor::Run(const StepPlan& plan, StepResult* result) {
  const double begin = NowSeconds();
  const RowCounts before = model_.row_counts();
  result->slots.clear();
  result->tokens.clear();
  result->prompt_tokens.clear();
  result->top_storage.clear();
  result->confidence.clear();
  result->device = Status::Ok();

  for (const SlotStart& start : plan.starts) Start(start);
  for (const BlockGrant& grant : plan.grants) slots_[static_cast<size_t>(grant.slot)].state->AttachBlock(grant.block);

  GatherRows(plan);
  Status status = RestartEncoders();
  if (status.ok()) {
    drafter_->PlanVerification(rows_);
    status = Forward();
  }
  for (StepRow& row : rows_) {
    row.result = static_cast<int32_t>(result->slots.size());
    SlotResult& slot_result = result->slots.emplace_back();
    slot_result.slot = row.item->slot;
    slot_result.serial = row.slot->serial;
    slot_result.decode = row.decode;
    if (!row.slot->broken.ok()) Fail(row, row.slot->broken, result);
  }
  if (status.ok()) status = Choose(result);
  if (status.ok()) status = ops_.Finish();
  if (status.ok()) {
    for (StepRow& row : rows_) Accept(row, result);
    drafter_->KeepTaps(rows_, forward_);
    status = drafter_->Propose(rows_);
    for (StepRow& row : rows_) {
      if (row.slot->constraint != nullptr && row.slot->pending >= 0 && !row.slot->finished) {
        const Status constrained = drafter_->Constrain(row.slot, options_.tokenizer);
        if (!constrained.ok()) Fail(row, constrained, result);
      }
    }
  }
  if (status.ok()) {
    for (const StepRow& row : rows_) SaveRings(row, result);
    // A snapshot that was not copied must not be published.
    const bool saved =
        std::ranges::any_of(rows_, [](const StepRow& row) { return row.item->save_rings != nullptr; }) ||
        std::ranges::any_of(result->slots, [](const SlotResult& slot) { return slot.snapshot_count > 0; });
    if (saved) status = ops_.Finish();
  }
  if (!status.ok()) {
    // Whether only this step failed, or all that follow will.
    const Status device = ops_.Finish();
    if (!device.ok()) status = result->device = DeviceFailed(device);
    for (StepRow& row : rows_) Fail(row, status, result);
  }
  for (StepRow& row : rows_) {
    // The next request with this grammar finds what was learnt.
    if (row.slot->finished) row.slot->constraint.reset();
  }

  const RowCounts after = model_.row_counts();
  result->rows = {after.encoder - before.encoder, after.decoder - before.decoder, after.logits - before.logits,
                  after.drafts - before.drafts};
  result->seconds = NowSeconds() - begin;
}

void StepExecutor::Start(const SlotStart& start) {
  DecodeSlot& slot = slots_[static_cast<size_t>(start.slot)];
  const RequestInput& input = *start.input;
  slot.input = start.input;
  slot.serial = start.serial;
  slot.finished = false;
  slot.broken = Status::Ok();
  slot.pending = -1;
  slot.outputs = std::ssize(input.ids) - input.prompt_tokens;
  drafter_->Reset(&slot);
  slot.seen.clear();
  if (RowRules::HasPenalties(input.sampling)) {
    slot.seen.reserve(input.ids.size());
    for (int64_t i = 0; i < std::ssize(input.ids); ++i) {
      RowRules::See(&slot.seen, input.ids[static_cast<size_t>(i)], i < input.prompt_tokens);
    }
  }
  slot.rolling = start.rolling;
  slot.next_rolling = 0;

  slot.constraint.reset();
  if (input.constraint != nullptr) {
    slot.constraint = std::make_unique<SlotConstraint>(input.constraint, options_.drafts.draft_length);
    // What is part of the text already: the end of the prompt, and what was generated before a preemption.
    for (int64_t i = input.prompt_tokens - input.constraint->prompt_tokens; i < std::ssize(input.ids); ++i) {
      slot.broken = slot.constraint->Accept(input.ids[static_cast<size_t>(i)]);
      if (!slot.broken.ok()) break;
    }
  }

  const ReplayPlan& replay = start.replay;
  slot.state->Clear();
  slot.state->Resume(std::span(input.ids).first(static_cast<size_t>(replay.first_position)), replay.hit_tokens,
                     replay.encoder_start, replay.decoder_start);
  if (start.rings != nullptr && !slot.state->LoadRings(start.rings) && slot.broken.ok()) {
    slot.broken = Status::Internal("the ring snapshot of a cached prefix is not the one that was asked for");
  }
}

void StepExecutor::GatherRows(const StepPlan& plan) {
  rows_.clear();
  for (const PlanItem& item : plan.items) {
    DecodeSlot& slot = slots_[static_cast<size_t>(item.slot)];
    // A request that ended in the step before is still in the plan.
    if (slot.finished) continue;
    StepRow& row = rows_.emplace_back();
    row.item = &item;
    row.slot = &slot;
    row.decode = item.count == 0;
    row.first_position = row.decode ? slot.state->length() : item.first_position;
    assert(row.first_position == slot.state->length());
    assert(row.decode == (slot.pending >= 0));
  }
}

Status StepExecutor::RestartEncoders() {
  for (const StepRow& row : rows_) {
    const ReplaySettings& replay = row.slot->input->replay;
    SequenceState& state = *row.slot->state;
    const int64_t position = state.length();
    if (!replay.bounded || position == 0 || position % replay.grid != 0) continue;
    if (state.encoder_start() == position - replay.replay) continue;
    restart_ids_.assign(state.ids().end() - replay.replay, state.ids().end());
    state.RestartEncoder(position - replay.replay);
    const int64_t most = model_.options().max_rows_per_step;
    for (std::span<const int32_t> left = restart_ids_; !left.empty();) {
      const size_t count = std::min(left.size(), static_cast<size_t>(most));
      const BatchItem item{&state, left.first(count), LogitsRows::kNone, true};
      const Result<ForwardResult> forward = model_.Forward({{&item, 1}});
      if (!forward.ok()) return forward.status();
      left = left.subspan(count);
    }
  }
  return Status::Ok();
}

Status StepExecutor::Forward() {
  ids_.clear();
  batch_.clear();
  rules_.clear();
  row_rules_.Clear();
  for (StepRow& row : rows_) {
    DecodeSlot& slot = *row.slot;
    row.first_id = static_cast<int32_t>(ids_.size());
    if (row.decode) {
      row.row_count = 1 + row.drafts;
      ids_.push_back(slot.pending);
      ids_.insert(ids_.end(), slot.drafts.begin(), slot.drafts.begin() + row.drafts);
    } else {
      row.row_count = static_cast<int32_t>(row.item->count);
      const auto first = slot.input->ids.begin() + row.item->first_position;
      ids_.insert(ids_.end(), first, first + row.row_count);
    }
  }
  for (StepRow& row : rows_) {
    DecodeSlot& slot = *row.slot;
    const auto ids = std::span(ids_).subspan(static_cast<size_t>(row.first_id), static_cast<size_t>(row.row_count));
    const bool all = row.decode || slot.input->prompt_logprobs;
    const LogitsRows wanted = all ? LogitsRows::kAll : row.item->last ? LogitsRows::kLast : LogitsRows::kNone;
    batch_.push_back({slot.state.get(), ids, wanted, false});
    row.first_rule = static_cast<int32_t>(rules_.size());
    if (row.decode) {
      for (int32_t i = 0; i < row.row_count; ++i) {
        rules_.push_back(row_rules_.Make(slot, slot.state->ids(), ids.first(static_cast<size_t>(i) + 1),
                                         row.first_position + 1 + i));
      }
    } else if (all) {
      // The log probability of the token that follows each row; the last row of the input chooses it.
      for (int32_t i = 0; i < row.row_count; ++i) {
        const int64_t position = row.first_position + 1 + i;
        if (position == std::ssize(slot.input->ids)) {
          rules_.push_back(row_rules_.Make(slot, slot.input->ids, {}, position));
          continue;
        }
        TokenRule rule;
        rule.known_id = slot.input->ids[static_cast<size_t>(position)];
        rule.top_logprobs = slot.input->sampling.prompt_logprobs;
        rules_.push_back(rule);
      }
    } else if (row.item->last) {
      rules_.push_back(row_rules_.Make(slot, slot.input->ids, {}, row.first_position + row.row_count));
    }
    row.rule_count = static_cast<int32_t>(rules_.size()) - row.first_rule;
    AddMasks(row);
  }
  if (batch_.empty()) {
    forward_ = {};
    return Status::Ok();
  }
  mask_worker_.Begin();
  Result<ForwardResult> forward = model_.Forward({batch_});
  mask_worker_.Wait();
  if (!forward.ok()) return forward.status();
  forward_ = *forward;
  for (size_t i = 0; i < rows_.size(); ++i) rows_[i].first_logits = forward_.items[i].first_logits;
  for (StepRow& row : rows_) ApplyMasks(row);
  return Status::Ok();
}

void StepExecutor::AddMasks(const StepRow& row) {
  DecodeSlot& slot = *row.slot;
  if (slot.constraint == nullptr || !slot.broken.ok() || !(row.decode || row.item->last)) return;
  mask_worker_.Add(slot.constraint.get(), std::span(slot.drafts).first(static_cast<size_t>(row.drafts)));
}

void StepExecutor::ApplyMasks(StepRow& row) {
  DecodeSlot& slot = *row.slot;
  if (slot.constraint == nullptr || !slot.broken.ok() || !(row.decode || row.item->last)) return;
  if (!slot.constraint->status().ok()) {
    slot.broken = slot.constraint->status();
    return;
  }
  // The rules of the choices are the last ones of the row.
  const int32_t first = row.first_rule + row.rule_count - 1 - row.drafts;
  row.drafts = slot.constraint->masked_drafts();
  for (int32_t i = 0; i <= row.drafts; ++i) {
    TokenRule& rule = rules_[static_cast<size_t>(first + i)];
    const std::span<const uint32_t> mask = slot.constraint->mask(i);
    rule.allowed = mask.data();
    RowRules::LetEnd(slot, mask, &rule);
  }
}

Status StepExecutor::Choose(StepResult* result) {
  choices_.assign(rules_.size(), {});
  if (rules_.empty()) return Status::Ok();
  size_t top = 0;
  for (const TokenRule& rule : rules_) top += static_cast<size_t>(std::max(rule.top_logprobs, 0));
  result->top_storage.resize(top);
  top = 0;
  for (size_t i = 0; i < rules_.size(); ++i) {
    const auto count = static_cast<size_t>(std::max(rules_[i].top_logprobs, 0));
    choices_[i].top = std::span(result->top_storage).subspan(top, count);
    top += count;
  }
  ops_.ChooseTokens(forward_.logits, rules_, choices_);

  if (options_.drafts.rule != SpeculationRule::kRejection) return Status::Ok();
  // Rejection: the tokens that stand are drafts; log probabilities are then those of the drafts.
  for (StepRow& row : rows_) {
    if (row.drafts == 0) continue;
    DecodeSlot& slot = *row.slot;
    const auto first = static_cast<size_t>(row.first_rule);
    const auto drafts = static_cast<size_t>(row.drafts);
    const int64_t vocabulary = forward_.logits.columns;
    one_draft_rules_.assign(rules_.begin() + row.first_rule, rules_.begin() + row.first_rule + row.drafts);
    for (TokenRule& rule : one_draft_rules_) {
      rule.purpose = RandomPurpose::kDraft;
      rule.barred = {};
      rule.allowed = nullptr;
      rule.seen = slot.seen;
      rule.top_logprobs = -1;
    }
    const DraftCheck check{forward_.logits.RowRange(row.first_logits, row.first_logits + row.drafts + 1),
                           std::span(rules_).subspan(first, drafts + 1),
                           ConstFloatView(slot.draft_logits.data(), row.drafts, vocabulary, vocabulary),
                           one_draft_rules_, std::span(slot.drafts).first(drafts)};
    // What the grammar leaves was proposed with certainty.
    for (size_t i = static_cast<size_t>(slot.certain_from); i < drafts; ++i) one_draft_rules_[i].temperature = 0;
    DraftVerdict verdict;
    ops_.AcceptDrafts({&check, 1}, {&verdict, 1});
    // Accept() reads the outcome as the choices of a coupled verification.
    for (int32_t i = 0; i <= row.drafts; ++i) {
      const auto at = first + static_cast<size_t>(i);
      const int32_t id = i < verdict.accepted ? slot.drafts[static_cast<size_t>(i)] : verdict.token;
      if (rules_[at].top_logprobs >= 0 && id >= 0) {
        rules_[at].known_id = id;
        ops_.ChooseTokens(forward_.logits.RowRange(row.first_logits + i, row.first_logits + i + 1),
                          std::span(rules_).subspan(at, 1), std::span(choices_).subspan(at, 1));
      }
      choices_[at].id = id;
      if (i == verdict.accepted) break;
    }
  }
  return Status::Ok();
}

void StepExecutor::Fail(StepRow& row, const Status& status, StepResult* result) {
  SlotResult& slot_result = result->slots[static_cast<size_t>(row.result)];
  if (slot_result.finished) return;
  slot_result.finished = true;
  slot_result.reason = FinishReason::kError;
  slot_result.status = status;
  row.slot->finished = true;
}

void StepExecutor::Emit(StepRow& row, int32_t id, const TokenChoice& choice, StepResult* result) {
  DecodeSlot& slot = *row.slot;
  SlotResult& slot_result = result->slots[static_cast<size_t>(row.result)];
  result->tokens.push_back({id, choice.logprob, choice.top.first(static_cast<size_t>(choice.top_count))});
  ++slot_result.token_count;
  ++slot.outputs;
  slot.pending = id;
  if (slot.constraint != nullptr) {
    const Status accepted = slot.constraint->Accept(id);
    if (!accepted.ok()) return Fail(row, accepted, result);
  }
  if (RowRules::HasPenalties(slot.input->sampling)) RowRules::See(&slot.seen, id, false);
  const std::vector<int32_t>& ends = slot.input->end_ids;
  if (std::find(ends.begin(), ends.end(), id) != ends.end()) {
    slot_result.finished = true;
    slot_result.reason = FinishReason::kStop;
  } else if (slot.input->prompt_tokens + slot.outputs >= slot.input->most_tokens) {
    slot_result.finished = true;
    slot_result.reason = FinishReason::kLength;
  }
}

void StepExecutor::RecordPromptLogprobs(const StepRow& row, StepResult* result) {
  SlotResult& slot_result = result->slots[static_cast<size_t>(row.result)];
  slot_result.prompt_position = row.first_position + 1;
  slot_result.first_prompt_token = static_cast<int32_t>(result->prompt_tokens.size());
  for (int32_t i = 0; i < row.rule_count; ++i) {
    const TokenRule& rule = rules_[static_cast<size_t>(row.first_rule + i)];
    const TokenChoice& choice = choices_[static_cast<size_t>(row.first_rule + i)];
    // Only of the prompt itself: what a preempted request generated is known by now.
    if (rule.known_id < 0 || row.first_position + 1 + i >= row.slot->input->prompt_tokens) break;
    result->prompt_tokens.push_back(
        {choice.id, choice.logprob, choice.top.first(static_cast<size_t>(choice.top_count))});
    ++slot_result.prompt_token_count;
  }
}

void StepExecutor::SaveRings(const StepRow& row, StepResult* result) {
  DecodeSlot& slot = *row.slot;
  SlotResult& slot_result = result->slots[static_cast<size_t>(row.result)];
  if (row.item->save_rings != nullptr) {
    slot.state->SaveRings(slot.state->length(), slot.bounded(), row.item->save_rings);
  }
  if (!row.decode) return;
  constexpr int64_t kBlock = SequenceState::kPageTokens;
  const int64_t boundary = slot.state->length() / kBlock * kBlock;
  if (boundary <= row.first_position || (slot.bounded() && boundary % slot.input->replay.grid == 0)) return;
  uint8_t* to = slot.rolling[static_cast<size_t>(slot.next_rolling)];
  if (to == nullptr) return;
  slot.state->SaveRings(boundary, slot.bounded(), to);
  slot_result.snapshots[static_cast<size_t>(slot_result.snapshot_count++)] = {slot.next_rolling, boundary};
  do {
    slot.next_rolling = (slot.next_rolling + 1) % kRollingSnapshots;
  } while (slot.rolling[static_cast<size_t>(slot.next_rolling)] == nullptr);
}

void StepExecutor::Accept(StepRow& row, StepResult* result) {
  DecodeSlot& slot = *row.slot;
  SlotResult& slot_result = result->slots[static_cast<size_t>(row.result)];
  if (slot_result.finished) return;
  slot_result.first_token = static_cast<int32_t>(result->tokens.size());
  if (!row.decode) {
    if (slot.input->prompt_logprobs) RecordPromptLogprobs(row, result);
    if (row.item->last) {
      const TokenChoice& choice = choices_[static_cast<size_t>(row.first_rule + row.rule_count - 1)];
      if (choice.id < 0) {
        Fail(row, NothingToChoose(slot), result);
      } else {
        Emit(row, choice.id, choice, result);
      }
    }
    slot_result.length = slot.state->length();
    slot.finished = slot_result.finished;
    return;
  }

  int32_t emitted = 0;
  int32_t accepted = 0;
  while (!slot_result.finished) {
    const TokenChoice& choice = choices_[static_cast<size_t>(row.first_rule + emitted)];
    if (choice.id < 0) {
      Fail(row, NothingToChoose(slot), result);
      break;
    }
    const bool stands = emitted < row.drafts && choice.id == slot.drafts[static_cast<size_t>(emitted)];
    Emit(row, choice.id, choice, result);
    ++emitted;
    if (!stands) break;
    ++accepted;
  }
  if (emitted > 0 && emitted < row.row_count) {
    const Status status = model_.Truncate(*slot.state, row.first_position + emitted);
    assert(status.ok());
    (void)status;
  }
  slot_result.length = slot.state->length();
  slot_result.drafted = slot.draft_count;
  slot_result.typical = slot.typical_drafts;
  slot_result.verified = row.drafts;
  slot_result.accepted = accepted;
  if (slot.draft_count > 0) {
    slot_result.first_confidence = static_cast<int32_t>(result->confidence.size());
    result->confidence.insert(result->confidence.end(), slot.confidence.begin(), slot.confidence.end());
    if (slot.typical_drafts) drafter_->Observe(&slot);
  }
  slot.finished = slot_result.finished;
  slot.draft_count = 0;
}

}  // namespace deepinfer
