// LoadAnswer: the events of one streamed answer -> what a load generator counts of it.
//
// Reads Chat Completions and Completions of any server. Times are told by the caller, so that results do not depend on
// a clock. Thread-safety: one thread at a time. Ownership: owns its record. Errors: in the record.
#ifndef DEEPINFER_APP_LOAD_ANSWER_H_
#define DEEPINFER_APP_LOAD_ANSWER_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

/// What became of one request. Times in seconds of one clock.
struct LoadRecord {
  enum class Outcome : uint8_t { kNotSent, kRunning, kDone, kFailed };

  Outcome outcome = Outcome::kNotSent;
  std::string error;  ///< with kFailed
  double sent = 0;
  double first_piece = 0;     ///< with pieces > 0
  double last_piece = 0;      ///< likewise
  double ended = 0;           ///< of the response; kDone and kFailed
  std::vector<double> gaps;   ///< [pieces - 1] between pieces of text
  int64_t pieces = 0;         ///< events with text: content, reasoning or arguments of a call
  bool has_usage = false;     ///< the server has told tokens; else the counts below are pieces and 0
  int64_t prompt_tokens = 0;  ///< cached ones included
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  std::string finish_reason;
};

class LoadAnswer {
 public:
  explicit LoadAnswer(double sent);

  /// One event of the stream.
  void AddEvent(std::string_view name, std::string_view data, double now);
  /// The response has ended. `status` 0: there was none; `body` of one that is no stream; `broken`: why the transport
  /// failed, empty when it did not.
  void Finish(int status, std::string_view body, std::string_view broken, double now);

  const LoadRecord& record() const { return record_; }

 private:
  void AddChoices(const nlohmann::json& choices, double now);
  void AddUsage(const nlohmann::json& usage);
  void AddPiece(double now);
  void Fail(std::string why);

  LoadRecord record_;
  bool complete_ = false;  // the stream said that it ends
};

/// "HTTP 503: the message of the body" for any server's error body.
std::string HttpErrorText(int status, std::string_view body);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_LOAD_ANSWER_H_
