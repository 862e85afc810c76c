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
#include "device_ops.h"
#include "engine_fixture.h"
#include "ops/cuda/cuda_ops.h"

namespace deepinfer::test {
namespace {

constexpr double kLong = 60;  // seconds; reached only by a test that fails

// Where blocks lie: host memory, memory that only ops may touch, a GPU's.
constexpr char kHost[] = "Host";
constexpr char kDevice[] = "Device";
constexpr char kGpu[] = "Gpu";

std::vector<std::string> Devices() {
  std::vector<std::string> devices = {kHost, kDevice};
  if (CountCudaDevices() > 0) devices.emplace_back(kGpu);
  return devices;
}

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
class KvTransfers : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<EngineCore> Start(const EngineOptions& asked = Options()) { return StartOn(GetParam(), asked); }

  std::unique_ptr<EngineCore> StartOn(const std::string& device, const EngineOptions& asked = Options()) {
    EngineOptions options = asked;
    options.device = device == kGpu ? "cuda" : "cpu";
    const auto make_tiers = [this](const KvNamespace& name_space) {
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
      tiers.store.queue_bytes = queue_bytes_;
      tiers.transfers.deadline_seconds = deadline_seconds_;
      tiers.transfers.gate = gate_;
      tiers.transfers.clock = [this] { return now_; };
      tiers.transfers.persist_interval = 512;
      tiers.transfers.rings_interval = rings_interval_;
      return Result<KvTiers>(std::move(tiers));
    };
    return MakeEngine("nano", options, make_tiers, device == kDevice ? MakeDeviceOps() : nullptr);
  }

  static GenerationRequest Ask(std::vector<int32_t> prompt, ReplayMode mode = ReplayMode::kExact,
                               const std::string& salt = "") {
    GenerationRequest request;
    request.prompt = std::move(prompt);
    request.sampling = SeededSampling(12, 2);
    request.cache_salt = salt;
    request.replay = mode;
    return request;
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
  int64_t queue_bytes_ = TierStoreOptions().queue_bytes;
  int64_t now_ = 1'800'000'000;
};

/// What is decided before a block is copied anywhere, and takes long.
class KvTransfersInHostMemory : public KvTransfers {};

TEST_P(KvTransfers, ARestartFindsWhatWasComputedAndAnswersWithTheSameBytes) {
  for (const ReplayMode mode : {ReplayMode::kExact, ReplayMode::kBounded}) {
    auto engine = Start();
    const std::vector<int32_t> prompt = ProseIds(*engine, 1500);
    const Generation cold = Answer(*engine, Ask(prompt, mode));
    EXPECT_EQ(cold.cached_tokens, 0);
    ASSERT_TRUE(engine->FlushTiers(kLong).ok());
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

TEST_P(KvTransfersInHostMemory, ALongPromptIsResumedNearItsEnd) {
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
    ASSERT_TRUE(engine->FlushTiers(kLong).ok());
    engine = Start(options);
    const Generation warm = Answer(*engine, request);
    EXPECT_EQ(Difference(cold, warm), "");
    EXPECT_EQ(TokensFrom(warm, "disk"), (tokens - 1) / kKvBlockTokens * kKvBlockTokens);
    EXPECT_LE(warm.replayed_tokens, 64);
  }
}

TEST_P(KvTransfers, TheNearestTierIsReadAndLearnsFromTheOthers) {
  with_host_ = true;
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 1000);
  Answer(*engine, Ask(prompt));
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  host_ = std::make_shared<MemoryRecords>();  // the machine was restarted
  engine = Start();
  EXPECT_EQ(TokensFrom(Answer(*engine, Ask(prompt)), "disk"), 960);
  engine = Start();
  EXPECT_EQ(TokensFrom(Answer(*engine, Ask(prompt)), "host"), 960);
  EXPECT_EQ(TokensFrom(Answer(*engine, Ask(prompt)), "device"), 960);
}

TEST_P(KvTransfersInHostMemory, WrongRecordsAreMisses) {
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 1500);
  const Generation cold = Answer(*engine, Ask(prompt));
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
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
    EXPECT_TRUE(engine->FlushTiers(kLong).ok());
    engine.reset();
  }
}

TEST_P(KvTransfers, SaltsAndModesMeetNobody) {
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 700);
  Answer(*engine, Ask(prompt, ReplayMode::kExact, "a"));
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  engine = Start();
  EXPECT_EQ(Answer(*engine, Ask(prompt, ReplayMode::kExact, "b")).cached_tokens, 0);
  EXPECT_EQ(Answer(*engine, Ask(prompt, ReplayMode::kBounded, "a")).cached_tokens, 0);
  EXPECT_EQ(Answer(*engine, Ask(prompt, ReplayMode::kExact, "a")).cached_tokens, 640);
}

TEST_P(KvTransfers, WhatMustNotBeKeptIsNot) {
  auto engine = Start();
  GenerationRequest request = Ask(ProseIds(*engine, 700));
  request.no_store = true;
  Answer(*engine, request);
  Answer(*engine, Ask(ProseIds(*engine, 200, 3000)));  // too short
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  EXPECT_EQ(disk_->records.size(), 0u);
  request = Ask(ProseIds(*engine, 700, 1000));
  request.cache_ttl_seconds = 77;
  Answer(*engine, request);
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  ASSERT_GT(disk_->records.size(), 0u);
  const KvRecordCodec codec(engine->kv_namespace(), std::nullopt);
  for (const auto& [place, bytes] : disk_->records) {
    const auto header = codec.ReadHeader(bytes);
    ASSERT_TRUE(header.has_value());
    EXPECT_EQ(header->expires_at, now_ + 77);
  }
}

TEST_P(KvTransfers, AFailingTierFailsNobodyAndComesBack) {
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 900);
  const Generation cold = Answer(*engine, Ask(prompt));
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
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
    ASSERT_TRUE(engine->FlushTiers(kLong).ok());
    engine = Start();
    EXPECT_EQ(Answer(*engine, Ask(prompt)).cached_tokens, 896);
    disk_->probes = 0;
  }
}

TEST_P(KvTransfers, AtTheDeadlineTheRequestGoesOnWithoutTheRest) {
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 900);
  const Generation cold = Answer(*engine, Ask(prompt));
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  deadline_seconds_ = 0;
  engine = Start();
  disk_->Set(&MemoryRecords::hold_reads, true);
  const Generation late = Answer(*engine, Ask(prompt));
  EXPECT_EQ(Difference(cold, late), "");
  EXPECT_EQ(late.cached_tokens, 0);
  EXPECT_EQ(engine->statistics().kv_transfers.late, 1);
  disk_->Set(&MemoryRecords::hold_reads, false);
}

TEST_P(KvTransfers, WhatIsComputedFasterIsComputed) {
  gate_ = true;
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 900);
  const Generation cold = Answer(*engine, Ask(prompt));
  Answer(*engine, Ask(ProseIds(*engine, 900, 900)));
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  seconds_per_look_ = 3600;
  engine = Start();
  // The first fetch shows how slow the tier is; without a rate there is nothing to compare.
  EXPECT_EQ(TokensFrom(Answer(*engine, Ask(ProseIds(*engine, 900, 900))), "disk"), 896);
  EXPECT_EQ(Difference(cold, Answer(*engine, Ask(prompt))), "");
  EXPECT_EQ(engine->statistics().kv_transfers.refused, 1);
}

TEST_P(KvTransfers, ACancelledFetchGivesEverythingBack) {
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 900);
  Answer(*engine, Ask(prompt));
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
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
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  ExpectNothingHeld(*engine);
}

TEST_P(KvTransfers, AFullPoolTakesWhatFits) {
  EngineOptions options = Options();
  options.max_num_seqs = 1;
  auto engine = Start(options);
  const std::vector<int32_t> first = ProseIds(*engine, 1500);
  const std::vector<int32_t> second = ProseIds(*engine, 1500, 1500);
  const Generation a = Answer(*engine, Ask(first));
  const Generation b = Answer(*engine, Ask(second));
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  options.kv_memory_bytes = 30 * engine->plan().kv.block_bytes;  // 1920 tokens
  engine = Start(options);
  for (int turn = 0; turn < 3; ++turn) {
    engine->WaitIdle();  // until then the last step has blocks of the request before
    EXPECT_EQ(Difference(a, Answer(*engine, Ask(first))), "");
    engine->WaitIdle();
    EXPECT_EQ(Difference(b, Answer(*engine, Ask(second))), "");
  }
  EXPECT_GT(engine->statistics().kv_transfers.fetched_tokens, 4 * 1472);
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  ExpectNothingHeld(*engine);
}

TEST_P(KvTransfers, SlowWritesHoldNobodyUp) {
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
  const Status waited = engine->FlushTiers(0);
  EXPECT_EQ(waited.code(), StatusCode::kIo);
  // A device may have copies left.
  if (GetParam() == kHost) {
    EXPECT_NE(waited.message().find("not all is written after 0 s: 'disk' has "), std::string::npos)
        << waited.message();
  }
  disk_->Set(&MemoryRecords::hold_writes, false);
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  ExpectNothingHeld(*engine);
}

TEST_P(KvTransfers, WhatIsUsedLivesOnAndWhatWasLostIsKeptAgain) {
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 700);
  GenerationRequest request = Ask(prompt);
  request.cache_ttl_seconds = 3600;
  const auto expires = [&] {
    EXPECT_TRUE(engine->FlushTiers(kLong).ok());
    const KvRecordCodec codec(engine->kv_namespace(), std::nullopt);
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

TEST_P(KvTransfers, ATierThatHangsLeavesRequestsTheirMemory) {
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
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  ExpectNothingHeld(*engine);
  const std::vector<int32_t> last = ProseIds(*engine, 600, 300 * 5);
  Answer(*engine, Ask(last));
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  engine = Start();
  EXPECT_EQ(TokensFrom(Answer(*engine, Ask(last)), "disk"), 576);
}

TEST_P(KvTransfers, DevicesWithOtherNumericsDoNotMeet) {
  EXPECT_EQ(MakeCpuOps(1)->numerics(), "cpu");  // or what CPUs have left everywhere would be lost
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 700);
  Answer(*engine, Ask(prompt));
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  const size_t records = disk_->records.size();
  for (const std::string& device : Devices()) {
    engine = StartOn(device);
    EXPECT_EQ(Answer(*engine, Ask(prompt)).cached_tokens, device == GetParam() ? 640 : 0) << device;
    ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  }
  EXPECT_EQ(disk_->records.size(), Devices().size() * records);
}

TEST_P(KvTransfers, WhatAFullQueueDidNotTakeIsOfferedAgain) {
  queue_bytes_ = 1;
  auto engine = Start();
  const std::vector<int32_t> prompt = ProseIds(*engine, 700);
  Answer(*engine, Ask(prompt));
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  EXPECT_EQ(disk_->records.size(), 0u);
  EXPECT_GT(engine->statistics().kv_tiers[0].dropped, 0);
  // The pool still has it, and nobody believes that the tier has it, too.
  Answer(*engine, Ask(prompt));
  ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  EXPECT_GE(engine->statistics().kv_transfers.persisted_tokens, 2 * 640);
}

TEST_P(KvTransfers, ManyAtOnceInASmallPoolAnswerAsAlone) {
  EngineOptions options = Options();
  options.max_num_seqs = 3;
  auto engine = Start(options);
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 6; ++i) {
    // The first three, and each of them again with another end.
    std::vector<int32_t> prompt = ProseIds(*engine, 560 + 30 * i, 100 * (i % 3));
    if (i >= 3) std::ranges::reverse(prompt.begin() + 450, prompt.end());
    requests.push_back(Ask(prompt, i % 3 == 1 ? ReplayMode::kBounded : ReplayMode::kExact));
    requests.back().no_store = true;
  }
  const std::vector<Generation> alone = RunAlone(*engine, requests);
  for (GenerationRequest& request : requests) request.no_store = false;
  options.kv_memory_bytes = 34 * engine->plan().kv.block_bytes;  // blocks are lost and fetched all the time
  engine = Start(options);
  std::vector<size_t> order = {0, 1, 2, 3, 4, 5};
  Random random(RunSeed("many at once"));
  for (int round = 0; round < 3; ++round) {
    for (size_t i = order.size() - 1; i > 0; --i) {
      std::swap(order[i], order[static_cast<size_t>(random.Between(0, static_cast<int64_t>(i)))]);
    }
    const std::vector<Generation> together = RunTogether(*engine, requests, order);
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(Difference(alone[i], together[i]), "") << round << " " << i;
    ASSERT_TRUE(engine->FlushTiers(kLong).ok());
  }
  // Whether they fetched is chance: beside others there may be no room. Alone, behind one that takes all of the pool,
  // one does.
  GenerationRequest other = Ask(ProseIds(*engine, 34 * 64 - 100, 2000));
  other.no_store = true;
  Answer(*engine, other);
  engine->WaitIdle();
  EXPECT_EQ(Difference(alone[0], Answer(*engine, requests[0])), "");
  EXPECT_GT(engine->statistics().kv_transfers.fetched_tokens, 0);
  ExpectNothingHeld(*engine);
}

TEST_P(KvTransfers, StagingMemoryIsPlanned) {
  const auto engine = Start();
  int64_t planned = 0;
  for (const PlannedMemory& line : engine->memory_plan()) planned += line.key == "kv_tiers" ? line.bytes : 0;
  const int64_t blocks = engine->plan().kv.blocks;
  const int64_t without = engine->tiers()->memory_bytes() + 32 * blocks;
  const int64_t pieces = (1 + BlockCopies::kLandingBuffers) * deepinfer::KvTransfers::kPieceBytes;
  EXPECT_GE(planned - without, GetParam() == kHost ? 0 : pieces);
  EXPECT_LT(planned - without, GetParam() == kHost ? 1 : 2 * pieces);
}

INSTANTIATE_TEST_SUITE_P(Memory, KvTransfers, testing::ValuesIn(Devices()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Memory, KvTransfersInHostMemory, testing::Values(kHost),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace deepinfer::test
