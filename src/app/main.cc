#include <clocale>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "app/command.h"

int main(int argument_count, char** arguments) {
  // A reader that goes away ends the program quietly, also when the parent had SIGPIPE ignored.
  std::signal(SIGPIPE, SIG_DFL);
  // Line editing needs to know that the terminal speaks UTF-8; numbers stay in the C locale.
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");

  std::vector<std::unique_ptr<deepinfer::Command>> commands;
  commands.push_back(deepinfer::MakeChatCommand());
  commands.push_back(deepinfer::MakeGenerateCommand());
  commands.push_back(deepinfer::MakeServeCommand());
  commands.push_back(deepinfer::MakeTokenizeCommand());
  commands.push_back(deepinfer::MakeRenderCommand());
  commands.push_back(deepinfer::MakeInfoCommand());
  commands.push_back(deepinfer::MakeDoctorCommand());
  commands.push_back(deepinfer::MakeBenchCommand());
  commands.push_back(deepinfer::MakeBenchThroughputCommand());
  commands.push_back(deepinfer::MakeBenchLatencyCommand());
  commands.push_back(deepinfer::MakeBenchServeCommand());
  commands.push_back(deepinfer::MakeCalibrateCommand());
  commands.push_back(deepinfer::MakeGrammarCheckCommand());
  for (auto& command : deepinfer::MakeKvCommands()) commands.push_back(std::move(command));
  commands.push_back(deepinfer::MakeVersionCommand());
  return deepinfer::RunCommandLine(argument_count, arguments, commands);
}
