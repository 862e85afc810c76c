// RedisConnection: one connection to a Redis server, with a deadline for every wait and a limit on what is read.
// hiredis makes the connection, writes commands and parses replies; the waiting is done here, because a server that
// sends a byte now and then would never meet hiredis' own time limits, which are for each call of the system.
//
// RedisReplyReader: replies out of bytes, with the limits.
//
// Errors: every Status names the server without its password, and what to do. An
// error that is not a reply of Redis closes the connection.
// Thread-safety: one thread at a time. Ownership: owns its socket and buffers.
#ifndef DEEPINFER_CACHE_REDIS_CONNECTION_H_
#define DEEPINFER_CACHE_REDIS_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/redis_url.h"
#include "deepinfer/status.h"

struct redisContext;
struct redisReader;
struct redisReply;

namespace deepinfer {

struct RedisReplyDeleter {
  void operator()(redisReply* reply) const;
};
using RedisReply = std::unique_ptr<redisReply, RedisReplyDeleter>;

class RedisReplyReader {
 public:
  /// A reply that is not complete after `most_bytes`, or a list of more than 65536 elements, is refused.
  explicit RedisReplyReader(int64_t most_bytes);
  ~RedisReplyReader();
  RedisReplyReader(const RedisReplyReader&) = delete;
  RedisReplyReader& operator=(const RedisReplyReader&) = delete;

  void Feed(std::span<const char> bytes);
  /// The next reply; nothing: more bytes are needed. kCorruption: this is no Redis, or one that ignores the limits.
  Result<RedisReply> Next();

 private:
  int64_t most_bytes_;
  std::unique_ptr<redisReader, void (*)(redisReader*)> reader_;
};

/// What the text of an error reply means. `secret`: the command had a password, so its text is not repeated.
Status RedisError(const std::string& address, std::string_view error, bool secret);

struct RedisLimits {
  double connect_seconds = 1;  ///< without the look-up of the host's name, which has the system's own limits
  double command_seconds = 2;  ///< from the first byte sent to the last reply
  int64_t reply_bytes = 1 << 20;
};

class RedisConnection {
 public:
  RedisConnection(RedisUrl url, const RedisLimits& limits);
  ~RedisConnection();

  /// Connects if need be, gives the password and selects the database.
  Status Open();
  bool is_open() const { return context_ != nullptr; }
  void Close();

  /// Adds a command to the next exchange. The words are copied.
  void Add(std::span<const std::string_view> words);
  /// Bytes of commands that wait.
  int64_t waiting_bytes() const { return static_cast<int64_t>(output_.size()); }

  /// Sends what was added and waits for its replies, in order. Error replies are replies.
  Result<std::vector<RedisReply>> Exchange();
  /// One command; an error reply is a Status.
  Result<RedisReply> Call(std::initializer_list<std::string_view> words, bool secret = false);

  const std::string& address() const { return address_; }

 private:
  Status Connect();
  Status Wait(short events, double deadline);
  Status Failed(const std::string& what);
  /// Whether the server has hung up, or said something that nobody asked for.
  bool IsStale() const;

  const RedisUrl url_;
  const RedisLimits limits_;
  const std::string address_;
  std::unique_ptr<redisContext, void (*)(redisContext*)> context_;
  std::unique_ptr<RedisReplyReader> reader_;
  std::string output_;
  int64_t expected_ = 0;  // replies
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_REDIS_CONNECTION_H_
