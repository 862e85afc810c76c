#include "engine/step_executor.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "base/clock.h"

namespace deepinfer {
namespace {

// Drafts of a sequence that has made none yet are expected to survive like this.
constexpr float kFirstSurvival = 0.7F;

}  // namespace

Result<std::unique_ptr<StepExecutor>> StepExecutor::Create(Model& model, Ops& ops, const ExecutorOptions& options,
                                                           uint8_t* pieces, StepProfile profile) {
  std::unique_ptr<StepExecutor> executor(new StepExecutor(model, ops, options, pieces, std::move(profile)));
  if (executor->options_.draft_length == 0) return executor;
  const int64_t rows = options.slots * executor->layout_->window;
  const int64_t width = std::ssize(model.config().dspark_target_layer_ids) * model.config().hidden_size;
  if (!executor->tap_storage_.Allocate(rows * width)) {
    return Status::ResourceExhausted("no memory for the taps of " + std::to_string(options.slots) +
                                     " sequences: " + std::to_string(rows * width * 4) +
                                     " bytes needed; lower max_num_seqs or set draft_length to 0");
  }
  executor->taps_ = FloatView(executor->tap_storage_.data(), rows, width, width);
  return executor;
}

StepExecutor::StepExecutor(Model& model, Ops& ops, const ExecutorOptions& options, uint8_t* pieces, StepProfile profile)
    : model_(model),
      ops_(ops),
      options_(options),
      layout_(model.layout()),
      block_(layout_->stages > 0 ? model.config().dspark_block_size : 0),
      slots_(static_cast<size_t>(options.slots)),
      profile_(std::move(profile)),
      planner_(&profile_, std::max<int64_t>(block_, 1)) {
  options_.draft_length = static_cast<int>(std::min<int64_t>(options_.draft_length, block_));
  planner_.Reserve(options.slots);
  const auto block = static_cast<size_t>(block_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    DecodeSlot& slot = slots_[i];
    slot.state = SequenceState::CreateLent(layout_, options.max_model_len,
                                           pieces + static_cast<int64_t>(i) * layout_->PieceBytes());
    slot.drafts.resize(block);
    slot.confidence.resize(block);
    slot.survival.resize(block);
    slot.survival_before.resize(block);
    slot.survival_average.resize(block);
    if (options_.rule == SpeculationRule::kRejection && options_.draft_length > 0) {
      slot.draft_logits.resize(block * static_cast<size_t>(model.config().vocab_size));
    }
  }
  const auto most_rows = static_cast<size_t>(model.options().max_rows_per_step);
  rows_.reserve(slots_.size());
  ids_.reserve(most_rows);
  batch_.reserve(slots_.size());
  rules_.reserve(most_rows);
  choices_.reserve(most_rows);
  contexts_.reserve(2 * slots_.size());
  draft_items_.reserve(slots_.size());
  draft_slots_.reserve(slots_.size());
  survival_.reserve(slots_.size() * block);
  survival_before_.reserve(slots_.size() * block);
  limits_.reserve(slots_.size());
  lengths_.reserve(slots_.size());
  one_draft_rules_.reserve(block);
}

int64_t StepExecutor::bytes() const {
  const int64_t pages = 2 * std::ssize(layout_->sources) *
                        ((options_.max_model_len + SequenceState::kPageTokens - 1) / SequenceState::kPageTokens);
  int64_t slot = pages * static_cast<int64_t>(sizeof(uint8_t*)) + options_.max_model_len * 4 +
                 block_ * static_cast<int64_t>(5 * sizeof(float));
  if (!slots_.empty()) slot += static_cast<int64_t>(slots_[0].draft_logits.size() * sizeof(float));
  const int64_t row = static_cast<int64_t>(sizeof(TokenRule) + sizeof(TokenChoice) + sizeof(int32_t));
  return tap_storage_.bytes() + options_.slots * slot + model_.options().max_rows_per_step * row;
}

void StepExecutor::Run(const StepPlan& plan, StepResult* result) {
  const double begin = NowSeconds();
  const RowCounts before = model_.row_counts();
  result->slots.clear();
  result->tokens.clear();
  result->prompt_tokens.clear();
  result->top_storage.clear();
  result->confidence.clear();

  for (const SlotStart& start : plan.starts) Start(start);
  for (const BlockGrant& grant : plan.grants) slots_[static_cast<size_t>(grant.slot)].state->AttachBlock(grant.block);

  GatherRows(plan);
  Status status = RestartEncoders();
  if (status.ok()) {
    PlanDrafts();
    status = Forward();
  }
  for (Row& row : rows_) {
    row.result = static_cast<int32_t>(result->slots.size());
    SlotResult& slot_result = result->slots.emplace_back();
    slot_result.slot = row.item->slot;
    slot_result.serial = row.slot->serial;
    slot_result.decode = row.decode;
  }
  if (status.ok()) status = Choose(result);
  if (status.ok()) {
    for (Row& row : rows_) Accept(row, result);
    KeepTaps();
    status = ProposeDrafts();
  }
  if (status.ok()) {
    for (const Row& row : rows_) SaveRings(row, result);
  }
  if (!status.ok()) {
    for (Row& row : rows_) Fail(row, status, result);
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
  slot.pending = -1;
  slot.outputs = std::ssize(input.ids) - input.prompt_tokens;
  slot.draft_count = 0;
  slot.taps_begin = slot.taps_end = 0;
  std::fill(slot.survival_average.begin(), slot.survival_average.end(), 0.0F);
  float survival = 1;
  for (float& value : slot.survival_average) value = survival *= kFirstSurvival;
  slot.survival_before = slot.survival_average;
  slot.seen.clear();
  if (RowRules::HasPenalties(input.sampling)) {
    slot.seen.reserve(input.ids.size());
    for (int64_t i = 0; i < std::ssize(input.ids); ++i) {
      RowRules::See(&slot.seen, input.ids[static_cast<size_t>(i)], i < input.prompt_tokens);
    }
  }
  slot.rolling = start.rolling;
  slot.next_rolling = 0;

  const ReplayPlan& replay = start.replay;
  slot.state->Clear();
  slot.state->Resume(std::span(input.ids).first(static_cast<size_t>(replay.first_position)), replay.hit_tokens,
                     replay.encoder_start, replay.decoder_start);
  if (start.rings != nullptr) slot.state->LoadRings(start.rings);
}

void StepExecutor::GatherRows(const StepPlan& plan) {
  rows_.clear();
  for (const PlanItem& item : plan.items) {
    DecodeSlot& slot = slots_[static_cast<size_t>(item.slot)];
    // A request that ended in the step before is still in the plan.
    if (slot.finished) continue;
    Row& row = rows_.emplace_back();
    row.item = &item;
    row.slot = &slot;
    row.decode = item.count == 0;
    row.first_position = row.decode ? slot.state->length() : item.first_position;
    assert(row.first_position == slot.state->length());
    assert(row.decode == (slot.pending >= 0));
  }
}

Status StepExecutor::RestartEncoders() {
  for (const Row& row : rows_) {
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

int32_t StepExecutor::DraftLimit(const DecodeSlot& slot, int64_t length) const {
  // The last token of the answer takes index most_tokens - 1 and is never fed.
  int64_t limit = std::min<int64_t>(options_.draft_length, slot.input->most_tokens - 2 - length);
  limit = std::min(limit, slot.state->capacity() - 1 - length);
  const ReplaySettings& replay = slot.input->replay;
  if (replay.bounded) limit = std::min(limit, NextRestart(length, replay.grid) - 1 - length);
  return static_cast<int32_t>(std::max<int64_t>(limit, 0));
}

void StepExecutor::PlanDrafts() {
  survival_.clear();
  survival_before_.clear();
  limits_.clear();
  int64_t other_rows = 0;
  int64_t decoding = 0;
  bool any = false;
  for (Row& row : rows_) {
    if (!row.decode) {
      other_rows += row.item->count;
      continue;
    }
    ++decoding;
    DecodeSlot& slot = *row.slot;
    const int32_t limit = std::min({slot.draft_count, row.item->max_drafts, DraftLimit(slot, slot.state->length())});
    survival_.insert(survival_.end(), slot.survival.begin(), slot.survival.end());
    survival_before_.insert(survival_before_.end(), slot.survival_before.begin(), slot.survival_before.end());
    limits_.push_back(limit);
    any = any || limit > 0;
  }
  if (!any) return;

  lengths_.assign(static_cast<size_t>(decoding), 0);
  const SpeculationBatch batch{survival_, limits_, other_rows};
  if (!options_.variable_drafts || probe_) {
    planner_.VerifyAll(batch, lengths_);
  } else if (options_.rule == SpeculationRule::kCoupled) {
    planner_.PlanVerification(batch, lengths_);
  } else {
    const int64_t capacity = planner_.PlanCapacity({survival_before_, limits_, other_rows});
    planner_.AdmitTop(batch, capacity, lengths_);
  }
  size_t next = 0;
  for (Row& row : rows_) {
    if (row.decode) row.drafts = lengths_[next++];
  }
}

Status StepExecutor::Forward() {
  ids_.clear();
  batch_.clear();
  rules_.clear();
  row_rules_.Clear();
  for (Row& row : rows_) {
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
  for (Row& row : rows_) {
    DecodeSlot& slot = *row.slot;
    const auto ids = std::span(ids_).subspan(static_cast<size_t>(row.first_id), static_cast<size_t>(row.row_count));
    const bool all = row.decode || slot.input->prompt_logprobs;
    const LogitsRows wanted = all ? LogitsRows::kAll : row.item->last ? LogitsRows::kLast : LogitsRows::kNone;
    batch_.push_back({slot.state.get(), ids, wanted, false});
    row.first_rule = static_cast<int32_t>(rules_.size());
    if (row.decode) {
      for (int32_t i = 0; i < row.row_count; ++i) {
        rules_.push_back(row_rules_.Make(slot, ids.first(static_cast<size_t>(i) + 1), row.first_position + 1 + i));
      }
    } else if (all) {
      // The log probability of the token that follows each row; the last row of the input chooses it.
      for (int32_t i = 0; i < row.row_count; ++i) {
        const int64_t position = row.first_position + 1 + i;
        if (position == std::ssize(slot.input->ids)) {
          rules_.push_back(row_rules_.Make(slot, {}, position));
          continue;
        }
        TokenRule rule;
        rule.known_id = slot.input->ids[static_cast<size_t>(position)];
        rule.top_logprobs = slot.input->sampling.prompt_logprobs;
        rules_.push_back(rule);
      }
    } else if (row.item->last) {
      rules_.push_back(row_rules_.Make(slot, {}, row.first_position + row.row_count));
    }
    row.rule_count = static_cast<int32_t>(rules_.size()) - row.first_rule;
  }
  if (batch_.empty()) {
    forward_ = {};
    return Status::Ok();
  }
  Result<ForwardResult> forward = model_.Forward({batch_});
  if (!forward.ok()) return forward.status();
  forward_ = *forward;
  for (size_t i = 0; i < rows_.size(); ++i) rows_[i].first_logits = forward_.items[i].first_logits;
  return Status::Ok();
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

  if (options_.rule != SpeculationRule::kRejection) return Status::Ok();
  // Rejection: the tokens that stand are drafts; log probabilities are then those of the drafts.
  for (Row& row : rows_) {
    if (row.drafts == 0) continue;
    DecodeSlot& slot = *row.slot;
    const auto first = static_cast<size_t>(row.first_rule);
    const auto drafts = static_cast<size_t>(row.drafts);
    const int64_t vocabulary = forward_.logits.columns;
    one_draft_rules_.assign(rules_.begin() + row.first_rule, rules_.begin() + row.first_rule + row.drafts);
    for (TokenRule& rule : one_draft_rules_) {
      rule.purpose = RandomPurpose::kDraft;
      rule.barred = {};
      rule.seen = slot.seen;
      rule.top_logprobs = -1;
    }
    const DraftCheck check{forward_.logits.RowRange(row.first_logits, row.first_logits + row.row_count),
                           std::span(rules_).subspan(first, drafts + 1),
                           ConstFloatView(slot.draft_logits.data(), row.drafts, vocabulary, vocabulary),
                           one_draft_rules_, std::span(slot.drafts).first(drafts)};
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

void StepExecutor::Fail(Row& row, const Status& status, StepResult* result) {
  SlotResult& slot_result = result->slots[static_cast<size_t>(row.result)];
  if (slot_result.finished) return;
  slot_result.finished = true;
  slot_result.reason = FinishReason::kError;
  slot_result.status = status;
  row.slot->finished = true;
}

void StepExecutor::Emit(Row& row, int32_t id, const TokenChoice& choice, StepResult* result) {
  DecodeSlot& slot = *row.slot;
  SlotResult& slot_result = result->slots[static_cast<size_t>(row.result)];
  result->tokens.push_back({id, choice.logprob, choice.top.first(static_cast<size_t>(choice.top_count))});
  ++slot_result.token_count;
  ++slot.outputs;
  slot.pending = id;
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

void StepExecutor::RecordPromptLogprobs(const Row& row, StepResult* result) {
  SlotResult& slot_result = result->slots[static_cast<size_t>(row.result)];
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

void StepExecutor::SaveRings(const Row& row, StepResult* result) {
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

void StepExecutor::Accept(Row& row, StepResult* result) {
  DecodeSlot& slot = *row.slot;
  SlotResult& slot_result = result->slots[static_cast<size_t>(row.result)];
  slot_result.first_token = static_cast<int32_t>(result->tokens.size());
  if (!row.decode) {
    if (slot.input->prompt_logprobs) RecordPromptLogprobs(row, result);
    if (row.item->last) {
      const TokenChoice& choice = choices_[static_cast<size_t>(row.first_rule + row.rule_count - 1)];
      if (choice.id < 0) {
        Fail(row, Status::Internal("logits: expected finite numbers and a token that is not barred"), result);
      } else {
        Emit(row, choice.id, choice, result);
      }
    }
    slot_result.length = slot.state->length();
    slot.finished = slot_result.finished;
    return;
  }

  int32_t emitted = 0;
  while (!slot_result.finished) {
    const TokenChoice& choice = choices_[static_cast<size_t>(row.first_rule + emitted)];
    if (choice.id < 0) {
      Fail(row, Status::Internal("logits: expected finite numbers and a token that is not barred"), result);
      break;
    }
    const bool stands = emitted < row.drafts && choice.id == slot.drafts[static_cast<size_t>(emitted)];
    Emit(row, choice.id, choice, result);
    ++emitted;
    if (!stands) break;
  }
  const int32_t accepted = std::max(0, emitted - 1);
  if (emitted > 0 && emitted < row.row_count) {
    const Status status = model_.Truncate(*slot.state, row.first_position + emitted);
    assert(status.ok());
    (void)status;
  }
  slot_result.length = slot.state->length();
  slot_result.drafted = slot.draft_count;
  slot_result.verified = row.drafts;
  // A draft that ended the answer stood, too.
  slot_result.accepted = accepted;
  if (slot.draft_count > 0) {
    slot_result.first_confidence = static_cast<int32_t>(result->confidence.size());
    result->confidence.insert(result->confidence.end(), slot.confidence.begin(), slot.confidence.end());
    UpdateSurvivalAverage(slot.survival_average, slot.survival);
    slot.survival_before = slot.survival;
  }
  slot.finished = slot_result.finished;
  slot.draft_count = 0;
}

void StepExecutor::KeepTaps() {
  if (options_.draft_length == 0) return;
  const int64_t window = layout_->window;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    DecodeSlot& slot = *row.slot;
    if (slot.finished) continue;
    // Rows that passed the decoder and stand; of these the last window of what is known.
    const ItemRows& taps = forward_.items[i];
    const int64_t first = row.first_position + row.row_count - taps.tap_count;
    const int64_t end = row.decode ? slot.state->length() : row.first_position + row.row_count;
    const int64_t known = row.decode ? end : std::ssize(slot.input->ids);
    for (int64_t position = std::max(first, known - window); position < end; ++position) {
      if (position != slot.taps_end) slot.taps_begin = position;
      const float* from = forward_.taps.row(taps.first_tap + position - first);
      std::copy_n(from, taps_.columns, taps_.row(row.item->slot * window + position % window));
      slot.taps_end = position + 1;
      slot.taps_begin = std::max(slot.taps_begin, slot.taps_end - window);
    }
  }
}

Status StepExecutor::FlushTaps(std::span<DecodeSlot* const> slots) {
  const int64_t window = layout_->window;
  const int64_t most = model_.options().max_rows_per_step;
  contexts_.clear();
  int64_t rows = 0;
  for (DecodeSlot* slot : slots) {
    const int64_t first_row = (slot - slots_.data()) * window;
    while (slot->taps_begin < slot->taps_end) {
      const int64_t at = slot->taps_begin % window;
      const int64_t count = std::min({slot->taps_end - slot->taps_begin, window - at, most});
      if (rows + count > most) {
        DEEPINFER_RETURN_IF_ERROR(model_.ExtendDrafts(taps_, contexts_));
        contexts_.clear();
        rows = 0;
      }
      contexts_.push_back(
          {slot->state.get(), static_cast<int32_t>(first_row + at), static_cast<int32_t>(count), slot->taps_begin});
      rows += count;
      slot->taps_begin += count;
    }
  }
  return model_.ExtendDrafts(taps_, contexts_);
}

Status StepExecutor::ProposeDrafts() {
  if (options_.draft_length == 0) return Status::Ok();
  survival_.clear();
  limits_.clear();
  draft_slots_.clear();
  for (const Row& row : rows_) {
    DecodeSlot& slot = *row.slot;
    if (slot.finished || slot.pending < 0) continue;
    const int64_t length = slot.state->length();
    const int32_t limit = slot.taps_end == length ? DraftLimit(slot, length) : 0;
    survival_.insert(survival_.end(), slot.survival_average.begin(), slot.survival_average.end());
    limits_.push_back(limit);
    draft_slots_.push_back(&slot);
  }
  probe_ = false;
  if (draft_slots_.empty()) return Status::Ok();
  if (options_.variable_drafts) {
    const DraftDecision decision = planner_.DecideDrafting({survival_, limits_, 0});
    probe_ = decision.probe;
    if (!decision.draft) return Status::Ok();
  }

  size_t kept = 0;
  for (size_t i = 0; i < draft_slots_.size(); ++i) {
    if (limits_[i] > 0) draft_slots_[kept++] = draft_slots_[i];
  }
  draft_slots_.resize(kept);
  if (kept == 0) return Status::Ok();
  DEEPINFER_RETURN_IF_ERROR(FlushTaps(draft_slots_));
  draft_items_.clear();
  draft_rules_.Clear();
  for (DecodeSlot* draft_slot : draft_slots_) {
    DecodeSlot& slot = *draft_slot;
    DraftItem item{slot.state.get(), slot.pending, {}};
    item.rule = draft_rules_.Make(slot, std::span(&slot.pending, 1), slot.state->length() + 1);
    // Proposals behind the first would need other lists; they are only guesses.
    item.rule.barred = {};
    if (options_.rule == SpeculationRule::kRejection) item.rule.purpose = RandomPurpose::kDraft;
    draft_items_.push_back(item);
  }
  const Result<DraftResult> drafts = model_.DraftBlocks(draft_items_, options_.draft_length);
  if (!drafts.ok()) return drafts.status();
  const auto sequences = static_cast<size_t>(std::ssize(draft_items_));
  for (size_t s = 0; s < sequences; ++s) {
    DecodeSlot& slot = *draft_slots_[s];
    slot.draft_count = options_.draft_length;
    // Positions behind the last proposal have no chance.
    std::fill(slot.confidence.begin(), slot.confidence.end(), -std::numeric_limits<float>::infinity());
    for (size_t k = 0; k < static_cast<size_t>(options_.draft_length); ++k) {
      slot.drafts[k] = drafts->ids[k * sequences + s];
      slot.confidence[k] = drafts->confidence[k * sequences + s];
      if (slot.draft_logits.empty()) continue;
      const auto row = static_cast<int64_t>(k * sequences + s);
      std::copy_n(drafts->logits.row(row), drafts->logits.columns,
                  slot.draft_logits.begin() + static_cast<int64_t>(k) * drafts->logits.columns);
    }
    Survival(slot.confidence, calibration_, slot.survival);
  }
  return Status::Ok();
}

}  // namespace deepinfer
