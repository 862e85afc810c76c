// LineEditor: reads lines from the terminal with editing and a history that outlives the program (libedit).
//
// Needs a live Interrupt (app/interrupt.h), whose flag a Ctrl-C sets. Thread-safety: the main thread only. Ownership:
// the editor owns its state; the history file is replaced as a whole, so a reader never sees half of it.
#ifndef DEEPINFER_APP_LINE_EDITOR_H_
#define DEEPINFER_APP_LINE_EDITOR_H_

#include <memory>
#include <string>

namespace deepinfer {

class LineEditor {
 public:
  enum class Event { kLine, kEndOfInput, kInterrupted };

  /// `history_file` may be empty (no file) or in a folder that does not exist yet. What cannot be read or written only
  /// costs the history.
  explicit LineEditor(std::string history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  /// Shows `prompt` on standard error and reads one line, without its end.
  Event ReadLine(const std::string& prompt, std::string* line);

  /// Appends to the history and saves it.
  void Remember(const std::string& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Where the chat keeps its lines: $XDG_STATE_HOME or ~/.local/state, empty when neither is known.
std::string DefaultHistoryFile();

}  // namespace deepinfer

#endif  // DEEPINFER_APP_LINE_EDITOR_H_
