#include "server/access_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <string_view>
#include <system_error>

#include "text/utf8.h"

namespace deepinfer {
namespace {

// Bytes of a text after escaping; together they keep a whole line below PIPE_BUF (4096).
constexpr size_t kLongestPath = 1024;
constexpr size_t kLongestName = 256;

/// A text as a JSON string, what is not printable on one line escaped, cut after `most` bytes.
std::string Quoted(std::string_view text, size_t most) {
  // Escaping never shortens.
  const std::string repaired = RepairUtf8(text.substr(0, most + 1));
  std::string quoted = "\"";
  for (size_t at = 0; at < repaired.size();) {
    const size_t begin = at;
    const uint32_t c = NextCodePoint(repaired.data(), &at);
    std::string piece = repaired.substr(begin, at - begin);
    if (c == '"' || c == '\\') {
      piece.insert(0, 1, '\\');
    } else if (c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029) {
      piece = fmt::format("\\u{:04x}", c);
    }
    if (quoted.size() + piece.size() > most) {
      quoted += "...";
      break;
    }
    quoted += piece;
  }
  return quoted + "\"";
}

/// RFC 3339 in UTC with milliseconds.
std::string Timestamp(std::chrono::system_clock::time_point time) {
  const int64_t milliseconds = std::chrono::floor<std::chrono::milliseconds>(time).time_since_epoch().count();
  const std::time_t seconds = static_cast<std::time_t>(milliseconds / 1000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, milliseconds % 1000);
}

std::string Milliseconds(std::optional<double> value) {
  return value.has_value() ? fmt::format("{:.3f}", *value) : "null";
}

int OpenFile(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
}

Status CannotOpen(const std::string& path, int error) {
  return Status::Io(fmt::format("--access-log: {}: {}", path, std::generic_category().message(error)));
}

}  // namespace

std::string AccessLine(const AccessRecord& record) {
  const std::string_view path(record.path);
  std::string line =
      fmt::format(R"({{"time":"{}","request_id":{},"peer":{},"key":{},"method":{},"path":{},"status":{},"total_ms":{})",
                  Timestamp(record.time), Quoted(record.request_id, kLongestName), Quoted(record.peer, kLongestName),
                  record.key.empty() ? "null" : Quoted(record.key, kLongestName), Quoted(record.method, kLongestName),
                  Quoted(path.substr(0, path.find('?')), kLongestPath), record.status, Milliseconds(record.total_ms));
  if (record.answer.has_value()) {
    const AnswerRecord& answer = *record.answer;
    line += fmt::format(
        R"(,"protocol":{},"model":{},"prompt_tokens":{},"cached_tokens":{},"completion_tokens":{},"reasoning_tokens":{})",
        Quoted(answer.protocol, kLongestName), Quoted(answer.model, kLongestName), answer.prompt_tokens,
        answer.cached_tokens, answer.completion_tokens, answer.reasoning_tokens);
    line += fmt::format(R"(,"finish_reason":{},"queue_ms":{},"first_token_ms":{},"accepted_drafts":{})",
                        Quoted(answer.finish_reason, kLongestName), Milliseconds(answer.queue_ms),
                        Milliseconds(answer.first_token_ms), answer.accepted_drafts);
  }
  return line + "}";
}

Result<std::unique_ptr<AccessLog>> AccessLog::Open(const std::string& target) {
  const auto make = [](std::string path, int descriptor) {
    return std::unique_ptr<AccessLog>(new AccessLog(std::move(path), descriptor));
  };
  if (target == "off") return make("", -1);
  if (target == "-") return make("", STDERR_FILENO);
  if (target.empty()) return Status::InvalidArgument("--access-log: expected off, a file, or - for standard error");
  const int descriptor = OpenFile(target);
  if (descriptor < 0) return CannotOpen(target, errno);
  return make(target, descriptor);
}

AccessLog::~AccessLog() {
  if (!path_.empty()) close(descriptor_);
}

void AccessLog::Write(const AccessRecord& record) {
  if (path_.empty() && descriptor_ < 0) return;
  const std::string line = AccessLine(record) + "\n";
  const std::lock_guard lock(mutex_);
  ssize_t written = 0;
  do {
    written = write(descriptor_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written != static_cast<ssize_t>(line.size())) lost_.fetch_add(1, std::memory_order_relaxed);
}

Status AccessLog::Reopen() {
  if (path_.empty()) return Status::Ok();
  const int descriptor = OpenFile(path_);
  if (descriptor < 0) return CannotOpen(path_, errno);
  const std::lock_guard lock(mutex_);
  close(descriptor_);
  descriptor_ = descriptor;
  return Status::Ok();
}

}  // namespace deepinfer
