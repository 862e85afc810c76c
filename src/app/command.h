// Command: one subcommand of the program, its flags and what it does.
//
// A command is made, declares its flags, is checked once they are parsed, and runs. Exit statuses: 0 done, 1 a run-time
// error, 2 a usage error, 130 stopped by Ctrl-C. Answers go to standard output, everything else to standard error.
// Thread-safety: the main thread only. Ownership: a command owns the values that its flags are parsed into.
#ifndef DEEPINFER_APP_COMMAND_H_
#define DEEPINFER_APP_COMMAND_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/status.h"

namespace CLI {
class App;
}

namespace deepinfer {

inline constexpr int kExitOk = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

class Command {
 public:
  virtual ~Command() = default;

  /// One word, or two: "bench latency".
  virtual std::string_view name() const = 0;
  /// One line for the list of commands.
  virtual std::string_view summary() const = 0;
  virtual void AddFlags(CLI::App& flags) = 0;
  /// What is wrong with the flags by themselves: a usage error.
  virtual Status Check() { return Status::Ok(); }
  /// The exit status, or a run-time error.
  virtual Result<int> Run() = 0;
};

std::unique_ptr<Command> MakeChatCommand();
std::unique_ptr<Command> MakeGenerateCommand();
std::unique_ptr<Command> MakeServeCommand();
std::unique_ptr<Command> MakeTokenizeCommand();
std::unique_ptr<Command> MakeRenderCommand();
std::unique_ptr<Command> MakeInfoCommand();
std::unique_ptr<Command> MakeDoctorCommand();
std::unique_ptr<Command> MakeBenchCommand();
std::unique_ptr<Command> MakeBenchThroughputCommand();
std::unique_ptr<Command> MakeBenchLatencyCommand();
std::unique_ptr<Command> MakeBenchServeCommand();
std::unique_ptr<Command> MakeCalibrateCommand();
std::unique_ptr<Command> MakeGrammarCheckCommand();
/// kv stats, list, verify, export, prune and delete.
std::vector<std::unique_ptr<Command>> MakeKvCommands();
std::unique_ptr<Command> MakeVersionCommand();

/// Parses the command line, runs the command it names and returns the exit status. Prints errors as one line.
int RunCommandLine(int argument_count, char** arguments, const std::vector<std::unique_ptr<Command>>& commands);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_COMMAND_H_
