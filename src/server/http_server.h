// HttpServer: accepts connections (TCP, TLS, unix socket) and runs a handler for each request, as coroutines on a few
// threads.
//
// Each thread has an event loop of its own, on which a connection stays: threads that share one spend more time on its
// locks than on a token. It knows HTTP and nothing of what is served. Thread-safety: the handler runs on the
// connection's loop, many connections at once; the members of HttpServer are for one thread, the owner's. Ownership:
// what the handler refers to must outlive the server.
#ifndef DEEPINFER_SERVER_HTTP_SERVER_H_
#define DEEPINFER_SERVER_HTTP_SERVER_H_

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "deepinfer/status.h"
#include "server/http_connection.h"

namespace deepinfer {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;           ///< 0: any free one, see address()
  std::string unix_socket;   ///< path; when set there is no TCP port
  std::string ssl_certfile;  ///< PEM, the whole chain; with ssl_keyfile: TLS
  std::string ssl_keyfile;   ///< PEM
  int threads = 2;
  int64_t max_connections = 16'384;
  HttpLimits limits;
  HttpTimeouts timeouts;

  /// kInvalidArgument naming the flag.
  Status Validate() const;
};

class HttpServer {
 public:
  /// Answers one request: exactly one response. Exceptions end the connection.
  using Handler = std::function<boost::asio::awaitable<void>(HttpConnection&, HttpRequest)>;
  /// The body for a request that could not be read: status and reason.
  using ErrorPage = std::function<HttpResponse(int status, const std::string& reason)>;

  /// Listens before it returns. kIo naming the address, kInvalidArgument for certificates that cannot be used.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options, Handler handler,
                                                   ErrorPage error_page);
  ~HttpServer();

  /// "http://127.0.0.1:8000", "https://...", "unix:/path".
  const std::string& address() const { return address_; }
  int port() const { return port_; }
  int64_t connections() const;

  /// Accepts nothing more; connections end with their current response.
  void StopAccepting();
  /// Waits until no connection is left; false when time is up.
  bool WaitUntilIdle(std::chrono::milliseconds longest);
  /// Ends every Wait of every connection, so that handlers look around.
  void PokeAll();
  /// Ends every connection at once.
  void CloseAll();

 private:
  struct Listener;

  HttpServer(const HttpServerOptions& options, Handler handler, ErrorPage error_page);
  Status Listen();
  Status ListenTcp();
  Status ListenUnix();
  Status LoadCertificate();
  boost::asio::awaitable<void> Accept();
  void Adopt(std::unique_ptr<ByteStream> stream);
  boost::asio::awaitable<void> Serve(std::shared_ptr<HttpConnection> connection);
  void ForEach(const std::function<void(HttpConnection&)>& change);

  HttpServerOptions options_;
  Handler handler_;
  ErrorPage error_page_;
  std::string address_;
  int port_ = 0;
  std::vector<std::unique_ptr<boost::asio::io_context>> loops_;  // [threads]; the first one accepts
  size_t next_loop_ = 0;                                         // of the next connection
  std::unique_ptr<Listener> listener_;
  std::vector<std::thread> threads_;

  mutable std::mutex mutex_;
  std::condition_variable fewer_;
  std::unordered_set<std::shared_ptr<HttpConnection>> connections_;
  bool accepting_ = true;
};

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_HTTP_SERVER_H_
