#include <fmt/format.h>

#include <algorithm>
#include <CLI/CLI.hpp>

#include "app/command.h"
#include "app/suggest.h"
#include "app/terminal.h"

namespace deepinfer {
namespace {

int PrintError(std::string message, int exit_status) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  // Control characters of a file or a flag must not reach the terminal.
  (void)WriteAll(2, "deepinfer: " + WithoutControls(message) + "\n");
  return exit_status;
}

std::vector<std::string> FlagNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// An error when the parse left words over.
Status CheckLeftOver(const CLI::App& command) {
  for (const std::string& word : command.remaining()) {
    if (word == "--") continue;
    if (!word.starts_with('-')) {
      return Status::InvalidArgument(
          fmt::format("unexpected argument '{}'; see deepinfer {} --help", word, command.get_name()));
    }
    const std::string flag = word.substr(0, word.find('='));
    return Status::InvalidArgument(fmt::format("unknown flag '{}' of {}{}; see deepinfer {} --help", flag,
                                               command.get_name(), DidYouMean(flag, FlagNames(command)),
                                               command.get_name()));
  }
  return Status::Ok();
}

/// An error when no command was named.
Status CheckCommand(const CLI::App& app, const std::vector<std::unique_ptr<Command>>& commands) {
  std::vector<std::string> names;
  for (const auto& command : commands) names.emplace_back(command->name());
  const std::vector<std::string> words = app.remaining();
  if (words.empty()) {
    return Status::InvalidArgument(
        fmt::format("which command? one of {}; see deepinfer --help", fmt::join(names, ", ")));
  }
  if (words[0].starts_with('-')) {
    return Status::InvalidArgument(
        fmt::format("unknown flag '{}'; flags follow the command, as in deepinfer chat "
                    "--threads 2; see deepinfer --help",
                    words[0]));
  }
  return Status::InvalidArgument(fmt::format("unknown command '{}'{}; commands are {}", words[0],
                                             DidYouMean(words[0], names), fmt::join(names, ", ")));
}

}  // namespace

int RunCommandLine(int argument_count, char** arguments, std::vector<std::unique_ptr<Command>> commands) {
  CLI::App app("Runs DeepSeek-V4.1 checkpoints.", "deepinfer");
  app.set_help_flag("-h,--help", "Print this help");
  app.set_version_flag("--version", std::string("deepinfer ") + DEEPINFER_VERSION, "Print the version");
  app.allow_extras();
  app.get_formatter()->column_width(34);
  for (const auto& command : commands) {
    CLI::App* flags = app.add_subcommand(std::string(command->name()), std::string(command->summary()));
    flags->allow_extras();  // left-over words get an error of ours, with a suggestion
    command->AddFlags(*flags);
  }

  try {
    app.parse(argument_count, arguments);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success) == 0 ? kExitOk : kExitUsage;
  } catch (const CLI::ParseError& error) {
    return PrintError(error.what(), kExitUsage);
  }

  for (const auto& command : commands) {
    const CLI::App* flags = app.get_subcommand(std::string(command->name()));
    if (!flags->parsed()) continue;
    Status usage = CheckLeftOver(*flags);
    if (usage.ok() && !app.remaining().empty()) usage = CheckCommand(app, commands);
    if (usage.ok()) usage = command->Check();
    if (!usage.ok()) return PrintError(usage.message(), kExitUsage);
    const Result<int> exit_status = command->Run();
    return exit_status.ok() ? *exit_status : PrintError(exit_status.status().message(), kExitError);
  }
  return PrintError(CheckCommand(app, commands).message(), kExitUsage);
}

}  // namespace deepinfer
