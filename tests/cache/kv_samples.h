// Records for tests of the tiers: chains of blocks whose ids and payload follow from their key.
//
// Thread-safety: values and pure functions. Ownership: a SampleRecord owns what its KvWrite and KvRead point to.
#ifndef DEEPINFER_TESTS_CACHE_KV_SAMPLES_H_
#define DEEPINFER_TESTS_CACHE_KV_SAMPLES_H_

#include <cstdint>
#include <vector>

#include "cache/kv_record.h"

namespace deepinfer {

struct SampleRecord {
  KvRecordKind kind = KvRecordKind::kBlock;
  KvScope scope;
  KvKey key;
  KvKey parent;
  int64_t first_token = 0;
  std::vector<int32_t> ids;
  std::vector<uint8_t> payload;

  KvWrite Write(int64_t expires_at) const;
  /// Asks for this record, to be copied into `to`, which gets its size.
  KvRead Read(std::vector<uint8_t>* to) const;
};

/// The first `blocks` blocks of the text number `text`, with `block_tokens` ids each.
std::vector<SampleRecord> SampleChain(const KvNamespace& name_space, const KvScope& scope, int64_t block_tokens,
                                      uint32_t text, int64_t blocks);
/// The rings behind a block of such a chain.
SampleRecord SampleRings(const KvNamespace& name_space, const SampleRecord& block);

}  // namespace deepinfer

#endif  // DEEPINFER_TESTS_CACHE_KV_SAMPLES_H_
