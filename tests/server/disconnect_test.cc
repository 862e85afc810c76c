// Promise 4, seen from the network: clients that leave at any moment cost nobody anything, and nothing of them stays.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "http_client.h"
#include "test_server.h"

namespace deepinfer {
namespace {

using testing::ClientResponse;
using testing::FakeAnswer;
using testing::HttpClient;
using testing::TestServer;

constexpr int64_t kDisconnects = 1000;
// Behind these words an answer waits for ever.
constexpr std::string_view kHeld = "held";
constexpr std::string_view kHeldLater = "held later";

std::string Body(std::string_view content, bool stream) {
  return nlohmann::json({{"model", "nano"},
                         {"stream", stream},
                         {"max_tokens", 3000},
                         {"thinking", {{"type", "disabled"}}},
                         {"messages", {{{"role", "user"}, {"content", content}}}}})
      .dump();
}

std::string Bytes(const std::string& body) {
  return "POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

// Long answers, some of which are held: `engine` is set before the first request.
testing::FakeEngine::Script LongAnswers(const testing::FakeEngine* const* engine) {
  return [engine](const GenerationRequest& request) {
    const std::string prompt = (*engine)->Detokenize(request.prompt);
    FakeAnswer answer;
    std::string text;
    for (int i = 0; i < 400; ++i) text += "one of many words ";
    answer.ids = (*engine)->IdsOf(text);
    answer.hold = prompt.find(kHeld) != std::string::npos;
    answer.hold_after = prompt.find(kHeldLater) != std::string::npos ? 5 : 0;
    return answer;
  };
}

class DisconnectTest : public ::testing::Test {
 protected:
  DisconnectTest() : server_(LongAnswers(&engine_), options_) { engine_ = &server_.engine; }

  void ExpectNothingLeft() {
    EXPECT_TRUE(server_.http->WaitUntilIdle(std::chrono::seconds(60)));
    server_.engine.WaitIdle();
    EXPECT_EQ(server_.engine.running(), 0);
    EXPECT_EQ(server_.metrics.open_streams.value(), 0);
    EXPECT_EQ(server_.metrics.open_connections.value(), 0);
    // The server still serves.
    const ClientResponse after =
        testing::Post(server_.port(), "/v1/chat/completions", nlohmann::json::parse(Body("afterwards", false)));
    EXPECT_EQ(after.status, 200);
  }

  const testing::FakeEngine* engine_ = nullptr;
  const testing::TestServerOptions options_;
  TestServer server_;
};

TEST_F(DisconnectTest, AThousandAtRandomMomentsLeaveNothingBehind) {
  std::mt19937 random(7);
  const auto below = [&](size_t limit) { return limit > 0 ? random() % limit : 0; };
  std::vector<std::unique_ptr<HttpClient>> open;
  for (int64_t i = 0; i < kDisconnects; ++i) {
    auto client = std::make_unique<HttpClient>(server_.port());
    const std::string_view contents[] = {"plain", kHeld, kHeldLater};
    const std::string_view content = contents[below(3)];
    const bool stream = below(2) == 0;
    const std::string bytes = Bytes(Body(content, stream));
    switch (below(4)) {
      case 0:  // within the request: its header, its body, or before the first byte
        client->Send(std::string_view(bytes).substr(0, below(bytes.size())));
        break;
      case 1:  // at once, while it waits, or whenever others have gone on meanwhile
        client->Send(bytes);
        break;
      case 2:  // within the stream
        client->Send(Bytes(Body(kHeldLater, true)));
        ASSERT_TRUE(client->ReceiveUntil("data: "));
        break;
      default:  // with a second request on the way
        client->Send(bytes + bytes.substr(0, below(bytes.size())));
        break;
    }
    open.push_back(std::move(client));
    // Some stay for a while, so that many are connected at once.
    while (open.size() > below(100)) {
      std::unique_ptr<HttpClient>& leaving = open[below(open.size())];
      if (below(2) == 0) leaving->Reset();
      std::swap(leaving, open.back());
      open.pop_back();
    }
  }
  open.clear();
  ExpectNothingLeft();
  EXPECT_GT(server_.engine.requests().size(), static_cast<size_t>(kDisconnects / 2));
  EXPECT_GT(server_.engine.cancelled(), kDisconnects / 4);
}

TEST_F(DisconnectTest, AClientThatLeavesEndsItsRequestAndNoOther) {
  HttpClient stays(server_.port());
  stays.Send(Bytes(Body(kHeldLater, true)));
  ASSERT_TRUE(stays.ReceiveUntil("data: "));
  {
    HttpClient leaves(server_.port());
    leaves.Send(Bytes(Body(kHeldLater, true)));
    ASSERT_TRUE(leaves.ReceiveUntil("data: "));
    EXPECT_EQ(server_.engine.running(), 2);
  }
  while (server_.engine.running() > 1) std::this_thread::yield();
  EXPECT_EQ(server_.engine.cancelled(), 1);
  server_.engine.Release();
  ASSERT_TRUE(stays.ReceiveUntil("data: [DONE]"));
  stays.Close();
  ExpectNothingLeft();
}

}  // namespace
}  // namespace deepinfer
