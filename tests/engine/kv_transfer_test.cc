// The engine and the tiers behind its KV pool: what comes back from them gives the bytes of a run without them, and
// whatever they do wrong, no request fails.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../cache/memory_tier.h"
#include "engine_fixture.h"

namespace deepinfer::test {
namespace {

constexpr double kLong = 60;  // seconds; reached only by a test that fails

EngineOptions Options() {
  EngineOptions options;
  options.max_num_seqs = 4;
  options.max_model_len = 4096;
  options.replay_grid = 512;
  options.draft_length = 3;
  options.threads = 1;
  options.profile_steps = false;
  return options;
}

/// Engines that find what the ones before them have left.
class KvTransfers : public testing::Test {
 protected:
  std::unique_ptr<EngineCore> Start(const EngineOptions& options = Options()) {
    return MakeEngine("nano", options, [this](const KvNamespace& name_space) {
      KvTiers tiers;
      if (with_host_) tiers.nearest_first.push_back(std::make_unique<MemoryTier>("host", name_space, host_));
      tiers.nearest_first.push_back(std::make_unique<MemoryTier>("disk", name_space, disk_));
      tiers.store.first_probe_seconds = 0.001;
      tiers.store.most_probe_seconds = 0.001;
      // Several threads fetch.
      tiers.store.stopwatch = [this, now = std::make_shared<std::atomic<double>>(0)] {
        return now->fetch_add(seconds_per_look_) + seconds_per_look_;
      };
      tiers.store.chunk_bytes = 4 * name_space.block_bytes;
      tiers.transfers.deadline_seconds = deadline_seconds_;
      tiers.transfers.gate = gate_;
      tiers.transfers.clock = [this] { return now_; };
      tiers.transfers.persist_interval = 512;
      tiers.transfers.rings_interval = rings_interval_;
      return Result<KvTiers>(std::move(tiers));
    });
  }

  static GenerationRequest Ask(std::vector<int32_t> prompt, ReplayMode mode = ReplayMode::kExact,
                               const std::string& salt = "") {
    GenerationRequest request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 1;
    request.sampling.seed = 7;
    request.sampling.max_tokens = 12;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 2;
    request.cache_salt = salt;
    request.replay = mode;
    return request;
  }

  static Generation Answer(EngineCore& engine, const GenerationRequest& request) {
    Result<Generation> result = engine.Generate(request);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? std::move(*result) : Generation();
  }

  static int64_t TokensFrom(const Generation& generation, const std::string& tier) {
    int64_t tokens = 0;
    for (const CachedTokens& cached : generation.cached_tokens_by_tier)
      tokens += cached.tier == tier ? cached.tokens : 0;
    return tokens;
  }

  std::shared_ptr<MemoryRecords> host_ = std::make_shared<MemoryRecords>();
  std::shared_ptr<MemoryRecords> disk_ = std::make_shared<MemoryRecords>();
  bool with_host_ = false;
  int64_t rings_interval_ = 256;
  double deadline_seconds_ = kLong;
  bool gate_ = false;
  double seconds_per_look_ = 0;
  int64_t now_ = 1'800'000'000;
};

TEST_F(KvTransfers, ARestartFindsWhatWasComputedAndAnswersWithTheSameBytes) {
  for (const ReplayMode mode : {ReplayMode::kExact, ReplayMode::kBounded}) {
    auto engine = Start();
    const std::vector<int32_t> prompt = ProseIds(*engine, 1500);
    const Generation cold = Answer(*engine, Ask(prompt, mode));
    EXPECT_EQ(cold.cached_tokens, 0);
    ASSERT_TRUE(engine->tiers()->Flush(kLong));
    engine = Start();
    const Generation warm = Answer(*engine, Ask(prompt, mode));
    EXPECT_EQ(Difference(cold, warm), "");
    EXPECT_EQ(warm.cached_tokens, 1472);
    EXPECT_EQ(TokensFrom(warm, "disk"), 1472);
    // The rings came back too: little is computed again.
    EXPECT_LE(warm.replayed_tokens, mode == ReplayMode::kExact ? 0 : 192);
    // A turn that goes on from it, and from the answer.
    std::vector<int32_t> longer = prompt;
    longer.insert(longer.end(), cold.choices[0].ids.begin(), cold.choices[0].ids.end());
    const std::vector<int32_t> more = ProseIds(*engine, 300, 2000);
    longer.insert(longer.end(), more.begin(), more.end());
    engine = Start();
    const Generation next = Answer(*engine, Ask(longer, mode));
    EXPECT_EQ(TokensFrom(next, "disk"), 1472);
    EXPECT_EQ(Difference(Answer(*Start(), Ask(longer, mode, "cold")), next), "");
  }
}

TEST_F(KvTransfers, ALongPromptIsResumedNearItsEnd) {
  rings_interval_ = 1024;
  EngineOptions options = Options();
  options.max_model_len = 8192;
  // Rings that are a thousand tokens apart everywhere lie near the end of one of these prompts, not of both.
  for (const int64_t tokens : {4700, 5212}) {
    SCOPED_TRACE(tokens);
    auto engine = Start(options);
    const std::vector<int32_t> prompt = ProseIds(*engine, tokens);
    const GenerationRequest request = Ask(prompt, ReplayMode::kExact, std::to_string(tokens));
    const Generation cold = Answer(*engine, request);
    ASSERT_TRUE(engine->tiers()->Flush(kLong));
    engine = Start(options);
    const Generation warm = Answer(*engine, request);
    EXPECT_EQ(Difference(cold, warm), "");
    EXPECT_EQ(TokensFrom(warm, "disk"), (tokens - 1) / kKvBlockTokens * kKvBlockTokens);
    EXPECT_LE(warm.replayed_tokens, 64);
  }
}

TEST_F(KvTransfers, TheNearestTierIsReadAndLearnsFromTheOthers) {
  with_host_ = true;
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 1000);
  Answer(*engine, Ask(prompt));
  ASSERT_TRUE(engine->tiers()->Flush(kLong));
  host_ = std::make_shared<MemoryRecords>();  // the machine was restarted
  engine = Start();
  EXPECT_EQ(TokensFrom(Answer(*engine, Ask(prompt)), "disk"), 960);
  engine = Start();
  EXPECT_EQ(TokensFrom(Answer(*engine, Ask(prompt)), "host"), 960);
  EXPECT_EQ(TokensFrom(Answer(*engine, Ask(prompt)), "device"), 960);
}

TEST_F(KvTransfers, WrongRecordsAreMisses) {
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 1500);
  const Generation cold = Answer(*engine, Ask(prompt));
  ASSERT_TRUE(engine->tiers()->Flush(kLong));
  engine.reset();
  Random random(RunSeed("wrong records"));
  const auto whole = disk_->records;
  for (int trial = 0; trial < 12; ++trial) {
    disk_->records = whole;
    for (auto& [place, bytes] : disk_->records) {
      if (!random.OneIn(6)) continue;
      switch (random.Between(0, 2)) {
        case 0:
          bytes[static_cast<size_t>(random.Between(0, std::ssize(bytes) - 1))] ^= 1;
          break;
        case 1:
          bytes.resize(static_cast<size_t>(random.Between(0, std::ssize(bytes))));
          break;
        default:
          bytes = whole.at(std::next(whole.begin(), random.Between(0, std::ssize(whole) - 1))->first);
      }
    }
    engine = Start();
    EXPECT_EQ(Difference(cold, Answer(*engine, Ask(prompt))), "");
    engine->tiers()->Flush(kLong);
    engine.reset();
  }
}

TEST_F(KvTransfers, SaltsAndModesMeetNobody) {
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 700);
  Answer(*engine, Ask(prompt, ReplayMode::kExact, "a"));
  ASSERT_TRUE(engine->tiers()->Flush(kLong));
  engine = Start();
  EXPECT_EQ(Answer(*engine, Ask(prompt, ReplayMode::kExact, "b")).cached_tokens, 0);
  EXPECT_EQ(Answer(*engine, Ask(prompt, ReplayMode::kBounded, "a")).cached_tokens, 0);
  EXPECT_EQ(Answer(*engine, Ask(prompt, ReplayMode::kExact, "a")).cached_tokens, 640);
}

TEST_F(KvTransfers, WhatMustNotBeKeptIsNot) {
  auto engine = Start();
  GenerationRequest request = Ask(ProseIds(*engine, 700));
  request.no_store = true;
  Answer(*engine, request);
  Answer(*engine, Ask(ProseIds(*engine, 200, 3000)));  // too short
  ASSERT_TRUE(engine->tiers()->Flush(kLong));
  EXPECT_EQ(disk_->records.size(), 0u);
  request = Ask(ProseIds(*engine, 700, 1000));
  request.cache_ttl_seconds = 77;
  Answer(*engine, request);
  ASSERT_TRUE(engine->tiers()->Flush(kLong));
  ASSERT_GT(disk_->records.size(), 0u);
  const KvRecordCodec codec(NamespaceOf(engine->files(), engine->fingerprint(), engine->plan()), std::nullopt);
  for (const auto& [place, bytes] : disk_->records) {
    const auto header = codec.ReadHeader(bytes);
    ASSERT_TRUE(header.has_value());
    EXPECT_EQ(header->expires_at, now_ + 77);
  }
}

TEST_F(KvTransfers, AFailingTierFailsNobodyAndComesBack) {
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 900);
  const Generation cold = Answer(*engine, Ask(prompt));
  ASSERT_TRUE(engine->tiers()->Flush(kLong));
  for (bool MemoryRecords::*fault :
       {&MemoryRecords::fail_finds, &MemoryRecords::fail_reads, &MemoryRecords::fail_writes}) {
    engine = Start();
    disk_->Set(fault, true);
    EXPECT_EQ(Difference(cold, Answer(*engine, Ask(prompt))), "");
    EXPECT_EQ(Difference(Answer(*engine, Ask(ProseIds(*engine, 900, 500), ReplayMode::kExact, "x")),
                         Answer(*engine, Ask(ProseIds(*engine, 900, 500), ReplayMode::kExact, "y"))),
              "");
    disk_->WaitUntil([&] { return disk_->probes > 0; });
    const KvTierStatistics down = engine->statistics().kv_tiers[0];
    EXPECT_FALSE(down.up);
    EXPECT_EQ(down.failures, 1);
    EXPECT_NE(down.reason, "");
    disk_->Set(fault, false);
    ASSERT_TRUE(engine->tiers()->WaitUntilUp(kLong));
    // What was lost on the way is written again when it is seen some time later.
    disk_->records.clear();
    now_ += 700;
    Answer(*engine, Ask(prompt));
    ASSERT_TRUE(engine->tiers()->Flush(kLong));
    engine = Start();
    EXPECT_EQ(Answer(*engine, Ask(prompt)).cached_tokens, 896);
    disk_->probes = 0;
  }
}

TEST_F(KvTransfers, AtTheDeadlineTheRequestGoesOnWithoutTheRest) {
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 900);
  const Generation cold = Answer(*engine, Ask(prompt));
  ASSERT_TRUE(engine->tiers()->Flush(kLong));
  deadline_seconds_ = 0;
  engine = Start();
  disk_->Set(&MemoryRecords::hold_reads, true);
  const Generation late = Answer(*engine, Ask(prompt));
  EXPECT_EQ(Difference(cold, late), "");
  EXPECT_EQ(late.cached_tokens, 0);
  EXPECT_EQ(engine->statistics().kv_transfers.late, 1);
  disk_->Set(&MemoryRecords::hold_reads, false);
}

TEST_F(KvTransfers, WhatIsComputedFasterIsComputed) {
  gate_ = true;
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 900);
  const Generation cold = Answer(*engine, Ask(prompt));
  Answer(*engine, Ask(ProseIds(*engine, 900, 900)));
  ASSERT_TRUE(engine->tiers()->Flush(kLong));
  seconds_per_look_ = 3600;
  engine = Start();
  // The first fetch shows how slow the tier is; without a rate there is nothing to compare.
  EXPECT_EQ(TokensFrom(Answer(*engine, Ask(ProseIds(*engine, 900, 900))), "disk"), 896);
  EXPECT_EQ(Difference(cold, Answer(*engine, Ask(prompt))), "");
  EXPECT_EQ(engine->statistics().kv_transfers.refused, 1);
}

TEST_F(KvTransfers, ACancelledFetchGivesEverythingBack) {
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 900);
  Answer(*engine, Ask(prompt));
  ASSERT_TRUE(engine->tiers()->Flush(kLong));
  engine = Start();
  disk_->Set(&MemoryRecords::hold_reads, true);
  const int before = disk_->reads;
  {
    auto stream = engine->Submit(Ask(prompt));
    ASSERT_TRUE(stream.ok());
    disk_->WaitUntil([&] { return disk_->reads > before; });
    (*stream)->Cancel();
    EXPECT_EQ((*stream)->Wait().choices[0].finish_reason, FinishReason::kCancelled);
  }
  disk_->Set(&MemoryRecords::hold_reads, false);
  EXPECT_EQ(Answer(*engine, Ask(prompt)).cached_tokens, 896);
  ASSERT_TRUE(engine->tiers()->Flush(kLong));
  ExpectNothingHeld(*engine);
}

TEST_F(KvTransfers, AFullPoolTakesWhatFits) {
  EngineOptions options = Options();
  options.max_num_seqs = 1;
  auto engine = Start(options);
  const std::vector<int32_t> first = ProseIds(*engine, 1500);
  const std::vector<int32_t> second = ProseIds(*engine, 1500, 1500);
  const Generation a = Answer(*engine, Ask(first));
  const Generation b = Answer(*engine, Ask(second));
  ASSERT_TRUE(engine->tiers()->Flush(kLong));
  options.kv_memory_bytes = 30 * engine->plan().kv.block_bytes;  // 1920 tokens
  engine = Start(options);
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(Difference(a, Answer(*engine, Ask(first))), "");
    EXPECT_EQ(Difference(b, Answer(*engine, Ask(second))), "");
  }
  EXPECT_GT(engine->statistics().kv_transfers.fetched_tokens, 4 * 1472);
  ASSERT_TRUE(engine->tiers()->Flush(kLong));
  ExpectNothingHeld(*engine);
}

TEST_F(KvTransfers, SlowWritesHoldNobodyUp) {
  disk_->hold_writes = true;
  EngineOptions options = Options();
  auto engine = Start(options);
  options.kv_memory_bytes = 40 * engine->plan().kv.block_bytes;
  options.max_num_seqs = 2;
  engine = Start(options);
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(Ask(ProseIds(*engine, 600, 300 * i), ReplayMode::kBounded));
  std::vector<std::unique_ptr<GenerationStream>> streams;
  for (const GenerationRequest& request : requests) {
    auto stream = engine->Submit(request);
    ASSERT_TRUE(stream.ok());
    streams.push_back(std::move(*stream));
  }
  for (auto& stream : streams) EXPECT_EQ(stream->Wait().choices[0].finish_reason, FinishReason::kLength);
  disk_->Set(&MemoryRecords::hold_writes, false);
  ASSERT_TRUE(engine->tiers()->Flush(kLong));
  ExpectNothingHeld(*engine);
}

TEST_F(KvTransfers, WhatIsUsedLivesOnAndWhatWasLostIsKeptAgain) {
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 700);
  GenerationRequest request = Ask(prompt);
  request.cache_ttl_seconds = 3600;
  const auto expires = [&] {
    EXPECT_TRUE(engine->tiers()->Flush(kLong));
    const KvRecordCodec codec(NamespaceOf(engine->files(), engine->fingerprint(), engine->plan()), std::nullopt);
    const auto header = codec.ReadHeader(disk_->records.begin()->second);
    return header.has_value() ? header->expires_at : 0;
  };
  Answer(*engine, request);
  EXPECT_EQ(expires(), now_ + 3600);
  now_ += 60;
  Answer(*engine, request);
  EXPECT_EQ(expires(), now_ + 3540);  // not worth a write yet
  now_ += 1000;
  Answer(*engine, request);
  EXPECT_EQ(expires(), now_ + 3600);
  request.cache_ttl_seconds = 86'400;
  Answer(*engine, request);
  EXPECT_EQ(expires(), now_ + 86'400);
  disk_->records.clear();  // somebody has deleted it
  now_ += 700;
  Answer(*engine, request);
  EXPECT_EQ(expires(), now_ + 86'400);
}

TEST_F(KvTransfers, ATierThatHangsLeavesRequestsTheirMemory) {
  EngineOptions options = Options();
  auto engine = Start(options);
  options.kv_memory_bytes = 30 * engine->plan().kv.block_bytes;
  engine = Start(options);
  disk_->Set(&MemoryRecords::hold_writes, true);
  auto answers = std::async(std::launch::async, [&] {
    for (int i = 0; i < 6; ++i) Answer(*engine, Ask(ProseIds(*engine, 600, 300 * i)));
  });
  EXPECT_EQ(answers.wait_for(std::chrono::duration<double>(kLong)), std::future_status::ready);
  disk_->Set(&MemoryRecords::hold_writes, false);
  answers.get();
  ASSERT_TRUE(engine->tiers()->Flush(kLong));
  ExpectNothingHeld(*engine);
  const std::vector<int32_t> last = ProseIds(*engine, 600, 300 * 5);
  Answer(*engine, Ask(last));
  ASSERT_TRUE(engine->tiers()->Flush(kLong));
  engine = Start();
  EXPECT_EQ(TokensFrom(Answer(*engine, Ask(last)), "disk"), 576);
}

}  // namespace
}  // namespace deepinfer::test
