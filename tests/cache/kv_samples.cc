#include "tests/cache/kv_samples.h"

#include <random>

namespace deepinfer {
namespace {

void FillPayload(int64_t bytes, SampleRecord* record) {
  uint32_t seed = 0;
  std::memcpy(&seed, record->key.bytes.data(), sizeof(seed));
  std::minstd_rand random(seed + static_cast<uint32_t>(record->kind));
  record->payload.resize(static_cast<size_t>(bytes));
  for (uint8_t& byte : record->payload) byte = static_cast<uint8_t>(random() >> 8);
}

}  // namespace

KvWrite SampleRecord::Write(int64_t expires_at) const {
  return {kind, scope, key, parent, first_token, ids, payload, expires_at};
}

KvRead SampleRecord::Read(std::vector<uint8_t>* to) const {
  to->assign(payload.size(), 0);
  return {kind, key, parent, first_token, ids, *to, false};
}

std::vector<SampleRecord> SampleChain(const KvNamespace& name_space, const KvScope& scope, int64_t block_tokens,
                                      uint32_t text, int64_t blocks) {
  std::mt19937 random(text);
  std::vector<int32_t> ids(static_cast<size_t>(blocks * block_tokens));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 129280);
  std::vector<KvKey> keys;
  ExtendKeys(scope.root, ids, block_tokens, &keys);
  std::vector<SampleRecord> chain(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    SampleRecord& record = chain[i];
    record.scope = scope;
    record.key = keys[i];
    record.parent = i == 0 ? scope.root : keys[i - 1];
    record.first_token = static_cast<int64_t>(i) * block_tokens;
    record.ids.assign(ids.begin() + record.first_token, ids.begin() + record.first_token + block_tokens);
    FillPayload(name_space.block_bytes, &record);
  }
  return chain;
}

SampleRecord SampleRings(const KvNamespace& name_space, const SampleRecord& block) {
  SampleRecord rings = block;
  rings.kind = KvRecordKind::kRings;
  FillPayload(name_space.rings_bytes, &rings);
  return rings;
}

}  // namespace deepinfer
