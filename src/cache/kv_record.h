// KvRecord: one KV block, or the window rings behind it, as bytes that survive: in a segment file, in shared memory or
// as a Redis value (docs/kv-format.md).
//
//   header 128 bytes | token ids, int32 little endian | payload | zeros up to a multiple of 4096
//
// Header, little endian:
//   0    4  magic "DIK1", the digit is the format version
//   4    4  checksum: low half of XXH3-64 over the other 124 bytes
//   8   32  key                          (kv_key.h)
//   40  32  key of the parent block, or the scope's root
//   72   8  first bytes of the namespace fingerprint
//   80   4  position of the first token
//   84   2  number of token ids
//   86   1  kind: 0 block, 1 rings
//   87   1  flags: 1 = ids and payload are encrypted
//   88   4  payload bytes
//   92   4  time of expiry, seconds since 1970
//   96   4  lifetime, seconds: so long after its last use it is to be kept
//   100 28  plain: XXH3-128 over ids and payload, then zeros. Encrypted: 12 bytes nonce, 16 bytes tag of AES-256-GCM;
//           the tag covers the header's bytes 8 to 112 too
//
// A record counts only when all of it is right: checksums, key, parent, position, ids. Anything else is a miss.
//
// Thread-safety: a codec may be used by any number of threads at once. Ownership: none of the bytes.
#ifndef DEEPINFER_CACHE_KV_RECORD_H_
#define DEEPINFER_CACHE_KV_RECORD_H_

#include <cstdint>
#include <optional>
#include <span>

#include "cache/kv_key.h"
#include "deepinfer/status.h"

namespace deepinfer {

inline constexpr int kKvFormatVersion = 1;
inline constexpr int64_t kRecordAlignment = 4096;
inline constexpr int64_t kRecordHeaderBytes = 128;

enum class KvRecordKind : uint8_t { kBlock = 0, kRings = 1 };

/// A record to be kept. The memory belongs to the caller and stays until the write has been reported.
struct KvWrite {
  KvRecordKind kind = KvRecordKind::kBlock;
  KvScope scope;
  KvKey key;
  KvKey parent;
  int64_t first_token = 0;           ///< position
  std::span<const int32_t> ids;      // [block_tokens]
  std::span<const uint8_t> payload;  // [block_bytes or rings_bytes]
  int64_t expires_at = 0;            ///< seconds since 1970
  int64_t lifetime = 0;              ///< seconds that a use adds; a tier takes 0 for the time until expires_at
};

/// A record that is wanted, with everything that it must say.
struct KvRead {
  KvRecordKind kind = KvRecordKind::kBlock;
  KvKey key;
  KvKey parent;
  int64_t first_token = 0;
  std::span<const int32_t> ids;
  std::span<uint8_t> payload;  ///< written only by a record that counts
  bool found = false;          ///< set by the tier
  int64_t expires_at = 0;      ///< set with `found`
};

/// What the header of a record says, for scanners.
struct KvRecordHeader {
  KvRecordKind kind = KvRecordKind::kBlock;
  bool encrypted = false;
  KvKey key;
  KvKey parent;
  int64_t first_token = 0;
  int64_t token_count = 0;
  int64_t payload_bytes = 0;
  int64_t expires_at = 0;
  int64_t lifetime = 0;

  /// With header, ids and padding.
  int64_t record_bytes() const;
};

enum class KvRecordState : uint8_t {
  kGood,
  kForeign,   ///< of another namespace
  kMismatch,  ///< whole, but not what was asked for
  kCorrupt,   ///< no record, or its bytes changed
};

class KvRecordCodec {
 public:
  /// secret: none, or the 32 bytes that keys of AES-256-GCM are derived from (HKDF-SHA256 with the namespace
  /// fingerprint).
  KvRecordCodec(const KvNamespace& name_space, std::optional<KvKey> secret);

  const KvNamespace& name_space() const { return name_space_; }
  bool encrypts() const { return cipher_key_.has_value(); }

  int64_t payload_bytes(KvRecordKind kind) const {
    return kind == KvRecordKind::kBlock ? name_space_.block_bytes : name_space_.rings_bytes;
  }
  /// Bytes of a record with `token_count` ids, a multiple of kRecordAlignment.
  static int64_t RecordBytes(int64_t token_count, int64_t payload_bytes);

  /// Fills `record`, RecordBytes() long. kInvalidArgument: a payload of another size, more than 65535 ids.
  Status Encode(const KvWrite& write, std::span<uint8_t> record) const;

  /// Checks the record, which may be longer than it need be, against what was asked; copies the payload and sets
  /// read->found when it is kGood.
  KvRecordState Decode(std::span<const uint8_t> record, KvRead* read) const;

  /// The header of a record of this namespace; nothing: no record, or of another namespace or version.
  std::optional<KvRecordHeader> ReadHeader(std::span<const uint8_t> record) const;

  /// Checksums of a whole record (its tag, when it is encrypted) and that its key is that of its parent and ids.
  /// Without the secret only the header of an encrypted record can be checked.
  KvRecordState Verify(std::span<const uint8_t> record) const;

  /// Gives a record another time of expiry, seconds since 1970, when it is good (Verify); leaves it alone otherwise.
  KvRecordState Renew(std::span<uint8_t> record, int64_t expires_at) const;

 private:
  KvNamespace name_space_;
  std::optional<KvKey> cipher_key_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_KV_RECORD_H_
