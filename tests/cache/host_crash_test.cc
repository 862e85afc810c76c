// A process that shares the host tier dies at any instruction: what the others find is whole, and nothing leaks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <random>

#include "base/aligned_buffer.h"
#include "cache/host_tier.h"
#include "tests/app/temporary_folder.h"
#include "tests/cache/kv_samples.h"

namespace deepinfer {
namespace {

constexpr int64_t kTokens = 4;
constexpr int64_t kFar = 1'000'000'000;

class HostCrashTest : public testing::Test {
 protected:
  explicit HostCrashTest(int64_t block_bytes = 80, int64_t rings_bytes = 300, int64_t budget_bytes = 20'000)
      : name_space_(KvNamespace::Make("{}", block_bytes, rings_bytes)), budget_bytes_(budget_bytes) {}

  std::unique_ptr<HostTier> Open(double lock_seconds = 60) {
    Result<std::unique_ptr<HostTier>> tier = HostTier::Create(name_space_, {.budget_bytes = budget_bytes_,
                                                                            .block_tokens = kTokens,
                                                                            .file = folder_.path() / "host",
                                                                            .lock_seconds = lock_seconds,
                                                                            .clock = [] { return int64_t{1000}; }});
    EXPECT_TRUE(tier.ok()) << tier.status().message();
    return std::move(*tier);
  }
  std::vector<SampleRecord> Chain(uint32_t text, int64_t blocks) {
    return SampleChain(name_space_, scope_, kTokens, text, blocks);
  }
  static bool Write(HostTier& tier, std::span<const SampleRecord> records) {
    std::vector<KvWrite> writes;
    for (const SampleRecord& record : records) writes.push_back(record.Write(kFar));
    return tier.Write(writes).ok();
  }
  /// Hits; -1: a wrong byte.
  static int64_t Read(HostTier& tier, std::span<const SampleRecord> records) {
    std::vector<std::vector<uint8_t>> payloads(records.size());
    std::vector<KvRead> reads;
    for (size_t i = 0; i < records.size(); ++i) reads.push_back(records[i].Read(&payloads[i]));
    if (!tier.Read(reads).ok()) return -1;
    int64_t hits = 0;
    for (size_t i = 0; i < records.size(); ++i) {
      if (!reads[i].found) continue;
      ++hits;
      if (payloads[i] != records[i].payload) return -1;
    }
    return hits;
  }

  const KvNamespace name_space_;
  const KvScope scope_ = KvScope::Make(name_space_, "exact", "");
  const int64_t budget_bytes_;
  const TemporaryFolder folder_;
};

TEST_F(HostCrashTest, ADeadOwnerIsNoticedAndWhatItWroteIsDropped) {
  const auto tier = Open();
  const auto chain = Chain(1, 3);
  ASSERT_TRUE(Write(*tier, chain));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const HostLayout layout = tier->layout();
    const int file = open((folder_.path() / "host").c_str(), O_RDWR);
    void* memory = mmap(nullptr, static_cast<size_t>(layout.total_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    HostTable table(static_cast<uint8_t*>(memory), layout);
    const auto lock = table.Acquire(60);
    _exit(lock.ok() ? 0 : 1);  // with the lock
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(tier->recoveries(), 0);
  EXPECT_EQ(Read(*tier, chain), 3);  // readers need no lock
  EXPECT_TRUE(Write(*tier, Chain(2, 1)));
  EXPECT_EQ(tier->recoveries(), 1);
  EXPECT_EQ(Read(*tier, chain), 3);
  EXPECT_TRUE(tier->Verify().ok());
  EXPECT_EQ(tier->recoveries(), 1);
}

TEST_F(HostCrashTest, AStoppedOwnerIsAStatusAndReadsGoOn) {
  const auto tier = Open(/*lock_seconds=*/0.01);
  const auto chain = Chain(1, 3);
  ASSERT_TRUE(Write(*tier, chain));
  std::array<int, 2> ready, go_on;
  ASSERT_EQ(pipe(ready.data()), 0);
  ASSERT_EQ(pipe(go_on.data()), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const HostLayout layout = tier->layout();
    const int file = open((folder_.path() / "host").c_str(), O_RDWR);
    void* memory = mmap(nullptr, static_cast<size_t>(layout.total_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    HostTable table(static_cast<uint8_t*>(memory), layout);
    {
      const auto lock = table.Acquire(60);
      char byte = lock.ok() ? 'y' : 'n';
      if (write(ready[1], &byte, 1) != 1 || read(go_on[0], &byte, 1) != 1) _exit(1);
    }
    _exit(0);
  }
  close(ready[1]);
  close(go_on[0]);
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  const auto other = Chain(2, 1);
  const KvWrite write_one = other[0].Write(kFar);
  const Status locked = tier->Write({&write_one, 1});
  EXPECT_EQ(locked.code(), StatusCode::kIo);
  EXPECT_NE(locked.message().find("may be stopped"), std::string::npos) << locked.message();
  EXPECT_EQ(tier->Probe().code(), StatusCode::kIo);
  EXPECT_EQ(Read(*tier, chain), 3);
  ASSERT_EQ(write(go_on[1], &byte, 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(tier->Probe().ok());
  EXPECT_TRUE(tier->Write({&write_one, 1}).ok());
  EXPECT_EQ(tier->recoveries(), 0);
  close(ready[0]);
  close(go_on[1]);
}

/// With blocks of many bytes much of a writer's time passes under the lock.
class HostKillTest : public HostCrashTest {
 protected:
  HostKillTest() : HostCrashTest(16'000, 80'000, 1'400'000) {}
};

TEST_F(HostKillTest, TwoProcessesAndOneIsKilledAtAnyMoment) {
  constexpr int kRounds = 80;
  constexpr int kDeadOwners = 5;  // so many deaths under the lock at least
  const auto tier = Open();
  std::vector<std::vector<SampleRecord>> texts;
  for (uint32_t text = 0; text < 8; ++text) {
    texts.push_back(Chain(text, 12));
    for (const int i : {2, 7}) texts.back().push_back(SampleRings(name_space_, texts.back()[i]));
  }
  // What both processes do: random parts of random texts are written or read, now and then all is dropped.
  const auto step = [&](HostTier& with, std::mt19937* random, uint32_t reads_in_8) {
    const auto& text = texts[(*random)() % texts.size()];
    const std::span<const SampleRecord> part = std::span(text).subspan((*random)() % text.size());
    if ((*random)() % 50 == 0) return with.Drop(scope_).ok();
    return (*random)() % 8 < reads_in_8 ? Read(with, part) >= 0 : Write(with, part);
  };
  std::mt19937 random(5);
  for (int round = 0; round < kRounds || (tier->recoveries() < kDeadOwners && round < 20 * kRounds); ++round) {
    std::array<int, 2> begun;
    ASSERT_EQ(pipe(begun.data()), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto own = Open();
      std::mt19937 own_random(static_cast<uint32_t>(round));
      if (write(begun[1], "b", 1) != 1) _exit(1);
      while (step(*own, &own_random, 1)) {
      }
      _exit(2);  // a wrong byte
    }
    close(begun[1]);
    char byte = 0;
    ASSERT_EQ(read(begun[0], &byte, 1), 1);
    close(begun[0]);
    const uint32_t steps = random() % 40;
    for (uint32_t i = 0; i < steps; ++i) ASSERT_TRUE(step(*tier, &random, 4));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child read a wrong byte";
    const Status verified = tier->Verify();
    ASSERT_TRUE(verified.ok()) << "round " << round << ": " << verified.message();
    ASSERT_TRUE(step(*tier, &random, 4));
  }
  EXPECT_GE(tier->recoveries(), kDeadOwners);
  EXPECT_EQ(tier->counts().corrupt, 0);

  // No slot is lost: all of them can be filled again.
  ASSERT_TRUE(tier->Drop(scope_).ok());
  EXPECT_EQ(tier->counts().records, 0);
  const int64_t slots = tier->layout().slots;
  EXPECT_EQ(tier->memory_bytes() - tier->counts().bytes, slots * tier->layout().slot_bytes);
  const auto full = Chain(100, slots);
  ASSERT_TRUE(Write(*tier, full));
  EXPECT_EQ(tier->counts().records, slots);
  EXPECT_EQ(Read(*tier, full), slots);
}

// Every state of the memory that a process can leave behind: a child makes its calls one instruction at a time, and
// whenever the shared memory has changed, a copy of it is recovered as its next owner would.
class HostSingleStepTest : public HostCrashTest {
 protected:
  /// Steps through `call`; `check` gets each state of the file's memory. False: this system does not let us.
  bool Step(const std::function<void()>& call, const std::function<void(std::span<const uint8_t>)>& check) {
    const int64_t bytes = tier_->layout().total_bytes;
    const int file = open((folder_.path() / "host").c_str(), O_RDONLY);
    void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    EXPECT_NE(memory, MAP_FAILED);
    const pid_t child = fork();
    if (child == 0) {
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
      raise(SIGSTOP);
      call();
      _exit(0);
    }
    std::vector<uint8_t> last(static_cast<size_t>(bytes));
    int status = 0;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
      if (std::memcmp(last.data(), memory, last.size()) != 0) {
        std::memcpy(last.data(), memory, last.size());
        check(last);
        ++states_;
      }
      ++instructions_;
      if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0) break;
    }
    munmap(memory, static_cast<size_t>(bytes));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return false;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    return true;
  }

  HostTable::Outcome ReadFrom(const HostTable& table, const SampleRecord& record) {
    AlignedBuffer<uint8_t> staging;
    EXPECT_TRUE(staging.Allocate(4096));
    std::vector<uint8_t> payload;
    KvRead read = record.Read(&payload);
    HostTable::Place place;
    const auto outcome = table.Read(&read, 1000, {staging.data(), 4096}, &place);
    if (outcome == HostTable::Outcome::kHit) {
      EXPECT_EQ(payload, record.payload);
    }
    return outcome;
  }

  /// What holds for a state in the middle of a call that leaves `kept` alone.
  void CheckState(std::span<const uint8_t> state, const std::vector<SampleRecord>& kept,
                  const std::vector<SampleRecord>& changed) {
    AlignedBuffer<uint8_t> memory;
    ASSERT_TRUE(memory.Allocate(std::ssize(state)));
    std::memcpy(memory.data(), state.data(), state.size());
    HostTable table(memory.data(), tier_->layout());
    // As it is: no record looks damaged to those who read without the lock.
    for (const auto* records : {&kept, &changed}) {
      for (const SampleRecord& record : *records) ASSERT_NE(ReadFrom(table, record), HostTable::Outcome::kBad);
    }
    table.MakeMutex();
    const auto lock = table.Acquire(60);
    ASSERT_TRUE(lock.ok());
    table.Rebuild(*lock);
    const Status status = table.Verify(*lock);
    ASSERT_TRUE(status.ok()) << status.message();
    for (const SampleRecord& record : kept) ASSERT_EQ(ReadFrom(table, record), HostTable::Outcome::kHit);
    for (const SampleRecord& record : changed) ASSERT_NE(ReadFrom(table, record), HostTable::Outcome::kBad);
    // All slots can be used, and the index works.
    for (const SampleRecord& record : full_) {
      const KvWrite write = record.Write(kFar);
      table.Insert(*lock, write, HostTable::Checksum(write), table.NewUse(), 1000);
    }
    ASSERT_EQ(table.record_count(), table.layout().slots);
    const Status after = table.Verify(*lock);
    ASSERT_TRUE(after.ok()) << after.message();
  }

  void SetUp() override {
    tier_ = Open();
    full_ = Chain(100, tier_->layout().slots);
  }

  std::unique_ptr<HostTier> tier_;
  std::vector<SampleRecord> full_;
  int64_t states_ = 0;
  int64_t instructions_ = 0;
};

TEST_F(HostSingleStepTest, EveryStateCanBeRecovered) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not work one instruction at a time";
#endif
  const auto held = [&](const std::vector<SampleRecord>& records) {
    std::vector<SampleRecord> found;
    for (const SampleRecord& record : records) {
      if (*tier_->Has(record.kind, record.key)) found.push_back(record);
    }
    return found;
  };
  const int64_t slots = tier_->layout().slots;
  std::vector<SampleRecord> all;
  for (uint32_t text = 0; text < 4; ++text) {
    auto chain = Chain(text, slots / 4);
    chain.push_back(SampleRings(name_space_, chain[1]));
    all.insert(all.end(), chain.begin(), chain.end());
  }
  const SampleRecord rings = SampleRings(name_space_, all[3]);
  const auto block = Chain(50, 2);
  const std::vector<std::function<void()>> calls = {
      [&] { Write(*tier_, std::span(all).first(3)); },    // into fresh slots
      [&] { Write(*tier_, std::span(all).subspan(3)); },  // fills it
      [&] {
        Write(*tier_, {&rings, 1});
      },                                              // evicts blocks for rings
      [&] { Write(*tier_, block); },                  // evicts
      [&] { Read(*tier_, std::span(all).last(5)); },  // changes uses
      [&] { Write(*tier_, block); },                  // has them
      [&] {                                           // removes what does not prove itself
        std::vector<uint8_t> payload;
        KvRead read = block[0].Read(&payload);
        read.first_token = 3;
        if (!tier_->Read({&read, 1}).ok()) _exit(1);
      },
      [&] {
        if (!tier_->Drop(scope_).ok()) _exit(1);
      },
      [&] { Write(*tier_, std::span(all).first(6)); },  // into slots that were used before
  };
  std::vector<SampleRecord> known = all;
  known.push_back(rings);
  known.insert(known.end(), block.begin(), block.end());
  for (size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE("call " + std::to_string(i));
    const auto before = held(known);
    std::vector<std::vector<uint8_t>> states;
    if (!Step(calls[i], [&](std::span<const uint8_t> state) { states.emplace_back(state.begin(), state.end()); })) {
      GTEST_SKIP() << "ptrace is not allowed here";
    }
    const auto after = held(known);
    std::vector<SampleRecord> kept, changed;
    for (const SampleRecord& record : known) {
      const auto in = [&record](const std::vector<SampleRecord>& records) {
        return std::ranges::any_of(
            records, [&](const auto& each) { return each.kind == record.kind && each.key == record.key; });
      };
      (in(before) && in(after) ? kept : changed).push_back(record);
    }
    for (size_t s = 0; s < states.size(); ++s) {
      SCOPED_TRACE("state " + std::to_string(s));
      CheckState(states[s], kept, changed);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(states_, 1000);
  EXPECT_EQ(tier_->recoveries(), 0);
  RecordProperty("states", std::to_string(states_));
  RecordProperty("instructions", std::to_string(instructions_));
}

}  // namespace
}  // namespace deepinfer
