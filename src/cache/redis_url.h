// RedisUrl: where a Redis server is and how to enter it.
//
//   redis://[[user]:password@]host[:port][/database]      port 6379, database 0
//   redis+unix://[[user]:password@]/path[?db=database]    a socket of this machine
//
// User and password may be percent-encoded; an IPv6 address stands in brackets.
//
// Thread-safety: a value. Ownership: owns its text.
#ifndef DEEPINFER_CACHE_REDIS_URL_H_
#define DEEPINFER_CACHE_REDIS_URL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "deepinfer/status.h"

namespace deepinfer {

struct RedisUrl {
  std::string host;  ///< empty: `path` counts
  int port = 6379;
  std::string path;
  std::string user;
  std::string password;
  int64_t database = 0;

  /// kInvalidArgument: the message says what is wrong and repeats nothing that may be a secret. kUnsupported: TLS.
  static Result<RedisUrl> Parse(std::string_view text);

  /// For messages: without user and password.
  std::string address() const;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_REDIS_URL_H_
