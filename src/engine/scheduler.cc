#include "engine/scheduler.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/clock.h"

namespace deepinfer {
namespace {

/// Units that a prefill gets in a step however tight the time per output token is, so that it always ends.
constexpr double kLeastPrefill = 16;

template <typename Requests>
void InsertInOrder(Requests* requests, std::shared_ptr<Request> request) {
  const auto at = std::upper_bound(
      requests->begin(), requests->end(), request,
      [](const std::shared_ptr<Request>& a, const std::shared_ptr<Request>& b) { return ServedBefore(*a, *b); });
  requests->insert(at, std::move(request));
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, KvManager& kv, KvTransfers* transfers)
    : options_(options), kv_(kv), transfers_(transfers) {
  const auto slots = static_cast<size_t>(options.max_num_seqs);
  for (int64_t slot = options.max_num_seqs - 1; slot >= 0; --slot) free_slots_.push_back(static_cast<int32_t>(slot));
  by_slot_.resize(slots);
  granted_.resize(slots);
  if (transfers != nullptr) cached_by_tier_.resize(transfers->tier_count());
}

Scheduler::~Scheduler() = default;

void Scheduler::Submit(std::shared_ptr<Request> request) {
  counts_.prompt_tokens += request->choice == 0 ? request->prompt_tokens : 0;
  if (transfers_ != nullptr) transfers_->Begin(request, seconds_per_unit_ * options_.encoder_cost);
  InsertInOrder(&waiting_, std::move(request));
}

bool Scheduler::Plan(StepPlan* plan) {
  plan->Clear();
  planned_.clear();
  planned_cost_ = 0;
  Budget budget{options_.step_cost, options_.step_rows, options_.logits_rows};
  PlanDecodes(plan, &budget);
  const double before = budget.cost;
  budget.cost = PrefillShare(budget.cost, before < options_.step_cost);
  for (size_t i = 0; i < running_.size(); ++i) {
    Request& request = *running_[i];
    if (!request.decoding() && !MustEnd(request) && !request.preempt) PlanPrefill(request, plan, &budget);
  }
  AdmitWaiting(plan, &budget);
  if (plan->items.empty() && plan->starts.empty()) return false;

  std::vector<Planned> record;
  if (!spare_.empty()) {
    record = std::move(spare_.back());
    spare_.pop_back();
  }
  record.swap(planned_);
  in_flight_.push_back(std::move(record));
  costs_in_flight_.push_back(planned_cost_);
  return true;
}

double Scheduler::PrefillShare(double budget, bool decodes) const {
  if (options_.tpot_target_seconds <= 0 || !decodes || seconds_per_unit_ <= 0) return budget;
  const double units = options_.tpot_target_seconds / seconds_per_unit_ - (options_.step_cost - budget);
  return std::min(budget, std::max(units, kLeastPrefill));
}

void Scheduler::Record(Request& request, int64_t rows, int64_t tokens) {
  request.rows_in_flight += rows;
  request.tokens_in_flight += tokens;
  ++request.steps_in_flight;
  planned_.push_back({by_slot_[static_cast<size_t>(request.slot)], rows, tokens});
}

void Scheduler::GrantBlocks(Request& request, StepPlan* plan) {
  int64_t& granted = granted_[static_cast<size_t>(request.slot)];
  for (; granted < std::ssize(request.cache.blocks); ++granted) {
    plan->grants.push_back({request.slot, kv_.block_data(request.cache.blocks[static_cast<size_t>(granted)])});
  }
}

void Scheduler::PlanDecodes(StepPlan* plan, Budget* budget) {
  for (size_t i = 0; i < running_.size(); ++i) {
    Request& request = *running_[i];
    if (!request.decoding() || MustEnd(request) || request.preempt) continue;
    // What is in flight ends it for certain.
    if (request.outputs() + request.tokens_in_flight >= request.most_tokens - request.prompt_tokens) continue;
    const int64_t rows = 1 + options_.draft_length;
    if (budget->rows < rows || budget->logits_rows < rows) continue;
    // With tokens unknown the sequence may be shorter; surplus blocks serve the next steps.
    const int64_t bound = request.length + request.rows_in_flight + rows;
    if (!GrowOrPreempt(request, std::min(bound, request.most_tokens))) continue;
    GrantBlocks(request, plan);
    plan->items.push_back({request.slot, 0, 0, false, options_.draft_length, nullptr});
    Record(request, rows, 1);
    budget->rows -= rows;
    budget->logits_rows -= rows;
    // Verified drafts depend on the device; the plan counts one row.
    budget->cost -= 1;
    planned_cost_ += 1;
  }
}

bool Scheduler::GrowOrPreempt(Request& request, int64_t tokens) {
  if (kv_.Grow(tokens, &request.cache)) return true;
  // The last one in the order of service gives its blocks back, as soon as no step is in flight for it. One that ends
  // anyway is waited for.
  Request& victim = *running_.back();
  if (!MustEnd(victim)) victim.preempt = true;
  return false;
}

int64_t Scheduler::DecoderRows(const Request& request, int64_t first, int64_t count) const {
  if (!request.cache.settings.bounded) return count;
  return std::clamp<int64_t>(first + count - request.cache.replay.decoder_start, 0, count);
}

void Scheduler::PlanPrefill(Request& request, StepPlan* plan, Budget* budget) {
  const int64_t first = request.next_position;
  const int64_t left = request.input_tokens - first;
  const SequenceCache& cache = request.cache;
  int64_t count = std::min(left, budget->rows);
  const bool all_logits = request.input->prompt_logprobs;
  if (all_logits) count = std::min(count, budget->logits_rows);
  if (budget->logits_rows < 1) count = std::min(count, left - 1);
  // Rows before the decoder's start are cheap; the first rows of a chunk are the cheap ones.
  const int64_t cheap = cache.settings.bounded ? std::max<int64_t>(0, cache.replay.decoder_start - first) : 0;
  const double cheap_cost = static_cast<double>(std::min(cheap, count)) * options_.encoder_cost;
  if (cheap_cost > budget->cost) {
    count = static_cast<int64_t>(budget->cost / options_.encoder_cost);
  } else if (count > cheap) {
    count = std::min(count, cheap + static_cast<int64_t>(budget->cost - cheap_cost));
  }
  if (cache.settings.bounded) count = std::min(count, NextRestart(first, cache.settings.grid) - first);

  uint8_t* save = nullptr;
  size_t& boundary = request.cache.next_boundary;
  while (boundary < cache.boundaries.size() && cache.boundaries[boundary] <= first) ++boundary;
  if (boundary < cache.boundaries.size() && cache.boundaries[boundary] <= first + count) {
    count = cache.boundaries[boundary] - first;
  }
  if (count <= 0) return;
  if (boundary < cache.boundaries.size() && cache.boundaries[boundary] == first + count) {
    save = kv_.SnapshotBuffer(first + count, &request.cache);
  }

  GrantBlocks(request, plan);
  const bool last = count == left;
  plan->items.push_back({request.slot, first, count, last, 0, save});
  Record(request, count, last ? 1 : 0);
  request.next_position += count;
  const int64_t decoder_rows = DecoderRows(request, first, count);
  const double cost =
      static_cast<double>(decoder_rows) + static_cast<double>(count - decoder_rows) * options_.encoder_cost;
  budget->rows -= count;
  budget->cost -= cost;
  planned_cost_ += cost;
  budget->logits_rows -= all_logits ? count : last ? 1 : 0;
}

void Scheduler::AdmitWaiting(StepPlan* plan, Budget* budget) {
  size_t i = 0;
  while (i < waiting_.size() && !free_slots_.empty() && budget->rows > 0 && budget->cost >= 1) {
    const std::shared_ptr<Request> request = waiting_[i];
    const bool waits_for_leader =
        request->leader != nullptr && !request->leader->finished && !request->leader->prefilled;
    if (waits_for_leader || request->transfer.waiting || MustEnd(*request)) {
      ++i;
      continue;
    }
    // First come, first served: nobody overtakes a request that waits for memory.
    if (!Start(request, plan)) return;
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    PlanPrefill(*request, plan, budget);
  }
}

std::vector<CachedTokens> Scheduler::CountByTier(const Request& request, int64_t cached) {
  std::vector<CachedTokens> by_tier;
  int64_t fetched = 0;
  for (size_t i = 0; i < request.transfer.tokens_from.size(); ++i) {
    const int64_t tokens = std::min(request.transfer.tokens_from[i], cached - fetched);
    if (tokens > 0) by_tier.push_back({std::string(transfers_->tier_name(i)), tokens});
    if (tokens > 0) cached_by_tier_[i] += tokens;
    fetched += std::max<int64_t>(tokens, 0);
  }
  if (cached > fetched) by_tier.insert(by_tier.begin(), {"device", cached - fetched});
  return by_tier;
}

bool Scheduler::Start(const std::shared_ptr<Request>& request, StepPlan* plan) {
  const bool prompt_logprobs = request->sampling.prompt_logprobs >= 0 && request->choice == 0 &&
                               request->prompt_logprobs < request->prompt_tokens - 1;
  if (!kv_.Admit(request->ids, request->prompt_tokens, !prompt_logprobs, reserve(), &request->cache)) return false;
  auto input = std::make_shared<RequestInput>();
  input->ids = request->ids;
  input->prompt_tokens = request->prompt_tokens;
  input->sampling = request->sampling;
  input->end_ids = request->end_ids;
  input->most_tokens = request->most_tokens;
  input->replay = request->cache.settings;
  input->prompt_logprobs = prompt_logprobs;
  input->constraint = request->constraint;
  request->input = std::move(input);

  request->slot = free_slots_.back();
  free_slots_.pop_back();
  by_slot_[static_cast<size_t>(request->slot)] = request;
  granted_[static_cast<size_t>(request->slot)] = 0;
  const ReplayPlan& replay = request->cache.replay;
  request->next_position = replay.first_position;
  request->length = replay.first_position;
  request->input_tokens = std::ssize(request->ids);
  SlotStart start;
  start.slot = request->slot;
  start.serial = request->arrival;
  start.input = request->input;
  start.replay = replay;
  start.rings = request->cache.rings;
  // Only for an answer that can reach a block boundary.
  const int64_t next_boundary = (request->input_tokens / kKvBlockTokens + 1) * kKvBlockTokens;
  if (next_boundary < request->most_tokens) start.rolling = kv_.TakeRollingBuffers(&request->cache);
  plan->starts.push_back(std::move(start));

  const int64_t cached = std::min(replay.hit_tokens, request->prompt_tokens);
  const int64_t replayed = std::max<int64_t>(0, cached - replay.first_position);
  if (request->preemptions == 0) {
    counts_.cached_tokens += cached;
    const double now = NowSeconds();
    std::vector<CachedTokens> by_tier = CountByTier(*request, cached);
    request->stream->Update([&](Generation* generation) {
      if (request->choice != 0) return;
      generation->cached_tokens = cached;
      generation->replayed_tokens = replayed;
      generation->cached_tokens_by_tier = std::move(by_tier);
      generation->queue_ms = 1e3 * (now - request->submitted_seconds);
    });
  }
  counts_.replayed_tokens += replayed;
  InsertInOrder(&running_, request);
  return true;
}

void Scheduler::Apply(const StepResult& result) {
  assert(!in_flight_.empty());
  std::vector<Planned> record = std::move(in_flight_.front());
  in_flight_.pop_front();
  const double cost = costs_in_flight_.front();
  costs_in_flight_.pop_front();
  if (cost > 0 && result.seconds > 0) {
    const double sample = result.seconds / cost;
    seconds_per_unit_ = seconds_per_unit_ == 0 ? sample : seconds_per_unit_ + 0.1 * (sample - seconds_per_unit_);
  }
  for (const Planned& planned : record) {
    Request& request = *planned.request;
    request.rows_in_flight -= planned.rows;
    request.tokens_in_flight -= planned.tokens;
    --request.steps_in_flight;
    if (request.running()) kv_.ReleaseRestored(&request.cache);
  }
  for (const SlotResult& slot : result.slots) {
    const std::shared_ptr<Request> request = by_slot_[static_cast<size_t>(slot.slot)];
    if (request != nullptr && request->arrival == slot.serial) ApplySlot(request, slot, result);
  }
  record.clear();
  spare_.push_back(std::move(record));
  Sweep();
}

void Scheduler::ApplySlot(const std::shared_ptr<Request>& shared, const SlotResult& slot, const StepResult& result) {
  Request& request = *shared;
  // A buffer that was written anew holds its old boundary no more, whatever became of the request.
  const auto record_snapshots = [&] {
    for (int32_t i = 0; i < slot.snapshot_count; ++i) {
      const RollingSnapshot& snapshot = slot.snapshots[static_cast<size_t>(i)];
      request.cache.rolling[static_cast<size_t>(snapshot.index)].position =
          snapshot.position <= request.length ? snapshot.position : -1;
    }
  };
  // Late results of a request that a stop text or its reader ended.
  if (request.finished) {
    record_snapshots();
    return;
  }
  if (!slot.status.ok()) {
    Finish(shared, FinishReason::kError, slot.status);
    return;
  }
  const auto logprobs_of = [&](const StepToken& token) {
    return PositionLogprobs{{token.id, token.logprob}, {token.top.begin(), token.top.end()}};
  };
  if (slot.prompt_token_count > 0) {
    request.stream->Update([&](Generation* generation) {
      for (int32_t i = 0; i < slot.prompt_token_count; ++i) {
        // After a preemption they come again.
        if (slot.prompt_position - 1 + i < request.prompt_logprobs) continue;
        generation->prompt_logprobs.push_back(
            logprobs_of(result.prompt_tokens[static_cast<size_t>(slot.first_prompt_token + i)]));
        ++request.prompt_logprobs;
      }
    });
  }
  if (slot.decode) {
    ++request.drafts.steps;
    request.drafts.drafted += slot.drafted;
    request.drafts.verified += slot.verified;
    request.drafts.accepted += slot.accepted;
    ++counts_.drafts.steps;
    counts_.drafts.drafted += slot.drafted;
    counts_.drafts.verified += slot.verified;
    counts_.drafts.accepted += slot.accepted;
    if (on_drafts) {
      // A block that an end token cut short says nothing about the draft behind it.
      const auto block =
          static_cast<size_t>(slot.drafted > 0 && !slot.finished && slot.typical ? options_.draft_block : 0);
      on_drafts(std::span(result.confidence).subspan(block > 0 ? static_cast<size_t>(slot.first_confidence) : 0, block),
                slot);
    }
  }

  StreamState::News news;
  const size_t known = request.ids.size();
  std::vector<PositionLogprobs> logprobs;
  bool stopped = false;
  for (int32_t i = 0; i < slot.token_count && !stopped; ++i) {
    const StepToken& token = result.tokens[static_cast<size_t>(slot.first_token + i)];
    request.ids.push_back(token.id);
    if (request.sampling.logprobs >= 0) logprobs.push_back(logprobs_of(token));
    const bool ends = slot.finished && slot.reason == FinishReason::kStop && i + 1 == slot.token_count;
    if (!ends) stopped = !request.output->Add(token.id, &news.reasoning, &news.content);
  }
  const auto fresh = static_cast<int64_t>(request.ids.size() - known);
  counts_.generated_tokens += fresh;
  request.length = std::min<int64_t>(slot.length, std::ssize(request.ids));
  record_snapshots();
  if (fresh > 0) {
    news.ids = std::span(request.ids).subspan(known);
    news.logprobs = logprobs;
    const bool first = !request.prefilled;
    request.prefilled = true;
    if (stopped || slot.finished) request.output->Finish(&news.reasoning, &news.content);
    if (first) {
      const double now = NowSeconds();
      request.stream->Update([&](Generation* generation) {
        if (generation->first_token_ms == 0) generation->first_token_ms = 1e3 * (now - request.submitted_seconds);
      });
    }
    request.stream->Append(request.choice, news);
  }
  kv_.Publish(request.ids, request.length, &request.cache);
  if (transfers_ != nullptr) transfers_->AfterStep(&request);
  if (stopped) {
    Finish(shared, FinishReason::kStopSequence, Status::Ok());
  } else if (slot.finished) {
    Finish(shared, slot.reason, Status::Ok());
  }
}

void Scheduler::Finish(const std::shared_ptr<Request>& shared, FinishReason reason, const Status& status) {
  Request& request = *shared;
  request.finished = true;
  ++(reason == FinishReason::kCancelled ? counts_.cancelled : counts_.finished);
  const bool cut = reason == FinishReason::kCancelled || reason == FinishReason::kError;
  if (cut && request.prefilled) {
    StreamState::News news;
    request.output->Finish(&news.reasoning, &news.content);
    request.stream->Append(request.choice, news);
  }
  const double now = NowSeconds();
  request.stream->Update([&](Generation* generation) {
    generation->total_ms = 1e3 * (now - request.submitted_seconds);
    generation->preemptions += request.preemptions;
    generation->drafts.steps += request.drafts.steps;
    generation->drafts.drafted += request.drafts.drafted;
    generation->drafts.verified += request.drafts.verified;
    generation->drafts.accepted += request.drafts.accepted;
  });
  ended_.push_back({shared, reason, status});
}

void Scheduler::TellEnded() {
  for (const Ended& ended : ended_) {
    const Request& request = *ended.request;
    const std::vector<int32_t>& stops = request.sampling.stop_token_ids;
    const int32_t last = ended.reason == FinishReason::kStop && request.outputs() > 0 ? request.ids.back() : -1;
    const bool stopped = std::find(stops.begin(), stops.end(), last) != stops.end();
    request.stream->Finish(request.choice, ended.reason, request.output->stop_sequence(), stopped ? last : -1,
                           ended.status);
  }
  ended_.clear();
}

void Scheduler::LeaveSlot(Request& request) {
  const NodeId deepest = kv_.Release(request.ids, request.length, &request.cache);
  if (transfers_ != nullptr && request.finished) transfers_->AfterEnd(deepest, &request);
  by_slot_[static_cast<size_t>(request.slot)] = nullptr;
  free_slots_.push_back(request.slot);
  request.slot = -1;
  request.input = nullptr;
  request.preempt = false;
  request.next_position = 0;
  request.input_tokens = 0;
}

void Scheduler::Sweep() {
  for (size_t i = 0; i < running_.size();) {
    const std::shared_ptr<Request> request = running_[i];
    if (!request->finished && request->stream->cancelled(request->choice))
      Finish(request, FinishReason::kCancelled, Status::Ok());
    const bool leaves = (request->finished || request->preempt) && request->steps_in_flight == 0;
    if (!leaves) {
      ++i;
      continue;
    }
    LeaveSlot(*request);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!request->finished) {
      ++request->preemptions;
      ++counts_.preemptions;
      InsertInOrder(&waiting_, request);
    }
  }
}

void Scheduler::DropCancelled() {
  for (size_t i = 0; i < waiting_.size();) {
    const std::shared_ptr<Request> request = waiting_[i];
    if (!request->stream->cancelled(request->choice)) {
      ++i;
      continue;
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    Finish(request, FinishReason::kCancelled, Status::Ok());
  }
  Sweep();
}

void Scheduler::CancelAll() {
  for (const auto& request : running_) request->stream->Cancel();
  for (const auto& request : waiting_) request->stream->Cancel();
  DropCancelled();
}

SchedulerCounts Scheduler::counts() const {
  SchedulerCounts counts = counts_;
  counts.running =
      std::count_if(running_.begin(), running_.end(), [](const auto& request) { return !request->finished; });
  counts.waiting = std::ssize(waiting_);
  return counts;
}

}  // namespace deepinfer
