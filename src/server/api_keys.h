// ApiKeys: who may call the server, told by a secret key in a header (spec serving.md section 11.2).
//
// Invariants: (1) only the SHA-256 of a key is kept; what it was read from is wiped; no error repeats a key; (2) a
// candidate is compared with every key in constant time, so how long Find takes says nothing about how close it was.
// Thread-safety: Find from any thread once the last Add has returned. Ownership: ApiKey pointers live as long as the
// ApiKeys. Errors: kInvalidArgument beginning with "--api-key" or "--api-key-file FILE:LINE", kIo for the file itself.
#ifndef DEEPINFER_SERVER_API_KEYS_H_
#define DEEPINFER_SERVER_API_KEYS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "deepinfer/status.h"

namespace deepinfer {

/// What a key may use; 0 stands for no limit.
struct KeyLimits {
  int64_t concurrency = 0;  ///< requests at once
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;  ///< prompt tokens that were not cached, and output
};

struct ApiKey {
  std::string name;   ///< for logs and metrics
  std::string owner;  ///< whose stored responses are whose: the name, or made of the hash when no name was given
  /// GenerationRequest::cache_salt. Made of the key's hash when none was given, so that keys share no prefixes.
  std::string cache_salt;
  KeyLimits limits;
  int priority = 0;  ///< GenerationRequest::priority: lower ones are served first
};

class ApiKeys {
 public:
  /// `--api-key KEY` or `--api-key name=KEY`. A key without a name is called "key-N", N counting all keys from 1. Wipes
  /// `text`, whatever it returns.
  Status AddFlag(std::string* text);

  /// `--api-key-file FILE`, a line each:
  ///   name:key [concurrency=N] [requests_per_minute=N] [tokens_per_minute=N] [priority=N] [salt=TEXT]
  /// Blank lines and what follows a # at the start of a word are ignored. An empty salt is that of no key.
  Status AddFile(const std::string& path);

  /// No key was added: everybody is let in.
  bool open() const { return entries_.empty(); }

  /// The key that one of the headers `Authorization: Bearer K` and `x-api-key: K` holds, nullptr when neither does. An
  /// open server knows one anonymous key without limits and ignores the headers.
  const ApiKey* Find(std::optional<std::string_view> authorization, std::optional<std::string_view> x_api_key) const;

 private:
  using Hash = std::array<unsigned char, 32>;
  struct Entry {
    Hash hash;
    ApiKey key;
  };

  static Hash HashOf(std::string_view secret);
  const ApiKey* FindSecret(std::string_view secret) const;
  /// Errors are without their place.
  Status AddLine(std::string_view line);
  Status Add(std::string_view secret, ApiKey key);

  std::deque<Entry> entries_;  // addresses stay
  ApiKey anonymous_{.name = "anonymous", .owner = "", .cache_salt = "", .limits = {}, .priority = 0};
};

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_API_KEYS_H_
