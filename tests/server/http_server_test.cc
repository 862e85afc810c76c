// The transport alone: what a handler never sees.
#include "server/http_server.h"

#include <gtest/gtest.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <thread>

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <filesystem>

#include "http_client.h"
#include "server/random_id.h"

namespace deepinfer {
namespace {

namespace asio = boost::asio;
using testing::ClientResponse;
using testing::HttpClient;

HttpResponse ErrorPage(int status, const std::string& reason) {
  HttpResponse response;
  response.status = status;
  response.body = reason;
  return response;
}

std::atomic<int> waiting_handlers{0};

// Says back the method, the path and the body; /stream in pieces, /wait when it is poked, /throw not at all.
asio::awaitable<void> Echo(HttpConnection& connection, HttpRequest request) {
  if (request.path == "/throw") throw std::runtime_error("on purpose");
  if (request.path == "/stream") {
    const HttpResponse head;
    co_await connection.StartBody(head);
    for (const char* piece : {"one ", "", "two ", "three"}) co_await connection.WriteBody(piece);
    co_await connection.EndBody();
    co_return;
  }
  HttpResponse response;
  response.content_type = "text/plain";
  if (request.path == "/wait") {
    (void)connection.waker();
    ++waiting_handlers;
    const HttpConnection::Wake wake = co_await connection.Wait(std::chrono::seconds(20));
    response.body = wake == HttpConnection::Wake::kNews ? "news" : "other";
  } else {
    response.body = request.method + " " + request.path + " " + request.body;
  }
  co_await connection.Send(response);
}

class HttpServerTest : public ::testing::Test {
 protected:
  void StartServer(HttpServerOptions options = {}) {
    options.port = 0;
    Result<std::unique_ptr<HttpServer>> started = HttpServer::Start(options, &Echo, &ErrorPage);
    ASSERT_TRUE(started.ok()) << started.status().message();
    server_ = std::move(*started);
  }
  int port() const { return server_->port(); }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, KeepsTheConnectionForTheNextRequest) {
  StartServer();
  HttpClient client(port());
  EXPECT_EQ(client.Get("/a").body, "GET /a ");
  EXPECT_EQ(client.Post("/b", "body").body, "POST /b body");
  EXPECT_EQ(client.Get("/stream").body, "one two three");
  const ClientResponse last = client.Get("/c", "Connection: close\r\n");
  EXPECT_EQ(last.body, "GET /c ");
  EXPECT_EQ(last.headers.at("connection"), "close");
  EXPECT_EQ(client.Receive().status, 0);
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  StartServer();
  HttpClient client(port());
  std::string bytes;
  for (int i = 0; i < 50; ++i) bytes += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\n\r\n";
  client.Send(bytes);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(client.Receive().body, "GET /" + std::to_string(i) + " ");
}

TEST_F(HttpServerTest, SpeaksHttp10) {
  StartServer();
  HttpClient client(port());
  client.Send("GET /stream HTTP/1.0\r\n\r\n");
  const ClientResponse response = client.Receive();
  EXPECT_EQ(response.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(response.body, "one two three");
}

TEST_F(HttpServerTest, LeavesOutTheBodyOfHead) {
  StartServer();
  HttpClient client(port());
  client.Send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.Receive(true).headers.at("content-length"), "8");
  EXPECT_EQ(client.Get("/b").body, "GET /b ");
}

TEST_F(HttpServerTest, TellsAClientThatWaitsToGoOn) {
  StartServer();
  HttpClient client(port());
  client.Send("POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  ASSERT_TRUE(client.ReceiveUntil("100 Continue\r\n\r\n"));
  EXPECT_EQ(client.Receive(true).status, 100);
  client.Send("body");
  EXPECT_EQ(client.Receive().body, "POST /a body");
}

TEST_F(HttpServerTest, ExplainsWhatItCannotReadAndCloses) {
  HttpServerOptions options;
  options.limits = {.max_header_bytes = 1000, .max_body_bytes = 1000};
  StartServer(options);
  const auto status_of = [&](const std::string& bytes) {
    HttpClient client(port());
    client.Send(bytes);
    const ClientResponse response = client.Receive();
    EXPECT_FALSE(response.body.empty());
    EXPECT_EQ(response.headers.at("connection"), "close");
    EXPECT_EQ(client.Receive().status, 0);
    return response.status;
  };
  EXPECT_EQ(status_of("nonsense\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(2000, 'a') + "\r\n\r\n"), 431);
  // The client sends all of it before it reads, so closing early would lose the response.
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n" + std::string(3'000'000, 'a')),
            413);
}

TEST_F(HttpServerTest, GivesUpOnRequestsThatDrip) {
  HttpServerOptions options;
  options.timeouts.request = std::chrono::milliseconds(100);
  StartServer(options);
  HttpClient client(port());
  client.Send("GET / HTTP/1.1\r\nHost: a\r\nX: ");
  EXPECT_EQ(client.Receive().status, 408);
}

TEST_F(HttpServerTest, EndsIdleConnections) {
  HttpServerOptions options;
  options.timeouts.idle = std::chrono::milliseconds(100);
  StartServer(options);
  HttpClient client(port());
  EXPECT_EQ(client.Get("/a").status, 200);
  EXPECT_EQ(client.Receive().status, 0);
}

TEST_F(HttpServerTest, AHandlerThatThrowsHurtsItsConnectionOnly) {
  StartServer();
  HttpClient other(port());
  EXPECT_EQ(other.Get("/a").status, 200);
  EXPECT_EQ(testing::Get(port(), "/throw").status, 0);
  EXPECT_EQ(other.Get("/b").status, 200);
}

TEST_F(HttpServerTest, ClosesConnectionsBeyondTheLimit) {
  HttpServerOptions options;
  options.max_connections = 2;
  StartServer(options);
  HttpClient first(port());
  HttpClient second(port());
  EXPECT_EQ(first.Get("/a").status, 200);
  EXPECT_EQ(second.Get("/a").status, 200);
  EXPECT_EQ(testing::Get(port(), "/a").status, 0);
  EXPECT_EQ(first.Get("/b").status, 200);
}

TEST_F(HttpServerTest, StopsWhenAnswersAreDone) {
  StartServer();
  HttpClient idle(port());
  EXPECT_EQ(idle.Get("/a").status, 200);
  HttpClient busy(port());
  busy.Send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
  while (waiting_handlers == 0) std::this_thread::yield();
  server_->StopAccepting();
  EXPECT_EQ(idle.Receive().status, 0);
  EXPECT_EQ(testing::Get(port(), "/a").status, 0);
  EXPECT_FALSE(server_->WaitUntilIdle(std::chrono::milliseconds(0)));
  server_->PokeAll();
  const ClientResponse response = busy.Receive();
  EXPECT_EQ(response.body, "news");
  EXPECT_EQ(response.headers.at("connection"), "close");
  busy.Close();
  EXPECT_TRUE(server_->WaitUntilIdle(std::chrono::seconds(20)));
}

TEST_F(HttpServerTest, ListensOnAUnixSocket) {
  const std::string path = std::filesystem::temp_directory_path() / RandomId("deepinfer-");
  HttpServerOptions options;
  options.unix_socket = path;
  StartServer(options);
  EXPECT_EQ(server_->address(), "unix:" + path);
  const int client = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const std::string request = "GET /a HTTP/1.0\r\n\r\n";
  ASSERT_EQ(send(client, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  std::string response(1000, '\0');
  response.resize(static_cast<size_t>(recv(client, response.data(), response.size(), MSG_WAITALL)));
  close(client);
  EXPECT_TRUE(response.ends_with("GET /a ")) << response;
  // A second server must not take the socket of one that lives.
  EXPECT_FALSE(HttpServer::Start(options, &Echo, &ErrorPage).ok());
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(HttpServerTest, NamesTheFlagThatIsWrong) {
  const auto message_of = [](const HttpServerOptions& options) {
    const auto started = HttpServer::Start(options, &Echo, &ErrorPage);
    return started.ok() ? std::string("started") : started.status().message();
  };
  StartServer();
  HttpServerOptions taken;
  taken.port = port();
  EXPECT_NE(message_of(taken).find("--port"), std::string::npos);
  HttpServerOptions host;
  host.host = "no.such.host.invalid";
  EXPECT_NE(message_of(host).find("--host"), std::string::npos);
  HttpServerOptions half;
  half.ssl_certfile = "cert.pem";
  EXPECT_NE(message_of(half).find("--ssl-keyfile"), std::string::npos);
  HttpServerOptions missing;
  missing.port = 0;
  missing.ssl_certfile = missing.ssl_keyfile = "/no/such/file.pem";
  EXPECT_NE(message_of(missing).find("--ssl-certfile: /no/such/file.pem"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer
