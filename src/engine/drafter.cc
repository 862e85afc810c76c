#include "engine/drafter.h"

#include <algorithm>
#include <limits>

namespace deepinfer {
namespace {

// Before any draft was made, each is expected to survive with this probability.
constexpr float kFirstSurvival = 0.7F;
// Of a block in the average over all slots.
constexpr float kSlotWeight = 0.02F;

}  // namespace

Result<std::unique_ptr<Drafter>> Drafter::Create(Model& model, Ops& ops, std::span<DecodeSlot> slots,
                                                 const DrafterOptions& options, StepProfile profile) {
  std::unique_ptr<Drafter> drafter(new Drafter(model, ops, slots, options, std::move(profile)));
  if (options.draft_length == 0) return drafter;
  const int64_t rows = std::ssize(slots) * drafter->window_;
  const int64_t width = std::ssize(model.config().dspark_target_layer_ids) * model.config().hidden_size;
  Result<DeviceMemory> memory = ops.Allocate(rows * width * static_cast<int64_t>(sizeof(float)));
  if (!memory.ok()) {
    return Status::ResourceExhausted("no memory for the taps of " + std::to_string(slots.size()) +
                                     " sequences: " + std::to_string(rows * width * 4) +
                                     " bytes needed; lower max_num_seqs or set draft_length to 0");
  }
  drafter->tap_storage_ = std::move(*memory);
  drafter->taps_ = FloatView(reinterpret_cast<float*>(drafter->tap_storage_.data()), rows, width, width);
  return drafter;
}

Drafter::Drafter(Model& model, Ops& ops, std::span<DecodeSlot> slots, const DrafterOptions& options,
                 StepProfile profile)
    : model_(model),
      ops_(ops),
      slots_(slots),
      options_(options),
      window_(model.layout()->window),
      profile_(std::move(profile)),
      planner_(&profile_, std::max<int64_t>(model.config().dspark_block_size, 1)) {
  const auto block = static_cast<size_t>(options.draft_length > 0 ? model.config().dspark_block_size : 0);
  planner_.Reserve(std::ssize(slots));
  expected_.resize(block);
  float survival = 1;
  for (float& value : expected_) value = survival *= kFirstSurvival;
  for (DecodeSlot& slot : slots) {
    slot.drafts.resize(block);
    slot.confidence.resize(block);
    slot.survival.resize(block);
    slot.survival_before.resize(block);
    slot.survival_average.resize(block);
    if (options.rule == SpeculationRule::kRejection) {
      slot.draft_logits.resize(block * static_cast<size_t>(model.config().vocab_size));
    }
  }
  contexts_.reserve(2 * slots.size());
  copy_from_.reserve(static_cast<size_t>(model.options().max_rows_per_step));
  copy_to_.reserve(static_cast<size_t>(model.options().max_rows_per_step));
  items_.reserve(slots.size());
  drafting_.reserve(slots.size());
  survival_.reserve(slots.size() * block);
  survival_before_.reserve(slots.size() * block);
  limits_.reserve(slots.size());
  lengths_.reserve(slots.size());
}

void Drafter::Reset(DecodeSlot* slot) const {
  slot->draft_count = 0;
  slot->taps_begin = slot->taps_end = 0;
  slot->survival_average = expected_;
  slot->survival_before = expected_;
}

void Drafter::Observe(DecodeSlot* slot) {
  UpdateSurvivalAverage(slot->survival_average, slot->survival);
  UpdateSurvivalAverage(expected_, slot->survival, kSlotWeight);
  slot->survival_before = slot->survival;
}

int32_t Drafter::Limit(const DecodeSlot& slot, int64_t length) const {
  // The last token of the answer takes index most_tokens - 1 and is never fed.
  int64_t limit = std::min<int64_t>(options_.draft_length, slot.input->most_tokens - 2 - length);
  const ReplaySettings& replay = slot.input->replay;
  if (replay.bounded) limit = std::min(limit, NextRestart(length, replay.grid) - 1 - length);
  return static_cast<int32_t>(std::max<int64_t>(limit, 0));
}

void Drafter::PlanVerification(std::span<StepRow> rows) {
  survival_.clear();
  survival_before_.clear();
  limits_.clear();
  int64_t other_rows = 0;
  int64_t decoding = 0;
  bool any = false;
  for (StepRow& row : rows) {
    if (!row.decode) {
      other_rows += row.item->count;
      continue;
    }
    ++decoding;
    DecodeSlot& slot = *row.slot;
    // Blocks of this step have been granted by now; drafts were proposed before that.
    const int64_t length = slot.state->length();
    const auto room =
        static_cast<int32_t>(std::clamp<int64_t>(slot.state->capacity() - 1 - length, 0, options_.draft_length));
    const int32_t limit = std::min({slot.draft_count, row.item->max_drafts, Limit(slot, length), room});
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
  for (StepRow& row : rows) {
    if (row.decode) row.drafts = lengths_[next++];
  }
}

void Drafter::KeepTaps(std::span<const StepRow> rows, const ForwardResult& forward) {
  if (options_.draft_length == 0) return;
  copy_from_.clear();
  copy_to_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const StepRow& row = rows[i];
    DecodeSlot& slot = *row.slot;
    if (slot.finished) continue;
    // Rows that passed the decoder and stand; of these the last window of what is known.
    const ItemRows& taps = forward.items[i];
    const int64_t first = row.first_position + row.row_count - taps.tap_count;
    const int64_t end = row.decode ? slot.state->length() : row.first_position + row.row_count;
    const int64_t known = row.decode ? end : std::ssize(slot.input->ids);
    for (int64_t position = std::max(first, known - window_); position < end; ++position) {
      if (position != slot.taps_end) slot.taps_begin = position;
      copy_from_.push_back(forward.taps.row(taps.first_tap + position - first));
      copy_to_.push_back(taps_.row(row.item->slot * window_ + position % window_));
      slot.taps_end = position + 1;
      slot.taps_begin = std::max(slot.taps_begin, slot.taps_end - window_);
    }
  }
  ops_.CopyFloats(copy_from_, taps_.columns, copy_to_);
}

Status Drafter::FlushTaps(std::span<DecodeSlot* const> slots) {
  const int64_t most = model_.options().max_rows_per_step;
  contexts_.clear();
  int64_t rows = 0;
  for (DecodeSlot* slot : slots) {
    const int64_t first_row = (slot - slots_.data()) * window_;
    while (slot->taps_begin < slot->taps_end) {
      const int64_t at = slot->taps_begin % window_;
      const int64_t count = std::min({slot->taps_end - slot->taps_begin, window_ - at, most});
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

Status Drafter::Propose(std::span<const StepRow> rows) {
  if (options_.draft_length == 0) return Status::Ok();
  survival_.clear();
  limits_.clear();
  drafting_.clear();
  for (const StepRow& row : rows) {
    DecodeSlot& slot = *row.slot;
    if (slot.finished || slot.pending < 0) continue;
    const int64_t length = slot.state->length();
    const int32_t limit = slot.taps_end == length ? Limit(slot, length) : 0;
    survival_.insert(survival_.end(), slot.survival_average.begin(), slot.survival_average.end());
    limits_.push_back(limit);
    drafting_.push_back(&slot);
  }
  probe_ = false;
  if (drafting_.empty()) return Status::Ok();
  if (options_.variable_drafts) {
    const DraftDecision decision = planner_.DecideDrafting({survival_, limits_, 0});
    probe_ = decision.probe;
    if (!decision.draft) return Status::Ok();
  }

  size_t kept = 0;
  for (size_t i = 0; i < drafting_.size(); ++i) {
    if (limits_[i] > 0) drafting_[kept++] = drafting_[i];
  }
  drafting_.resize(kept);
  if (kept == 0) return Status::Ok();
  DEEPINFER_RETURN_IF_ERROR(FlushTaps(drafting_));
  return DraftBlocks();
}

Status Drafter::Constrain(DecodeSlot* slot, const Tokenizer* tokenizer) {
  slot->typical_drafts = true;
  slot->certain_from = slot->draft_count;
  if (options_.draft_length == 0) return Status::Ok();
  const auto own = static_cast<size_t>(slot->draft_count);
  DEEPINFER_ASSIGN_OR_RETURN(const int32_t kept, slot->constraint->Admitted(std::span(slot->drafts).first(own)));
  slot->certain_from = kept;
  slot->draft_count = kept;
  forced_.clear();
  if (tokenizer != nullptr && kept < options_.draft_length) {
    const auto admitted = std::span(slot->drafts).first(static_cast<size_t>(kept));
    DEEPINFER_RETURN_IF_ERROR(
        slot->constraint->Continuation(admitted, *tokenizer, options_.draft_length - kept, &forced_));
  }
  slot->typical_drafts = static_cast<size_t>(kept) == own && forced_.empty();
  const float survival = kept == 0 ? 1 : slot->survival[static_cast<size_t>(kept) - 1];
  for (auto k = static_cast<size_t>(kept); k < slot->survival.size(); ++k) {
    const bool forced = k - static_cast<size_t>(kept) < forced_.size();
    slot->survival[k] = forced ? survival : 0;
    if (!forced) continue;
    slot->drafts[k] = forced_[k - static_cast<size_t>(kept)];
    ++slot->draft_count;
  }
  return Status::Ok();
}

Status Drafter::DraftBlocks() {
  items_.clear();
  rules_.Clear();
  for (DecodeSlot* draft_slot : drafting_) {
    DecodeSlot& slot = *draft_slot;
    DraftItem item{slot.state.get(), slot.pending, {}};
    item.rule = rules_.Make(slot, slot.state->ids(), std::span(&slot.pending, 1), slot.state->length() + 1);
    // Proposals behind the first would need other lists; they are only guesses.
    item.rule.barred = {};
    if (options_.rule == SpeculationRule::kRejection) item.rule.purpose = RandomPurpose::kDraft;
    items_.push_back(item);
  }
  const Result<DraftResult> drafts = model_.DraftBlocks(items_, options_.draft_length);
  if (!drafts.ok()) return drafts.status();
  const auto sequences = static_cast<size_t>(std::ssize(items_));
  for (size_t s = 0; s < sequences; ++s) {
    DecodeSlot& slot = *drafting_[s];
    slot.draft_count = slot.certain_from = options_.draft_length;
    slot.typical_drafts = true;
    // Positions behind the last proposal have no chance.
    std::fill(slot.confidence.begin(), slot.confidence.end(), -std::numeric_limits<float>::infinity());
    for (size_t k = 0; k < static_cast<size_t>(options_.draft_length); ++k) {
      slot.drafts[k] = drafts->ids[k * sequences + s];
      slot.confidence[k] = drafts->confidence[k * sequences + s];
      if (slot.draft_logits.empty()) continue;
      const auto row = static_cast<int64_t>(k * sequences + s);
      ops_.CopyOut(drafts->logits.row(row), slot.draft_logits.data() + static_cast<int64_t>(k) * drafts->logits.columns,
                   drafts->logits.columns * static_cast<int64_t>(sizeof(float)));
    }
    Survival(slot.confidence, calibration_, slot.survival);
  }
  return Status::Ok();
}

}  // namespace deepinfer
