#include "server/api_keys.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <system_error>

namespace deepinfer {
namespace {

constexpr size_t kLongestName = 64;
constexpr size_t kLongestSecret = 1024;
constexpr size_t kLongestSalt = 64;
constexpr size_t kLargestFile = 1 << 20;
constexpr std::string_view kBlanks = " \t\r";

bool IsLetterOrDigit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Names go into log lines and label values as they are.
bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && std::all_of(text.begin(), text.end(), [](char c) {
    return IsLetterOrDigit(c) || c == '-' || c == '_' || c == '.';
  });
}

/// What a header can carry: printable ASCII without blanks.
bool IsSecret(std::string_view text) {
  return !text.empty() && text.size() <= kLongestSecret &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

/// Takes the first word off `text`; empty when only blanks or a comment are left.
std::string_view NextWord(std::string_view* text) {
  const size_t first = text->find_first_not_of(kBlanks);
  if (first == std::string_view::npos || (*text)[first] == '#') return {};
  text->remove_prefix(first);
  const std::string_view word = text->substr(0, text->find_first_of(kBlanks));
  text->remove_prefix(word.size());
  return word;
}

Result<int64_t> ParseNumber(std::string_view name, std::string_view text, int64_t low, int64_t high) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && rest == end && value >= low && value <= high) return value;
  return Status::InvalidArgument(fmt::format("{}: expected an integer from {} to {}", name, low, high));
}

Status SetOption(std::string_view word, ApiKey* key) {
  const std::string_view name = word.substr(0, word.find('='));
  const std::string_view value = word.substr(std::min(word.size(), name.size() + 1));
  const auto limit = [&](int64_t* out) -> Status {
    DEEPINFER_ASSIGN_OR_RETURN(*out, ParseNumber(name, value, 1, int64_t{1} << 40));
    return Status::Ok();
  };
  if (name == "concurrency") return limit(&key->limits.concurrency);
  if (name == "requests_per_minute") return limit(&key->limits.requests_per_minute);
  if (name == "tokens_per_minute") return limit(&key->limits.tokens_per_minute);
  if (name == "priority") {
    constexpr int64_t kRange = std::numeric_limits<int>::max();
    DEEPINFER_ASSIGN_OR_RETURN(const int64_t priority, ParseNumber(name, value, -kRange, kRange));
    key->priority = static_cast<int>(priority);
    return Status::Ok();
  }
  if (name == "salt" && name.size() < word.size()) {
    if (value.size() > kLongestSalt) {
      return Status::InvalidArgument(fmt::format("salt: expected at most {} bytes", kLongestSalt));
    }
    key->cache_salt = value;
    return Status::Ok();
  }
  // The word may be a piece of a key, so it is not repeated.
  return Status::InvalidArgument(
      "after name:key expected concurrency=N, requests_per_minute=N, tokens_per_minute=N, priority=N or salt=TEXT");
}

std::string Hexadecimal(const unsigned char* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

/// Wipes a string at the end of the scope.
class Wiped {
 public:
  explicit Wiped(std::string* text) : text_(text) {}
  ~Wiped() {
    OPENSSL_cleanse(text_->data(), text_->size());
    text_->clear();
  }
  Wiped(const Wiped&) = delete;
  Wiped& operator=(const Wiped&) = delete;

 private:
  std::string* text_;
};

/// Reads a file of at most kLargestFile bytes into a string that never moves, so that no copy of it is left.
Status ReadSecretFile(const std::string& path, std::string* text) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return Status::Io(fmt::format("{}: {}", path, std::generic_category().message(errno)));
  text->resize(kLargestFile + 1);
  size_t size = 0;
  ssize_t count = 0;
  do {
    count = read(descriptor, text->data() + size, text->size() - size);
    if (count > 0) size += static_cast<size_t>(count);
  } while (count > 0 || (count < 0 && errno == EINTR));
  const int error = errno;
  close(descriptor);
  if (count < 0) return Status::Io(fmt::format("{}: {}", path, std::generic_category().message(error)));
  if (size > kLargestFile) return Status::InvalidArgument(fmt::format("{}: larger than 1 MiB", path));
  text->resize(size);
  return Status::Ok();
}

}  // namespace

ApiKeys::Hash ApiKeys::HashOf(std::string_view secret) {
  Hash hash;
  SHA256(reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), hash.data());
  return hash;
}

Status ApiKeys::Add(std::string_view secret, ApiKey key) {
  if (!IsSecret(secret)) {
    return Status::InvalidArgument(
        fmt::format("expected a key of 1 to {} printable ASCII characters without blanks", kLongestSecret));
  }
  Entry entry{HashOf(secret), std::move(key)};
  const std::string number = fmt::format("key-{}", entries_.size() + 1);
  const bool named = !entry.key.name.empty();
  if (!named) entry.key.name = number;
  for (const Entry& other : entries_) {
    if (other.key.name == entry.key.name) {
      return Status::InvalidArgument(fmt::format("the name {} is given twice", other.key.name));
    }
    if (other.hash == entry.hash) {
      return Status::InvalidArgument(fmt::format("the same key as {}'s", other.key.name));
    }
  }
  // Salts and owners reach the engine, the store and perhaps other processes. Hashing once more keeps the key's own
  // hash, against which guesses could be tried, in here.
  const auto derive = [&](std::string_view purpose) {
    std::string text(purpose);
    text.append(reinterpret_cast<const char*>(entry.hash.data()), entry.hash.size());
    const Hash derived = HashOf(text);
    OPENSSL_cleanse(text.data(), text.size());
    return Hexadecimal(derived.data(), 16);
  };
  // A colon is in no name.
  entry.key.owner = named ? entry.key.name : "key:" + derive("deepinfer owner");
  if (entry.key.cache_salt.empty()) entry.key.cache_salt = derive("deepinfer cache salt");
  entries_.push_back(std::move(entry));
  return Status::Ok();
}

Status ApiKeys::AddFlag(std::string* text) {
  const Wiped wiped(text);
  std::string_view secret = *text;
  ApiKey key;
  // A name ends at the first equals sign, unless all that follows is the padding of base64.
  const size_t equals = secret.find('=');
  if (equals != std::string_view::npos && secret.find_first_not_of('=', equals) != std::string_view::npos) {
    if (!IsName(secret.substr(0, equals))) {
      return Status::InvalidArgument(
          fmt::format("--api-key: expected KEY or name=KEY with a name of 1 to {} letters, digits, '-', '_' and '.'",
                      kLongestName));
    }
    key.name = secret.substr(0, equals);
    secret.remove_prefix(equals + 1);
  }
  const Status status = Add(secret, std::move(key));
  return status.ok() ? status : Status(status.code(), "--api-key: " + status.message());
}

Status ApiKeys::AddLine(std::string_view line) {
  std::string_view rest = line;
  const std::string_view first = NextWord(&rest);
  if (first.empty()) return Status::Ok();
  const size_t colon = first.find(':');
  if (colon == std::string_view::npos || !IsName(first.substr(0, colon))) {
    return Status::InvalidArgument(
        fmt::format("expected name:key with a name of 1 to {} letters, digits, '-', '_' and '.'", kLongestName));
  }
  ApiKey key;
  key.name = first.substr(0, colon);
  bool has_salt = false;
  for (std::string_view word = NextWord(&rest); !word.empty(); word = NextWord(&rest)) {
    DEEPINFER_RETURN_IF_ERROR(SetOption(word, &key));
    has_salt = has_salt || word.starts_with("salt=");
  }
  const bool without_salt = has_salt && key.cache_salt.empty();
  DEEPINFER_RETURN_IF_ERROR(Add(first.substr(colon + 1), std::move(key)));
  if (without_salt) entries_.back().key.cache_salt.clear();
  return Status::Ok();
}

Status ApiKeys::AddFile(const std::string& path) {
  std::string text;
  const Wiped wiped(&text);
  const Status read = ReadSecretFile(path, &text);
  if (!read.ok()) return Status(read.code(), "--api-key-file " + read.message());
  std::string_view rest = text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    const Status status = AddLine(rest.substr(0, end));
    if (!status.ok()) {
      return Status(status.code(), fmt::format("--api-key-file {}:{}: {}", path, number, status.message()));
    }
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return Status::Ok();
}

const ApiKey* ApiKeys::FindSecret(std::string_view secret) const {
  const Hash hash = HashOf(secret);
  const ApiKey* found = nullptr;
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(entry.hash.data(), hash.data(), hash.size()) == 0) found = &entry.key;
  }
  return found;
}

const ApiKey* ApiKeys::Find(std::optional<std::string_view> authorization,
                            std::optional<std::string_view> x_api_key) const {
  if (open()) return &anonymous_;
  constexpr std::string_view kScheme = "bearer";
  const ApiKey* found = nullptr;
  if (authorization.has_value()) {
    const std::string_view value = Trim(*authorization);
    const std::string_view scheme = value.substr(0, value.find_first_of(kBlanks));
    // RFC 9110 section 11.1: the case of the scheme does not matter.
    const auto same = [](char a, char b) { return (a | 0x20) == b; };
    if (std::equal(scheme.begin(), scheme.end(), kScheme.begin(), kScheme.end(), same)) {
      found = FindSecret(Trim(value.substr(scheme.size())));
    }
  }
  if (found == nullptr && x_api_key.has_value()) found = FindSecret(Trim(*x_api_key));
  return found;
}

}  // namespace deepinfer
