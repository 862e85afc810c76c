#include "cache/redis_connection.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/clock.h"

namespace deepinfer {
namespace {

constexpr int kMostElements = 65536;
constexpr size_t kReadBytes = 1 << 16;

/// hiredis' own functions that make replies, with a limit for lists: it would allocate whatever count is sent.
redisReplyObjectFunctions* ReplyFunctions() {
  static redisReplyObjectFunctions functions = [] {
    static void* (*create_array)(const redisReadTask*, int) = nullptr;
    redisReader* const reader = redisReaderCreate();
    redisReplyObjectFunctions made = *reader->fn;
    redisReaderFree(reader);
    create_array = made.createArray;
    made.createArray = [](const redisReadTask* task, int elements) -> void* {
      return elements <= kMostElements ? create_array(task, elements) : nullptr;
    };
    return made;
  }();
  return &functions;
}

timeval ToTimeval(double seconds) {
  const auto microseconds = static_cast<int64_t>(seconds * 1e6);
  return {microseconds / 1'000'000, microseconds % 1'000'000};
}

}  // namespace

void RedisReplyDeleter::operator()(redisReply* reply) const { freeReplyObject(reply); }

RedisReplyReader::RedisReplyReader(int64_t most_bytes)
    : most_bytes_(most_bytes), reader_(redisReaderCreateWithFunctions(ReplyFunctions()), redisReaderFree) {}

RedisReplyReader::~RedisReplyReader() = default;

void RedisReplyReader::Feed(std::span<const char> bytes) {
  // The return value repeats reader_->err, which Next looks at.
  redisReaderFeed(reader_.get(), bytes.data(), bytes.size());
}

Result<RedisReply> RedisReplyReader::Next() {
  void* reply = nullptr;
  if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
    return Status::Corruption(fmt::format("no reply of Redis: {}", redisReaderGetError(reader_.get())));
  }
  if (reply == nullptr && static_cast<int64_t>(reader_->len - reader_->pos) > most_bytes_) {
    return Status::Corruption(fmt::format("a reply of more than {} bytes", most_bytes_));
  }
  return RedisReply(static_cast<redisReply*>(reply));
}

Status RedisError(const std::string& address, std::string_view error, bool secret) {
  struct Known {
    std::string_view begin;
    StatusCode code;
    std::string_view remedy;
  };
  static constexpr std::array<Known, 14> kKnown = {{
      {"OOM", StatusCode::kResourceExhausted,
       "its maxmemory is reached and nothing may be evicted: set maxmemory-policy allkeys-lru"},
      {"NOAUTH", StatusCode::kInvalidArgument, "it wants a password: redis://:password@host"},
      {"WRONGPASS", StatusCode::kInvalidArgument, "it does not accept user and password"},
      {"ERR invalid password", StatusCode::kInvalidArgument, "it does not accept the password"},
      {"ERR AUTH", StatusCode::kInvalidArgument, "it has no password, but one is given"},
      {"NOPERM", StatusCode::kInvalidArgument, "its user may not run a command of docs/kv-tiers.md on deepinfer:kv:*"},
      {"LOADING", StatusCode::kIo, "it is loading its data: it will be asked again"},
      {"READONLY", StatusCode::kIo, "it is a replica that cannot be written: give the address of the primary"},
      {"MASTERDOWN", StatusCode::kIo, "it is a replica that has lost its primary"},
      {"MISCONF", StatusCode::kIo, "it cannot write its snapshot: see its log, or switch snapshots off (save \"\")"},
      {"BUSY", StatusCode::kIo, "it is busy with a script"},
      {"MOVED", StatusCode::kUnsupported, "it is part of a cluster: give one server that is not"},
      {"CLUSTERDOWN", StatusCode::kUnsupported, "it is part of a cluster: give one server that is not"},
      {"ERR max number of clients", StatusCode::kIo, "it has too many clients: raise its maxclients"},
  }};
  for (const Known& known : kKnown) {
    if (error.starts_with(known.begin)) return {known.code, fmt::format("{}: {}", address, known.remedy)};
  }
  std::string text(secret ? error.substr(0, error.find(' ')) : error.substr(0, 200));
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return Status::Io(fmt::format("{}: Redis 7 is needed and says: {}", address, text));
}

RedisConnection::RedisConnection(RedisUrl url, const RedisLimits& limits)
    : url_(std::move(url)), limits_(limits), address_(url_.address()), context_(nullptr, redisFree) {}

RedisConnection::~RedisConnection() = default;

void RedisConnection::Close() {
  context_.reset();
  reader_.reset();
  output_.clear();
  expected_ = 0;
}

Status RedisConnection::Failed(const std::string& what) {
  Close();
  return Status::Io(fmt::format("{}: {}", address_, what));
}

bool RedisConnection::IsStale() const {
  pollfd entry = {context_->fd, POLLIN, 0};
  return poll(&entry, 1, 0) != 0;
}

Status RedisConnection::Open() {
  if (is_open() && IsStale()) Close();
  if (is_open()) return Status::Ok();
  DEEPINFER_RETURN_IF_ERROR(Connect());
  Status status;
  if (!url_.password.empty() && url_.user.empty()) status = Call({"AUTH", url_.password}, true).status();
  if (!url_.password.empty() && !url_.user.empty()) status = Call({"AUTH", url_.user, url_.password}, true).status();
  if (status.ok() && url_.database != 0) status = Call({"SELECT", std::to_string(url_.database)}).status();
  if (!status.ok()) Close();
  return status;
}

Status RedisConnection::Connect() {
  const timeval limit = ToTimeval(limits_.connect_seconds);
  context_.reset(url_.host.empty() ? redisConnectUnixWithTimeout(url_.path.c_str(), limit)
                                   : redisConnectWithTimeout(url_.host.c_str(), url_.port, limit));
  if (context_ == nullptr) return Status::ResourceExhausted("no memory for a connection to Redis");
  if (context_->err != 0) {
    return Failed(fmt::format("no connection: {}; is Redis running there?", context_->errstr));
  }
  const int flags = fcntl(context_->fd, F_GETFL);
  if (flags < 0 || fcntl(context_->fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
      fcntl(context_->fd, F_SETFD, FD_CLOEXEC) < 0) {
    return Failed(std::strerror(errno));
  }
  reader_ = std::make_unique<RedisReplyReader>(limits_.reply_bytes);
  return Status::Ok();
}

void RedisConnection::Add(std::span<const std::string_view> words) {
  std::vector<const char*> texts;
  std::vector<size_t> sizes;
  for (const std::string_view word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  char* command = nullptr;
  const int bytes = redisFormatCommandArgv(&command, static_cast<int>(words.size()), texts.data(), sizes.data());
  // Without memory the reply will be missing, and the exchange fails.
  if (bytes > 0) output_.append(command, static_cast<size_t>(bytes));
  redisFreeCommand(command);
  ++expected_;
}

Status RedisConnection::Wait(short events, double deadline) {
  while (true) {
    const double left = deadline - NowSeconds();
    if (left <= 0) {
      return Failed(
          fmt::format("no answer within {} s: it is stopped, overloaded or far away", limits_.command_seconds));
    }
    pollfd entry = {context_->fd, events, 0};
    const int count = poll(&entry, 1, static_cast<int>(std::ceil(left * 1e3)));
    if (count > 0) return Status::Ok();
    if (count < 0 && errno != EINTR) return Failed(std::strerror(errno));
  }
}

Result<std::vector<RedisReply>> RedisConnection::Exchange() {
  const double deadline = NowSeconds() + limits_.command_seconds;
  std::vector<RedisReply> replies;
  std::array<char, kReadBytes> buffer;
  size_t sent = 0;
  // Replies are taken while commands still wait: a server whose replies are not read stops reading.
  while (sent < output_.size() || std::ssize(replies) < expected_) {
    DEEPINFER_RETURN_IF_ERROR(Wait(static_cast<short>(sent < output_.size() ? POLLIN | POLLOUT : POLLIN), deadline));
    if (sent < output_.size()) {
      const ssize_t count =
          send(context_->fd, output_.data() + sent, output_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && errno != EAGAIN && errno != EINTR) return Failed(std::strerror(errno));
      sent += static_cast<size_t>(std::max<ssize_t>(count, 0));
    }
    const ssize_t count = recv(context_->fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count == 0) return Failed("the connection was closed by the server");
    if (count < 0 && errno != EAGAIN && errno != EINTR) return Failed(std::strerror(errno));
    if (count < 0) continue;
    reader_->Feed({buffer.data(), static_cast<size_t>(count)});
    while (true) {
      Result<RedisReply> reply = reader_->Next();
      if (!reply.ok()) return Failed(reply.status().message());
      if (*reply == nullptr) break;
      replies.push_back(std::move(*reply));
    }
    if (std::ssize(replies) > expected_) return Failed("more replies than commands");
  }
  output_.clear();
  expected_ = 0;
  return replies;
}

Result<RedisReply> RedisConnection::Call(std::initializer_list<std::string_view> words, bool secret) {
  Add({words.begin(), words.size()});
  DEEPINFER_ASSIGN_OR_RETURN(std::vector<RedisReply> replies, Exchange());
  RedisReply& reply = replies.back();
  if (reply->type == REDIS_REPLY_ERROR) return RedisError(address_, {reply->str, reply->len}, secret);
  return std::move(reply);
}

}  // namespace deepinfer
