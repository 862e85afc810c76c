// KvKey: the name of a KV block outside this process: SHA-256 over everything that its bytes depend on
// (serving.md 7.1).
//
//   root    = SHA-256("deepinfer kv" | namespace fingerprint | replay mode | salt length | salt)
//   key[i]  = SHA-256(key[i - 1] | the block's token ids, int32 little endian),  key[-1] = root
//
// So equal keys mean equal tokens from position 0 on, of the same checkpoint, formats, numerics and tenant. A reader
// compares ids and parent all the same.
//
// Thread-safety: values and pure functions. Ownership: none.
#ifndef DEEPINFER_CACHE_KV_KEY_H_
#define DEEPINFER_CACHE_KV_KEY_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

struct KvKey {
  std::array<uint8_t, 32> bytes = {};

  friend bool operator==(const KvKey&, const KvKey&) = default;
};

/// What must be equal for rows to mean the same: one engine has one.
struct KvNamespace {
  KvKey fingerprint;        ///< of `description`, the block sizes and the format version
  std::string description;  ///< JSON object for people: checkpoint, formats, numerics
  int64_t block_bytes = 0;  ///< payload of a block record
  int64_t rings_bytes = 0;  ///< payload of a rings record, the snapshot of window rings behind a block

  static KvNamespace Make(std::string description, int64_t block_bytes, int64_t rings_bytes);
};

/// Those who may share prefixes: equal namespace, replay mode and salt.
struct KvScope {
  KvKey root;

  static KvScope Make(const KvNamespace& name_space, std::string_view replay_mode, std::string_view salt);
};

/// Keys of the full blocks of `ids`, [ids.size() / block_tokens], continuing behind `keys` that are there already.
void ExtendKeys(const KvKey& root, std::span<const int32_t> ids, int64_t block_tokens, std::vector<KvKey>* keys);

/// Lower-case hexadecimal of the first `bytes` bytes.
std::string ToHex(const KvKey& key, size_t bytes = 32);
/// 64 hexadecimal digits; false: something else.
bool FromHex(std::string_view text, KvKey* key);

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_KV_KEY_H_
