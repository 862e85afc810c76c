// ByteStream: one connection, whatever carries it: TCP, TLS or a unix socket.
//
// Thread-safety: the strand of executor() only. Ownership: owns the socket. Errors: error codes; end of stream is one.
#ifndef DEEPINFER_SERVER_BYTE_STREAM_H_
#define DEEPINFER_SERVER_BYTE_STREAM_H_

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace deepinfer {

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  virtual boost::asio::any_io_executor executor() = 0;
  /// What must happen before the first byte (the TLS handshake).
  virtual boost::asio::awaitable<boost::system::error_code> Open() = 0;
  /// Waits for bytes and appends them. An idle wait holds no buffer where the transport allows that.
  virtual boost::asio::awaitable<boost::system::error_code> Read(std::string* bytes) = 0;
  /// Sends what goes out without waiting; the number of bytes, possibly 0.
  virtual size_t TryWrite(std::string_view bytes) = 0;
  virtual boost::asio::awaitable<boost::system::error_code> Write(std::string_view bytes) = 0;
  /// Says that nothing more comes and stays open for reading. TLS: nothing, every response says itself where it ends.
  virtual void Shutdown() = 0;
  /// Ends every pending operation.
  virtual void Close() = 0;
  /// Address and port, or "unix".
  virtual const std::string& peer() const = 0;
};

std::unique_ptr<ByteStream> MakeTcpStream(boost::asio::ip::tcp::socket socket);
std::unique_ptr<ByteStream> MakeUnixStream(boost::asio::local::stream_protocol::socket socket);
std::unique_ptr<ByteStream> MakeTlsStream(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* context);
/// The client's side. `host` is what the server's certificate must name, when `context` verifies, and what it is told.
std::unique_ptr<ByteStream> MakeTlsClientStream(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* context,
                                                const std::string& host);

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_BYTE_STREAM_H_
