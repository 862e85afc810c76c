// A Redis server of the test's own, on a socket in a temporary folder. Debian's package redis-tools has the program
// under the name redis-check-rdb; called redis-server it is the server.
//
// Thread-safety: one thread. Ownership: ends the server and removes its folder.
#ifndef DEEPINFER_TESTS_CACHE_REDIS_SERVER_H_
#define DEEPINFER_TESTS_CACHE_REDIS_SERVER_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/app/temporary_folder.h"

namespace deepinfer {

class RedisServer {
 public:
  /// Whether this machine has the program.
  static bool IsInstalled();

  explicit RedisServer(std::vector<std::string> settings = {}) : settings_(std::move(settings)) {}
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  /// Returns when it accepts connections. False: it does not.
  bool Start();
  /// kill -9, and what it held is gone.
  void Kill();
  void Signal(int signal) const;

  /// redis+unix://[USER_AND_PASSWORD@]/...
  std::string url(const std::string& user_and_password = "") const;

 private:
  std::string socket() const { return folder_.path() / "socket"; }

  const TemporaryFolder folder_;
  const std::vector<std::string> settings_;
  pid_t process_ = -1;
};

}  // namespace deepinfer

#endif  // DEEPINFER_TESTS_CACHE_REDIS_SERVER_H_
