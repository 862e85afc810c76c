#include "server/byte_stream.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

namespace deepinfer {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

std::string PeerName(const tcp::socket& socket) {
  error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  if (error) return "gone";
  return fmt::format(fmt::runtime(peer.address().is_v6() ? "[{}]:{}" : "{}:{}"), peer.address().to_string(),
                     peer.port());
}

template <typename Socket>
class PlainStream final : public ByteStream {
 public:
  PlainStream(Socket socket, std::string peer) : socket_(std::move(socket)), peer_(std::move(peer)) {
    error_code ignored;
    socket_.non_blocking(true, ignored);
  }

  asio::any_io_executor executor() override { return socket_.get_executor(); }
  asio::awaitable<error_code> Open() override { co_return error_code{}; }

  asio::awaitable<error_code> Read(std::string* bytes) override {
    for (;;) {
      const auto [waited] = co_await socket_.async_wait(Socket::wait_read, kAwait);
      if (waited) co_return waited;
      const error_code error = ReadNow(bytes);
      if (error != asio::error::would_block) co_return error;
    }
  }

  size_t TryWrite(std::string_view bytes) override {
    error_code error;
    const size_t sent = socket_.write_some(asio::buffer(bytes.data(), bytes.size()), error);
    return error ? 0 : sent;
  }

  asio::awaitable<error_code> Write(std::string_view bytes) override {
    const auto [error, sent] = co_await asio::async_write(socket_, asio::buffer(bytes.data(), bytes.size()), kAwait);
    co_return error;
  }

  void Shutdown() override {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }

  void Close() override {
    error_code ignored;
    socket_.close(ignored);
  }

  const std::string& peer() const override { return peer_; }

 private:
  // Outside the coroutine, so that its frame does not hold the buffer while it waits.
  error_code ReadNow(std::string* bytes) {
    static thread_local std::array<char, size_t{64} << 10> buffer;
    error_code error;
    const size_t count = socket_.read_some(asio::buffer(buffer), error);
    bytes->append(buffer.data(), count);
    return error;
  }

  Socket socket_;
  std::string peer_;
};

class TlsStream final : public ByteStream {
 public:
  using Side = asio::ssl::stream_base::handshake_type;

  TlsStream(tcp::socket socket, asio::ssl::context* context, Side side)
      : peer_(PeerName(socket)), stream_(std::move(socket), *context), side_(side) {}

  void ExpectServer(const std::string& host) {
    error_code ignored;
    stream_.set_verify_callback(asio::ssl::host_name_verification(host), ignored);
    // Server Name Indication has names only.
    asio::ip::make_address(host, ignored);
    if (ignored) SSL_set_tlsext_host_name(stream_.native_handle(), host.c_str());
  }

  asio::any_io_executor executor() override { return stream_.get_executor(); }

  asio::awaitable<error_code> Open() override {
    const auto [error] = co_await stream_.async_handshake(side_, kAwait);
    co_return error;
  }

  asio::awaitable<error_code> Read(std::string* bytes) override {
    const auto [error, count] = co_await stream_.async_read_some(asio::buffer(buffer_), kAwait);
    bytes->append(buffer_.data(), count);
    co_return error;
  }

  size_t TryWrite(std::string_view) override { return 0; }

  asio::awaitable<error_code> Write(std::string_view bytes) override {
    const auto [error, sent] = co_await asio::async_write(stream_, asio::buffer(bytes.data(), bytes.size()), kAwait);
    co_return error;
  }

  void Shutdown() override {}

  void Close() override {
    error_code ignored;
    stream_.lowest_layer().close(ignored);
  }

  const std::string& peer() const override { return peer_; }

 private:
  std::string peer_;
  asio::ssl::stream<tcp::socket> stream_;
  const Side side_;
  std::array<char, 4096> buffer_;
};

}  // namespace

std::unique_ptr<ByteStream> MakeTcpStream(tcp::socket socket) {
  error_code ignored;
  // Tokens are small and urgent.
  socket.set_option(tcp::no_delay(true), ignored);
  std::string peer = PeerName(socket);
  return std::make_unique<PlainStream<tcp::socket>>(std::move(socket), std::move(peer));
}

std::unique_ptr<ByteStream> MakeUnixStream(asio::local::stream_protocol::socket socket) {
  return std::make_unique<PlainStream<asio::local::stream_protocol::socket>>(std::move(socket), "unix");
}

std::unique_ptr<ByteStream> MakeTlsStream(tcp::socket socket, asio::ssl::context* context) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  return std::make_unique<TlsStream>(std::move(socket), context, asio::ssl::stream_base::server);
}

std::unique_ptr<ByteStream> MakeTlsClientStream(tcp::socket socket, asio::ssl::context* context,
                                                const std::string& host) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  auto stream = std::make_unique<TlsStream>(std::move(socket), context, asio::ssl::stream_base::client);
  stream->ExpectServer(host);
  return stream;
}

}  // namespace deepinfer
