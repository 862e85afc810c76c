// AccessLog: one line of JSON for every request that was answered (spec serving.md section 11.4).
//
// Never holds prompts, answers, queries or keys; texts are clipped and every control character is escaped, so that what
// a client sends cannot make a second line or move a terminal's cursor. Thread-safety: any thread; a line is one
// write(2) of less than PIPE_BUF bytes to a file opened for appending, so lines of several processes do not mix. A line
// that cannot be written is lost and counted. Ownership: owns the file. Errors: kIo naming --access-log.
#ifndef DEEPINFER_SERVER_ACCESS_LOG_H_
#define DEEPINFER_SERVER_ACCESS_LOG_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "deepinfer/status.h"

namespace deepinfer {

/// What the engine did for a request.
struct AnswerRecord {
  std::string protocol;  ///< ProtocolName
  std::string model;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;
  std::string finish_reason;
  std::optional<double> queue_ms;        ///< nothing: it never ran
  std::optional<double> first_token_ms;  ///< nothing: there was none
  int64_t accepted_drafts = 0;
};

struct AccessRecord {
  std::chrono::system_clock::time_point time = std::chrono::system_clock::now();  ///< of the end
  std::string request_id;
  std::string peer;  ///< address of the client
  std::string key;   ///< name of the API key; empty: none was found
  std::string method;
  std::string path;  ///< from ? on it is left out
  int status = 0;
  double total_ms = 0;
  std::optional<AnswerRecord> answer;
};

/// The line without its line feed.
std::string AccessLine(const AccessRecord& record);

class AccessLog {
 public:
  /// `--access-log off|FILE|-`: nothing, the end of a file (made with mode 0640), standard error.
  static Result<std::unique_ptr<AccessLog>> Open(const std::string& target);
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  void Write(const AccessRecord& record);

  /// Opens the file anew, after it was renamed (SIGHUP). The old one stays in use when that fails.
  Status Reopen();

  /// Lines that were lost.
  int64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  AccessLog(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  const std::string path_;  // empty: not a file of ours
  std::mutex mutex_;        // guards descriptor_
  int descriptor_;          // -1: off
  std::atomic<int64_t> lost_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_ACCESS_LOG_H_
