#include "server/http_server.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>

namespace deepinfer {
namespace asio = boost::asio;
using asio::ip::tcp;
using asio::local::stream_protocol;
using boost::system::error_code;

struct HttpServer::Listener {
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> work;  // loops run on without connections
  std::optional<tcp::acceptor> tcp_acceptor;
  std::optional<stream_protocol::acceptor> unix_acceptor;
  std::optional<asio::ssl::context> tls;
};

Status HttpServerOptions::Validate() const {
  if (ssl_certfile.empty() != ssl_keyfile.empty()) {
    return Status::InvalidArgument("--ssl-certfile and --ssl-keyfile go together: give both or none");
  }
  if (!unix_socket.empty() && !ssl_certfile.empty()) {
    return Status::InvalidArgument("--uds: a unix socket has no TLS; leave out --ssl-certfile");
  }
  if (unix_socket.size() > 100) {
    return Status::InvalidArgument("--uds: a path of at most 100 bytes is possible, found " +
                                   std::to_string(unix_socket.size()));
  }
  return Status::Ok();
}

HttpServer::HttpServer(const HttpServerOptions& options, Handler handler, ErrorPage error_page)
    : options_(options),
      handler_(std::move(handler)),
      error_page_(std::move(error_page)),
      listener_(std::make_unique<Listener>()) {
  for (int i = 0; i < options.threads; ++i) {
    loops_.push_back(std::make_unique<asio::io_context>(1));
    listener_->work.push_back(asio::make_work_guard(*loops_.back()));
  }
}

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options, Handler handler,
                                                      ErrorPage error_page) {
  DEEPINFER_RETURN_IF_ERROR(options.Validate());
  std::unique_ptr<HttpServer> server(new HttpServer(options, std::move(handler), std::move(error_page)));
  DEEPINFER_RETURN_IF_ERROR(server->Listen());
  for (const auto& loop : server->loops_) server->threads_.emplace_back([&loop = *loop] { loop.run(); });
  asio::co_spawn(
      *server->loops_.front(), [self = server.get()] { return self->Accept(); }, asio::detached);
  return server;
}

HttpServer::~HttpServer() {
  StopAccepting();
  CloseAll();
  listener_->work.clear();
  // Coroutines end by themselves once their connections are closed.
  for (std::thread& thread : threads_) thread.join();
}

Status HttpServer::Listen() {
  if (!options_.unix_socket.empty()) return ListenUnix();
  DEEPINFER_RETURN_IF_ERROR(LoadCertificate());
  return ListenTcp();
}

Status HttpServer::LoadCertificate() {
  if (options_.ssl_certfile.empty()) return Status::Ok();
  asio::ssl::context& tls = listener_->tls.emplace(asio::ssl::context::tls_server);
  error_code error;
  tls.set_options(
      asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, error);
  tls.use_certificate_chain_file(options_.ssl_certfile, error);
  if (error) {
    return Status::InvalidArgument("--ssl-certfile: " + options_.ssl_certfile + ": " + error.message() +
                                   "; expected a certificate chain in PEM");
  }
  tls.use_private_key_file(options_.ssl_keyfile, asio::ssl::context::pem, error);
  if (error) {
    return Status::InvalidArgument("--ssl-keyfile: " + options_.ssl_keyfile + ": " + error.message() +
                                   "; expected the certificate's private key in PEM");
  }
  return Status::Ok();
}

Status HttpServer::ListenTcp() {
  error_code error;
  tcp::resolver resolver(*loops_.front());
  const auto found = resolver.resolve(options_.host, std::to_string(options_.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return Status::InvalidArgument("--host: " + options_.host + ": " + error.message() +
                                   "; expected an address of this machine, such as 127.0.0.1 or 0.0.0.0");
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor& acceptor = listener_->tcp_acceptor.emplace(*loops_.front());
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return Status::Io(fmt::format("cannot listen on {} port {}: {}; choose another --port or --host", options_.host,
                                  options_.port, error.message()));
  }
  port_ = acceptor.local_endpoint(error).port();
  const std::string host = endpoint.address().is_v6() ? "[" + endpoint.address().to_string() + "]" : options_.host;
  address_ = fmt::format("{}://{}:{}", listener_->tls.has_value() ? "https" : "http", host, port_);
  return Status::Ok();
}

Status HttpServer::ListenUnix() {
  const std::string& path = options_.unix_socket;
  error_code error;
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode)) return Status::InvalidArgument("--uds: " + path + " exists and is no socket");
    // A socket that nobody answers was left by a process that is gone.
    stream_protocol::socket probe(*loops_.front());
    probe.connect(stream_protocol::endpoint(path), error);
    if (!error) return Status::Io("--uds: another process listens on " + path);
    unlink(path.c_str());
  }
  stream_protocol::acceptor& acceptor = listener_->unix_acceptor.emplace(*loops_.front());
  acceptor.open(stream_protocol(), error);
  if (!error) acceptor.bind(stream_protocol::endpoint(path), error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return Status::Io("--uds: cannot listen on " + path + ": " + error.message());
  address_ = "unix:" + path;
  return Status::Ok();
}

asio::awaitable<void> HttpServer::Accept() {
  constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
  asio::steady_timer pause(*loops_.front());
  for (;;) {
    error_code error;
    std::unique_ptr<ByteStream> stream;
    asio::io_context& loop = *loops_[next_loop_++ % loops_.size()];
    if (listener_->unix_acceptor.has_value()) {
      auto [failed, socket] = co_await listener_->unix_acceptor->async_accept(loop, kAwait);
      error = failed;
      if (!error) stream = MakeUnixStream(stream_protocol::socket(std::move(socket)));
    } else {
      auto [failed, socket] = co_await listener_->tcp_acceptor->async_accept(loop, kAwait);
      error = failed;
      if (!error) {
        tcp::socket plain(std::move(socket));
        stream = listener_->tls.has_value() ? MakeTlsStream(std::move(plain), &*listener_->tls)
                                            : MakeTcpStream(std::move(plain));
      }
    }
    if (error == asio::error::operation_aborted || error == asio::error::bad_descriptor) co_return;
    if (error) {
      // Out of descriptors, most likely: those who are connected must finish first.
      pause.expires_after(std::chrono::milliseconds(50));
      co_await pause.async_wait(kAwait);
      continue;
    }
    Adopt(std::move(stream));
  }
}

void HttpServer::Adopt(std::unique_ptr<ByteStream> stream) {
  const auto connection = std::make_shared<HttpConnection>(std::move(stream), options_.limits, options_.timeouts);
  {
    const std::lock_guard lock(mutex_);
    if (!accepting_ || std::ssize(connections_) >= options_.max_connections) return;
    connections_.insert(connection);
  }
  asio::co_spawn(
      connection->executor(), [this, connection] { return Serve(connection); },
      // Also when the handler threw.
      [this, connection](const std::exception_ptr&) {
        connection->Close();
        const std::lock_guard lock(mutex_);
        connections_.erase(connection);
        fewer_.notify_all();
      });
}

asio::awaitable<void> HttpServer::Serve(std::shared_ptr<HttpConnection> connection) {
  const bool open = co_await connection->Open();
  if (!open) co_return;
  do {
    HttpRequest request;
    HttpResponse error;
    const bool complete = co_await connection->ReadRequest(&request, &error);
    if (!complete) {
      if (error.status != 0) {
        const HttpResponse page = error_page_(error.status, error.body);
        co_await connection->Send(page);
      }
      break;
    }
    co_await handler_(*connection, std::move(request));
  } while (connection->reusable());
  co_await connection->Finish();
}

int64_t HttpServer::connections() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(connections_);
}

void HttpServer::ForEach(const std::function<void(HttpConnection&)>& change) {
  const std::lock_guard lock(mutex_);
  for (const auto& connection : connections_) {
    asio::post(connection->executor(), [connection, change] { change(*connection); });
  }
}

void HttpServer::StopAccepting() {
  {
    const std::lock_guard lock(mutex_);
    if (!accepting_) return;
    accepting_ = false;
  }
  asio::post(*loops_.front(), [this] {
    error_code ignored;
    if (listener_->tcp_acceptor.has_value()) listener_->tcp_acceptor->close(ignored);
    if (listener_->unix_acceptor.has_value()) listener_->unix_acceptor->close(ignored);
  });
  // Only a socket of its own: there is no address when listening failed.
  if (!options_.unix_socket.empty() && !address_.empty()) unlink(options_.unix_socket.c_str());
  ForEach([](HttpConnection& connection) { connection.CloseSoon(); });
}

bool HttpServer::WaitUntilIdle(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  return fewer_.wait_for(lock, longest, [this] { return connections_.empty(); });
}

void HttpServer::PokeAll() {
  ForEach([](HttpConnection& connection) { connection.Poke(); });
}

void HttpServer::CloseAll() {
  ForEach([](HttpConnection& connection) { connection.Close(); });
}

}  // namespace deepinfer
