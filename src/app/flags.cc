#include "app/flags.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <CLI/CLI.hpp>
#include <cstring>
#include <random>

namespace deepinfer {
namespace {

/// The whole of `text` as a number.
template <typename Number>
bool ParseWhole(const std::string& text, Number* number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && stop == end;
}

/// "-r,--repetitions" -> "--repetitions", for messages.
std::string LongName(const std::string& name) { return name.substr(name.rfind(',') + 1); }

Result<std::string> ReadDescriptor(int descriptor, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = read(descriptor, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::Io(name + ": " + std::strerror(errno));
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace

CLI::Option* AddIntegerFlag(CLI::App& flags, const std::string& name, int64_t* value, int64_t low, int64_t high,
                            const std::string& help) {
  const auto parse = [name, value, low, high](const std::string& text) {
    if (!ParseWhole(text, value) || *value < low || *value > high) {
      const std::string range = high == std::numeric_limits<int64_t>::max() ? fmt::format("of {} or more", low)
                                                                            : fmt::format("from {} to {}", low, high);
      throw CLI::ValidationError(LongName(name), fmt::format("expected a whole number {}, found '{}'", range, text));
    }
  };
  return flags.add_option_function<std::string>(name, parse, help)->type_name("N");
}

CLI::Option* AddNumberFlag(CLI::App& flags, const std::string& name, double* value, const std::string& help) {
  const auto parse = [name, value](const std::string& text) {
    if (!ParseWhole(text, value))
      throw CLI::ValidationError(LongName(name), fmt::format("expected a number, found '{}'", text));
  };
  return flags.add_option_function<std::string>(name, parse, help)->type_name("X");
}

CLI::Option* AddChoiceFlag(CLI::App& flags, const std::string& name, std::string* value,
                           const std::vector<std::string>& choices, const std::string& help) {
  const auto parse = [name, value, choices](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      throw CLI::ValidationError(LongName(name),
                                 fmt::format("expected {}, found '{}'", fmt::join(choices, " or "), text));
    }
    *value = text;
  };
  return flags.add_option_function<std::string>(name, parse, help)
      ->type_name(fmt::format("{}", fmt::join(choices, "|")));
}

void SamplingFlags::AddTo(CLI::App& flags) {
  AddNumberFlag(
      flags, "--temperature", &params.temperature,
      fmt::format("Randomness, 0 to 2; 0 always takes the most likely token (default {})", params.temperature));
  AddIntegerFlag(flags, "--top-k", &params.top_k, 0, std::numeric_limits<int32_t>::max(),
                 "Draw from the N most likely tokens (default 0: all)");
  AddNumberFlag(
      flags, "--top-p", &params.top_p,
      fmt::format("Draw from the most likely tokens that together reach this probability (default {})", params.top_p));
  AddNumberFlag(flags, "--min-p", &params.min_p,
                "Drop tokens below this share of the most likely one's probability (default 0)");
  const auto parse_seed = [this](const std::string& text) {
    has_seed = true;
    if (!ParseWhole(text, &params.seed) || params.seed > uint64_t{std::numeric_limits<int64_t>::max()}) {
      throw CLI::ValidationError(
          "--seed", fmt::format("expected a whole number from 0 to 9223372036854775807, found '{}'", text));
    }
  };
  flags.add_option_function<std::string>("--seed", parse_seed, "The same seed gives the same text (default: random)")
      ->type_name("N");
  AddIntegerFlag(flags, "--max-tokens", &params.max_tokens, 1, SamplingParams::kNoLimit,
                 params.max_tokens == SamplingParams::kNoLimit
                     ? "Longest answer in tokens (default: until the context is full)"
                     : fmt::format("Longest answer in tokens (default {})", params.max_tokens));
  flags
      .add_option_function<std::vector<std::string>>(
          "--stop", [this](const std::vector<std::string>& texts) { params.stops = texts; },
          "End the answer before this text; may be given up to 16 times")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

Status SamplingFlags::Check() {
  const Status status = params.Validate();
  if (!status.ok()) {
    // The field "top_p: ..." is the flag "--top-p: ...".
    std::string message = status.message();
    std::replace(message.begin(), message.begin() + message.find(':'), '_', '-');
    return Status(status.code(), "--" + message);
  }
  if (!has_seed) {
    std::random_device device;
    params.seed = (uint64_t{device()} << 32 | device()) >> 1;
  }
  return Status::Ok();
}

Result<std::vector<int32_t>> ParseIds(const std::string& name, const std::string& text) {
  std::vector<int32_t> ids;
  constexpr std::string_view kSeparators = ", \t\r\n";
  size_t begin = text.find_first_not_of(kSeparators);
  while (begin != std::string::npos) {
    const size_t end = std::min(text.size(), text.find_first_of(kSeparators, begin));
    const std::string word = text.substr(begin, end - begin);
    int32_t id = 0;
    if (!ParseWhole(word, &id) || id < 0) {
      return Status::InvalidArgument(
          fmt::format("{}: expected token ids separated by commas or blanks, found '{}'", name, word));
    }
    ids.push_back(id);
    begin = text.find_first_not_of(kSeparators, end);
  }
  if (ids.empty()) return Status::InvalidArgument(name + ": expected token ids, found none");
  return ids;
}

Result<std::string> ReadInput(const std::string& path) {
  if (path == "-") return ReadStandardInput();
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return Status::Io(path + ": " + std::strerror(errno));
  Result<std::string> text = ReadDescriptor(descriptor, path);
  close(descriptor);
  return text;
}

Result<std::string> ReadStandardInput() { return ReadDescriptor(STDIN_FILENO, "standard input"); }

}  // namespace deepinfer
