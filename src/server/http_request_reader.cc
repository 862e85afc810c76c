#include "server/http_request_reader.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <stdexcept>

namespace deepinfer {
namespace http = boost::beast::http;

namespace {

/// A target without the scheme and the host that a client of a proxy sends in front (RFC 9112, 3.2.2).
std::string_view PathAndQuery(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!boost::beast::iequals(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(std::min(target.find_first_of("/?", scheme.size()), target.size()));
    break;
  }
  return target;
}

}  // namespace

struct HttpRequestReader::Parser {
  http::request_parser<http::string_body> request;
  bool header_seen = false;
  HttpRequest head;  // without the body; what trailers say counts for nothing
  // Of a chunked body: trailers have begun, and their bytes.
  bool in_trailers = false;
  int64_t trailer_bytes = 0;
  std::function<void(uint64_t size, std::string_view extensions, boost::system::error_code&)> on_chunk;
};

HttpRequestReader::HttpRequestReader(const HttpLimits& limits) : limits_(limits) {}
HttpRequestReader::~HttpRequestReader() = default;

bool HttpRequestReader::started() const { return parser_ != nullptr || !held_.empty(); }
bool HttpRequestReader::header_complete() const { return parser_ != nullptr && parser_->header_seen; }

bool HttpRequestReader::TakeExpectContinue() { return std::exchange(continue_expected_, false); }

void HttpRequestReader::Restart() {
  parser_ = std::make_unique<Parser>();
  // The header is judged before anything of the body is read, so that an error does not depend on how bytes arrive.
  parser_->request.eager(false);
  parser_->request.header_limit(static_cast<uint32_t>(limits_.max_header_bytes));
  parser_->request.body_limit(static_cast<uint64_t>(limits_.max_body_bytes));
  parser_->on_chunk = [parser = parser_.get()](uint64_t size, std::string_view, boost::system::error_code&) {
    if (size == 0) parser->in_trailers = true;
  };
  parser_->request.on_chunk_header(parser_->on_chunk);
}

HttpRequestReader::State HttpRequestReader::Fail(int status, std::string why) {
  error_status_ = status;
  error_ = std::move(why);
  return State::kFailed;
}

HttpRequestReader::State HttpRequestReader::TooLongHeader() {
  return Fail(431, "the request's header has more than " + std::to_string(limits_.max_header_bytes) + " bytes");
}

void HttpRequestReader::KeepHead() {
  const auto& message = parser_->request.get();
  HttpRequest& head = parser_->head;
  head.method = std::string(message.method_string());
  const std::string_view target = PathAndQuery({message.target().data(), message.target().size()});
  const size_t question = target.find('?');
  head.path = target.substr(0, question);
  if (head.path.empty()) head.path.push_back('/');
  if (question != std::string_view::npos) head.query = target.substr(question + 1);
  for (const auto& field : message) {
    head.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  head.keep_alive = message.keep_alive();
  head.chunked_responses = message.version() >= 11;
}

HttpRequestReader::State HttpRequestReader::Feed(std::string_view bytes) {
  if (error_status_ != 0) return State::kFailed;
  try {
    return FeedParser(bytes);
  } catch (const std::length_error&) {
    // The parser keeps no field of more than 64 KiB.
    return TooLongHeader();
  }
}

HttpRequestReader::State HttpRequestReader::FeedParser(std::string_view bytes) {
  held_ += bytes;
  if (parser_ == nullptr) {
    // Empty lines before a request are ignored (RFC 9112, 2.2).
    held_.erase(0, std::min(held_.find_first_not_of("\r\n"), held_.size()));
    if (held_.empty()) return State::kNeedMore;
    Restart();
  }
  size_t used = 0;
  while (!parser_->request.is_done() && used < held_.size()) {
    boost::system::error_code error;
    const bool trailers = parser_->in_trailers;
    const size_t taken = parser_->request.put(boost::asio::buffer(held_.data() + used, held_.size() - used), error);
    used += taken;
    if (trailers) parser_->trailer_bytes += static_cast<int64_t>(taken);
    if (error == http::error::header_limit || parser_->trailer_bytes > limits_.max_header_bytes) return TooLongHeader();
    if (error == http::error::need_more) break;
    if (error == http::error::body_limit) {
      return Fail(413, "the request's body has more than " + std::to_string(limits_.max_body_bytes) + " bytes");
    }
    if (error) return Fail(400, "this is no HTTP/1.1 request: " + error.message());
    if (!parser_->header_seen && parser_->request.is_header_done()) {
      parser_->header_seen = true;
      parser_->request.eager(true);
      const auto& request = parser_->request.get();
      // RFC 9112, 3.2.
      if (request.version() >= 11 && request.count(http::field::host) != 1) {
        return Fail(400, "this is no HTTP/1.1 request: expected one Host header");
      }
      // Where the body ends must be beyond doubt: what one takes for a body, another might take for a request.
      if (const size_t codings = request.count(http::field::transfer_encoding); codings > 0) {
        if (codings > 1 || !boost::beast::iequals(request[http::field::transfer_encoding], "chunked")) {
          return Fail(501, "Transfer-Encoding: only chunked is understood");
        }
        if (request.version() < 11) return Fail(400, "HTTP/1.0 has no Transfer-Encoding");
      }
      KeepHead();
      continue_expected_ =
          !parser_->request.is_done() && boost::beast::iequals(request[http::field::expect], "100-continue");
    }
    if (taken == 0) break;
  }
  held_.erase(0, used);
  if (parser_->request.is_done()) return State::kComplete;
  // A line of a chunk or of a trailer that does not end.
  if (std::ssize(held_) > limits_.max_header_bytes) return TooLongHeader();
  return State::kNeedMore;
}

HttpRequest HttpRequestReader::Take() {
  HttpRequest request = std::move(parser_->head);
  request.body = std::move(parser_->request.get().body());
  parser_.reset();
  return request;
}

}  // namespace deepinfer
