#include "app/flags.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstring>
#include <random>

#include "base/machine.h"
#include "base/thread_pool.h"

namespace deepinfer {
namespace {

/// The whole of `text` as a number.
template <typename Number>
bool ParseWhole(const std::string& text, Number* number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && stop == end;
}

/// "-r,--repetitions" -> "--repetitions", "--ctx,--max-model-len" -> "--ctx", for messages.
std::string LongName(const std::string& name) {
  const size_t begin = name.find("--");
  return begin == std::string::npos ? name : name.substr(begin, name.find(',', begin) - begin);
}

/// The number in the text of flag `name`, or an error that names it.
int64_t ParseInteger(const std::string& name, const std::string& text, int64_t low, int64_t high) {
  int64_t value = 0;
  if (!ParseWhole(text, &value) || value < low || value > high) {
    const std::string range = high == std::numeric_limits<int64_t>::max() ? fmt::format("of {} or more", low)
                                                                          : fmt::format("from {} to {}", low, high);
    throw CLI::ValidationError(LongName(name), fmt::format("expected a whole number {}, found '{}'", range, text));
  }
  return value;
}

/// Fields whose flag is not their name with hyphens, and single words, which count as fields at the beginning only.
constexpr std::pair<std::string_view, std::string_view> kFlagOfField[] = {
    {"device", ""},
    {"gpu_layers", ""},
    {"engram", ""},
    {"max_model_len", "--ctx"},
    {"kv_memory_bytes", "--kv-memory"},
    {"kv_memory", "--kv-memory"},
    {"snapshot_memory_bytes", "--snapshot-memory"},
    {"snapshot_memory", ""},
    {"kv_host_bytes", "--kv-host-gib"},
    {"kv_host_file", "--kv-host-file"},
    {"kv_disk_bytes", "--kv-disk-gib"},
    {"kv_disk", "--kv-disk"},
    {"kv_shared_bytes", "--kv-shared-gib"},
    {"kv_shared", "--kv-shared"},
    {"kv_ttl_seconds", "--kv-ttl"},
    {"kv_key_file", "--kv-key-file"},
    {"kv_least_tokens", ""},
    {"bad_words", "--bad-word"},
    {"stop_token_ids", "--stop-token-id"},
    {"n", "-n"},
    {"max_num_seqs", ""},
    {"max_num_batched_tokens", ""},
    {"tpot_target_ms", ""},
    {"replay_keep", ""},
    {"replay_grid", ""},
    {"draft_length", ""},
    {"threads", ""},
    {"logit_bias", ""},
    {"repetition_penalty", ""},
    {"frequency_penalty", ""},
    {"presence_penalty", ""},
    {"temperature", ""},
    {"top_k", ""},
    {"top_p", ""},
    {"min_p", ""},
    {"seed", ""},
    {"max_tokens", ""},
    {"min_tokens", ""},
    {"stop", ""},
    {"logprobs", ""},
    {"prompt_logprobs", ""},
};

bool IsFieldCharacter(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }

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
    *value = ParseInteger(name, text, low, high);
  };
  return flags.add_option_function<std::string>(name, parse, help)->type_name("N");
}

CLI::Option* AddIntegerFlag(CLI::App& flags, const std::string& name, int* value, int low, int high,
                            const std::string& help) {
  const auto parse = [name, value, low, high](const std::string& text) {
    *value = static_cast<int>(ParseInteger(name, text, low, high));
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

CLI::Option* AddRepeatedFlag(CLI::App& flags, const std::string& name, std::function<void(const std::string& text)> add,
                             const std::string& help) {
  const auto add_all = [add = std::move(add)](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) add(text);
  };
  return flags.add_option_function<std::vector<std::string>>(name, add_all, help)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

CLI::Option* AddMemoryFlag(CLI::App& flags, const std::string& name, int64_t* value, const std::string& help) {
  const auto parse = [name, value](const std::string& text) {
    const Result<int64_t> bytes = ParseMemorySize(text);
    if (!bytes.ok()) throw CLI::ValidationError(LongName(name), bytes.status().message());
    *value = *bytes;
  };
  return flags.add_option_function<std::string>(name, parse, help)->type_name("SIZE");
}

void AddDeviceFlag(CLI::App& flags, std::string* device) {
  flags.add_option("--device", *device,
                   fmt::format("Where to compute: cpu, cuda (the first GPU), cuda:N, or auto: a GPU where there is one "
                               "(default {})",
                               *device));
}

void AddPlacementFlags(CLI::App& flags, int64_t* gpu_layers, std::string* engram) {
  AddIntegerFlag(flags, "--gpu-layers,--n-gpu-layers", gpu_layers, 0, std::numeric_limits<int64_t>::max(),
                 "Layers whose weights stay on the GPU; those of the rest come from host memory whenever they are used "
                 "(default: all; no effect on a CPU)");
  AddChoiceFlag(flags, "--engram", engram, {"disk", "host", "device"},
                fmt::format("Engram tables: disk: rows are read when they are asked for; host: all into memory at the "
                            "start; device: into the GPU's (default {})",
                            *engram));
}

void AddThreadsFlag(CLI::App& flags, int* threads) {
  AddIntegerFlag(flags, "--threads", threads, 1, kMostThreads,
                 fmt::format("Threads to compute with (default: all that may be used here, {})", AvailableThreads()));
}

void AddActivationFlag(CLI::App& flags, std::string* format) {
  AddChoiceFlag(flags, "--activation-quant", format, {"official", "off"},
                fmt::format("official: FP8 activations as released; off: unquantised (default {})", *format));
}

Result<int64_t> ParseMemorySize(const std::string& text) {
  constexpr std::string_view kUnits = "kmgt";
  const Status error = Status::InvalidArgument(
      fmt::format("expected a size such as 512MiB, 1.5G or a number of bytes, found '{}'", text));
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (failure != std::errc() || !(number >= 0)) return error;
  std::string unit(stop, end);
  unit.erase(0, unit.find_first_not_of(' '));
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  double factor = 1;
  if (!unit.empty() && unit != "b") {
    const size_t power = kUnits.find(unit[0]);
    const std::string_view rest = std::string_view(unit).substr(1);
    if (power == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib")) return error;
    factor = std::pow(rest == "b" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
  }
  const double bytes = number * factor;
  if (bytes >= static_cast<double>(std::numeric_limits<int64_t>::max())) return error;
  return static_cast<int64_t>(bytes);
}

Status NameFlags(const Status& status) {
  const std::string& message = status.message();
  std::string named;
  for (size_t begin = 0; begin < message.size();) {
    if (!IsFieldCharacter(message[begin])) {
      named += message[begin++];
      continue;
    }
    size_t end = begin;
    while (end < message.size() && IsFieldCharacter(message[end])) ++end;
    const std::string_view word = std::string_view(message).substr(begin, end - begin);
    const bool leads = begin == 0 && end < message.size() && message[end] == ':';
    const bool stands_alone = begin == 0 || message[begin - 1] == ' ' || message[begin - 1] == '(';
    const auto* const entry = std::find_if(std::begin(kFlagOfField), std::end(kFlagOfField),
                                           [&](const auto& candidate) { return candidate.first == word; });
    if (entry == std::end(kFlagOfField) || !(leads || (stands_alone && word.find('_') != std::string_view::npos))) {
      named += word;
    } else if (!entry->second.empty()) {
      named += entry->second;
    } else {
      std::string flag = "--" + std::string(word);
      std::replace(flag.begin(), flag.end(), '_', '-');
      named += flag;
    }
    begin = end;
  }
  return Status(status.code(), named);
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
  AddPenaltiesTo(flags);
  AddEndingTo(flags);
}

void SamplingFlags::AddPenaltiesTo(CLI::App& flags) {
  AddNumberFlag(flags, "--repetition-penalty", &params.repetition_penalty,
                "Above 1: tokens of the prompt and the answer become less likely (default 1)");
  AddNumberFlag(flags, "--presence-penalty", &params.presence_penalty,
                "-2 to 2, taken from the logit of tokens that the answer has (default 0)");
  AddNumberFlag(flags, "--frequency-penalty", &params.frequency_penalty,
                "-2 to 2, taken for every time that the answer has the token (default 0)");
  const auto add_bias = [this](const std::string& text) {
    LogitBias bias;
    const size_t colon = std::min(text.find(':'), text.size());
    if (colon == text.size() || !ParseWhole(text.substr(0, colon), &bias.id) || bias.id < 0 ||
        !ParseWhole(text.substr(colon + 1), &bias.bias)) {
      throw CLI::ValidationError("--logit-bias", fmt::format("expected ID:BIAS such as 17:-2.5, found '{}'", text));
    }
    params.logit_bias.push_back(bias);
  };
  AddRepeatedFlag(flags, "--logit-bias", add_bias, "Add BIAS, -100 to 100, to the logit of a token; may be repeated")
      ->type_name("ID:BIAS");
  AddRepeatedFlag(
      flags, "--bad-word", [this](const std::string& text) { params.bad_words.push_back(text); },
      "The answer never completes this text; may be repeated")
      ->type_name("TEXT");
}

void SamplingFlags::AddEndingTo(CLI::App& flags) {
  AddIntegerFlag(flags, "--max-tokens", &params.max_tokens, 1, SamplingParams::kNoLimit,
                 params.max_tokens == SamplingParams::kNoLimit
                     ? "Longest answer in tokens (default: until the context is full)"
                     : fmt::format("Longest answer in tokens (default {})", params.max_tokens));
  AddIntegerFlag(flags, "--min-tokens", &params.min_tokens, 0, SamplingParams::kNoLimit,
                 "Choose nothing that would end the answer before so many tokens (default 0)");
  AddRepeatedFlag(
      flags, "--stop", [this](const std::string& text) { params.stops.push_back(text); },
      "End the answer before this text; may be given up to 16 times")
      ->type_name("TEXT");
  const auto add_stop_id = [this](const std::string& text) {
    params.stop_token_ids.push_back(
        static_cast<int32_t>(ParseInteger("--stop-token-id", text, 0, std::numeric_limits<int32_t>::max())));
  };
  AddRepeatedFlag(flags, "--stop-token-id", add_stop_id, "End the answer with this token; may be repeated")
      ->type_name("ID");
  flags.add_flag("--ignore-eos", params.ignore_eos, "Go on after the end-of-sentence token");
}

Status SamplingFlags::Check() {
  const Status status = params.Validate();
  if (!status.ok()) return NameFlags(status);
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
