// Runs the built program as a user would: with pipes, or on a terminal of its own.
//
// Thread-safety: one thread. Every wait ends with a failure after kDeadline at the latest; nothing sleeps.
#ifndef DEEPINFER_TESTS_APP_PROGRAM_H_
#define DEEPINFER_TESTS_APP_PROGRAM_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace deepinfer {

struct ProgramResult {
  int exit_status = -1;  ///< -1 when a signal ended it
  int signal = 0;
  std::string out;
  std::string err;
};

/// `deepinfer ARGUMENTS` with `input` on standard input, run to its end. `environment` is added: "NAME=value".
ProgramResult RunProgram(const std::vector<std::string>& arguments, const std::string& input = "",
                         const std::vector<std::string>& environment = {});

/// The same for any command line of the shell, in which $DEEPINFER is the program.
ProgramResult RunShell(const std::string& command, const std::string& input = "");

/// The program on a pseudo terminal.
class TerminalProgram {
 public:
  explicit TerminalProgram(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});
  ~TerminalProgram();
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;

  void Send(const std::string& keys);
  void Signal(int signal_number);
  /// Reads until `text` has appeared after what earlier calls have found; false when the program ends before.
  bool Expect(const std::string& text);
  /// Reads to the end and returns the exit status, 128 + the signal that ended it, or -1 at the deadline.
  int Wait();
  /// All that the terminal has shown.
  const std::string& screen() const { return screen_; }

 private:
  /// Reads what is there, waiting for it; false at the end or the deadline.
  bool ReadMore();

  pid_t pid_ = -1;
  int terminal_ = -1;
  size_t found_ = 0;
  std::string screen_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_TESTS_APP_PROGRAM_H_
