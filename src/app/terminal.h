// Standard output and error as the commands use them, and how an answer looks on a terminal.
//
// Thread-safety: the main thread only. Errors: kIo when the system refuses a write; a closed pipe ends the program.
#ifndef DEEPINFER_APP_TERMINAL_H_
#define DEEPINFER_APP_TERMINAL_H_

#include <string>
#include <string_view>

#include "deepinfer/status.h"

namespace deepinfer {

/// Writes all of `text` at once, unbuffered. `descriptor` 1: standard output, 2: standard error.
Status WriteAll(int descriptor, std::string_view text);

/// `text` without control characters other than line feed and tab, so that it cannot command a terminal. Well-formed
/// UTF-8 stays so.
std::string WithoutControls(std::string_view text);

enum class ColorMode { kAuto, kAlways, kNever };

/// How answers are shown; decided once from the flags and what the descriptors are.
struct AnswerStyle {
  bool terminal = false;        ///< standard output is one, or --color always says to treat it so
  bool escapes = false;         ///< dim by escape sequences
  bool error_terminal = false;  ///< standard error is one

  static AnswerStyle Detect(ColorMode mode);
};

enum class OutputPart { kReasoning, kContent };

/// Shows one answer as it arrives. On a terminal reasoning is dimmed and stands before the answer; otherwise it goes to
/// standard error, so that standard output holds the answer alone. Blank lines around both parts are left out.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(const AnswerStyle& style) : style_(style) {}

  void Add(OutputPart part, std::string_view text);
  /// The first write error, if there was one.
  const Status& status() const { return status_; }
  /// Ends the line; returns status().
  Status Finish();

 private:
  void Write(std::string_view text);
  /// Ends the dimmed part and, on a terminal, writes `gap`.
  void CloseReasoning(std::string_view gap);

  const AnswerStyle style_;
  Status status_;
  bool any_reasoning_ = false;
  bool any_content_ = false;
  bool in_reasoning_ = false;
  std::string newlines_;  // held until more text follows
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_TERMINAL_H_
