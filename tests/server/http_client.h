// A blocking HTTP/1.1 client over a plain socket, for tests: it sends exactly the bytes it is told to.
#ifndef DEEPINFER_TESTS_SERVER_HTTP_CLIENT_H_
#define DEEPINFER_TESTS_SERVER_HTTP_CLIENT_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer::testing {

struct ClientResponse {
  int status = 0;                              ///< 0: the server closed the connection without a response
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;                            ///< chunks joined
  bool complete = false;                       ///< the end of the body was seen
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
};

class HttpClient {
 public:
  explicit HttpClient(int port);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Whether all bytes went out.
  bool Send(std::string_view bytes);
  /// The next response; a HEAD request's has no body. At most 20 s.
  ClientResponse Receive(bool head = false);
  /// Reads until the text received so far holds `text`; false when the connection ends before.
  bool ReceiveUntil(std::string_view text);
  /// Closes with a reset instead of an orderly end.
  void Reset();
  void Close();

  ClientResponse Get(const std::string& path, const std::string& headers = "");
  ClientResponse Post(const std::string& path, const std::string& body, const std::string& headers = "");

 private:
  bool Fill();

  int socket_;
  std::string received_;
};

/// One request on a connection of its own.
ClientResponse Get(int port, const std::string& path, const std::string& headers = "");
ClientResponse Post(int port, const std::string& path, const nlohmann::json& body, const std::string& headers = "");

struct SseEvent {
  std::string event;  ///< empty: none was named
  std::string data;
};
/// Comments are left out.
std::vector<SseEvent> ParseSse(std::string_view body);

}  // namespace deepinfer::testing

#endif  // DEEPINFER_TESTS_SERVER_HTTP_CLIENT_H_
