#include "cache/host_tier.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "tests/app/temporary_folder.h"
#include "tests/cache/kv_samples.h"

namespace deepinfer {
namespace {

constexpr int64_t kTokens = 4;
constexpr int64_t kFar = 1'000'000'000;

KvNamespace SmallNamespace(const std::string& description = "{}") {
  return KvNamespace::Make(description, /*block_bytes=*/200, /*rings_bytes=*/500);
}

class HostTierTest : public testing::Test {
 protected:
  HostTierOptions Options(int64_t budget_bytes) {
    return {.budget_bytes = budget_bytes, .block_tokens = kTokens, .file = {}, .clock = [this] { return now_; }};
  }
  std::unique_ptr<HostTier> Tier(const HostTierOptions& options) {
    Result<std::unique_ptr<HostTier>> tier = HostTier::Create(name_space_, options);
    EXPECT_TRUE(tier.ok()) << tier.status().message();
    return std::move(*tier);
  }
  /// A budget with room for so many slots.
  int64_t BudgetOf(int64_t slots) {
    for (int64_t budget = 16384;; budget += 8) {
      const auto tier = HostTier::Create(name_space_, Options(budget));
      if (tier.ok() && (*tier)->layout().slots == slots) return budget;
    }
  }
  bool Reads(HostTier& tier, const SampleRecord& record) {
    std::vector<uint8_t> payload;
    KvRead read = record.Read(&payload);
    EXPECT_TRUE(tier.Read({&read, 1}).ok());
    EXPECT_EQ(payload, read.found ? record.payload : std::vector<uint8_t>(payload.size()));
    return read.found;
  }
  std::vector<SampleRecord> Chain(uint32_t text, int64_t blocks) {
    return SampleChain(name_space_, scope_, kTokens, text, blocks);
  }
  Status Write(HostTier& tier, const std::vector<SampleRecord>& records, int64_t expires_at = kFar) {
    std::vector<KvWrite> writes;
    for (const SampleRecord& record : records) writes.push_back(record.Write(expires_at));
    return tier.Write(writes);
  }

  int64_t now_ = 1000;
  const KvNamespace name_space_ = SmallNamespace();
  const KvScope scope_ = KvScope::Make(name_space_, "exact", "salt");
  const TemporaryFolder folder_;
};

TEST_F(HostTierTest, GivesBackWhatItWasGiven) {
  const auto tier = Tier(Options(1 << 20));
  const auto chain = Chain(1, 10);
  const SampleRecord rings = SampleRings(name_space_, chain[4]);
  EXPECT_FALSE(Reads(*tier, chain[0]));
  ASSERT_TRUE(Write(*tier, chain).ok());
  ASSERT_TRUE(Write(*tier, {rings}).ok());
  std::vector<KvKey> keys;
  for (const SampleRecord& record : chain) keys.push_back(record.key);
  EXPECT_EQ(*tier->Find(keys), 10);
  keys[7].bytes[0] ^= 1;
  EXPECT_EQ(*tier->Find(keys), 7);
  for (const SampleRecord& record : chain) EXPECT_TRUE(Reads(*tier, record));
  EXPECT_TRUE(Reads(*tier, rings));
  EXPECT_TRUE(*tier->Has(KvRecordKind::kRings, rings.key));
  EXPECT_FALSE(*tier->Has(KvRecordKind::kRings, chain[5].key));
  const KvTierCounts counts = tier->counts();
  EXPECT_EQ(counts.records, 11);
  EXPECT_EQ(counts.written, 11);
  EXPECT_EQ(counts.written_bytes, 10 * 200 + 500);
  EXPECT_EQ(counts.hits, 11);
  EXPECT_EQ(counts.read_bytes, 10 * 200 + 500);
  EXPECT_EQ(counts.misses, 1);
  EXPECT_EQ(counts.corrupt, 0);
  EXPECT_TRUE(tier->Verify().ok());
}

TEST_F(HostTierTest, ARecordThatSaysSomethingElseIsDropped) {
  const auto chain = Chain(1, 2);
  const auto other = Chain(2, 2);
  for (int wrong = 0; wrong < 4; ++wrong) {
    SCOPED_TRACE(wrong);
    const auto tier = Tier(Options(1 << 20));
    ASSERT_TRUE(Write(*tier, chain).ok());
    std::vector<uint8_t> payload;
    KvRead read = chain[1].Read(&payload);
    if (wrong == 0) read.parent = other[0].key;
    if (wrong == 1) read.first_token += kTokens;
    if (wrong == 2) read.ids = other[1].ids;
    if (wrong == 3) read.ids = read.ids.first(kTokens - 1);
    read.found = true;
    ASSERT_TRUE(tier->Read({&read, 1}).ok());
    EXPECT_FALSE(read.found);
    EXPECT_EQ(payload, std::vector<uint8_t>(payload.size()));
    EXPECT_FALSE(*tier->Has(KvRecordKind::kBlock, chain[1].key));
    EXPECT_TRUE(*tier->Has(KvRecordKind::kBlock, chain[0].key));
    EXPECT_EQ(tier->counts().corrupt, 1);
    EXPECT_EQ(tier->counts().records, 1);
    ASSERT_TRUE(Write(*tier, chain).ok());
    EXPECT_TRUE(Reads(*tier, chain[1]));
    EXPECT_TRUE(tier->Verify().ok());
  }
}

TEST_F(HostTierTest, AskingForAnotherSizeIsAMiss) {
  const auto tier = Tier(Options(1 << 20));
  const auto chain = Chain(1, 1);
  ASSERT_TRUE(Write(*tier, chain).ok());
  std::vector<uint8_t> payload;
  KvRead read = chain[0].Read(&payload);
  read.payload = read.payload.first(100);
  ASSERT_TRUE(tier->Read({&read, 1}).ok());
  EXPECT_FALSE(read.found);
  EXPECT_TRUE(Reads(*tier, chain[0]));
  const auto other = Chain(2, 1);
  KvWrite write = other[0].Write(kFar);
  write.payload = write.payload.first(100);
  EXPECT_EQ(tier->Write({&write, 1}).code(), StatusCode::kInvalidArgument);
}

TEST_F(HostTierTest, ExpiryIsByTheClockAndTheLaterOneCounts) {
  const auto tier = Tier(Options(1 << 20));
  const auto chain = Chain(1, 3);
  ASSERT_TRUE(Write(*tier, {chain[0]}, now_).ok());  // too late already
  EXPECT_FALSE(*tier->Has(KvRecordKind::kBlock, chain[0].key));
  ASSERT_TRUE(Write(*tier, chain, now_ + 10).ok());
  ASSERT_TRUE(Write(*tier, {chain[0]}, now_ + 20).ok());
  ASSERT_TRUE(Write(*tier, {chain[1]}, now_ + 5).ok());
  now_ += 9;
  for (const SampleRecord& record : chain) EXPECT_TRUE(Reads(*tier, record));
  now_ += 1;
  EXPECT_TRUE(Reads(*tier, chain[0]));
  EXPECT_FALSE(Reads(*tier, chain[1]));
  EXPECT_FALSE(*tier->Has(KvRecordKind::kBlock, chain[2].key));
  EXPECT_EQ(*tier->Find(std::vector<KvKey>{chain[0].key, chain[1].key}), 1);
  EXPECT_EQ(tier->counts().records, 3);
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_EQ(tier->counts().records, 1);
  EXPECT_EQ(tier->counts().expired, 2);
  EXPECT_EQ(tier->counts().corrupt, 0);
}

TEST_F(HostTierTest, WhatHasExpiredMakesRoomFirst) {
  const auto tier = Tier(Options(BudgetOf(20)));
  const auto chain = Chain(1, 20);
  ASSERT_TRUE(Write(*tier, {chain.begin(), chain.begin() + 19}).ok());
  ASSERT_TRUE(Write(*tier, {chain[19]}, now_ + 5).ok());
  now_ += 5;
  ASSERT_TRUE(Write(*tier, Chain(2, 1)).ok());
  for (int i = 0; i < 19; ++i) EXPECT_TRUE(Reads(*tier, chain[i])) << i;
  EXPECT_EQ(tier->counts().expired, 1);
  EXPECT_EQ(tier->counts().evicted, 0);
}

TEST_F(HostTierTest, ThePrefixLosesItsEndFirst) {
  const auto tier = Tier(Options(BudgetOf(20)));
  const auto chain = Chain(1, 20);
  ASSERT_TRUE(Write(*tier, {chain.begin(), chain.begin() + 10}).ok());
  ASSERT_TRUE(Write(*tier, {chain.begin() + 10, chain.end()}).ok());
  ASSERT_TRUE(Write(*tier, Chain(2, 8)).ok());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(*tier->Has(KvRecordKind::kBlock, chain[i].key), i < 12) << i;
  EXPECT_EQ(tier->counts().evicted, 8);
}

TEST_F(HostTierTest, TheBudgetHoldsForEverything) {
  for (const int64_t budget : {32768, 65536, 300'001, 1 << 20}) {
    const auto tier = Tier(Options(budget));
    EXPECT_LE(tier->memory_bytes(), budget);
    for (uint32_t text = 0; text < 20; ++text) {
      const auto chain = Chain(text, 200);
      ASSERT_TRUE(Write(*tier, chain).ok());
      ASSERT_TRUE(Write(*tier, {SampleRings(name_space_, chain[3])}).ok());
      ASSERT_LE(tier->counts().bytes, budget);
    }
    const HostLayout& layout = tier->layout();
    EXPECT_GT(tier->counts().bytes, tier->memory_bytes() - layout.rings_slots * layout.slot_bytes);
    EXPECT_GT(tier->memory_bytes(), budget - 2 * layout.slot_bytes);
  }
  const Status status = HostTier::Create(name_space_, Options(1000)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("1000 bytes"), std::string::npos) << status.message();
}

TEST_F(HostTierTest, DropTakesAScopeAndNothingElse) {
  const auto tier = Tier(Options(1 << 20));
  const KvScope other = KvScope::Make(name_space_, "exact", "other salt");
  const auto mine = Chain(1, 5);
  const auto theirs = SampleChain(name_space_, other, kTokens, 1, 5);
  const SampleRecord rings = SampleRings(name_space_, mine[2]);
  ASSERT_TRUE(Write(*tier, mine).ok());
  ASSERT_TRUE(Write(*tier, {rings}).ok());
  ASSERT_TRUE(Write(*tier, theirs).ok());
  ASSERT_TRUE(tier->Drop(scope_).ok());
  for (const SampleRecord& record : mine) EXPECT_FALSE(Reads(*tier, record));
  EXPECT_FALSE(Reads(*tier, rings));
  for (const SampleRecord& record : theirs) EXPECT_TRUE(Reads(*tier, record));
  EXPECT_EQ(tier->counts().records, 5);
  EXPECT_TRUE(tier->Verify().ok());
}

TEST_F(HostTierTest, DroppedBytesAreOverwritten) {
  HostTierOptions options = Options(1 << 20);
  options.file = folder_.path() / "host";
  const auto tier = Tier(options);
  const auto chain = Chain(1, 1);
  const SampleRecord rings = SampleRings(name_space_, chain[0]);
  ASSERT_TRUE(Write(*tier, {chain[0], rings}).ok());
  const auto contains = [&](const std::vector<uint8_t>& bytes) {
    std::ifstream file(options.file, std::ios::binary);
    const std::string all(std::istreambuf_iterator<char>(file), {});
    return all.find(std::string(bytes.end() - 60, bytes.end())) != std::string::npos;
  };
  EXPECT_TRUE(contains(chain[0].payload));
  EXPECT_TRUE(contains(rings.payload));
  ASSERT_TRUE(tier->Drop(scope_).ok());
  EXPECT_FALSE(contains(chain[0].payload));
  EXPECT_FALSE(contains(rings.payload));
}

TEST_F(HostTierTest, AFileIsSharedAndOutlivesItsUsers) {
  HostTierOptions options = Options(1 << 20);
  options.file = folder_.path() / "host";
  const auto chain = Chain(1, 6);
  {
    const auto one = Tier(options);
    const auto two = Tier(options);
    ASSERT_TRUE(Write(*one, {chain.begin(), chain.begin() + 3}).ok());
    ASSERT_TRUE(Write(*two, {chain.begin() + 3, chain.end()}).ok());
    for (const SampleRecord& record : chain) {
      EXPECT_TRUE(Reads(*one, record));
      EXPECT_TRUE(Reads(*two, record));
    }
    EXPECT_EQ(one->counts().records, 6);
    EXPECT_EQ(two->counts().records, 6);
  }
  struct stat about = {};
  ASSERT_EQ(stat(options.file.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  EXPECT_LE(about.st_size, 1 << 20);
  const auto again = Tier(options);
  for (const SampleRecord& record : chain) EXPECT_TRUE(Reads(*again, record));
}

TEST_F(HostTierTest, AForeignFileIsRefusedAndLeftAlone) {
  HostTierOptions options = Options(1 << 20);
  options.file = folder_.path() / "host";
  Tier(options).reset();
  const auto content = [&] {
    std::ifstream file(options.file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string good = content();
  const auto refused = [&](const std::string& bytes, const HostTierOptions& with, const std::string& why,
                           const KvNamespace& name_space) {
    std::ofstream(options.file, std::ios::binary) << bytes;
    const Status status = HostTier::Create(name_space, with).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
    EXPECT_TRUE(status.message().starts_with(options.file)) << status.message();
    EXPECT_EQ(content(), bytes);
  };
  std::string other_version = good;
  other_version[8] = 2;
  refused(other_version, options, "format version 2", name_space_);
  refused("my diary", options, "is no file of the host tier", name_space_);
  refused(good.substr(0, 100), options, "is no file of the host tier", name_space_);
  refused(good.substr(0, good.size() - 1), options, "the same budget", name_space_);
  refused(good, options, "another namespace", SmallNamespace("another checkpoint"));
  HostTierOptions larger = options;
  larger.budget_bytes *= 2;
  refused(good, larger, "the same budget", name_space_);
  ASSERT_EQ(chmod(options.file.c_str(), 0640), 0);
  refused(good, options, "chmod 600", name_space_);
  ASSERT_EQ(chmod(options.file.c_str(), 0600), 0);
  EXPECT_TRUE(HostTier::Create(name_space_, options).ok());

  options.file = folder_.path();
  EXPECT_EQ(HostTier::Create(name_space_, options).status().code(), StatusCode::kIo);
  options.file = folder_.path() / "link";
  ASSERT_EQ(symlink("host", options.file.c_str()), 0);
  EXPECT_EQ(HostTier::Create(name_space_, options).status().code(), StatusCode::kIo);
}

TEST_F(HostTierTest, AFileThatIsUnfinishedOrOfAnotherBootIsBegunAnew) {
  HostTierOptions options = Options(1 << 20);
  options.file = folder_.path() / "host";
  const auto chain = Chain(1, 1);
  const auto poke = [&](int64_t place, char byte) {
    std::fstream file(options.file, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(place);
    file.put(byte);
  };
  for (const bool boot : {false, true}) {
    ASSERT_TRUE(Write(*Tier(options), chain).ok());
    ASSERT_TRUE(Reads(*Tier(options), chain[0]));
    boot ? poke(offsetof(HostFileHeader, boot), 'x') : poke(7, '?');
    EXPECT_FALSE(Reads(*Tier(options), chain[0]));
  }
  std::ofstream(options.file, std::ios::binary | std::ios::trunc) << "";
  EXPECT_FALSE(Reads(*Tier(options), chain[0]));
  ASSERT_TRUE(Write(*Tier(options), chain).ok());
  EXPECT_TRUE(Reads(*Tier(options), chain[0]));
}

TEST_F(HostTierTest, AFullFileSystemIsToldAtOnce) {
  HostTierOptions options = Options(1 << 20);
  options.file = folder_.path() / "host";
  // The largest file that this process may write stands in for a small file system.
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {1 << 16, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = HostTier::Create(name_space_, options).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_EQ(std::filesystem::file_size(options.file), 0u);
  EXPECT_TRUE(HostTier::Create(name_space_, options).ok());
}

TEST_F(HostTierTest, FlippedBytesAreMisses) {
  HostTierOptions options = Options(1 << 18);
  options.file = folder_.path() / "host";
  const auto tier = Tier(options);
  const HostLayout& layout = tier->layout();
  const int file = open(options.file.c_str(), O_RDWR);
  ASSERT_GE(file, 0);
  std::mt19937 random(3);
  int64_t corrupt = 0;
  for (uint32_t round = 0; round < 300; ++round) {
    const auto chain = Chain(round, 8);
    const SampleRecord rings = SampleRings(name_space_, chain[7]);
    ASSERT_TRUE(tier->Drop(scope_).ok());
    ASSERT_TRUE(Write(*tier, chain).ok());
    ASSERT_TRUE(Write(*tier, {rings}).ok());
    for (int flip = 0; flip < 3; ++flip) {
      const auto place = static_cast<off_t>(layout.data_at + random() % (11 * layout.slot_bytes));
      uint8_t byte = 0;
      ASSERT_EQ(pread(file, &byte, 1, place), 1);
      byte ^= static_cast<uint8_t>(1 << random() % 8);
      ASSERT_EQ(pwrite(file, &byte, 1, place), 1);
    }
    int64_t bad = 0;
    for (const SampleRecord& record : chain) bad += Reads(*tier, record) ? 0 : 1;
    bad += Reads(*tier, rings) ? 0 : 1;
    corrupt += bad;
    EXPECT_LE(bad, 3);
    EXPECT_EQ(tier->counts().corrupt, corrupt);
    EXPECT_EQ(tier->counts().records, 9 - bad);
  }
  EXPECT_GT(corrupt, 300);
  EXPECT_TRUE(tier->Verify().ok());
  close(file);
}

TEST_F(HostTierTest, EqualsAModel) {
  constexpr int64_t kSlots = 40;
  struct Kept {
    uint64_t use = 0;
    int64_t expires_at = 0;
  };
  using Name = std::pair<KvRecordKind, std::array<uint8_t, 32>>;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto tier = Tier(Options(BudgetOf(kSlots)));
    const int64_t rings_slots = tier->layout().rings_slots;
    ASSERT_EQ(rings_slots, 3);
    const std::array<KvScope, 2> scopes = {scope_, KvScope::Make(name_space_, "bounded", "")};
    std::vector<std::vector<SampleRecord>> texts;
    for (uint32_t text = 0; text < 5; ++text) {
      texts.push_back(SampleChain(name_space_, scopes[text % 2], kTokens, text, 12));
      for (const int i : {3, 8}) texts.back().push_back(SampleRings(name_space_, texts.back()[i]));
    }
    std::map<Name, Kept> model;
    std::map<Name, const SampleRecord*> known;
    for (const auto& text : texts) {
      for (const SampleRecord& record : text) known[{record.kind, record.key.bytes}] = &record;
    }
    uint64_t use = 0;
    const auto touch_chain = [&](KvKey key) {
      for (auto at = model.find({KvRecordKind::kBlock, key.bytes}); at != model.end();
           at = model.find({KvRecordKind::kBlock, key.bytes})) {
        at->second.use = ++use;
        key = known[at->first]->parent;
      }
    };
    const auto touch_all = [&](const std::vector<const SampleRecord*>& used) {
      for (size_t i = used.size(); i-- > 0;) model.at({used[i]->kind, used[i]->key.bytes}).use = ++use;
    };
    const auto used_slots = [&] {
      int64_t used = 0;
      for (const auto& [name, kept] : model) used += name.first == KvRecordKind::kRings ? rings_slots : 1;
      return used;
    };
    int64_t evicted = 0;
    for (int step = 0; step < 1500; ++step) {
      const auto& text = texts[random() % texts.size()];
      const size_t begin = random() % text.size();
      const size_t end = begin + 1 + random() % (text.size() - begin);
      const std::vector<SampleRecord> part(text.begin() + static_cast<int64_t>(begin),
                                           text.begin() + static_cast<int64_t>(end));
      const uint32_t action = random() % 16;
      if (action < 6) {
        const int64_t expires_at = now_ + 1 + random() % 40;
        ASSERT_TRUE(Write(*tier, part, expires_at).ok());
        for (size_t i = 0; i < part.size(); ++i) {
          const Name name = {part[i].kind, part[i].key.bytes};
          const uint64_t written_use = use + part.size() - i;
          if (const auto at = model.find(name); at != model.end()) {
            at->second = {written_use, std::max(at->second.expires_at, expires_at)};
            continue;
          }
          while (used_slots() + (name.first == KvRecordKind::kRings ? rings_slots : 1) > kSlots) {
            model.erase(std::ranges::min_element(model, {}, [](const auto& entry) { return entry.second.use; }));
            ++evicted;
          }
          model[name] = {written_use, expires_at};
        }
        use += part.size();
      } else if (action < 13) {
        const bool wrong = action == 12;
        std::vector<std::vector<uint8_t>> payloads(part.size());
        std::vector<KvRead> reads;
        for (size_t i = 0; i < part.size(); ++i) reads.push_back(part[i].Read(&payloads[i]));
        if (wrong) reads[0].first_token += 1;
        ASSERT_TRUE(tier->Read(reads).ok());
        if (wrong) model.erase({part[0].kind, part[0].key.bytes});
        std::vector<const SampleRecord*> found;
        for (size_t i = 0; i < part.size(); ++i) {
          ASSERT_EQ(reads[i].found, model.contains({part[i].kind, part[i].key.bytes}));
          if (!reads[i].found) continue;
          ASSERT_EQ(payloads[i], part[i].payload);
          found.push_back(&part[i]);
        }
        touch_all(found);
      } else if (action < 15) {
        now_ += random() % 8;
        ASSERT_TRUE(tier->Maintain().ok());
        std::erase_if(model, [&](const auto& entry) { return entry.second.expires_at <= now_; });
      } else if (random() % 8 == 0) {
        const KvScope& scope = scopes[random() % 2];
        ASSERT_TRUE(tier->Drop(scope).ok());
        std::erase_if(model, [&](const auto& entry) { return known[entry.first]->scope.root == scope.root; });
      }
      // The blocks above what a call has used are used after it.
      for (size_t i = 0; i < part.size() && action < 13; ++i) {
        if (action >= 6 && !model.contains({part[i].kind, part[i].key.bytes})) continue;
        const bool follows = i > 0 && part[i - 1].key == part[i].parent &&
                             (action < 6 || model.contains({part[i - 1].kind, part[i - 1].key.bytes}));
        if (part[i].kind == KvRecordKind::kRings) touch_chain(part[i].key);
        if (part[i].kind == KvRecordKind::kBlock && !follows) touch_chain(part[i].parent);
      }
      for (const auto& [name, record] : known) {
        ASSERT_EQ(*tier->Has(name.first, record->key), model.contains(name)) << "step " << step;
      }
      ASSERT_EQ(tier->counts().records, std::ssize(model));
      ASSERT_EQ(tier->counts().bytes, tier->memory_bytes() - (kSlots - used_slots()) * tier->layout().slot_bytes);
      ASSERT_EQ(tier->counts().evicted, evicted);
      if (const Status status = tier->Verify(); !status.ok()) FAIL() << status.message();
    }
    EXPECT_GT(evicted, 100);
  }
}

TEST_F(HostTierTest, ThreadsReadOnlyWhatWasWritten) {
  const auto tier = Tier(Options(BudgetOf(50)));
  std::vector<std::vector<SampleRecord>> texts;
  for (uint32_t text = 0; text < 6; ++text) {
    texts.push_back(Chain(text, 15));
    texts.back().push_back(SampleRings(name_space_, texts.back()[9]));
  }
  std::atomic<int> wrong = 0;
  std::atomic<int64_t> found = 0;
  std::atomic<bool> done = false;
  const auto read = [&](uint32_t seed) {
    std::mt19937 random(seed);
    while (!done.load()) {
      const auto& text = texts[random() % texts.size()];
      std::vector<std::vector<uint8_t>> payloads(text.size());
      std::vector<KvRead> reads;
      for (size_t i = 0; i < text.size(); ++i) reads.push_back(text[i].Read(&payloads[i]));
      if (!tier->Read(reads).ok()) ++wrong;
      for (size_t i = 0; i < text.size(); ++i) {
        if (!reads[i].found) continue;
        ++found;
        if (payloads[i] != text[i].payload) ++wrong;
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t seed = 1; seed <= 3; ++seed) threads.emplace_back(read, seed);
  threads.emplace_back([&] {
    while (!done.load()) {
      if (!tier->Maintain().ok() || !tier->Probe().ok()) ++wrong;
    }
  });
  std::mt19937 random(0);
  for (int i = 0; i < 2000 || found.load() < 1000; ++i) {
    const auto& text = texts[random() % texts.size()];
    ASSERT_TRUE(Write(*tier, {text.begin() + random() % 10, text.end()}).ok());
    if (i % 500 == 0) {
      ASSERT_TRUE(tier->Drop(scope_).ok());
    }
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(tier->counts().corrupt, 0);
  const Status status = tier->Verify();
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace deepinfer
