// HttpLoadClient: an HTTP/1.1 client for thousands of requests at once, over TCP, TLS or a unix socket, with bodies
// that are read as they come.
//
// Coroutines on one event loop, its own. Connections are kept for later requests. Every request has a deadline.
// Thread-safety: one thread, the one that runs loop(). Ownership: no request may be under way when it is destroyed.
// Errors: in the response, as a sentence.
#ifndef DEEPINFER_APP_HTTP_LOAD_CLIENT_H_
#define DEEPINFER_APP_HTTP_LOAD_CLIENT_H_

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "deepinfer/status.h"
#include "server/byte_stream.h"

namespace deepinfer {

/// Where a server is.
struct ServerUrl {
  bool tls = false;
  std::string host;  ///< without the brackets of an IPv6 address
  std::string port;
  std::string path;         ///< in front of all paths: "" or "/..."
  std::string unix_socket;  ///< not empty: the path of a socket instead of host and port

  /// "http://host:port/path", "https://...", "unix:/path/of/socket". kInvalidArgument says what was expected.
  static Result<ServerUrl> Parse(const std::string& text);
  /// Of the header Host.
  std::string authority() const;
};

struct HttpLoadOptions {
  std::string api_key;                           ///< empty: none is sent
  bool verify_certificate = true;                ///< against the system's authorities, and $SSL_CERT_FILE
  std::chrono::milliseconds timeout{3'600'000};  ///< of one request, connecting included
};

struct HttpLoadRequest {
  std::string method = "POST";
  std::string path;
  std::string body;  ///< JSON
};

struct HttpLoadResponse {
  int status = 0;      ///< 0: there was none
  std::string body;    ///< what was not handed out; cut off where it is very long
  std::string broken;  ///< why the response is not whole; empty when it is
};

class HttpLoadClient {
 public:
  /// Bytes of the body of a response with status 200.
  using OnBody = std::function<void(std::string_view bytes)>;

  /// Looks the host up. Errors name --base-url.
  static Result<std::unique_ptr<HttpLoadClient>> Open(const ServerUrl& url, const HttpLoadOptions& options);
  ~HttpLoadClient();

  boost::asio::io_context& loop() { return loop_; }

  /// `request` and `on_body` live until it is done. Without `on_body` the body is in the response.
  boost::asio::awaitable<HttpLoadResponse> Send(const HttpLoadRequest& request, const OnBody& on_body);
  /// The same for a caller outside the loop, which it runs meanwhile.
  HttpLoadResponse Fetch(const HttpLoadRequest& request);
  /// Breaks off all that is being sent or received.
  void CancelAll();

 private:
  struct Deadline;
  struct Connected;

  HttpLoadClient(const ServerUrl& url, const HttpLoadOptions& options);
  Status Prepare();
  boost::asio::awaitable<Connected> Connect(std::shared_ptr<Deadline> deadline);
  boost::asio::awaitable<HttpLoadResponse> Exchange(std::shared_ptr<ByteStream> stream, const HttpLoadRequest& request,
                                                    const OnBody& on_body);
  std::string HeadOf(const HttpLoadRequest& request) const;

  const ServerUrl url_;
  const HttpLoadOptions options_;
  std::vector<boost::asio::ip::tcp::endpoint> endpoints_;
  boost::asio::ssl::context tls_;
  std::vector<std::shared_ptr<ByteStream>> idle_;
  std::unordered_set<Deadline*> under_way_;
  boost::asio::io_context loop_;  // last: coroutines in it refer to all above
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_HTTP_LOAD_CLIENT_H_
