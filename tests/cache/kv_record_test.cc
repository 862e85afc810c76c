// KvRecordCodec: a record counts only when every byte of it is right and it is what was asked for.
#include "cache/kv_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "disk_fixture.h"

namespace deepinfer::test {
namespace {

KvKey Secret(uint8_t byte) {
  KvKey secret;
  secret.bytes.fill(byte);
  return secret;
}

class KvRecordTest : public testing::TestWithParam<bool> {
 protected:
  std::optional<KvKey> secret() const { return GetParam() ? std::optional(Secret(1)) : std::nullopt; }

  std::vector<uint8_t> Encode(const KvWrite& write) const {
    std::vector<uint8_t> record(
        static_cast<size_t>(KvRecordCodec::RecordBytes(std::ssize(write.ids), std::ssize(write.payload))), 0xEE);
    const Status status = codec_.Encode(write, record);
    EXPECT_TRUE(status.ok()) << status.message();
    return record;
  }

  KvNamespace name_space_ = SmallNamespace();
  KvRecordCodec codec_{name_space_, secret()};
  Chain chain_{name_space_, "tenant", 1, 3};
};

INSTANTIATE_TEST_SUITE_P(PlainAndEncrypted, KvRecordTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Encrypted" : "Plain"; });

TEST_P(KvRecordTest, RoundTrip) {
  for (const KvRecordKind kind : {KvRecordKind::kBlock, KvRecordKind::kRings}) {
    KvWrite write = chain_.Write(1, 77, kind);
    write.lifetime = 55;
    const std::vector<uint8_t> record = Encode(write);
    EXPECT_EQ(std::ssize(record), kind == KvRecordKind::kBlock ? 4096 : 8192);
    KvRead read = chain_.Reads(1, 2, kind)[0];
    ASSERT_EQ(codec_.Decode(record, &read), KvRecordState::kGood);
    EXPECT_TRUE(read.found);
    EXPECT_TRUE(chain_.IsRight(read));
    EXPECT_EQ(codec_.Verify(record), KvRecordState::kGood);
    const std::optional<KvRecordHeader> header = codec_.ReadHeader(record);
    ASSERT_TRUE(header.has_value());
    EXPECT_EQ(header->kind, kind);
    EXPECT_EQ(header->encrypted, GetParam());
    EXPECT_EQ(header->key, chain_.keys()[1]);
    EXPECT_EQ(header->parent, chain_.keys()[0]);
    EXPECT_EQ(header->first_token, kBlockTokens);
    EXPECT_EQ(header->token_count, kBlockTokens);
    EXPECT_EQ(header->expires_at, 77);
    EXPECT_EQ(header->lifetime, 55);
    EXPECT_EQ(header->record_bytes(), std::ssize(record));
  }
}

TEST_P(KvRecordTest, OnlyEncryptedRecordsHideTheirContents) {
  const KvWrite write = chain_.Write(1, 77);
  const std::vector<uint8_t> record = Encode(write);
  const auto payload = std::ranges::search(record, write.payload.first(64));
  EXPECT_EQ(payload.empty(), GetParam());
  // Neither the bytes of the buffer before nor anything behind the record are in it.
  EXPECT_TRUE(std::all_of(record.begin() + kRecordHeaderBytes + 4 * kBlockTokens + kSmallBlock, record.end(),
                          [](uint8_t byte) { return byte == 0; }));
}

TEST_P(KvRecordTest, EveryFlippedByteIsNoticed) {
  const std::vector<uint8_t> record = Encode(chain_.Write(1, 77));
  const size_t used = static_cast<size_t>(kRecordHeaderBytes + 4 * kBlockTokens + kSmallBlock);
  for (size_t i = 0; i < used; ++i) {
    std::vector<uint8_t> changed = record;
    changed[i] ^= static_cast<uint8_t>(1 << (i % 8));
    KvRead read = chain_.Reads(1, 2)[0];
    ASSERT_NE(codec_.Decode(changed, &read), KvRecordState::kGood) << "byte " << i;
    ASSERT_FALSE(read.found);
    ASSERT_TRUE(std::ranges::all_of(read.payload, [](uint8_t byte) { return byte == 0; }));
    ASSERT_NE(codec_.Verify(changed), KvRecordState::kGood) << "byte " << i;
  }
}

TEST_P(KvRecordTest, EveryTruncationIsNoticed) {
  const std::vector<uint8_t> record = Encode(chain_.Write(1, 77));
  const size_t used = static_cast<size_t>(kRecordHeaderBytes + 4 * kBlockTokens + kSmallBlock);
  KvRead read = chain_.Reads(1, 2)[0];
  for (size_t bytes = 0; bytes < used; ++bytes) {
    const std::vector<uint8_t> cut(record.begin(), record.begin() + static_cast<int64_t>(bytes));
    ASSERT_EQ(codec_.Decode(cut, &read), KvRecordState::kCorrupt) << bytes;
    ASSERT_EQ(codec_.Verify(cut), KvRecordState::kCorrupt) << bytes;
  }
  // Only padding is missing.
  const std::vector<uint8_t> cut(record.begin(), record.begin() + static_cast<int64_t>(used));
  EXPECT_EQ(codec_.Decode(cut, &read), KvRecordState::kGood);
}

TEST_P(KvRecordTest, AnotherNamespaceIsForeign) {
  const std::vector<uint8_t> record = Encode(chain_.Write(1, 77));
  const KvRecordCodec other(SmallNamespace("another"), secret());
  KvRead read = chain_.Reads(1, 2)[0];
  EXPECT_EQ(other.Decode(record, &read), KvRecordState::kForeign);
  EXPECT_EQ(other.Verify(record), KvRecordState::kForeign);
  EXPECT_FALSE(other.ReadHeader(record).has_value());
  EXPECT_FALSE(read.found);
}

TEST_P(KvRecordTest, AnythingElseThanWasAskedForIsAMismatch) {
  const std::vector<uint8_t> record = Encode(chain_.Write(1, 77));
  const auto decode = [&](auto&& change) {
    KvRead read = chain_.Reads(1, 2)[0];
    change(&read);
    const KvRecordState state = codec_.Decode(record, &read);
    EXPECT_FALSE(read.found);
    return state;
  };
  std::vector<int32_t> ids(chain_.ids(1).begin(), chain_.ids(1).end());
  ids[3] ^= 1;
  std::vector<uint8_t> rings(kSmallRings);
  EXPECT_EQ(decode([&](KvRead* read) { read->ids = ids; }), KvRecordState::kMismatch);
  EXPECT_EQ(decode([&](KvRead* read) { read->ids = read->ids.first(7); }), KvRecordState::kMismatch);
  EXPECT_EQ(decode([&](KvRead* read) { read->key = chain_.keys()[2]; }), KvRecordState::kMismatch);
  EXPECT_EQ(decode([&](KvRead* read) { read->parent = chain_.keys()[1]; }), KvRecordState::kMismatch);
  EXPECT_EQ(decode([&](KvRead* read) { read->first_token = 0; }), KvRecordState::kMismatch);
  EXPECT_EQ(decode([&](KvRead* read) { read->kind = KvRecordKind::kRings; }), KvRecordState::kMismatch);
  EXPECT_EQ(decode([&](KvRead* read) { read->payload = rings; }), KvRecordState::kMismatch);
}

TEST_P(KvRecordTest, AKeyThatIsNotThatOfItsIdsIsAMismatch) {
  KvWrite write = chain_.Write(1, 77);
  write.ids = chain_.ids(2);
  EXPECT_EQ(codec_.Verify(Encode(write)), KvRecordState::kMismatch);
  write = chain_.Write(1, 77);
  write.parent = chain_.keys()[1];
  EXPECT_EQ(codec_.Verify(Encode(write)), KvRecordState::kMismatch);
}

TEST_P(KvRecordTest, SizesThatDoNotBelongToTheNamespaceAreRefused) {
  KvWrite write = chain_.Write(1, 77);
  std::vector<uint8_t> record(4096);
  write.payload = write.payload.first(kSmallBlock - 1);
  EXPECT_EQ(codec_.Encode(write, record).code(), StatusCode::kInvalidArgument);
  write = chain_.Write(1, 77);
  record.resize(8192);
  EXPECT_EQ(codec_.Encode(write, record).code(), StatusCode::kInvalidArgument);
  const std::vector<int32_t> ids(65536);
  write.ids = ids;
  record.resize(static_cast<size_t>(KvRecordCodec::RecordBytes(65536, kSmallBlock)));
  EXPECT_EQ(codec_.Encode(write, record).code(), StatusCode::kInvalidArgument);
}

TEST_P(KvRecordTest, RenewChangesTheTimeAndNothingElse) {
  std::vector<uint8_t> record = Encode(chain_.Write(1, 77));
  const std::vector<uint8_t> before = record;
  ASSERT_EQ(codec_.Renew(record, 99), KvRecordState::kGood);
  EXPECT_EQ(codec_.ReadHeader(record)->expires_at, 99);
  EXPECT_EQ(codec_.ReadHeader(record)->lifetime, codec_.ReadHeader(before)->lifetime);
  KvRead read = chain_.Reads(1, 2)[0];
  EXPECT_EQ(codec_.Decode(record, &read), KvRecordState::kGood);
  EXPECT_TRUE(chain_.IsRight(read));
  EXPECT_EQ(codec_.Verify(record), KvRecordState::kGood);

  record = before;
  record[2000] ^= 1;
  const std::vector<uint8_t> changed = record;
  EXPECT_EQ(codec_.Renew(record, 99), KvRecordState::kCorrupt);
  EXPECT_EQ(record, changed);
}

TEST(KvRecord, TheSecretDecidesWhoReads) {
  const KvNamespace name_space = SmallNamespace();
  Chain chain(name_space, "tenant", 1, 2);
  const KvRecordCodec with(name_space, Secret(1));
  const KvRecordCodec with_another(name_space, Secret(2));
  const KvRecordCodec without(name_space, std::nullopt);
  EXPECT_TRUE(with.encrypts());
  EXPECT_FALSE(without.encrypts());
  std::vector<uint8_t> encrypted(4096), plain(4096), again(4096);
  ASSERT_TRUE(with.Encode(chain.Write(0, 77), encrypted).ok());
  ASSERT_TRUE(with.Encode(chain.Write(0, 77), again).ok());
  ASSERT_TRUE(without.Encode(chain.Write(0, 77), plain).ok());
  EXPECT_NE(encrypted, again);  // never one nonce twice
  KvRead read = chain.Reads(0, 1)[0];
  EXPECT_EQ(with_another.Decode(encrypted, &read), KvRecordState::kCorrupt);
  EXPECT_EQ(with_another.Verify(encrypted), KvRecordState::kCorrupt);
  EXPECT_EQ(without.Decode(encrypted, &read), KvRecordState::kForeign);
  EXPECT_EQ(without.Verify(encrypted), KvRecordState::kGood);  // its header is all that can be checked
  std::vector<uint8_t> renewed = encrypted;
  EXPECT_EQ(without.Renew(renewed, 99), KvRecordState::kForeign);
  EXPECT_EQ(renewed, encrypted);
  // A record that anybody could have written is not taken for one of ours.
  EXPECT_EQ(with.Decode(plain, &read), KvRecordState::kForeign);
  EXPECT_FALSE(read.found);
  EXPECT_EQ(with.Decode(encrypted, &read), KvRecordState::kGood);
}

}  // namespace
}  // namespace deepinfer::test
