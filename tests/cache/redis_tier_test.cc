#include "cache/redis_tier.h"

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

#include <csignal>
#include <random>
#include <thread>

#include "tests/cache/kv_samples.h"
#include "tests/cache/redis_server.h"

namespace deepinfer {
namespace {

constexpr int64_t kTokens = 16;
/// Redis' clock is the machine's, so this is far from now in any case.
constexpr int64_t kFar = 4'000'000'000;

class RedisTierTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!RedisServer::IsInstalled()) GTEST_SKIP() << "no Redis here: install redis-tools";
  }

  RedisTierOptions Options(const std::string& url) {
    return {.url = url, .connect_seconds = 20, .command_seconds = 60, .clock = [] { return int64_t{1000}; }};
  }
  std::unique_ptr<RedisTier> Tier(const RedisTierOptions& options, std::optional<KvKey> secret = {}) {
    Result<std::unique_ptr<RedisTier>> tier = RedisTier::Create(KvRecordCodec(name_space_, secret), options);
    EXPECT_TRUE(tier.ok()) << tier.status().message();
    return std::move(*tier);
  }
  std::unique_ptr<RedisTier> Tier(const RedisServer& server) { return Tier(Options(server.url())); }
  std::vector<SampleRecord> Chain(uint32_t text, int64_t blocks) {
    return SampleChain(name_space_, scope_, kTokens, text, blocks);
  }
  static Status Write(RedisTier& tier, const std::vector<SampleRecord>& records, int64_t expires_at = kFar) {
    std::vector<KvWrite> writes;
    for (const SampleRecord& record : records) writes.push_back(record.Write(expires_at));
    return tier.Write(writes);
  }
  /// Hits; none of them with a wrong byte, and no miss writes one.
  static Result<int64_t> Read(RedisTier& tier, const std::vector<SampleRecord>& records) {
    std::vector<std::vector<uint8_t>> payloads(records.size());
    std::vector<KvRead> reads;
    for (size_t i = 0; i < records.size(); ++i) reads.push_back(records[i].Read(&payloads[i]));
    const Status status = tier.Read(reads);
    int64_t hits = 0;
    for (size_t i = 0; i < records.size(); ++i) {
      hits += reads[i].found ? 1 : 0;
      EXPECT_EQ(payloads[i], reads[i].found ? records[i].payload : std::vector<uint8_t>(payloads[i].size()));
    }
    if (!status.ok()) return status;
    return hits;
  }
  /// One command to the server, as any other client.
  static RedisReply Ask(const RedisServer& server, std::initializer_list<std::string_view> words,
                        const std::string& user_and_password = "") {
    RedisConnection connection(*RedisUrl::Parse(server.url(user_and_password)),
                               {.connect_seconds = 20, .command_seconds = 60});
    EXPECT_TRUE(connection.Open().ok());
    Result<RedisReply> reply = connection.Call(words);
    EXPECT_TRUE(reply.ok()) << reply.status().message();
    return std::move(*reply);
  }

  const KvNamespace name_space_ = KvNamespace::Make("{}", /*block_bytes=*/3000, /*rings_bytes=*/40'000);
  const KvScope scope_ = KvScope::Make(name_space_, "exact", "salt");
};

TEST_F(RedisTierTest, GivesBackWhatItWasGiven) {
  RedisServer server;
  ASSERT_TRUE(server.Start());
  for (const bool encrypted : {false, true}) {
    for (const int64_t batch_bytes : {int64_t{1}, int64_t{10'000}, int64_t{4} << 20}) {
      SCOPED_TRACE(testing::Message() << encrypted << " " << batch_bytes);
      Ask(server, {"FLUSHALL"});
      RedisTierOptions options = Options(server.url());
      options.batch_bytes = batch_bytes;
      const auto tier = Tier(options, encrypted ? std::optional<KvKey>(KvKey{{1, 2, 3}}) : std::nullopt);
      auto records = Chain(1, 300);
      records.push_back(SampleRings(name_space_, records[99]));
      EXPECT_EQ(*Read(*tier, records), 0);
      ASSERT_TRUE(Write(*tier, records).ok());
      EXPECT_EQ(*Read(*tier, records), 301);
      std::vector<KvKey> keys;
      for (size_t i = 0; i < 300; ++i) keys.push_back(records[i].key);
      EXPECT_EQ(*tier->Find(keys), 300);
      keys[280].bytes[0] ^= 1;
      EXPECT_EQ(*tier->Find(keys), 280);
      EXPECT_TRUE(*tier->Has(KvRecordKind::kRings, records[99].key));
      EXPECT_FALSE(*tier->Has(KvRecordKind::kRings, records[98].key));
      ASSERT_TRUE(Write(*tier, records).ok());  // has them
      const KvTierCounts counts = tier->counts();
      EXPECT_EQ(counts.written, 301);
      EXPECT_EQ(counts.written_bytes, 300 * 3000 + 40'000);
      EXPECT_EQ(counts.hits, 301);
      EXPECT_EQ(counts.read_bytes, 300 * 3000 + 40'000);
      EXPECT_EQ(counts.misses, 301);
      EXPECT_EQ(counts.corrupt, 0);
      EXPECT_EQ(Ask(server, {"DBSIZE"})->integer, 301);
      const RedisReply value = Ask(server, {"GET", tier->NameOf(KvRecordKind::kBlock, records[0].key)});
      const std::string_view text(value->str, value->len);
      const std::string_view payload(reinterpret_cast<const char*>(records[0].payload.data()), 16);
      EXPECT_EQ(text.find(payload) == std::string_view::npos, encrypted);
    }
  }
}

TEST_F(RedisTierTest, AnEmptyCallAndAnotherSizeAreNoErrors) {
  RedisServer server;
  ASSERT_TRUE(server.Start());
  const auto tier = Tier(server);
  EXPECT_EQ(*tier->Find({}), 0);
  EXPECT_TRUE(tier->Read({}).ok());
  EXPECT_TRUE(tier->Write({}).ok());
  const auto chain = Chain(1, 1);
  ASSERT_TRUE(Write(*tier, chain).ok());
  std::vector<uint8_t> payload;
  KvRead read = chain[0].Read(&payload);
  read.payload = read.payload.first(100);
  ASSERT_TRUE(tier->Read({&read, 1}).ok());
  EXPECT_FALSE(read.found);
  EXPECT_EQ(*Read(*tier, chain), 1);
  KvWrite write = chain[0].Write(kFar);
  write.key.bytes[0] ^= 1;
  write.payload = write.payload.first(100);
  EXPECT_EQ(tier->Write({&write, 1}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(*Read(*tier, chain), 1);
  EXPECT_EQ(Ask(server, {"DBSIZE"})->integer, 1);
}

TEST_F(RedisTierTest, RedisKnowsTheExpiryAndTheLaterOneCounts) {
  RedisServer server;
  ASSERT_TRUE(server.Start());
  const auto tier = Tier(server);
  const auto chain = Chain(1, 2);
  const auto expiry = [&](const SampleRecord& record) {
    return Ask(server, {"EXPIRETIME", tier->NameOf(record.kind, record.key)})->integer;
  };
  ASSERT_TRUE(Write(*tier, chain, kFar).ok());
  EXPECT_EQ(expiry(chain[0]), kFar);
  ASSERT_TRUE(Write(*tier, {chain[0]}, kFar + 50).ok());
  ASSERT_TRUE(Write(*tier, {chain[1]}, kFar - 50).ok());
  EXPECT_EQ(expiry(chain[0]), kFar + 50);
  EXPECT_EQ(expiry(chain[1]), kFar);
  EXPECT_EQ(*Read(*tier, chain), 2);
  ASSERT_TRUE(Write(*tier, Chain(2, 3), 1000).ok());  // the tier's clock says 1000
  ASSERT_TRUE(Write(*tier, Chain(3, 3), 1001).ok());  // long past for Redis
  EXPECT_EQ(*Read(*tier, Chain(2, 3)), 0);
  EXPECT_EQ(*Read(*tier, Chain(3, 3)), 0);
  EXPECT_EQ(Ask(server, {"DBSIZE"})->integer, 2);
}

TEST_F(RedisTierTest, AValueThatDoesNotProveItselfIsDeletedAndAMiss) {
  RedisServer server;
  ASSERT_TRUE(server.Start());
  for (const bool encrypted : {false, true}) {
    const auto tier = Tier(Options(server.url()), encrypted ? std::optional<KvKey>(KvKey{{7}}) : std::nullopt);
    const auto chain = Chain(1, 3);
    const std::string name = tier->NameOf(KvRecordKind::kBlock, chain[1].key);
    const std::string other = tier->NameOf(KvRecordKind::kBlock, chain[2].key);
    std::mt19937 random(1);
    for (int round = 0; round < 200; ++round) {
      SCOPED_TRACE(round);
      ASSERT_TRUE(Write(*tier, chain).ok());
      const RedisReply reply = Ask(server, {"GET", name});
      std::string value(reply->str, reply->len);
      const int64_t record_bytes = KvRecordCodec::RecordBytes(kTokens, 3000);
      switch (round % 8) {
        case 0:  // up to the padding, which nothing is said about
          value[random() % (128 + 4 * kTokens + 3000)] ^= static_cast<char>(1 << random() % 8);
          break;
        case 1:
          value.resize(1 + random() % (value.size() - 1));
          break;
        case 2:
          value.append(1 + random() % 100, 'x');
          break;
        case 3:
          value.append(4096, '\0');
          break;
        case 4: {
          const RedisReply swapped = Ask(server, {"GET", other});
          value.assign(swapped->str, swapped->len);
          break;
        }
        case 5:
          value.assign(static_cast<size_t>(record_bytes), '\0');
          break;
        case 6:
          value.assign(value.size(), 'a');
          break;
        default:
          value.clear();
          break;
      }
      if (value.empty()) {
        Ask(server, {"DEL", name});
        Ask(server, {"RPUSH", name, "a", "list"});
      } else {
        Ask(server, {"SET", name, value});
      }
      const int64_t corrupt = tier->counts().corrupt;
      EXPECT_TRUE(*tier->Has(KvRecordKind::kBlock, chain[1].key));
      EXPECT_EQ(*Read(*tier, chain), 2);
      EXPECT_EQ(tier->counts().corrupt, corrupt + 1);
      EXPECT_FALSE(*tier->Has(KvRecordKind::kBlock, chain[1].key));
    }
    ASSERT_TRUE(Write(*tier, chain).ok());
    EXPECT_EQ(*Read(*tier, chain), 3);
  }
}

TEST_F(RedisTierTest, NamespacesAndSecretsDoNotMeet) {
  RedisServer server;
  ASSERT_TRUE(server.Start());
  const auto plain = Tier(server);
  const auto secret = Tier(Options(server.url()), KvKey{{7}});
  const auto chain = Chain(1, 3);
  ASSERT_TRUE(Write(*plain, chain).ok());
  EXPECT_EQ(*Read(*secret, chain), 0);
  ASSERT_TRUE(Write(*secret, chain).ok());
  EXPECT_EQ(*Read(*secret, chain), 3);
  EXPECT_EQ(*Read(*plain, chain), 3);
  const KvNamespace other = KvNamespace::Make("{\"checkpoint\": 2}", 3000, 40'000);
  Result<std::unique_ptr<RedisTier>> tier = RedisTier::Create(KvRecordCodec(other, {}), Options(server.url()));
  ASSERT_TRUE(tier.ok());
  EXPECT_EQ(*Read(**tier, chain), 0);
  EXPECT_EQ(plain->counts().corrupt + secret->counts().corrupt + (*tier)->counts().corrupt, 0);
}

TEST_F(RedisTierTest, DropTakesAScopeAndNothingElse) {
  RedisServer server;
  ASSERT_TRUE(server.Start());
  const auto plain = Tier(server);
  const auto secret = Tier(Options(server.url()), KvKey{{7}});
  auto mine = Chain(1, 2500);  // more than one answer of SCAN
  mine.push_back(SampleRings(name_space_, mine[3]));
  const auto theirs = SampleChain(name_space_, KvScope::Make(name_space_, "exact", "other"), kTokens, 1, 50);
  Ask(server, {"SET", "somebody's", "value"});
  Ask(server, {"RPUSH", plain->NameOf(KvRecordKind::kBlock, theirs[0].key), "a", "list"});
  for (RedisTier* tier : {plain.get(), secret.get()}) {
    ASSERT_TRUE(Write(*tier, mine).ok());
    ASSERT_TRUE(Write(*tier, theirs).ok());
  }
  const Status dropped = plain->Drop(scope_);
  ASSERT_TRUE(dropped.ok()) << dropped.message();
  for (RedisTier* tier : {plain.get(), secret.get()}) EXPECT_EQ(*Read(*tier, mine), 0);
  EXPECT_EQ(*Read(*secret, theirs), 50);
  EXPECT_EQ(*Read(*plain, theirs), 49);  // one is the list
  EXPECT_EQ(Ask(server, {"DBSIZE"})->integer, 1 + 49 + 50);
}

TEST_F(RedisTierTest, AServerThatGoesAndComesBack) {
  RedisServer server;
  const auto tier = Tier(server);
  const auto chain = Chain(1, 20);
  for (int round = 0; round < 3; ++round) {
    const Status down = Write(*tier, chain);
    EXPECT_EQ(down.code(), StatusCode::kIo);
    EXPECT_TRUE(down.message().starts_with(server.url())) << down.message();
    EXPECT_NE(down.message().find("is Redis running there?"), std::string::npos) << down.message();
    EXPECT_FALSE(Read(*tier, chain).ok());
    EXPECT_FALSE(tier->Find(std::vector<KvKey>{chain[0].key}).ok());
    EXPECT_FALSE(tier->Has(KvRecordKind::kBlock, chain[0].key).ok());
    EXPECT_FALSE(tier->Maintain().ok());
    EXPECT_FALSE(tier->Drop(scope_).ok());
    EXPECT_FALSE(tier->Probe().ok());
    ASSERT_TRUE(server.Start());
    const Status up = tier->Probe();
    EXPECT_TRUE(up.ok()) << up.message();
    EXPECT_EQ(*Read(*tier, chain), 0);
    ASSERT_TRUE(Write(*tier, chain).ok());
    EXPECT_EQ(*Read(*tier, chain), 20);
    server.Kill();
    if (round == 1) {
      // Restarted between two calls: the old connection is noticed before it is used.
      ASSERT_TRUE(server.Start());
      EXPECT_EQ(*Read(*tier, chain), 0);
      server.Kill();
    }
  }
  EXPECT_EQ(tier->counts().corrupt, 0);
}

TEST_F(RedisTierTest, AStoppedServerIsAStatusAndNoReplyIsTakenForAnother) {
  RedisServer server;
  ASSERT_TRUE(server.Start());
  RedisTierOptions options = Options(server.url());
  options.command_seconds = 0.05;
  const auto tier = Tier(options);
  const auto patient = Tier(server);
  const auto one = Chain(1, 20);
  const auto two = Chain(2, 20);
  ASSERT_TRUE(Write(*patient, one).ok());
  ASSERT_TRUE(Write(*patient, two).ok());
  for (int round = 0; round < 5; ++round) {
    server.Signal(SIGSTOP);
    const Status status = Read(*tier, one).status();
    EXPECT_EQ(status.code(), StatusCode::kIo);
    EXPECT_NE(status.message().find("no answer within 0.05 s"), std::string::npos) << status.message();
    EXPECT_FALSE(tier->Probe().ok());
    server.Signal(SIGCONT);
    EXPECT_EQ(*Read(*patient, two), 20);  // the server works again
    EXPECT_EQ(*Read(*patient, one), 20);
    const Result<int64_t> found = Read(*tier, two);  // 0.05 s may be too short for a machine that is busy
    EXPECT_TRUE(!found.ok() || *found == 20);
  }
  EXPECT_EQ(tier->counts().corrupt, 0);
}

TEST_F(RedisTierTest, PasswordsAreGivenAndNotTold) {
  RedisServer server({"--requirepass", "hunter2"});
  ASSERT_TRUE(server.Start());
  const auto refused = [&](const std::string& who) {
    const Status status = Tier(Options(server.url(who)))->Probe();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    EXPECT_EQ(status.message().find("hunter"), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find("wrong"), std::string::npos) << status.message();
    return status.message();
  };
  EXPECT_NE(refused("").find("redis://:password@host"), std::string::npos);
  refused(":wrong");
  refused("nobody:hunter2");
  const auto tier = Tier(Options(server.url(":hunter2")));
  const auto chain = Chain(1, 3);
  ASSERT_TRUE(Write(*tier, chain).ok());
  EXPECT_EQ(*Read(*tier, chain), 3);
  EXPECT_TRUE(Tier(Options(server.url("default:hunter2")))->Probe().ok());

  // A user who may read records and nothing else.
  Ask(server, {"ACL", "SETUSER", "reader", "on", ">hunter3", "+getrange", "+exists", "~deepinfer:kv:*"}, ":hunter2");
  const auto reader = Tier(Options(server.url("reader:hunter3")));
  EXPECT_EQ(*Read(*reader, chain), 3);
  const Status status = Write(*reader, Chain(2, 1));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("may not run"), std::string::npos) << status.message();
  EXPECT_TRUE(reader->Maintain().ok());  // may not ask for the memory, and can do without
  // The rights that docs/kv-tiers.md lists are enough.
  Ask(server,
      {"ACL", "SETUSER", "deepinfer", "on", ">hunter4", "~deepinfer:kv:*", "+getrange", "+exists", "+expireat", "+set",
       "+unlink", "+scan", "+ping", "+info", "+select"},
      ":hunter2");
  const auto user = Tier(Options(server.url("deepinfer:hunter4") + "?db=1"));
  ASSERT_TRUE(Write(*user, chain).ok());
  EXPECT_EQ(*Read(*user, chain), 3);
  EXPECT_TRUE(*user->Has(KvRecordKind::kBlock, chain[0].key));
  EXPECT_TRUE(user->Maintain().ok());
  EXPECT_GT(user->counts().bytes, 0);
  EXPECT_TRUE(user->Probe().ok());
  const Status dropped = user->Drop(scope_);
  EXPECT_TRUE(dropped.ok()) << dropped.message();
  EXPECT_EQ(*Read(*user, chain), 0);
  // A password for a server that has none.
  RedisServer open;
  ASSERT_TRUE(open.Start());
  const Status given = Tier(Options(open.url(":hunter2")))->Probe();
  EXPECT_EQ(given.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(given.message().find("hunter2"), std::string::npos) << given.message();
}

TEST_F(RedisTierTest, DatabasesAreKeptApart) {
  RedisServer server;
  ASSERT_TRUE(server.Start());
  const auto chain = Chain(1, 3);
  ASSERT_TRUE(Write(*Tier(Options(server.url() + "?db=5")), chain).ok());
  EXPECT_EQ(*Read(*Tier(server), chain), 0);
  EXPECT_EQ(*Read(*Tier(Options(server.url() + "?db=5")), chain), 3);
  EXPECT_FALSE(Tier(Options(server.url() + "?db=999"))->Probe().ok());
}

TEST_F(RedisTierTest, AFullServerEvictsOrSaysSo) {
  RedisServer refuses({"--maxmemory", "4mb", "--maxmemory-policy", "noeviction"});
  ASSERT_TRUE(refuses.Start());
  const auto tier = Tier(refuses);
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_NE(tier->warning().find("allkeys-lru"), std::string::npos) << tier->warning();
  EXPECT_EQ(tier->counts().budget_bytes, 4 << 20);
  Status status;
  for (uint32_t text = 0; text < 100 && status.ok(); ++text) status = Write(*tier, Chain(text, 20));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("maxmemory-policy allkeys-lru"), std::string::npos) << status.message();
  EXPECT_EQ(tier->Probe().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(*Read(*tier, Chain(0, 20)), 20);
  ASSERT_TRUE(tier->Drop(scope_).ok());
  EXPECT_TRUE(tier->Probe().ok());

  RedisServer evicts({"--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru"});
  ASSERT_TRUE(evicts.Start());
  const auto other = Tier(evicts);
  for (uint32_t text = 0; text < 100; ++text) ASSERT_TRUE(Write(*other, Chain(text, 20)).ok());
  ASSERT_TRUE(other->Maintain().ok());
  EXPECT_EQ(other->warning(), "");
  EXPECT_GT(*Read(*other, Chain(99, 20)), 5);  // Redis looks at a few samples to find the oldest
  EXPECT_LT(Ask(evicts, {"DBSIZE"})->integer, 1500);

  RedisServer unlimited;
  ASSERT_TRUE(unlimited.Start());
  const auto last = Tier(unlimited);
  ASSERT_TRUE(last->Maintain().ok());
  EXPECT_NE(last->warning().find("no maxmemory"), std::string::npos) << last->warning();
  EXPECT_GT(last->counts().bytes, 0);
}

TEST_F(RedisTierTest, AReplicaIsNoPlaceToWrite) {
  RedisServer server({"--replicaof", "127.0.0.1", "1"});
  ASSERT_TRUE(server.Start());
  const auto tier = Tier(server);
  const Status status = Write(*tier, Chain(1, 1));
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_NE(status.message().find("address of the primary"), std::string::npos) << status.message();
  EXPECT_FALSE(tier->Probe().ok());
  EXPECT_EQ(*Read(*tier, Chain(1, 1)), 0);
}

TEST_F(RedisTierTest, ThreadsShareConnectionsWhileTheServerComesAndGoes) {
  RedisServer server;
  ASSERT_TRUE(server.Start());
  const auto tier = Tier(server);
  std::vector<std::vector<SampleRecord>> texts;
  for (uint32_t text = 0; text < 6; ++text) texts.push_back(Chain(text, 12));
  std::atomic<int64_t> hits = 0;
  std::atomic<int64_t> failures = 0;
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      while (!done.load()) {
        const auto& text = texts[random() % texts.size()];
        const Result<int64_t> found = Read(*tier, text);
        found.ok() ? hits += *found : ++failures;
      }
    });
  }
  std::mt19937 random(0);
  for (int round = 0; round < 4; ++round) {
    const int64_t before = hits.load();
    while (hits.load() < before + 200) ASSERT_TRUE(Write(*tier, texts[random() % texts.size()]).ok());
    const int64_t failed = failures.load();
    server.Kill();
    while (failures.load() < failed + 4) EXPECT_FALSE(tier->Probe().ok());
    ASSERT_TRUE(server.Start());
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tier->counts().corrupt, 0);
  EXPECT_EQ(tier->counts().hits, hits.load());
  EXPECT_TRUE(tier->Probe().ok());
}

}  // namespace
}  // namespace deepinfer
