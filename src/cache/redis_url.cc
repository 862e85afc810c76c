#include "cache/redis_url.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <charconv>
#include <optional>

namespace deepinfer {
namespace {

constexpr std::string_view kTcp = "redis://";
constexpr std::string_view kTls = "rediss://";
constexpr std::string_view kUnix = "redis+unix://";

template <typename T>
bool ParseNumber(std::string_view text, T least, T most, T* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size() && *number >= least && *number <= most;
}

std::optional<std::string> Decode(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    uint8_t byte = 0;
    if (i + 2 >= text.size()) return std::nullopt;
    const auto [end, error] = std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16);
    if (error != std::errc() || end != text.data() + i + 3) return std::nullopt;
    decoded += static_cast<char>(byte);
    i += 2;
  }
  return decoded;
}

Status Wrong(std::string_view what) {
  return Status::InvalidArgument(
      fmt::format("Redis address: {}; expected redis://[:password@]host[:port][/database] or "
                  "redis+unix://[:password@]/path[?db=database]",
                  what));
}

}  // namespace

Result<RedisUrl> RedisUrl::Parse(std::string_view text) {
  if (text.starts_with(kTls)) {
    return Status::Unsupported("Redis address: rediss:// needs TLS, which is not built in; put a tunnel in between");
  }
  const bool is_unix = text.starts_with(kUnix);
  if (!is_unix && !text.starts_with(kTcp)) return Wrong("it does not begin with redis:// or redis+unix://");
  text.remove_prefix(is_unix ? kUnix.size() : kTcp.size());

  RedisUrl url;
  // A password may contain an @ that is not encoded, but no slash.
  const size_t at = text.substr(0, text.find('/')).rfind('@');
  if (at != std::string_view::npos) {
    const std::string_view who = text.substr(0, at);
    text.remove_prefix(at + 1);
    const size_t colon = who.find(':');
    if (colon == std::string_view::npos) return Wrong("a password follows a colon, as in redis://:password@host");
    const auto user = Decode(who.substr(0, colon));
    const auto password = Decode(who.substr(colon + 1));
    if (!user.has_value() || !password.has_value()) return Wrong("a % in the password is not followed by two digits");
    if (password->empty()) return Wrong("the password is empty");
    url.user = *user;
    url.password = *password;
  }
  constexpr int64_t kMostDatabases = 1 << 20;
  if (is_unix) {
    const size_t query = text.find('?');
    url.path = text.substr(0, query);
    if (!url.path.starts_with('/')) return Wrong("the path of the socket does not begin with /");
    if (url.path.size() >= sizeof(sockaddr_un::sun_path)) {
      return Wrong(fmt::format("the path of the socket has {} bytes, {} are possible", url.path.size(),
                               sizeof(sockaddr_un::sun_path) - 1));
    }
    if (query == std::string_view::npos) return url;
    const std::string_view option = text.substr(query + 1);
    if (!option.starts_with("db=") || !ParseNumber<int64_t>(option.substr(3), 0, kMostDatabases, &url.database)) {
      return Wrong("behind the ? only db=NUMBER is known");
    }
    return url;
  }
  const size_t end = text.find('/');
  const std::string_view database = end == std::string_view::npos ? "" : text.substr(end + 1);
  if (!database.empty() && !ParseNumber<int64_t>(database, 0, kMostDatabases, &url.database)) {
    return Wrong("the database is no number");
  }
  std::string_view server = text.substr(0, end);
  if (server.starts_with('[')) {
    const size_t bracket = server.find(']');
    if (bracket == std::string_view::npos) return Wrong("a [ is not closed");
    url.host = server.substr(1, bracket - 1);
    server.remove_prefix(bracket + 1);
    if (!server.empty() && !server.starts_with(':')) return Wrong("a colon and the port follow the ]");
  } else {
    url.host = server.substr(0, server.find(':'));
    server.remove_prefix(url.host.size());
  }
  if (url.host.empty()) return Wrong("the host is missing");
  if (!server.empty() && !ParseNumber(server.substr(1), 1, 65535, &url.port)) return Wrong("the port is no number");
  return url;
}

std::string RedisUrl::address() const {
  const std::string_view open = host.find(':') == std::string::npos ? "" : "[";
  const std::string_view close = open.empty() ? "" : "]";
  std::string text =
      host.empty() ? fmt::format("redis+unix://{}", path) : fmt::format("redis://{}{}{}:{}", open, host, close, port);
  if (database != 0) text += fmt::format("{}{}", host.empty() ? "?db=" : "/", database);
  return text;
}

}  // namespace deepinfer
