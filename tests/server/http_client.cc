#include "http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

namespace deepinfer::testing {

HttpClient::HttpClient(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // Only a hang takes so long: a hostile grammar on a busy machine may take half a minute.
  const timeval longest{.tv_sec = 300, .tv_usec = 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof(longest));
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) Close();
}

HttpClient::~HttpClient() { Close(); }

void HttpClient::Close() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

void HttpClient::Reset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  Close();
}

bool HttpClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool HttpClient::Fill() {
  char buffer[65536];
  const ssize_t count = recv(socket_, buffer, sizeof(buffer), 0);
  if (count <= 0) return false;
  received_.append(buffer, static_cast<size_t>(count));
  return true;
}

bool HttpClient::ReceiveUntil(std::string_view text) {
  while (received_.find(text) == std::string::npos) {
    if (!Fill()) return false;
  }
  return true;
}

ClientResponse HttpClient::Receive(bool head) {
  ClientResponse response;
  if (!ReceiveUntil("\r\n\r\n")) return response;
  const size_t end = received_.find("\r\n\r\n");
  std::string_view lines = std::string_view(received_).substr(0, end);
  response.status = std::stoi(std::string(lines.substr(lines.find(' ') + 1, 3)));
  while (lines.find("\r\n") != std::string_view::npos) {
    lines.remove_prefix(lines.find("\r\n") + 2);
    const std::string_view line = lines.substr(0, lines.find("\r\n"));
    const size_t colon = line.find(':');
    std::string name(line.substr(0, colon));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    response.headers[name] = line.substr(line.find_first_not_of(' ', colon + 1));
  }
  received_.erase(0, end + 4);
  if (head || response.status == 204) {
    response.complete = true;
    return response;
  }
  if (response.headers.contains("transfer-encoding")) {
    for (;;) {
      if (!ReceiveUntil("\r\n")) return response;
      const size_t line = received_.find("\r\n");
      const size_t size = std::stoul(received_.substr(0, line), nullptr, 16);
      while (received_.size() < line + 2 + size + 2) {
        if (!Fill()) return response;
      }
      response.body += received_.substr(line + 2, size);
      received_.erase(0, line + 2 + size + 2);
      if (size == 0) break;
    }
    response.complete = true;
    return response;
  }
  if (response.headers.contains("content-length")) {
    const size_t size = std::stoul(response.headers["content-length"]);
    while (received_.size() < size) {
      if (!Fill()) break;
    }
    response.complete = received_.size() >= size;
    response.body = received_.substr(0, size);
    received_.erase(0, size);
    return response;
  }
  while (Fill()) {
  }
  response.body = std::exchange(received_, "");
  response.complete = true;
  return response;
}

ClientResponse HttpClient::Get(const std::string& path, const std::string& headers) {
  Send("GET " + path + " HTTP/1.1\r\nHost: test\r\n" + headers + "\r\n");
  return Receive();
}

ClientResponse HttpClient::Post(const std::string& path, const std::string& body, const std::string& headers) {
  Send("POST " + path + " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: " +
       std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body);
  return Receive();
}

ClientResponse Get(int port, const std::string& path, const std::string& headers) {
  return HttpClient(port).Get(path, headers);
}

ClientResponse Post(int port, const std::string& path, const nlohmann::json& body, const std::string& headers) {
  return HttpClient(port).Post(path, body.dump(), headers);
}

std::vector<SseEvent> ParseSse(std::string_view body) {
  std::vector<SseEvent> events;
  SseEvent event;
  while (!body.empty()) {
    const size_t end = std::min(body.find('\n'), body.size());
    const std::string_view line = body.substr(0, end);
    body.remove_prefix(std::min(end + 1, body.size()));
    if (line.starts_with("event: ")) event.event = line.substr(7);
    if (line.starts_with("data: ")) event.data += line.substr(6);
    if (line.empty() && !event.data.empty()) events.push_back(std::exchange(event, {}));
  }
  return events;
}

}  // namespace deepinfer::testing
