#include "cache/kv_record.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace deepinfer {
namespace {

constexpr uint32_t kMagic = 0x314B4944;  // "DIK1"
constexpr uint8_t kEncrypted = 1;
constexpr int64_t kMostTokens = 65535;
constexpr size_t kNonceBytes = 12;
constexpr size_t kTagBytes = 16;

struct __attribute__((packed)) Header {
  uint32_t magic;
  uint32_t checksum;
  std::array<uint8_t, 32> key;
  std::array<uint8_t, 32> parent;
  uint64_t name_space;
  uint32_t first_token;
  uint16_t token_count;
  uint8_t kind;
  uint8_t flags;
  uint32_t payload_bytes;
  uint32_t expires_at;
  uint32_t lifetime;
  std::array<uint8_t, 28> proof;
};
static_assert(sizeof(Header) == kRecordHeaderBytes);
/// What the tag of an encrypted record covers of its header.
constexpr size_t kCoveredBegin = 8;
constexpr size_t kCoveredEnd = 112;

uint32_t HeaderChecksum(const Header& header) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&header);
  std::array<uint8_t, kRecordHeaderBytes - 4> covered = {};
  std::copy_n(bytes, 4, covered.begin());
  std::copy(bytes + 8, bytes + kRecordHeaderBytes, covered.begin() + 4);
  return static_cast<uint32_t>(XXH3_64bits(covered.data(), covered.size()));
}

uint64_t ShortName(const KvNamespace& name_space) {
  uint64_t name = 0;
  std::memcpy(&name, name_space.fingerprint.bytes.data(), sizeof(name));
  return name;
}

std::array<uint8_t, 16> BodyChecksum(std::span<const uint8_t> body) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(body.data(), body.size()));
  std::array<uint8_t, 16> checksum;
  std::copy_n(canonical.digest, checksum.size(), checksum.begin());
  return checksum;
}

KvKey DeriveKey(const KvKey& secret, const KvKey& fingerprint) {
  constexpr std::string_view kInfo = "deepinfer kv record";
  KvKey key;
  size_t bytes = key.bytes.size();
  EVP_PKEY_CTX* context = EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr);
  const auto byte_count = [](const auto& range) { return static_cast<int>(range.size()); };
  const bool derived =
      context != nullptr && EVP_PKEY_derive_init(context) > 0 && EVP_PKEY_CTX_set_hkdf_md(context, EVP_sha256()) > 0 &&
      EVP_PKEY_CTX_set1_hkdf_salt(context, fingerprint.bytes.data(), byte_count(fingerprint.bytes)) > 0 &&
      EVP_PKEY_CTX_set1_hkdf_key(context, secret.bytes.data(), byte_count(secret.bytes)) > 0 &&
      EVP_PKEY_CTX_add1_hkdf_info(context, reinterpret_cast<const uint8_t*>(kInfo.data()), byte_count(kInfo)) > 0 &&
      EVP_PKEY_derive(context, key.bytes.data(), &bytes) > 0;
  EVP_PKEY_CTX_free(context);
  // Only memory can be missing; a random key makes every record a miss rather than readable.
  if (!derived) RAND_bytes(key.bytes.data(), byte_count(key.bytes));
  return key;
}

/// AES-256-GCM over `from` into `to`, which may be the same; `tag` is made or checked.
bool Crypt(bool encrypt, const KvKey& key, Header* header, std::span<const uint8_t> from, uint8_t* to) {
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  if (context == nullptr) return false;
  uint8_t* const nonce = header->proof.data();
  uint8_t* const tag = nonce + kNonceBytes;
  const uint8_t* const covered = reinterpret_cast<const uint8_t*>(header) + kCoveredBegin;
  int count = 0;
  bool good = EVP_CipherInit_ex(context, EVP_aes_256_gcm(), nullptr, key.bytes.data(), nonce, encrypt ? 1 : 0) > 0 &&
              EVP_CipherUpdate(context, nullptr, &count, covered, static_cast<int>(kCoveredEnd - kCoveredBegin)) > 0 &&
              EVP_CipherUpdate(context, to, &count, from.data(), static_cast<int>(from.size())) > 0 &&
              (encrypt || EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, kTagBytes, tag) > 0) &&
              EVP_CipherFinal_ex(context, to + from.size(), &count) > 0 &&
              (!encrypt || EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, kTagBytes, tag) > 0);
  EVP_CIPHER_CTX_free(context);
  return good;
}

/// The header, if it is one.
bool Load(std::span<const uint8_t> record, Header* header) {
  if (std::ssize(record) < kRecordHeaderBytes) return false;
  std::memcpy(header, record.data(), sizeof(*header));
  return header->magic == kMagic && header->checksum == HeaderChecksum(*header);
}

size_t BodyBytes(const Header& header) { return size_t{header.token_count} * sizeof(int32_t) + header.payload_bytes; }

bool IsRecord(std::span<const uint8_t> record, Header* header) {
  return Load(record, header) && record.size() >= sizeof(*header) + BodyBytes(*header) && header->kind <= 1;
}

bool ProvesPlain(const Header& header, std::span<const uint8_t> body) {
  const std::array<uint8_t, 16> checksum = BodyChecksum(body);
  return std::equal(checksum.begin(), checksum.end(), header.proof.begin());
}

}  // namespace

int64_t KvRecordHeader::record_bytes() const { return KvRecordCodec::RecordBytes(token_count, payload_bytes); }

KvRecordCodec::KvRecordCodec(const KvNamespace& name_space, std::optional<KvKey> secret) : name_space_(name_space) {
  if (secret.has_value()) cipher_key_ = DeriveKey(*secret, name_space.fingerprint);
}

int64_t KvRecordCodec::RecordBytes(int64_t token_count, int64_t payload_bytes) {
  const int64_t bytes = kRecordHeaderBytes + token_count * static_cast<int64_t>(sizeof(int32_t)) + payload_bytes;
  return (bytes + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment;
}

Status KvRecordCodec::Encode(const KvWrite& write, std::span<uint8_t> record) const {
  if (std::ssize(write.payload) != payload_bytes(write.kind) || std::ssize(write.ids) > kMostTokens) {
    return Status::InvalidArgument(fmt::format("a record of {} bytes and {} ids does not belong to this namespace",
                                               write.payload.size(), write.ids.size()));
  }
  if (std::ssize(record) != RecordBytes(std::ssize(write.ids), std::ssize(write.payload))) {
    return Status::InvalidArgument(fmt::format("a record does not have {} bytes", record.size()));
  }
  Header header = {};
  header.magic = kMagic;
  header.key = write.key.bytes;
  header.parent = write.parent.bytes;
  header.name_space = ShortName(name_space_);
  header.first_token = static_cast<uint32_t>(write.first_token);
  header.token_count = static_cast<uint16_t>(write.ids.size());
  header.kind = static_cast<uint8_t>(write.kind);
  header.payload_bytes = static_cast<uint32_t>(write.payload.size());
  header.expires_at = static_cast<uint32_t>(write.expires_at);
  header.lifetime = static_cast<uint32_t>(write.lifetime);

  const std::span<uint8_t> body = record.subspan(sizeof(header), BodyBytes(header));
  std::memcpy(body.data(), write.ids.data(), write.ids.size_bytes());
  std::ranges::copy(write.payload, body.begin() + static_cast<int64_t>(write.ids.size_bytes()));
  std::fill(body.data() + body.size(), record.data() + record.size(), uint8_t{0});
  if (cipher_key_.has_value()) {
    header.flags = kEncrypted;
    if (RAND_bytes(header.proof.data(), kNonceBytes) != 1 || !Crypt(true, *cipher_key_, &header, body, body.data())) {
      return Status::Internal("OpenSSL cannot encrypt a record");
    }
  } else {
    std::ranges::copy(BodyChecksum(body), header.proof.begin());
  }
  header.checksum = HeaderChecksum(header);
  std::memcpy(record.data(), &header, sizeof(header));
  return Status::Ok();
}

KvRecordState KvRecordCodec::Decode(std::span<const uint8_t> record, KvRead* read) const {
  Header header;
  if (!IsRecord(record, &header)) return KvRecordState::kCorrupt;
  if (header.name_space != ShortName(name_space_)) return KvRecordState::kForeign;
  const bool encrypted = (header.flags & kEncrypted) != 0;
  if (encrypted != encrypts()) return KvRecordState::kForeign;
  if (header.kind != static_cast<uint8_t>(read->kind) || header.key != read->key.bytes ||
      header.parent != read->parent.bytes || header.first_token != read->first_token ||
      header.token_count != read->ids.size() || header.payload_bytes != read->payload.size()) {
    return KvRecordState::kMismatch;
  }
  std::span<const uint8_t> body = record.subspan(sizeof(header), BodyBytes(header));
  std::vector<uint8_t> plain;
  if (encrypted) {
    plain.resize(body.size());
    if (!Crypt(false, *cipher_key_, &header, body, plain.data())) return KvRecordState::kCorrupt;
    body = plain;
  } else if (!ProvesPlain(header, body)) {
    return KvRecordState::kCorrupt;
  }
  if (std::memcmp(body.data(), read->ids.data(), read->ids.size_bytes()) != 0) return KvRecordState::kMismatch;
  std::ranges::copy(body.subspan(read->ids.size_bytes()), read->payload.begin());
  read->found = true;
  read->expires_at = header.expires_at;
  return KvRecordState::kGood;
}

std::optional<KvRecordHeader> KvRecordCodec::ReadHeader(std::span<const uint8_t> record) const {
  Header header;
  if (!Load(record, &header) || header.kind > 1 || header.name_space != ShortName(name_space_)) return std::nullopt;
  KvRecordHeader found;
  found.kind = static_cast<KvRecordKind>(header.kind);
  found.encrypted = (header.flags & kEncrypted) != 0;
  found.key.bytes = header.key;
  found.parent.bytes = header.parent;
  found.first_token = header.first_token;
  found.token_count = header.token_count;
  found.payload_bytes = header.payload_bytes;
  found.expires_at = header.expires_at;
  found.lifetime = header.lifetime;
  return found;
}

KvRecordState KvRecordCodec::Verify(std::span<const uint8_t> record) const {
  Header header;
  if (!IsRecord(record, &header)) return KvRecordState::kCorrupt;
  if (header.name_space != ShortName(name_space_)) return KvRecordState::kForeign;
  std::span<const uint8_t> body = record.subspan(sizeof(header), BodyBytes(header));
  std::vector<uint8_t> plain;
  if ((header.flags & kEncrypted) != 0) {
    if (!cipher_key_.has_value()) return KvRecordState::kGood;
    plain.resize(body.size());
    if (!Crypt(false, *cipher_key_, &header, body, plain.data())) return KvRecordState::kCorrupt;
    body = plain;
  } else if (!ProvesPlain(header, body)) {
    return KvRecordState::kCorrupt;
  }
  std::vector<int32_t> ids(header.token_count);
  std::memcpy(ids.data(), body.data(), ids.size() * sizeof(int32_t));
  std::vector<KvKey> keys;
  ExtendKeys({header.parent}, ids, std::max<int64_t>(header.token_count, 1), &keys);
  if (keys.empty() || keys.front().bytes != header.key) return KvRecordState::kMismatch;
  return KvRecordState::kGood;
}

KvRecordState KvRecordCodec::Renew(std::span<uint8_t> record, int64_t expires_at) const {
  const KvRecordState state = Verify(record);
  if (state != KvRecordState::kGood) return state;
  Header header;
  std::memcpy(&header, record.data(), sizeof(header));
  const std::span<uint8_t> body = record.subspan(sizeof(header), BodyBytes(header));
  if ((header.flags & kEncrypted) != 0) {
    // The tag covers the time: the body is encrypted anew, under a new nonce.
    if (!cipher_key_.has_value()) return KvRecordState::kForeign;
    if (!Crypt(false, *cipher_key_, &header, body, body.data())) return KvRecordState::kCorrupt;
    header.expires_at = static_cast<uint32_t>(expires_at);
    if (RAND_bytes(header.proof.data(), kNonceBytes) != 1 || !Crypt(true, *cipher_key_, &header, body, body.data())) {
      return KvRecordState::kCorrupt;
    }
  } else {
    header.expires_at = static_cast<uint32_t>(expires_at);
  }
  header.checksum = HeaderChecksum(header);
  std::memcpy(record.data(), &header, sizeof(header));
  return KvRecordState::kGood;
}

}  // namespace deepinfer
