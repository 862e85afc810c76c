// Any bytes from a Redis server. The first byte says what they are:
//   0 mod 4  a value: no record but by chance, and then one that proves itself
//   1, 2     changes to a good value, plain or encrypted: (place, place, xor) and so on; never another payload
//   3        replies: the same whatever the chunks, and never more held than the limit
#include <hiredis/hiredis.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cache/redis_tier.h"

namespace {

using namespace deepinfer;

constexpr int64_t kTokens = 4;
constexpr int64_t kReplyBytes = 4096;

void Require(bool condition) {
  if (!condition) std::abort();
}

struct Sample {
  explicit Sample(std::optional<KvKey> secret) : codec(KvNamespace::Make("{}", 100, 200), secret) {
    const KvScope scope = KvScope::Make(codec.name_space(), "exact", "");
    std::vector<KvKey> keys;
    ExtendKeys(scope.root, ids, kTokens, &keys);
    key = keys[0];
    parent = scope.root;
    value.resize(static_cast<size_t>(KvRecordCodec::RecordBytes(kTokens, 100) + RedisTier::kScopeBytes));
    const std::span<uint8_t> record(value.data(), value.size() - RedisTier::kScopeBytes);
    Require(codec.Encode({KvRecordKind::kBlock, scope, key, parent, 0, ids, payload, 1000}, record).ok());
  }
  void Check(std::span<const uint8_t> bytes) const {
    std::vector<uint8_t> found(payload.size());
    KvRead read = {KvRecordKind::kBlock, key, parent, 0, ids, found, false};
    const KvRecordState state = RedisTier::Decode(codec, bytes, &read);
    Require((state == KvRecordState::kGood) == read.found);
    Require(found == (read.found ? payload : std::vector<uint8_t>(payload.size())));
    if (codec.ReadHeader(bytes).has_value()) Require(codec.ReadHeader(bytes)->record_bytes() > 0);
    if (read.found) Require(codec.Verify(bytes) == KvRecordState::kGood);
    static_cast<void>(codec.Verify(bytes));
  }

  KvRecordCodec codec;
  std::vector<int32_t> ids = {1, 2, 3, 4};
  std::vector<uint8_t> payload = std::vector<uint8_t>(100, 7);
  KvKey key, parent;
  std::vector<uint8_t> value;
};

void CheckChanges(const Sample& sample, std::span<const uint8_t> changes) {
  std::vector<uint8_t> value = sample.value;
  for (; changes.size() >= 3; changes = changes.subspan(3)) {
    const size_t place = size_t{changes[0]} * 256 + changes[1];
    if (place < value.size()) value[place] ^= changes[2];
  }
  if (changes.size() == 1) value.resize(value.size() - std::min<size_t>(value.size(), size_t{changes[0]} * 17));
  if (changes.size() == 2) value.resize(value.size() + changes[0]);
  sample.Check(value);
}

std::string Print(const redisReply& reply) {
  std::string text = std::to_string(reply.type) + ":" + std::to_string(reply.integer);
  if (reply.str != nullptr) text.append(reply.str, reply.len);
  for (size_t i = 0; i < reply.elements; ++i) text += "[" + Print(*reply.element[i]) + "]";
  return text;
}

std::vector<std::string> Replies(std::span<const uint8_t> bytes, uint32_t seed) {
  std::mt19937 random(seed);
  RedisReplyReader reader(kReplyBytes);
  std::vector<std::string> replies;
  while (!bytes.empty()) {
    const size_t count = std::min<size_t>(bytes.size(), seed == 0 ? bytes.size() : 1 + random() % 50);
    reader.Feed({reinterpret_cast<const char*>(bytes.data()), count});
    bytes = bytes.subspan(count);
    while (true) {
      const Result<RedisReply> reply = reader.Next();
      if (!reply.ok()) {
        // How much had come by then may differ; that it is refused may not.
        if (reply.status().message().find("more than") == std::string::npos) replies.push_back("refused");
        return replies;
      }
      if (*reply == nullptr) break;
      replies.push_back(Print(**reply));
    }
  }
  return replies;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Sample plain(std::nullopt);
  static const Sample encrypted(deepinfer::KvKey{{1, 2, 3}});
  if (size == 0) return 0;
  const std::span<const uint8_t> bytes(data + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      plain.Check(bytes);
      encrypted.Check(bytes);
      break;
    case 1:
      CheckChanges(plain, bytes);
      break;
    case 2:
      CheckChanges(encrypted, bytes);
      break;
    default:
      if (bytes.size() <= kReplyBytes) Require(Replies(bytes, 0) == Replies(bytes, data[0] + 1u));
      Replies(bytes, data[0] + 1u);
  }
  return 0;
}
