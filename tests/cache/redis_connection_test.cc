#include "cache/redis_connection.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <random>
#include <thread>

namespace deepinfer {
namespace {

/// Takes one connection on a port of this machine, reads a little, sends its text, and goes on sending or hangs up.
class FakeServer {
 public:
  FakeServer(std::string text, bool hangs_up, bool goes_on = false)
      : text_(std::move(text)), hangs_up_(hangs_up), goes_on_(goes_on), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeServer() {
    thread_.join();
    close(listener_);
  }
  RedisUrl url() const { return *RedisUrl::Parse("redis://127.0.0.1:" + std::to_string(port_)); }

 private:
  void Serve() {
    const int connection = accept(listener_, nullptr, nullptr);
    std::array<char, 1024> buffer;
    if (recv(connection, buffer.data(), buffer.size(), 0) > 0) {
      send(connection, text_.data(), text_.size(), MSG_NOSIGNAL);
      // One byte at a time, as long as the other side listens.
      pollfd entry = {connection, POLLIN, 0};
      while (goes_on_ && poll(&entry, 1, 1) >= 0 && (entry.revents & (POLLHUP | POLLERR)) == 0 &&
             send(connection, "x", 1, MSG_NOSIGNAL) == 1) {
      }
      while (!hangs_up_ && recv(connection, buffer.data(), buffer.size(), 0) > 0) {
      }
    }
    close(connection);
  }

  const std::string text_;
  const bool hangs_up_;
  const bool goes_on_;
  const int listener_;
  int port_ = 0;
  std::thread thread_;
};

Status Ask(const FakeServer& server, double command_seconds = 60) {
  RedisConnection connection(server.url(),
                             {.connect_seconds = 20, .command_seconds = command_seconds, .reply_bytes = 1000});
  const Status open = connection.Open();
  EXPECT_TRUE(open.ok()) << open.message();
  const Status status = connection.Call({"PING"}).status();
  EXPECT_TRUE(status.ok() || status.message().starts_with(server.url().address())) << status.message();
  return status;
}

TEST(RedisConnection, TalksTcp) { EXPECT_TRUE(Ask(FakeServer("+PONG\r\n", false)).ok()); }

TEST(RedisConnection, WhatIsNoRedisIsAStatusAndTheConnectionCloses) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"HTTP/1.1 400 Bad Request\r\n\r\n", "no reply of Redis"},
      {"*100000000\r\n", "no reply of Redis"},
      {"*65537\r\n", "no reply of Redis"},
      {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "no reply of Redis"},
      {"$99999999999999999999\r\n", "no reply of Redis"},
      {"+PONG\r\n+PONG\r\n", "more replies than commands"},
      {"$900000000\r\n" + std::string(2000, 'x'), "a reply of more than 1000 bytes"},
      {"+" + std::string(2000, 'x'), "a reply of more than 1000 bytes"},
      {"-LOADING Redis is loading the dataset in memory\r\n", "is loading its data"},
  };
  for (const auto& [text, message] : cases) {
    const Status status = Ask(FakeServer(text, false));
    EXPECT_EQ(status.code(), StatusCode::kIo) << text.substr(0, 40);
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  }
  for (const std::string text : {"", "+PON", "$4\r\nPO", "*2\r\n+a\r\n"}) {
    const Status status = Ask(FakeServer(text, true));
    EXPECT_EQ(status.code(), StatusCode::kIo) << text;
  }
}

TEST(RedisConnection, AServerThatDripsMeetsTheDeadline) {
  const Status status = Ask(FakeServer("$900\r\n", false, true), /*command_seconds=*/0.05);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  // 900 bytes of 1 ms each are too slow; should they come at once, they are no whole reply.
  EXPECT_TRUE(status.message().find("no answer within") != std::string::npos ||
              status.message().find("more than") != std::string::npos)
      << status.message();
}

TEST(RedisConnection, SendingToOneThatHungUpIsNoSignal) {
  FakeServer server("", true);
  RedisConnection connection(server.url(), {.connect_seconds = 20, .command_seconds = 60});
  ASSERT_TRUE(connection.Open().ok());
  const std::string value(size_t{32} << 20, 'x');
  connection.Add(std::array<std::string_view, 3>{"SET", "key", value});
  EXPECT_GT(connection.waiting_bytes(), 32 << 20);
  EXPECT_EQ(connection.Exchange().status().code(), StatusCode::kIo);
  EXPECT_FALSE(connection.is_open());
  EXPECT_EQ(connection.waiting_bytes(), 0);
}

TEST(RedisConnection, NobodyListens) {
  RedisUrl url;
  {
    FakeServer server("+PONG\r\n", true);
    url = server.url();
    EXPECT_TRUE(Ask(server).ok());
  }
  RedisConnection connection(url, {});
  const Status status = connection.Open();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_NE(status.message().find("is Redis running there?"), std::string::npos) << status.message();
}

TEST(RedisError, NamesTheRemedy) {
  const std::vector<std::tuple<std::string, StatusCode, std::string>> cases = {
      {"OOM command not allowed when used memory > 'maxmemory'.", StatusCode::kResourceExhausted, "allkeys-lru"},
      {"NOAUTH Authentication required.", StatusCode::kInvalidArgument, "redis://:password@host"},
      {"WRONGPASS invalid username-password pair or user is disabled.", StatusCode::kInvalidArgument, "password"},
      {"NOPERM this user has no permissions", StatusCode::kInvalidArgument, "docs/kv-tiers.md"},
      {"LOADING Redis is loading the dataset in memory", StatusCode::kIo, "asked again"},
      {"READONLY You can't write against a read only replica.", StatusCode::kIo, "primary"},
      {"MISCONF Redis is configured to save RDB snapshots", StatusCode::kIo, "snapshot"},
      {"MOVED 3999 127.0.0.1:6381", StatusCode::kUnsupported, "cluster"},
      {"ERR max number of clients reached", StatusCode::kIo, "maxclients"},
      {"ERR syntax error", StatusCode::kIo, "Redis 7 is needed and says: ERR syntax error"},
  };
  for (const auto& [error, code, remedy] : cases) {
    const Status status = RedisError("redis://cache:6379", error, false);
    EXPECT_EQ(status.code(), code) << error;
    EXPECT_TRUE(status.message().starts_with("redis://cache:6379: ")) << status.message();
    EXPECT_NE(status.message().find(remedy), std::string::npos) << status.message();
  }
  const Status secret = RedisError("a", "ERR unknown command 'AUTH', with args beginning with: 'hunter2'", true);
  EXPECT_EQ(secret.message().find("hunter2"), std::string::npos) << secret.message();
  EXPECT_EQ(RedisError("a", "ERR\nline", false).message().find('\n'), std::string::npos);
}

TEST(RedisReplyReader, ChunksDoNotMatter) {
  const std::string bytes =
      "+OK\r\n:42\r\n$5\r\na\r\nbc\r\n$-1\r\n*2\r\n$1\r\n0\r\n*1\r\n$3\r\nkey\r\n-ERR no\r\n$0\r\n\r\n";
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    RedisReplyReader reader(100);
    std::vector<RedisReply> replies;
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t count = std::min<size_t>(bytes.size() - begin, 1 + random() % (round + 1));
      reader.Feed({bytes.data() + begin, count});
      begin += count;
      for (Result<RedisReply> reply = reader.Next(); *reply != nullptr; reply = reader.Next()) {
        replies.push_back(std::move(*reply));
      }
    }
    ASSERT_EQ(replies.size(), 7u);
    EXPECT_EQ(replies[1]->integer, 42);
    EXPECT_EQ(std::string(replies[2]->str, replies[2]->len), "a\r\nbc");
    EXPECT_EQ(replies[3]->type, REDIS_REPLY_NIL);
    EXPECT_EQ(std::string(replies[4]->element[1]->element[0]->str), "key");
    EXPECT_EQ(replies[5]->type, REDIS_REPLY_ERROR);
    EXPECT_EQ(replies[6]->len, 0u);
  }
}

}  // namespace
}  // namespace deepinfer
