#include <fmt/format.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

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
Status CheckLeftOver(const CLI::App& flags) {
  for (const std::string& word : flags.remaining()) {
    if (word == "--") continue;
    if (!word.starts_with('-')) {
      return Status::InvalidArgument(fmt::format("unexpected argument '{}'; see {} --help", word, flags.get_name()));
    }
    const std::string flag = word.substr(0, word.find('='));
    return Status::InvalidArgument(
        fmt::format("unknown flag '{}'{}; see {} --help", flag, DidYouMean(flag, FlagNames(flags)), flags.get_name()));
  }
  return Status::Ok();
}

std::string ListOf(const std::vector<const Command*>& commands) {
  std::string text;
  for (const Command* command : commands) text += fmt::format("  {:<18}{}\n", command->name(), command->summary());
  return text + "\ndeepinfer COMMAND --help lists the flags of a command.\n";
}

int PrintOverview(const std::vector<std::unique_ptr<Command>>& commands) {
  std::vector<const Command*> all;
  for (const auto& command : commands) all.push_back(command.get());
  const Status status =
      WriteAll(1, "Runs DeepSeek-V4.1 checkpoints.\nUsage: deepinfer COMMAND [flags]\n\n" + ListOf(all));
  return status.ok() ? kExitOk : PrintError(status.message(), kExitError);
}

bool AsksForHelp(std::string_view word) { return word == "-h" || word == "--help" || word == "help"; }

/// `group` is the first word of commands of two, and no command itself; `word` stands behind it, or nothing does.
int AnswerForGroup(std::string_view group, const std::vector<const Command*>& commands, std::string_view word) {
  const bool asks = AsksForHelp(word);
  if (asks || word.empty() || word.starts_with('-')) {  // a usage error, unless it was asked for
    const std::string usage = fmt::format("Usage: deepinfer {} COMMAND [flags]\n\n", group);
    const Status status = WriteAll(asks ? 1 : 2, usage + ListOf(commands));
    if (!status.ok()) return PrintError(status.message(), kExitError);
    return asks ? kExitOk : kExitUsage;
  }
  std::vector<std::string> names;
  for (const Command* command : commands) names.emplace_back(command->name());
  const std::string both = fmt::format("{} {}", group, word);
  return PrintError(
      fmt::format("unknown command '{}'{}; commands are {}", both, DidYouMean(both, names), fmt::join(names, ", ")),
      kExitUsage);
}

/// The words after the command's name. "--stop=" becomes "--stop" and an empty word: CLI11 would take the next word for
/// the value. Last word first, as CLI11 wants them.
std::vector<std::string> WordsToParse(const CLI::App& flags, int word_count, char** words) {
  const auto takes_value = [&](std::string_view name) {
    const CLI::Option* option = flags.get_option_no_throw(std::string(name));
    return name.starts_with("--") && option != nullptr && option->get_items_expected_max() > 0;
  };
  std::vector<std::string> parts;
  bool flags_end = false;
  for (int i = 1; i < word_count; ++i) {
    const std::string_view word = words[i];
    const std::string_view name = word.substr(0, word.find('='));
    flags_end = flags_end || word == "--";
    if (flags_end || !takes_value(name)) {
      parts.emplace_back(word);
    } else if (name.size() + 1 == word.size()) {
      parts.emplace_back(name);
      parts.emplace_back();
    } else {
      parts.emplace_back(word);
      if (name == word && i + 1 < word_count) parts.emplace_back(words[++i]);  // its value, whatever it looks like
    }
  }
  std::ranges::reverse(parts);
  return parts;
}

/// Parses the words after the command's name and runs it.
int RunCommand(Command& command, int word_count, char** words) {
  CLI::App flags(std::string(command.summary()), fmt::format("deepinfer {}", command.name()));
  flags.set_help_flag("-h,--help", "Print this help");
  flags.allow_extras();  // left-over words get an error of ours, with a suggestion
  flags.get_formatter()->column_width(34);
  command.AddFlags(flags);
  try {
    flags.parse(WordsToParse(flags, word_count, words));
  } catch (const CLI::Success& success) {  // --help
    return flags.exit(success);
  } catch (const CLI::ArgumentMismatch& error) {
    // "--top-p: 1 required X missing", in the words of the other errors.
    const std::string message = error.what();
    const bool no_value = message.ends_with(" missing");
    return PrintError(no_value ? message.substr(0, message.find(':')) + ": expected a value, found none" : message,
                      kExitUsage);
  } catch (const CLI::ParseError& error) {
    return PrintError(error.what(), kExitUsage);
  }
  try {
    Status usage = CheckLeftOver(flags);
    if (usage.ok()) usage = command.Check();
    if (!usage.ok()) return PrintError(usage.message(), kExitUsage);
    const Result<int> exit_status = command.Run();
    if (exit_status.ok()) return *exit_status;
    const bool cancelled = exit_status.status().code() == StatusCode::kCancelled;
    return PrintError(exit_status.status().message(), cancelled ? kExitInterrupted : kExitError);
  } catch (const std::exception& error) {  // memory that ran out, mostly: still one line and an exit status
    return PrintError(error.what(), kExitError);
  }
}

}  // namespace

int RunCommandLine(int argument_count, char** arguments, const std::vector<std::unique_ptr<Command>>& commands) {
  std::vector<std::string> names;
  names.reserve(commands.size());
  for (const auto& command : commands) names.emplace_back(command->name());
  if (argument_count < 2) {
    return PrintError(fmt::format("which command? one of {}; see deepinfer --help", fmt::join(names, ", ")),
                      kExitUsage);
  }
  // The command is the first word, or the first two, and no other, so that a message may consist of the same words.
  const std::string word = arguments[1];
  if (AsksForHelp(word)) return PrintOverview(commands);
  const std::string name = word == "--version" ? "version" : word;
  if (argument_count > 2) {
    const std::string both = name + " " + arguments[2];
    for (const auto& command : commands) {
      if (command->name() == both) return RunCommand(*command, argument_count - 2, arguments + 2);
    }
  }
  for (const auto& command : commands) {
    if (command->name() == name) return RunCommand(*command, argument_count - 1, arguments + 1);
  }
  std::vector<const Command*> group;
  for (const auto& command : commands) {
    if (command->name().starts_with(name + " ")) group.push_back(command.get());
  }
  if (!group.empty()) return AnswerForGroup(name, group, argument_count > 2 ? arguments[2] : "");
  if (word.starts_with('-')) {
    return PrintError(
        fmt::format("unknown flag '{}'; flags follow the command, as in deepinfer chat --threads 2", word), kExitUsage);
  }
  return PrintError(
      fmt::format("unknown command '{}'{}; commands are {}", word, DidYouMean(word, names), fmt::join(names, ", ")),
      kExitUsage);
}

}  // namespace deepinfer
