// One HTTP request as it was received, and a response as it is to be sent.
//
// Thread-safety: values. Ownership: they own their bytes.
#ifndef DEEPINFER_SERVER_HTTP_MESSAGE_H_
#define DEEPINFER_SERVER_HTTP_MESSAGE_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;   ///< of the target, as sent, without a scheme and host in front and the query behind
  std::string query;  ///< behind the question mark, as sent
  HttpHeaders headers;
  std::string body;
  bool keep_alive = false;
  bool chunked_responses = true;  ///< false: an HTTP/1.0 client

  /// The first header of this name (any case); nothing: not sent.
  std::optional<std::string_view> Header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers;  ///< besides Content-Type, Content-Length, Connection and Date
};

/// "Not Found" for 404; "Unknown" for a status that this server never sends.
std::string_view ReasonPhrase(int status);

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_HTTP_MESSAGE_H_
