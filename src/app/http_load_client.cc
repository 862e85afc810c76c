#include "app/http_load_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <utility>

namespace deepinfer {
namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using asio::local::stream_protocol;
using boost::system::error_code;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kLongestKeptBody = size_t{64} << 20;

bool HasControls(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= ' ' || c == '\x7F') return true;
  }
  return false;
}

}  // namespace

Result<ServerUrl> ServerUrl::Parse(const std::string& text) {
  const Status wrong = Status::InvalidArgument(
      fmt::format("expected an address such as http://127.0.0.1:8000, https://host or unix:/path, found '{}'", text));
  if (HasControls(text)) return wrong;
  ServerUrl url;
  std::string_view rest = text;
  if (rest.starts_with("unix:")) {
    url.unix_socket = rest.substr(5);
    if (url.unix_socket.empty() || url.unix_socket.size() > 100) return wrong;
    return url;
  }
  if (rest.starts_with("https://")) {
    url.tls = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return wrong;
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view place = rest.substr(0, slash);
  url.path = rest.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();
  url.port = url.tls ? "443" : "80";
  const size_t bracket = place.find(']');
  const size_t colon = place.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    url.port = place.substr(colon + 1);
    place = place.substr(0, colon);
  }
  if (place.starts_with('[') && place.ends_with(']')) place = place.substr(1, place.size() - 2);
  url.host = place;
  const bool digits = url.port.find_first_not_of("0123456789") == std::string::npos;
  if (url.host.empty() || url.port.empty() || !digits || url.port.size() > 5) return wrong;
  return url;
}

std::string ServerUrl::authority() const {
  if (!unix_socket.empty()) return "localhost";
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == (tls ? "443" : "80") ? name : name + ":" + port;
}

/// Ends what a request waits for when its time is up.
struct HttpLoadClient::Deadline {
  explicit Deadline(asio::io_context& loop) : timer(loop) {}

  static std::shared_ptr<Deadline> Start(asio::io_context& loop, std::chrono::milliseconds after) {
    auto deadline = std::make_shared<Deadline>(loop);
    deadline->timer.expires_after(after);
    deadline->timer.async_wait([weak = std::weak_ptr(deadline)](error_code error) {
      const auto self = weak.lock();
      if (!error && self != nullptr) self->Cancel("no whole answer within the --timeout");
    });
    return deadline;
  }

  void Cancel(std::string reason) {
    why = std::move(reason);
    if (close) close();
  }

  asio::steady_timer timer;
  std::function<void()> close;  // of what is waited for at the moment
  std::string why;              // it was closed; empty: it was not
};

struct HttpLoadClient::Connected {
  std::shared_ptr<ByteStream> stream;
  std::string error;
};

HttpLoadClient::HttpLoadClient(const ServerUrl& url, const HttpLoadOptions& options)
    : url_(url), options_(options), tls_(asio::ssl::context::tls_client) {}

HttpLoadClient::~HttpLoadClient() {
  // Sockets must not outlive their loop.
  idle_.clear();
}

Result<std::unique_ptr<HttpLoadClient>> HttpLoadClient::Open(const ServerUrl& url, const HttpLoadOptions& options) {
  std::unique_ptr<HttpLoadClient> client(new HttpLoadClient(url, options));
  DEEPINFER_RETURN_IF_ERROR(client->Prepare());
  return client;
}

Status HttpLoadClient::Prepare() {
  error_code error;
  if (url_.tls) {
    tls_.set_default_verify_paths(error);
    tls_.set_verify_mode(options_.verify_certificate ? asio::ssl::verify_peer : asio::ssl::verify_none, error);
    if (error) return Status::Io("TLS cannot be set up: " + error.message());
  }
  if (!url_.unix_socket.empty()) return Status::Ok();
  tcp::resolver resolver(loop_);
  const auto found = resolver.resolve(url_.host, url_.port, error);
  if (error || found.empty()) {
    return Status::NotFound(fmt::format("--base-url: {}: {}", url_.host, error ? error.message() : "no address"));
  }
  for (const auto& entry : found) endpoints_.push_back(entry.endpoint());
  return Status::Ok();
}

asio::awaitable<HttpLoadClient::Connected> HttpLoadClient::Connect(std::shared_ptr<Deadline> deadline) {
  Connected connected;
  error_code failed;
  if (!url_.unix_socket.empty()) {
    const auto socket = std::make_shared<stream_protocol::socket>(loop_);
    deadline->close = [socket] { socket->cancel(); };
    const stream_protocol::endpoint endpoint(url_.unix_socket);
    const auto [error] = co_await socket->async_connect(endpoint, kAwait);
    failed = error;
    if (!failed) connected.stream = MakeUnixStream(std::move(*socket));
  } else {
    const auto socket = std::make_shared<tcp::socket>(loop_);
    deadline->close = [socket] {
      error_code ignored;
      socket->close(ignored);
    };
    const auto [error, endpoint] = co_await asio::async_connect(*socket, endpoints_, kAwait);
    failed = error;
    if (!failed) {
      connected.stream =
          url_.tls ? MakeTlsClientStream(std::move(*socket), &tls_, url_.host) : MakeTcpStream(std::move(*socket));
    }
  }
  if (!failed) {
    deadline->close = [stream = connected.stream] { stream->Close(); };
    const error_code error = co_await connected.stream->Open();
    if (error) connected.error = "the TLS handshake failed: " + error.message();
  } else {
    connected.error = "cannot connect: " + failed.message();
  }
  co_return connected;
}

std::string HttpLoadClient::HeadOf(const HttpLoadRequest& request) const {
  std::string head = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\nUser-Agent: deepinfer-bench\r\n",
                                 request.method, url_.path, request.path, url_.authority());
  if (!options_.api_key.empty()) head += fmt::format("Authorization: Bearer {}\r\n", options_.api_key);
  if (request.method == "POST") {
    head += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", request.body.size());
  }
  return head + "\r\n";
}

asio::awaitable<HttpLoadResponse> HttpLoadClient::Exchange(std::shared_ptr<ByteStream> stream,
                                                           const HttpLoadRequest& request, const OnBody& on_body) {
  HttpLoadResponse response;
  const std::string bytes = HeadOf(request) + request.body;
  const error_code unsent = co_await stream->Write(bytes);
  if (unsent) {
    response.broken = "the connection broke: " + unsent.message();
    co_return response;
  }
  const auto parser = std::make_unique<http::response_parser<http::string_body>>();
  parser->eager(true);
  parser->body_limit(boost::none);
  std::string incoming;
  error_code error;
  while (!parser->is_done() && response.broken.empty()) {
    error = co_await stream->Read(&incoming);
    if (error && incoming.empty()) {
      error_code incomplete;
      parser->put_eof(incomplete);
      const bool orderly = error == asio::error::eof || error == asio::ssl::error::stream_truncated;
      if (incomplete || !orderly) response.broken = "the connection broke: " + error.message();
      break;
    }
    error_code wrong;
    const size_t used = parser->put(asio::buffer(incoming), wrong);
    incoming.erase(0, used);
    if (wrong && wrong != http::error::need_more) response.broken = "the response is no HTTP: " + wrong.message();
    if (!parser->is_header_done()) continue;
    std::string& body = parser->get().body();
    response.status = parser->get().result_int();
    if (response.status == 200 && on_body) {
      if (!body.empty()) on_body(body);
    } else if (response.body.size() < kLongestKeptBody) {
      response.body += body;
    }
    body.clear();
  }
  if (response.broken.empty() && parser->is_done() && parser->get().keep_alive() && incoming.empty() && !error) {
    idle_.push_back(std::move(stream));
  }
  co_return response;
}

asio::awaitable<HttpLoadResponse> HttpLoadClient::Send(const HttpLoadRequest& request, const OnBody& on_body) {
  const std::shared_ptr<Deadline> deadline = Deadline::Start(loop_, options_.timeout);
  under_way_.insert(deadline.get());
  HttpLoadResponse response;
  for (bool again = true; again;) {
    Connected connected;
    again = !idle_.empty();
    if (again) {
      connected.stream = std::move(idle_.back());
      idle_.pop_back();
      deadline->close = [stream = connected.stream] { stream->Close(); };
    } else {
      connected = co_await Connect(deadline);
    }
    if (connected.error.empty()) {
      response = co_await Exchange(connected.stream, request, on_body);
    } else {
      response.broken = connected.error;
    }
    // A server may have closed a connection that waited: only a new one tells.
    if (response.status != 0 || response.broken.empty() || !deadline->why.empty()) again = false;
  }
  if (!deadline->why.empty()) response.broken = deadline->why;
  under_way_.erase(deadline.get());
  deadline->close = nullptr;
  deadline->timer.cancel();
  co_return response;
}

HttpLoadResponse HttpLoadClient::Fetch(const HttpLoadRequest& request) {
  HttpLoadResponse response;
  const OnBody none;
  asio::co_spawn(loop_, Send(request, none),
                 [&](const std::exception_ptr&, HttpLoadResponse made) { response = std::move(made); });
  loop_.restart();
  loop_.run();
  return response;
}

void HttpLoadClient::CancelAll() {
  for (Deadline* const deadline : under_way_) deadline->Cancel("cancelled");
}

}  // namespace deepinfer
