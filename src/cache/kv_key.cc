#include "cache/kv_key.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <algorithm>
#include <bit>

#include "cache/kv_record.h"

namespace deepinfer {
namespace {

static_assert(std::endian::native == std::endian::little);

// The one-shot call of OpenSSL is deprecated only in its streaming form.
KvKey Sha256(std::string_view text) {
  KvKey key;
  SHA256(reinterpret_cast<const uint8_t*>(text.data()), text.size(), key.bytes.data());
  return key;
}

std::string_view AsText(const KvKey& key) {
  return {reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size()};
}

}  // namespace

KvNamespace KvNamespace::Make(std::string description, int64_t block_bytes, int64_t rings_bytes) {
  KvNamespace made;
  made.fingerprint =
      Sha256(fmt::format("deepinfer namespace {} {} {} {}", kKvFormatVersion, block_bytes, rings_bytes, description));
  made.description = std::move(description);
  made.block_bytes = block_bytes;
  made.rings_bytes = rings_bytes;
  return made;
}

KvScope KvScope::Make(const KvNamespace& name_space, std::string_view replay_mode, std::string_view salt) {
  std::string text = "deepinfer kv";
  text += AsText(name_space.fingerprint);
  text += fmt::format("{} {} ", replay_mode, salt.size());
  text += salt;
  return {Sha256(text)};
}

void ExtendKeys(const KvKey& root, std::span<const int32_t> ids, int64_t block_tokens, std::vector<KvKey>* keys) {
  const size_t tokens = static_cast<size_t>(block_tokens);
  const size_t blocks = ids.size() / tokens;
  keys->reserve(std::max(blocks, keys->size()));
  std::string text;
  while (keys->size() < blocks) {
    text = AsText(keys->empty() ? root : keys->back());
    const auto block = ids.subspan(keys->size() * tokens, tokens);
    text.append(reinterpret_cast<const char*>(block.data()), block.size_bytes());
    keys->push_back(Sha256(text));
  }
}

std::string ToHex(const KvKey& key, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += fmt::format("{:02x}", key.bytes[i]);
  return text;
}

bool FromHex(std::string_view text, KvKey* key) {
  if (text.size() != 2 * key->bytes.size()) return false;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  for (size_t i = 0; i < key->bytes.size(); ++i) {
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    key->bytes[i] = static_cast<uint8_t>(16 * high + low);
  }
  return true;
}

}  // namespace deepinfer
