// HttpConnection: requests in, responses out, over one ByteStream, with deadlines and a way to wait for news.
//
// While a response is being made the connection keeps reading, so that a client that leaves is noticed at once; what
// arrives early belongs to the next request. A client that does not take its bytes in time is dropped.
// Thread-safety: the loop of the stream only, but waker() may be called from any thread. Ownership: shared, since a
// pending read and wakers keep it alive; handlers use it within their coroutine.
#ifndef DEEPINFER_SERVER_HTTP_CONNECTION_H_
#define DEEPINFER_SERVER_HTTP_CONNECTION_H_

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/byte_stream.h"
#include "server/http_message.h"
#include "server/http_request_reader.h"

namespace deepinfer {

struct HttpTimeouts {
  std::chrono::milliseconds idle{75'000};  ///< between two requests of a connection
  std::chrono::milliseconds request{
      60'000};                              ///< from the first byte of a request to its header, then between body bytes
  std::chrono::milliseconds write{30'000};  ///< for the client to take what was written
};

// For callers: GCC 12 miscompiles `if (!co_await f())` and destroys braced temporaries of a co_await expression twice.
// Results of co_await go into named variables, and arguments are named variables.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::unique_ptr<ByteStream> stream, const HttpLimits& limits, const HttpTimeouts& timeouts);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  const std::string& peer() const { return stream_->peer(); }

  /// The TLS handshake; false: failed.
  boost::asio::awaitable<bool> Open();

  /// Waits for a request. False: there will be none; `error` then has what to answer before closing (status 0:
  /// nothing).
  boost::asio::awaitable<bool> ReadRequest(HttpRequest* request, HttpResponse* error);

  /// Sends a whole response. False: the client is gone.
  boost::asio::awaitable<bool> Send(const HttpResponse& response);

  /// Sends the head of a response whose body follows in pieces.
  boost::asio::awaitable<bool> StartBody(const HttpResponse& head);
  boost::asio::awaitable<bool> WriteBody(std::string_view piece);
  boost::asio::awaitable<bool> EndBody();
  bool body_started() const { return body_started_; }

  enum class Wake : uint8_t { kNews, kTimeout, kGone };
  /// Waits until the waker is called (also if it was since the last Wait), the client leaves, or time is up.
  boost::asio::awaitable<Wake> Wait(std::chrono::milliseconds longest);
  /// Ends a Wait with kNews; cheap, never blocks, callable from any thread, also after the connection and the
  /// server have ended.
  std::function<void()> waker();

  /// No further request is read: responses say Connection: close, and a connection between two requests ends at once.
  void CloseSoon();
  /// Ends a Wait with kNews, as the waker does.
  void Poke();
  /// Ends the connection so that the client can read the last response: what it still sends is read and dropped.
  boost::asio::awaitable<void> Finish();
  /// Ends everything at once.
  void Close();

  /// The next request may come on this connection.
  bool reusable() const;
  /// The client was dropped because it did not take its bytes.
  bool dropped_as_slow() const { return dropped_as_slow_; }
  boost::asio::any_io_executor executor() { return stream_->executor(); }

 private:
  struct Waker;

  void StartReading();
  boost::asio::awaitable<void> ReadOnce();
  boost::asio::awaitable<bool> WriteAll(std::string_view bytes);
  std::string Head(const HttpResponse& response, bool whole);

  std::unique_ptr<ByteStream> stream_;
  HttpRequestReader reader_;
  HttpTimeouts timeouts_;
  boost::asio::steady_timer signal_;    // never fires by itself within a Wait: cancelled when something happens
  boost::asio::steady_timer deadline_;  // of a write
  std::shared_ptr<Waker> waker_;
  std::string incoming_;  // read and not yet given to the reader
  bool reading_ = false;
  bool ended_ = false;  // the client sends nothing more, or the connection failed
  bool waiting_for_request_ = false;
  bool keep_alive_ = true;  // of the current request
  bool chunked_ = true;     // the client of the current request understands chunks
  bool body_started_ = false;
  bool head_only_ = false;  // the current request is a HEAD
  bool close_soon_ = false;
  bool broken_ = false;  // a response was cut off
  bool dropped_as_slow_ = false;
};

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_HTTP_CONNECTION_H_
