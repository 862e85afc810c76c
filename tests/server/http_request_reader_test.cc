#include "server/http_request_reader.h"

#include <gtest/gtest.h>

#include <random>

namespace deepinfer {
namespace {

using State = HttpRequestReader::State;

TEST(HttpRequestReader, ReadsRequestsWhateverTheChunks) {
  const std::string bytes =
      "\r\nPOST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: a\r\nX-Api-Key: k\r\nContent-Length: 5\r\n\r\nhello"
      "GET /metrics HTTP/1.0\r\n\r\n"
      "POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nTrailer: "
      "t\r\n\r\n"
      "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    HttpRequestReader reader({});
    std::vector<HttpRequest> requests;
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = round == 0 ? 1 : std::min<size_t>(bytes.size() - at, 1 + random() % 40);
      State state = reader.Feed(std::string_view(bytes).substr(at, count));
      at += count;
      for (; state == State::kComplete; state = reader.Feed("")) requests.push_back(reader.Take());
      ASSERT_EQ(state, State::kNeedMore);
    }
    ASSERT_EQ(requests.size(), 4u);
    EXPECT_EQ(requests[0].method, "POST");
    EXPECT_EQ(requests[0].path, "/v1/chat/completions");
    EXPECT_EQ(requests[0].query, "x=1");
    EXPECT_EQ(requests[0].Header("x-API-key"), "k");
    EXPECT_EQ(requests[0].body, "hello");
    EXPECT_TRUE(requests[0].keep_alive);
    EXPECT_EQ(requests[1].path, "/metrics");
    EXPECT_FALSE(requests[1].keep_alive);
    EXPECT_FALSE(requests[1].chunked_responses);
    EXPECT_EQ(requests[2].body, "abcde");
    EXPECT_FALSE(requests[3].keep_alive);
    EXPECT_FALSE(reader.started());
  }
}

int StatusOf(const std::string& bytes, const HttpLimits& limits = {}) {
  HttpRequestReader reader(limits);
  EXPECT_EQ(reader.Feed(bytes), State::kFailed) << bytes.substr(0, 80);
  EXPECT_FALSE(reader.error().empty());
  // It stays so.
  EXPECT_EQ(reader.Feed("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), State::kFailed);
  return reader.error_status();
}

TEST(HttpRequestReader, RefusesWhatIsNoRequest) {
  EXPECT_EQ(StatusOf("hello there\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("\x16\x03\x01\x02 a TLS hello\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/3.0\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), 400);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  // One Host, though HTTP/1.0 knows none.
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET http://a/ HTTP/1.1\r\nX: y\r\n\r\n"), 400);
  // A body whose end could be read in two ways.
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"), 501);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 501);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \r\n\r\n"), 501);
  EXPECT_EQ(StatusOf("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  // The header comes first, also when the body is there and wrong as well.
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
            501);
}

TEST(HttpRequestReader, TakesTheTargetOfAProxysClient) {
  const auto target_of = [](const std::string& target) {
    HttpRequestReader reader({});
    EXPECT_EQ(reader.Feed("GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n"), State::kComplete) << target;
    const HttpRequest request = reader.Take();
    return request.path + " " + request.query;
  };
  EXPECT_EQ(target_of("http://a/health"), "/health ");
  EXPECT_EQ(target_of("HTTPS://a:8000/v1/models?x=/y"), "/v1/models x=/y");
  EXPECT_EQ(target_of("http://a"), "/ ");
  EXPECT_EQ(target_of("http://a?x=1"), "/ x=1");
  EXPECT_EQ(target_of("ftp://a/health"), "ftp://a/health ");
  EXPECT_EQ(target_of("/http://a/health"), "/http://a/health ");
  EXPECT_EQ(target_of("*"), "* ");
}

TEST(HttpRequestReader, RefusesWhatIsTooLarge) {
  const HttpLimits limits{.max_header_bytes = 200, .max_body_bytes = 100};
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(300, 'a') + "\r\n\r\n", limits), 431);
  EXPECT_EQ(StatusOf("GET /" + std::string(300, 'a'), limits), 431);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n", limits), 413);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                     "65\r\n" +
                         std::string(101, 'a') + "\r\n",
                     limits),
            413);
}

TEST(HttpRequestReader, TrailersAndChunkExtensionsAreBoundedAndSayNothing) {
  const HttpLimits limits{.max_header_bytes = 200, .max_body_bytes = 100};
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(StatusOf(head + "1;" + std::string(300, 'x'), limits), 431);
  EXPECT_EQ(StatusOf(head + "0\r\nX: " + std::string(300, 'x'), limits), 431);
  EXPECT_EQ(StatusOf(head + "0\r\nX: " + std::string(70'000, 'x') + "\r\n\r\n"), 431);
  HttpRequestReader endless(limits);
  ASSERT_EQ(endless.Feed(head + "1\r\na\r\n0\r\n"), State::kNeedMore);
  int lines = 0;
  while (endless.Feed("A: b\r\n") == State::kNeedMore && lines < 100) ++lines;
  EXPECT_EQ(endless.error_status(), 431);

  HttpRequestReader reader(limits);
  ASSERT_EQ(reader.Feed(head + "1\r\na\r\n0\r\nX-Api-Key: k\r\nConnection: close\r\n\r\n"), State::kComplete);
  const HttpRequest request = reader.Take();
  EXPECT_EQ(request.body, "a");
  EXPECT_TRUE(request.keep_alive);
  EXPECT_FALSE(request.Header("X-Api-Key").has_value());
}

TEST(HttpRequestReader, SaysOnceThatTheClientWaits) {
  HttpRequestReader reader({});
  EXPECT_EQ(reader.Feed("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"),
            State::kNeedMore);
  EXPECT_TRUE(reader.header_complete());
  EXPECT_TRUE(reader.TakeExpectContinue());
  EXPECT_FALSE(reader.TakeExpectContinue());
  EXPECT_EQ(reader.Feed("ab"), State::kComplete);
  EXPECT_EQ(reader.Take().body, "ab");
}

}  // namespace
}  // namespace deepinfer
