// HttpRequestReader: bytes of a connection -> requests, whatever the chunking (RFC 9112, by Boost.Beast's parser).
//
// Thread-safety: one thread at a time. Ownership: owns the bytes that it holds. Errors: the HTTP status to answer with;
// after one the connection must be closed, since where the next request starts is unknown.
#ifndef DEEPINFER_SERVER_HTTP_REQUEST_READER_H_
#define DEEPINFER_SERVER_HTTP_REQUEST_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/http_message.h"

namespace deepinfer {

struct HttpLimits {
  int64_t max_header_bytes = int64_t{64} << 10;
  int64_t max_body_bytes = int64_t{64} << 20;
};

class HttpRequestReader {
 public:
  explicit HttpRequestReader(const HttpLimits& limits);
  ~HttpRequestReader();

  enum class State : uint8_t { kNeedMore, kComplete, kFailed };

  /// Takes bytes; they may end one request and begin the next, which stays held. Nothing is read on once a request is
  /// complete, until it is taken.
  State Feed(std::string_view bytes);

  /// The complete request; the reader goes on with the next one. Feed("") says whether that is complete already.
  HttpRequest Take();

  /// With kFailed: 400, 413, 431 or 501, and why.
  int error_status() const { return error_status_; }
  const std::string& error() const { return error_; }

  /// Some of a request has arrived.
  bool started() const;
  bool header_complete() const;
  /// The client waits for "100 Continue" before it sends the body. Said once.
  bool TakeExpectContinue();
  /// Bytes held that belong to no request yet.
  size_t held_bytes() const { return held_.size(); }

 private:
  struct Parser;

  State FeedParser(std::string_view bytes);
  void Restart();
  void KeepHead();
  State TooLongHeader();
  State Fail(int status, std::string why);

  HttpLimits limits_;
  std::unique_ptr<Parser> parser_;  // made when the first byte of a request arrives
  std::string held_;
  bool continue_expected_ = false;
  int error_status_ = 0;
  std::string error_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_HTTP_REQUEST_READER_H_
