#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include "engine_fixture.h"
#include "scheduler_fixture.h"

namespace deepinfer::test {
namespace {

using Rows = std::vector<int64_t>;
using Serials = std::vector<uint64_t>;

SchedulerOptions Options() {
  SchedulerOptions options;
  options.max_num_seqs = 4;
  options.step_cost = 64;
  options.encoder_cost = 0.25;
  options.step_rows = 4096;
  options.logits_rows = 64;
  return options;
}

/// Without the prefix cache chunks end nowhere but at the budget's end and, in bounded mode, at the grid.
KvManagerOptions Memory(int64_t blocks, bool prefix_cache) {
  KvManagerOptions options;
  options.blocks = blocks;
  options.block_bytes = 64;
  options.snapshots = prefix_cache ? 64 : 0;
  options.snapshot_bytes = 64;
  options.prefix_cache = prefix_cache;
  options.snapshot_interval = 128;
  return options;
}

ReplaySettings Exact(int64_t receptive_field = 10000) {
  ReplaySettings replay;
  replay.bounded = false;
  replay.receptive_field = receptive_field;
  return replay;
}

ReplaySettings Bounded(int64_t grid) {
  ReplaySettings replay;
  replay.keep = 20;
  replay.grid = grid;
  replay.replay = 20;
  return replay;
}

/// The rows of every step until the first decode of a single request.
Rows Chunks(SchedulerBench& bench) {
  Rows chunks;
  while (true) {
    const StepPlan& plan = bench.Step();
    const PlanItem item = ItemAt(plan, 0);
    if (item.count == 0) return chunks;
    chunks.push_back(item.count);
  }
}

TEST(Scheduler, DecodesComeBeforePrefill) {
  SchedulerOptions options = Options();
  options.step_cost = 8;
  SchedulerBench bench(options, Memory(64, false), Exact());
  const auto first = bench.Submit({.prompt = 4, .answer = 10});
  EXPECT_EQ(RowsOf(bench.Step()), Rows({4}));
  const auto second = bench.Submit({.prompt = 30, .answer = 2, .priority = -1});
  // Though the second is served first, the first one's decode takes its unit before.
  for (const Rows& rows : {Rows({0, 7}), Rows({0, 7}), Rows({0, 7}), Rows({0, 7}), Rows({0, 2}), Rows({0, 0})}) {
    EXPECT_EQ(RowsOf(bench.Step()), rows);
  }
  EXPECT_TRUE(second->finished);
  bench.RunToTheEnd(1);
  EXPECT_EQ(first->ids, ExpectedIds(bench.device, *first, 10));
}

TEST(Scheduler, BudgetIsInUnitsOfCost) {
  // 80 rows below the decoder cost 20 units, the last 20 cost 20.
  SchedulerOptions options = Options();
  for (const auto& [cost, chunks] : std::vector<std::pair<double, Rows>>{
           {10, {40, 40, 10, 10}}, {15, {60, 30, 10}}, {20, {80, 20}}, {25, {85, 15}}, {40, {100}}}) {
    options.step_cost = cost;
    SchedulerBench bench(options, Memory(64, false), Bounded(2048));
    bench.Submit({.prompt = 100, .answer = 2});
    EXPECT_EQ(Chunks(bench), chunks) << cost;
  }
  // In exact mode every row passes every layer.
  options.step_cost = 40;
  SchedulerBench bench(options, Memory(64, false), Exact());
  bench.Submit({.prompt = 100, .answer = 2});
  EXPECT_EQ(Chunks(bench), Rows({40, 40, 20}));
}

TEST(Scheduler, RequestsShareTheBudget) {
  SchedulerOptions options = Options();
  options.step_cost = 12;
  SchedulerBench bench(options, Memory(64, false), Exact());
  bench.Submit({.prompt = 9, .answer = 2});
  bench.Submit({.prompt = 9, .answer = 2});
  EXPECT_EQ(RowsOf(bench.Step()), Rows({9, 3}));
  EXPECT_EQ(RowsOf(bench.Step()), Rows({0, 6}));

  // Rows below the decoder leave more to others: 64 of them cost 16 of 20 units.
  options.step_cost = 20;
  SchedulerBench bounded(options, Memory(64, false), Bounded(64));
  bounded.Submit({.prompt = 300, .answer = 2});
  bounded.Submit({.prompt = 300, .answer = 2});
  EXPECT_EQ(RowsOf(bounded.Step()), Rows({64, 16}));
}

TEST(Scheduler, RowsAreLimitedBesideTheCost) {
  SchedulerOptions options = Options();
  options.step_rows = 30;
  SchedulerBench bench(options, Memory(64, false), Bounded(2048));
  bench.Submit({.prompt = 100, .answer = 2});
  EXPECT_EQ(Chunks(bench), Rows({30, 30, 30, 10}));
}

TEST(Scheduler, DecodesBeyondTheLogitsRowsWait) {
  SchedulerOptions options = Options();
  options.draft_length = 2;
  options.logits_rows = 7;
  SchedulerBench bench(options, Memory(64, false), Exact());
  for (int i = 0; i < 3; ++i) bench.Submit({.prompt = 4, .answer = 8});
  EXPECT_EQ(RowsOf(bench.Step()), Rows({4, 4, 4}));
  // Two sequences of three rows each.
  EXPECT_EQ(RowsOf(bench.Step()), Rows({0, 0}));
}

TEST(Scheduler, ChunksEndAtGridPoints) {
  SchedulerOptions options = Options();
  options.step_cost = 1000;
  SchedulerBench bench(options, Memory(64, false), Bounded(128));
  bench.Submit({.prompt = 300, .answer = 2});
  EXPECT_EQ(Chunks(bench), Rows({128, 128, 44}));
}

TEST(Scheduler, ChunksEndWhereSnapshotsAreSaved) {
  SchedulerOptions options = Options();
  options.step_cost = 1000;
  const auto saves = [](SchedulerBench& bench) {
    std::vector<int64_t> positions;
    for (PlanItem item = ItemAt(bench.Step(), 0); item.count > 0; item = ItemAt(bench.Step(), 0)) {
      if (item.save_rings != nullptr) positions.push_back(item.first_position + item.count);
    }
    return positions;
  };
  // Multiples of 128, and the last four block boundaries.
  SchedulerBench exact(options, Memory(64, true), Exact());
  exact.Submit({.prompt = 500, .answer = 2});
  EXPECT_EQ(saves(exact), Rows({128, 256, 320, 384, 448}));
  // Not where windows restart: at the multiples of 256.
  SchedulerBench bounded(options, Memory(64, true), Bounded(256));
  bounded.Submit({.prompt = 500, .answer = 2});
  EXPECT_EQ(saves(bounded), Rows({128, 320, 384, 448}));
}

TEST(Scheduler, PrioritiesThenArrival) {
  SchedulerOptions options = Options();
  options.max_num_seqs = 1;
  SchedulerBench bench(options, Memory(64, false), Exact());
  for (const int priority : {1, 0, 1, 0, -3}) bench.Submit({.answer = 2, .priority = priority});
  Serials order;
  while (!bench.scheduler->idle()) {
    const Serials starts = StartsOf(bench.Step());
    order.insert(order.end(), starts.begin(), starts.end());
    ASSERT_LT(order.size(), 10U);
  }
  EXPECT_EQ(order, Serials({5, 2, 4, 1, 3}));
}

TEST(Scheduler, WaitingRequestsGetWhatRunningOnesLeave) {
  SchedulerOptions options = Options();
  options.step_cost = 10;
  SchedulerBench bench(options, Memory(64, false), Exact());
  bench.Submit({.prompt = 14});
  EXPECT_EQ(RowsOf(bench.Step()), Rows({10}));
  bench.Submit({.prompt = 25});
  EXPECT_EQ(RowsOf(bench.Step()), Rows({4, 6}));
  // Urgent as it is, it takes nothing from those that run.
  bench.Submit({.prompt = 14, .priority = -1});
  EXPECT_EQ(RowsOf(bench.Step()), Rows({0, 9}));
  EXPECT_EQ(RowsOf(bench.Step()), Rows({0, 9}));
  EXPECT_EQ(RowsOf(bench.Step()), Rows({0, 1, 8}));
}

TEST(Scheduler, NobodyOvertakesWhoWaitsForMemory) {
  SchedulerBench bench(Options(), Memory(5, false), Exact());
  bench.Submit({.prompt = 150, .answer = 5});                      // three blocks
  const auto second = bench.Submit({.prompt = 150, .answer = 5});  // as many: waits
  const auto third = bench.Submit({.prompt = 10, .answer = 5});    // would fit, with a block to spare
  EXPECT_EQ(StartsOf(bench.Step()), Serials({1}));
  while (bench.scheduler->counts().finished == 0) EXPECT_TRUE(StartsOf(bench.Step()).empty());
  EXPECT_FALSE(second->running());
  EXPECT_FALSE(third->running());
  EXPECT_EQ(StartsOf(bench.Step()).front(), 2U);
  bench.RunToTheEnd(1);
  EXPECT_EQ(bench.scheduler->counts().finished, 3);
  bench.ExpectNothingHeld();
}

TEST(Scheduler, PrefillYieldsToTheTimePerToken) {
  SchedulerOptions options = Options();
  options.step_cost = 512;
  options.tpot_target_seconds = 0.1005;
  const auto second_step = [&](double seconds_per_row) {
    SchedulerBench bench(options, Memory(64, false), Exact());
    bench.device.seconds_per_row = seconds_per_row;
    bench.Submit({.prompt = 10, .answer = 10});
    bench.Step();
    bench.Submit({.prompt = 2000, .answer = 2});
    return RowsOf(bench.Step());
  };
  // A hundred units take the target's time; one of them is the decode's.
  EXPECT_EQ(second_step(0.001), Rows({0, 99}));
  // However slow, it goes on.
  EXPECT_EQ(second_step(0.05), Rows({0, 16}));
  // Fast enough, or not known yet: the whole budget.
  EXPECT_EQ(second_step(1e-6), Rows({0, 511}));
  EXPECT_EQ(second_step(0), Rows({0, 511}));
}

TEST(Scheduler, PrefillAloneIsNotCut) {
  SchedulerOptions options = Options();
  options.step_cost = 512;
  options.tpot_target_seconds = 0.1;
  SchedulerBench bench(options, Memory(64, false), Exact());
  bench.device.seconds_per_row = 0.05;
  bench.Submit({.prompt = 2000, .answer = 2});
  EXPECT_EQ(Chunks(bench), Rows({512, 512, 512, 464}));
}

TEST(Scheduler, NoMoreSequencesThanSlots) {
  SchedulerOptions options = Options();
  options.max_num_seqs = 2;
  for (const int depth : {1, 2}) {
    SchedulerBench bench(options, Memory(64, false), Exact());
    for (int i = 0; i < 5; ++i) bench.Submit({.answer = 3 + i});
    int64_t most = 0;
    while (!bench.scheduler->idle()) {
      for (const PlanItem& item : bench.Plan().items) EXPECT_LT(item.slot, 2);
      most = std::max(most, bench.scheduler->counts().running);
      if (bench.in_flight() >= depth || (bench.plan().items.empty() && bench.in_flight() > 0)) bench.Read();
    }
    EXPECT_EQ(most, 2);
    EXPECT_EQ(bench.scheduler->counts().finished, 5);
  }
}

TEST(Scheduler, PreemptionTakesTheLastAndKeepsItsTokens) {
  for (const int depth : {1, 2}) {
    for (const int second_priority : {0, -1}) {
      SchedulerBench bench(Options(), Memory(4, false), Exact());
      const auto first = bench.Submit({.prompt = 60, .answer = 100});
      const auto second = bench.Submit({.prompt = 60, .answer = 100, .priority = second_priority});
      const auto& victim = second_priority < 0 ? first : second;
      const auto& other = second_priority < 0 ? second : first;
      int64_t known = 0;
      int64_t restarts = 0;
      for (int64_t turns = 0; !bench.scheduler->idle(); ++turns) {
        ASSERT_LT(turns, 10000);
        const StepPlan& plan = bench.Plan();
        for (const SlotStart& start : plan.starts) {
          if (known == 0 || start.serial != victim->arrival) continue;
          ++restarts;
          // It goes on behind what it has, once the other one has ended.
          EXPECT_EQ(std::ssize(start.input->ids), known);
          EXPECT_EQ(start.input->prompt_tokens, 60);
          EXPECT_TRUE(other->finished);
        }
        if (bench.scheduler->counts().preemptions > 0 && restarts == 0) {
          EXPECT_FALSE(victim->running());
          known = std::ssize(victim->ids);
          EXPECT_GT(known, 60);
        }
        if (bench.in_flight() >= depth || (plan.items.empty() && bench.in_flight() > 0)) bench.Read();
      }
      bench.scheduler->TellEnded();
      EXPECT_EQ(restarts, 1);
      EXPECT_EQ(victim->preemptions, 1);
      EXPECT_EQ(other->preemptions, 0);
      for (const auto& request : {first, second}) {
        EXPECT_EQ(request->ids, ExpectedIds(bench.device, *request, 100));
        EXPECT_EQ(ChoiceOf(*request).ids.size(), 100U);
      }
      bench.ExpectNothingHeld();
    }
  }
}

TEST(Scheduler, CancellationWaitsForTheStepsInFlight) {
  SchedulerOptions options = Options();
  options.max_num_seqs = 1;
  SchedulerBench bench(options, Memory(8, false), Exact());
  const auto request = bench.Submit({.prompt = 70, .answer = 50});
  bench.Submit({.prompt = 5, .answer = 1});
  bench.Plan();  // 64 rows
  bench.Plan();  // the last 6 and the first token
  ASSERT_EQ(bench.in_flight(), 2);
  request->stream->Cancel();
  EXPECT_TRUE(bench.Plan().items.empty());
  // The device still writes to its blocks, so they and the slot are its own.
  EXPECT_EQ(bench.kv->blocks().free_count(), 6);
  bench.Read();
  EXPECT_TRUE(bench.Plan().items.empty());
  EXPECT_EQ(bench.kv->blocks().free_count(), 6);
  bench.Read();
  EXPECT_EQ(bench.kv->blocks().free_count(), 8);
  EXPECT_EQ(StartsOf(bench.Step()), Serials({2}));
  bench.RunToTheEnd(2);
  EXPECT_EQ(ChoiceOf(*request).finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(bench.scheduler->counts().cancelled, 1);
  EXPECT_EQ(bench.scheduler->counts().finished, 1);
  bench.ExpectNothingHeld();
}

TEST(Scheduler, WaitingRequestsAreCancelledAtOnce) {
  SchedulerOptions options = Options();
  options.max_num_seqs = 1;
  SchedulerBench bench(options, Memory(8, false), Exact());
  bench.Submit({.answer = 5});
  const auto waiting = bench.Submit({});
  bench.Step();
  waiting->stream->Cancel();
  bench.scheduler->DropCancelled();
  bench.scheduler->TellEnded();
  EXPECT_EQ(ChoiceOf(*waiting).finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(bench.scheduler->counts().waiting, 0);
}

TEST(Scheduler, LateResultsOfAStoppedRequestAreDropped) {
  SchedulerBench bench(Options(), Memory(8, false), Exact());
  const int32_t letter = 'f';
  bench.device.token = [&](uint64_t, int64_t index) { return index < 2 ? 4000 : letter; };
  // Find out what the third token says.
  const auto probe = bench.Submit({.answer = 3});
  bench.RunToTheEnd(1);
  const std::string text = ChoiceOf(*probe).content;
  const auto shorter = bench.Submit({.answer = 2});
  bench.RunToTheEnd(1);
  const std::string stop = text.substr(ChoiceOf(*shorter).content.size());
  ASSERT_FALSE(stop.empty());

  const auto request = bench.Submit({.answer = 20, .stops = {stop}});
  bench.Plan();
  bench.Read();  // the first token
  bench.Plan();
  bench.Plan();
  bench.Read();  // the second
  bench.Plan();
  bench.Read();  // the third ends it; the fourth is being computed
  ASSERT_EQ(bench.in_flight(), 1);
  EXPECT_TRUE(request->finished);
  EXPECT_TRUE(request->running());
  const int64_t generated = bench.scheduler->counts().generated_tokens;
  bench.Read();
  EXPECT_FALSE(request->running());
  EXPECT_EQ(std::ssize(request->ids), 10 + 3);
  EXPECT_EQ(bench.scheduler->counts().generated_tokens, generated);
  const Choice choice = ChoiceOf(*request);
  EXPECT_EQ(choice.finish_reason, FinishReason::kStopSequence);
  EXPECT_EQ(choice.stop_sequence, stop);
  EXPECT_EQ(choice.ids.size(), 3U);
  bench.ExpectNothingHeld();
}

TEST(Scheduler, ResultsOfAnotherRequestInTheSlotAreDropped) {
  SchedulerBench bench(Options(), Memory(8, false), Exact());
  const auto request = bench.Submit({.answer = 5});
  bench.Plan();
  StepResult result;
  result.tokens.push_back({77, 0, {}});
  SlotResult& slot = result.slots.emplace_back();
  slot.slot = request->slot;
  slot.serial = request->arrival + 1;
  slot.token_count = 1;
  slot.length = 11;
  slot.finished = true;
  bench.scheduler->Apply(result);
  EXPECT_FALSE(request->finished);
  EXPECT_EQ(request->outputs(), 0);
}

TEST(Scheduler, ARequestThatFailsHurtsNobodyElse) {
  SchedulerBench bench(Options(), Memory(8, false), Exact());
  const auto bad = bench.Submit({.answer = 5});
  const auto good = bench.Submit({.answer = 5});
  const StepPlan plan = bench.Plan();
  StepResult result = bench.device.Run(plan);
  result.slots[0].finished = true;
  result.slots[0].reason = FinishReason::kError;
  result.slots[0].status = Status::Internal("broken");
  bench.scheduler->Apply(result);
  bench.scheduler->TellEnded();
  EXPECT_EQ(ChoiceOf(*bad).finish_reason, FinishReason::kError);
  EXPECT_EQ(ChoiceOf(*bad).status.message(), "broken");
  EXPECT_FALSE(bad->running());
  EXPECT_FALSE(good->finished);
  EXPECT_EQ(good->outputs(), 1);
}

TEST(Scheduler, ChoicesWaitForTheirLeader) {
  SchedulerBench bench(Options(), Memory(32, true), Exact(2));
  const auto leader = bench.Submit({.prompt = 100, .answer = 3});
  const auto follower = bench.SubmitChoice(leader);
  const auto stranger = bench.Submit({.prompt = 5, .answer = 1});
  // 64 rows, the first block; nobody waits for a request that waits for its leader.
  EXPECT_EQ(StartsOf(bench.Step()), Serials({1}));
  EXPECT_EQ(StartsOf(bench.Step()), Serials({3}));
  EXPECT_TRUE(stranger->finished);
  const StepPlan& plan = bench.Step();
  ASSERT_EQ(StartsOf(plan), Serials({2}));
  EXPECT_EQ(plan.starts[0].replay.hit_tokens, 64);
  EXPECT_EQ(follower->cache.blocks.front(), leader->cache.blocks.front());
  bench.RunToTheEnd(1);
  EXPECT_EQ(ChoiceOf(*follower).ids.size(), 3U);
  bench.ExpectNothingHeld();
}

TEST(Scheduler, ChoicesGoOnWithoutALeaderThatFailed) {
  SchedulerBench bench(Options(), Memory(32, true), Exact(2));
  const auto leader = bench.Submit({.prompt = 100, .answer = 3});
  bench.SubmitChoice(leader);
  StepResult result = bench.device.Run(bench.Plan());
  result.slots[0].finished = true;
  result.slots[0].status = Status::Internal("broken");
  bench.scheduler->Apply(result);
  EXPECT_EQ(StartsOf(bench.Plan()), Serials({2}));
}

TEST(Scheduler, NoDecodeBeyondTheLastToken) {
  for (const int depth : {1, 2}) {
    for (const int64_t answer : {1, 2, 3, 10}) {
      SchedulerBench bench(Options(), Memory(64, false), Exact());
      const auto request = bench.Submit({.answer = answer});
      int64_t decodes = 0;
      while (!bench.scheduler->idle()) {
        const StepPlan& plan = bench.Plan();
        decodes += plan.items.empty() || ItemAt(plan, 0).count > 0 ? 0 : 1;
        if (bench.in_flight() >= depth || (plan.items.empty() && bench.in_flight() > 0)) bench.Read();
      }
      EXPECT_EQ(decodes, answer - 1);
      EXPECT_EQ(request->outputs(), answer);
    }
  }
}

TEST(Scheduler, AcceptedDraftsAreCounted) {
  SchedulerOptions options = Options();
  options.draft_length = 5;
  for (const int depth : {1, 2}) {
    SchedulerBench bench(options, Memory(64, false), Exact());
    bench.device.accepted = 2;
    const auto request = bench.Submit({.answer = 10});
    bench.RunToTheEnd(depth);
    EXPECT_EQ(request->ids, ExpectedIds(bench.device, *request, 10));
    EXPECT_EQ(request->drafts.steps, 3);
    EXPECT_EQ(request->drafts.accepted, 6);
    EXPECT_EQ(bench.scheduler->counts().drafts.accepted, 6);
    bench.ExpectNothingHeld();
  }
}

TEST(Scheduler, CloseEndsEveryRequest) {
  SchedulerOptions options = Options();
  options.max_num_seqs = 2;
  SchedulerBench bench(options, Memory(64, true), Exact());
  for (int i = 0; i < 4; ++i) bench.Submit({.answer = 5});
  bench.Step();
  bench.scheduler->CancelAll();
  EXPECT_TRUE(bench.scheduler->idle());
  EXPECT_EQ(bench.scheduler->counts().cancelled, 4);
  bench.ExpectNothingHeld();
}

// Whatever comes in whatever order: every request gets its tokens, and nothing is lost.
TEST(Scheduler, RandomWorkloads) {
  Random random(RunSeed("Scheduler.RandomWorkloads"));
  for (int round = 0; round < 300; ++round) {
    SchedulerOptions options = Options();
    options.max_num_seqs = random.Between(1, 5);
    options.step_cost = static_cast<double>(random.Between(5, 200));
    options.draft_length = static_cast<int32_t>(random.Between(0, 5));
    options.logits_rows = options.max_num_seqs * (1 + options.draft_length) + random.Between(1, 16);
    options.step_rows = options.logits_rows + random.Between(64, 500);
    const bool prefix_cache = !random.OneIn(3);
    const ReplaySettings replay = random.OneIn(2) ? Exact(random.Between(0, 200)) : Bounded(128);
    KvManagerOptions memory = Memory(random.Between(6, 20), prefix_cache);
    memory.snapshots = prefix_cache ? random.Between(0, 20) : 0;
    SchedulerBench bench(options, memory, replay);
    bench.device.accepted = random.Between(0, 5);
    const int64_t depth = random.Between(1, 2);
    const int64_t most_tokens = memory.blocks * kKvBlockTokens - 1;

    std::vector<std::shared_ptr<Request>> requests;
    const int64_t count = random.Between(1, 12);
    for (int64_t turns = 0; std::ssize(requests) < count || !bench.scheduler->idle(); ++turns) {
      ASSERT_LT(turns, 100000) << "round " << round;
      if (std::ssize(requests) < count && random.OneIn(3)) {
        Ask ask;
        ask.prompt = random.Between(1, 300);
        ask.answer = std::min(random.Between(1, 150), most_tokens - ask.prompt);
        ask.priority = static_cast<int>(random.Between(0, 1));
        ask.text = static_cast<int32_t>(random.Between(0, 2));
        requests.push_back(bench.Submit(ask));
        if (random.OneIn(4)) requests.push_back(bench.SubmitChoice(requests.back()));
      }
      if (!requests.empty() && random.OneIn(60)) random.Of(requests)->stream->Cancel();
      const int64_t before = bench.in_flight();
      bench.Plan();
      EXPECT_LE(bench.scheduler->counts().running, options.max_num_seqs);
      const bool planned = bench.in_flight() > before;
      if (bench.in_flight() >= depth || (!planned && bench.in_flight() > 0)) bench.Read();
    }
    bench.scheduler->TellEnded();
    for (const auto& request : requests) {
      ASSERT_TRUE(request->finished);
      const int64_t asked = request->most_tokens - request->prompt_tokens;
      if (!request->stream->cancelled(request->choice)) {
        EXPECT_EQ(request->outputs(), asked);
      }
      EXPECT_EQ(request->ids, ExpectedIds(bench.device, *request, request->outputs())) << "round " << round;
      EXPECT_EQ(std::ssize(ChoiceOf(*request).ids), request->outputs());
    }
    bench.ExpectNothingHeld();
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round;
  }
}

}  // namespace
}  // namespace deepinfer::test
