#include "server/http_connection.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <ctime>
#include <mutex>

namespace deepinfer {
namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// Bytes that a client may send ahead while its request is being answered; it is not read further.
constexpr size_t kMaxAhead = size_t{64} << 10;
// What a client may still send on a connection that ends.
constexpr size_t kMaxDropped = size_t{64} << 20;
constexpr milliseconds kLinger{2000};

}  // namespace

// Outlives the connection and even the server: the engine may hold a copy for as long as it likes.
struct HttpConnection::Waker {
  std::atomic<bool> called{false};
  std::mutex mutex;
  HttpConnection* connection = nullptr;  // under the mutex; null once it is gone
};

HttpConnection::HttpConnection(std::unique_ptr<ByteStream> stream, const HttpLimits& limits,
                               const HttpTimeouts& timeouts)
    : stream_(std::move(stream)),
      reader_(limits),
      timeouts_(timeouts),
      signal_(stream_->executor()),
      deadline_(stream_->executor()) {}

HttpConnection::~HttpConnection() {
  if (waker_ == nullptr) return;
  const std::lock_guard lock(waker_->mutex);
  waker_->connection = nullptr;
}

asio::awaitable<bool> HttpConnection::Open() {
  deadline_.expires_after(timeouts_.request);
  deadline_.async_wait([self = weak_from_this()](error_code error) {
    if (const auto connection = self.lock(); connection != nullptr && !error) connection->Close();
  });
  const error_code error = co_await stream_->Open();
  deadline_.cancel();
  co_return !error;
}

std::function<void()> HttpConnection::waker() {
  if (waker_ == nullptr) {
    waker_ = std::make_shared<Waker>();
    waker_->connection = this;
  }
  return [waker = waker_] {
    if (waker->called.exchange(true)) return;
    const std::lock_guard lock(waker->mutex);
    if (waker->connection == nullptr) return;
    asio::post(waker->connection->executor(), [waker] {
      const std::lock_guard same(waker->mutex);
      if (waker->connection != nullptr) waker->connection->signal_.cancel();
    });
  };
}

void HttpConnection::StartReading() {
  if (reading_ || ended_ || incoming_.size() > kMaxAhead) return;
  reading_ = true;
  asio::co_spawn(
      stream_->executor(), [self = shared_from_this()] { return self->ReadOnce(); }, asio::detached);
}

asio::awaitable<void> HttpConnection::ReadOnce() {
  const error_code error = co_await stream_->Read(&incoming_);
  reading_ = false;
  if (error) ended_ = true;
  signal_.cancel();
}

asio::awaitable<bool> HttpConnection::ReadRequest(HttpRequest* request, HttpResponse* error) {
  error->status = 0;
  waiting_for_request_ = true;
  auto deadline = steady_clock::now() + timeouts_.idle;
  for (;;) {
    const bool had_started = reader_.started();
    const bool had_header = reader_.header_complete();
    const bool progress = !incoming_.empty();
    const HttpRequestReader::State state = reader_.Feed(incoming_);
    // Not clear(): an idle connection keeps no buffer.
    if (progress) incoming_ = std::string();
    if (state == HttpRequestReader::State::kComplete) break;
    if (state == HttpRequestReader::State::kFailed) {
      error->status = reader_.error_status();
      error->body = reader_.error();
      keep_alive_ = false;
      co_return false;
    }
    if (ended_ || (close_soon_ && !reader_.started())) co_return false;
    if (reader_.TakeExpectContinue()) {
      const bool sent = co_await WriteAll("HTTP/1.1 100 Continue\r\n\r\n");
      if (!sent) co_return false;
    }
    // A header must be complete in time however slowly it drips; a body need only make progress.
    const bool started_now = !had_started && reader_.started();
    if (started_now || (progress && (had_header || reader_.header_complete()))) {
      deadline = steady_clock::now() + timeouts_.request;
    }
    StartReading();
    signal_.expires_at(deadline);
    co_await signal_.async_wait(asio::as_tuple(asio::use_awaitable));
    if (incoming_.empty() && !ended_ && steady_clock::now() >= deadline) {
      if (reader_.started()) {
        error->status = 408;
        error->body = "the request did not arrive in time";
        keep_alive_ = false;
      }
      co_return false;
    }
  }
  *request = reader_.Take();
  waiting_for_request_ = false;
  keep_alive_ = request->keep_alive;
  chunked_ = request->chunked_responses;
  head_only_ = request->method == "HEAD";
  body_started_ = false;
  co_return true;
}

std::string HttpConnection::Head(const HttpResponse& response, bool whole) {
  if (close_soon_ || ended_) keep_alive_ = false;
  if (!whole && !chunked_) keep_alive_ = false;
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\n", response.status,
                                 ReasonPhrase(response.status), fmt::gmtime(std::time(nullptr)));
  if (!response.content_type.empty()) head += "Content-Type: " + response.content_type + "\r\n";
  if (whole) {
    if (response.status != 204) head += fmt::format("Content-Length: {}\r\n", response.body.size());
  } else if (chunked_) {
    head += "Transfer-Encoding: chunked\r\n";
  }
  if (!keep_alive_) {
    head += "Connection: close\r\n";
  } else if (!chunked_) {
    head += "Connection: keep-alive\r\n";
  }
  for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
  head += "\r\n";
  return head;
}

asio::awaitable<bool> HttpConnection::Send(const HttpResponse& response) {
  std::string bytes = Head(response, true);
  if (!head_only_) bytes += response.body;
  co_return co_await WriteAll(bytes);
}

asio::awaitable<bool> HttpConnection::StartBody(const HttpResponse& head) {
  body_started_ = true;
  const std::string bytes = Head(head, false);
  co_return co_await WriteAll(bytes);
}

asio::awaitable<bool> HttpConnection::WriteBody(std::string_view piece) {
  // An empty chunk would end the body.
  if (piece.empty()) co_return true;
  std::string chunk;
  if (chunked_) {
    chunk = fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
    piece = chunk;
  }
  co_return co_await WriteAll(piece);
}

asio::awaitable<bool> HttpConnection::EndBody() {
  if (!chunked_) co_return !broken_;
  co_return co_await WriteAll("0\r\n\r\n");
}

asio::awaitable<bool> HttpConnection::WriteAll(std::string_view bytes) {
  if (broken_) co_return false;
  bytes.remove_prefix(stream_->TryWrite(bytes));
  if (bytes.empty()) co_return true;
  deadline_.expires_after(timeouts_.write);
  deadline_.async_wait([self = weak_from_this()](error_code error) {
    const auto connection = self.lock();
    if (connection == nullptr || error) return;
    connection->dropped_as_slow_ = true;
    connection->Close();
  });
  const error_code error = co_await stream_->Write(bytes);
  deadline_.cancel();
  if (error) {
    broken_ = true;
    ended_ = true;
  }
  co_return !error;
}

asio::awaitable<HttpConnection::Wake> HttpConnection::Wait(milliseconds longest) {
  const auto deadline = steady_clock::now() + longest;
  for (;;) {
    if (waker_ != nullptr && waker_->called.exchange(false)) co_return Wake::kNews;
    if (ended_) co_return Wake::kGone;
    if (steady_clock::now() >= deadline) co_return Wake::kTimeout;
    StartReading();
    signal_.expires_at(deadline);
    co_await signal_.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

void HttpConnection::CloseSoon() {
  close_soon_ = true;
  if (waiting_for_request_) signal_.cancel();
}

void HttpConnection::Poke() {
  if (waker_ != nullptr) waker_->called = true;
  signal_.cancel();
}

asio::awaitable<void> HttpConnection::Finish() {
  stream_->Shutdown();
  // Closing with unread bytes would reset the connection, and the client would lose the response.
  const auto deadline = steady_clock::now() + kLinger;
  for (size_t dropped = 0; !ended_ && dropped < kMaxDropped && steady_clock::now() < deadline;) {
    dropped += incoming_.size();
    incoming_.clear();
    StartReading();
    signal_.expires_at(deadline);
    co_await signal_.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  Close();
}

void HttpConnection::Close() {
  ended_ = true;
  broken_ = true;
  stream_->Close();
  signal_.cancel();
}

bool HttpConnection::reusable() const { return keep_alive_ && !ended_ && !broken_ && !close_soon_; }

}  // namespace deepinfer
