#include "scheduler_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

namespace deepinfer::test {
namespace {

const Tokenizer& NanoTokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = [] {
    const auto path = std::filesystem::path(DEEPINFER_SOURCE_DIR) / "models" / "nano" / "tokenizer.json";
    Result<std::unique_ptr<Tokenizer>> loaded = Tokenizer::Load(path.string());
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return std::move(*loaded);
  }();
  return *tokenizer;
}

}  // namespace

void FakeDevice::Emit(Slot* slot, StepResult* result, SlotResult* slot_result) const {
  result->tokens.push_back({token(slot->serial, slot->outputs), 0, {}});
  ++slot_result->token_count;
  ++slot->outputs;
  if (slot->input->prompt_tokens + slot->outputs >= slot->input->most_tokens) {
    slot_result->finished = true;
    slot_result->reason = FinishReason::kLength;
  }
}

StepResult FakeDevice::Run(const StepPlan& plan) {
  StepResult result;
  for (const SlotStart& start : plan.starts) {
    Slot& slot = slots_[start.slot];
    slot = {start.serial,
            start.input,
            start.replay.first_position,
            std::ssize(start.input->ids) - start.input->prompt_tokens,
            0,
            false};
  }
  for (const BlockGrant& grant : plan.grants) ++slots_.at(grant.slot).blocks;
  int64_t rows = 0;
  for (const PlanItem& item : plan.items) {
    Slot& slot = slots_.at(item.slot);
    if (slot.finished) continue;
    SlotResult& slot_result = result.slots.emplace_back();
    slot_result.slot = item.slot;
    slot_result.serial = slot.serial;
    slot_result.first_token = static_cast<int32_t>(result.tokens.size());
    slot_result.decode = item.count == 0;
    const int64_t planned = item.count > 0 ? item.count : 1 + item.max_drafts;
    rows += planned;
    EXPECT_LE(std::min(slot.length + planned, slot.input->most_tokens), slot.blocks * kKvBlockTokens)
        << "rows without a block";
    const int64_t input_tokens = std::ssize(slot.input->ids);
    if (item.count > 0) {
      EXPECT_EQ(item.first_position, slot.length);
      slot.length += item.count;
      EXPECT_EQ(item.last, slot.length == input_tokens);
      if (item.last) Emit(&slot, &result, &slot_result);
    } else {
      EXPECT_GE(slot.length, input_tokens) << "a decode before the prompt's end";
      const int64_t standing = std::min<int64_t>(accepted, item.max_drafts);
      for (int64_t i = 0; i <= standing && !slot_result.finished; ++i) {
        Emit(&slot, &result, &slot_result);
        ++slot.length;
      }
      slot_result.drafted = slot_result.verified = item.max_drafts;
      slot_result.accepted = slot_result.token_count - 1;
    }
    slot_result.length = slot.length;
    slot.finished = slot_result.finished;
  }
  result.seconds = static_cast<double>(rows) * seconds_per_row;
  return result;
}

SchedulerBench::SchedulerBench(const SchedulerOptions& options, const KvManagerOptions& kv_options,
                               const ReplaySettings& replay)
    : replay_(replay) {
  EXPECT_TRUE(CheckReplaySettings(replay).ok());
  Result<std::unique_ptr<KvManager>> manager = KvManager::Create(kv_options);
  EXPECT_TRUE(manager.ok()) << manager.status().message();
  kv = std::move(*manager);
  scheduler = std::make_unique<Scheduler>(options, *kv);
}

std::shared_ptr<Request> SchedulerBench::Submit(const Ask& ask) {
  auto request = std::make_shared<Request>();
  GenerationRequest asked;
  request->arrival = ++arrivals_;
  request->priority = ask.priority;
  request->stream = std::make_shared<StreamState>(2);  // the second: SubmitChoice
  request->sampling.max_tokens = ask.answer;
  request->sampling.stops = asked.sampling.stops = ask.stops;
  request->prompt_tokens = ask.prompt;
  request->most_tokens = ask.prompt + ask.answer;
  request->output.emplace(asked, NanoTokenizer());
  const int32_t text = ask.text > 0 ? ask.text : static_cast<int32_t>(1000 + arrivals_);
  for (int64_t i = 0; i < ask.prompt; ++i) request->ids.push_back(static_cast<int32_t>((text * 97 + i * 13) % 7000));
  request->cache.settings = replay_;
  request->cache.name_space = "test:";
  scheduler->Submit(request);
  return request;
}

std::shared_ptr<Request> SchedulerBench::SubmitChoice(const std::shared_ptr<Request>& leader) {
  auto request = std::make_shared<Request>();
  request->arrival = ++arrivals_;
  request->priority = leader->priority;
  request->choice = 1;
  request->leader = leader;
  request->stream = leader->stream;
  request->sampling = leader->sampling;
  request->prompt_tokens = leader->prompt_tokens;
  request->most_tokens = leader->most_tokens;
  request->output.emplace(GenerationRequest(), NanoTokenizer());
  request->ids.assign(leader->ids.begin(), leader->ids.begin() + leader->prompt_tokens);
  request->cache.settings = replay_;
  request->cache.name_space = "test:";
  scheduler->Submit(request);
  return request;
}

const StepPlan& SchedulerBench::Plan() {
  scheduler->DropCancelled();
  if (scheduler->Plan(&plan_)) {
    launched_.push_back(plan_);
  } else {
    plan_.Clear();
  }
  return plan_;
}

void SchedulerBench::Read() {
  ASSERT_FALSE(launched_.empty());
  const StepResult result = device.Run(launched_.front());
  launched_.pop_front();
  scheduler->Apply(result);
  scheduler->TellEnded();
}

const StepPlan& SchedulerBench::Step() {
  const int64_t before = in_flight();
  Plan();
  if (in_flight() > before) Read();
  return plan_;
}

void SchedulerBench::RunToTheEnd(int depth) {
  for (int64_t turns = 0; !scheduler->idle() || in_flight() > 0; ++turns) {
    ASSERT_LT(turns, 100000) << "no end in sight";
    const int64_t before = in_flight();
    Plan();
    const bool planned = in_flight() > before;
    if (in_flight() >= depth || (!planned && in_flight() > 0)) Read();
  }
  scheduler->TellEnded();
}

void SchedulerBench::ExpectNothingHeld() {
  kv->Clear();
  EXPECT_EQ(kv->blocks().free_count(), kv->blocks().block_count());
  EXPECT_EQ(kv->snapshots().free_count(), kv->snapshots().block_count());
}

PlanItem ItemAt(const StepPlan& plan, size_t index) {
  EXPECT_LT(index, plan.items.size());
  return index < plan.items.size() ? plan.items[index] : PlanItem();
}

std::vector<int64_t> RowsOf(const StepPlan& plan) {
  std::vector<int64_t> rows;
  for (const PlanItem& item : plan.items) rows.push_back(item.count);
  return rows;
}

std::vector<uint64_t> StartsOf(const StepPlan& plan) {
  std::vector<uint64_t> serials;
  for (const SlotStart& start : plan.starts) serials.push_back(start.serial);
  return serials;
}

Choice ChoiceOf(const Request& request) {
  Choice choice;
  request.stream->Update(
      [&](Generation* generation) { choice = generation->choices[static_cast<size_t>(request.choice)]; });
  return choice;
}

std::vector<int32_t> ExpectedIds(const FakeDevice& device, const Request& request, int64_t count) {
  std::vector<int32_t> ids(request.ids.begin(), request.ids.begin() + request.prompt_tokens);
  for (int64_t i = 0; i < count; ++i) ids.push_back(device.token(request.arrival, i));
  return ids;
}

}  // namespace deepinfer::test
