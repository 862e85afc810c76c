#include "app/bench_load.h"

#include <fmt/format.h>

#include <charconv>
#include <CLI/CLI.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "app/flags.h"
#include "base/counter_rng.h"

namespace deepinfer {
namespace {

using Json = nlohmann::json;

bool ParseCount(std::string_view text, int64_t* count) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), *count);
  return error == std::errc() && stop == text.data() + text.size() && *count >= 1;
}

/// Modulo keeps the draw the same everywhere, which std::uniform_int_distribution does not promise.
int64_t Draw(const CountRange& range, std::mt19937_64* random) {
  return range.low + static_cast<int64_t>((*random)() % static_cast<uint64_t>(range.high - range.low + 1));
}

std::string RangeText(const CountRange& range) {
  return range.low == range.high ? fmt::format("{}", range.low) : fmt::format("{} to {}", range.low, range.high);
}

}  // namespace

Result<CountRange> ParseCountRange(const std::string& name, const std::string& text) {
  const std::string_view all = text;
  const size_t colon = std::min(all.find(':'), all.size());
  CountRange range;
  const bool has_high = colon < all.size();
  if (!ParseCount(all.substr(0, colon), &range.low) || (has_high && !ParseCount(all.substr(colon + 1), &range.high)) ||
      (has_high && range.high < range.low)) {
    return Status::InvalidArgument(
        fmt::format("{}: expected a count or a range of counts such as 64:256, found '{}'", name, text));
  }
  if (!has_high) range.high = range.low;
  return range;
}

Result<std::vector<std::string>> ParsePrompts(const std::string& name, const std::string& text) {
  std::vector<std::string> prompts;
  bool objects = false;
  size_t line_number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (prompts.empty()) objects = line.starts_with('{');
    if (objects) {
      const Json object = Json::parse(line, nullptr, false);
      if (!object.is_object() || !object.contains("prompt") || !object["prompt"].is_string()) {
        return Status::InvalidArgument(
            fmt::format("{}:{}: expected an object such as {{\"prompt\": \"text\"}}", name, line_number));
      }
      line = object["prompt"].get<std::string>();
    }
    prompts.push_back(std::move(line));
  }
  if (prompts.empty()) return Status::InvalidArgument(name + ": expected prompts, one a line, found none");
  return prompts;
}

void BenchLoad::AddTo(CLI::App& flags) {
  flags
      .add_option("--prompts", file_,
                  "Prompts, one a line, or JSON lines {\"prompt\": ...}; - for standard input (default: random tokens)")
      ->type_name("FILE");
  flags.add_option("--input-len", input_text_, "Tokens of a random prompt, N or LOW:HIGH (default 128)")
      ->type_name("RANGE");
  flags.add_option("--output-len", output_text_, "Longest answer in tokens, N or LOW:HIGH (default 64)")
      ->type_name("RANGE");
  AddIntegerFlag(flags, "--seed", &seed_, 0, std::numeric_limits<int64_t>::max(),
                 "Of random prompts, lengths and of sampling (default 0)");
  AddNumberFlag(flags, "--temperature", &temperature_, "Randomness of the answers, 0 to 2 (default 0)");
  flags.add_flag("--special", special_, "Control tokens spelt out in prompts of a file become tokens");
  flags.add_flag("--ignore-eos", ignore_eos_,
                 "Answers to prompts of a file go on after the end of sentence; those to random prompts always do");
}

Status BenchLoad::Check() {
  DEEPINFER_ASSIGN_OR_RETURN(input_, ParseCountRange("--input-len", input_text_));
  DEEPINFER_ASSIGN_OR_RETURN(output_, ParseCountRange("--output-len", output_text_));
  SamplingParams sampling;
  sampling.temperature = temperature_;
  return NameFlags(sampling.Validate());
}

Status BenchLoad::Read() {
  if (file_.empty()) return Status::Ok();
  DEEPINFER_ASSIGN_OR_RETURN(const std::string text, ReadInput(file_));
  DEEPINFER_ASSIGN_OR_RETURN(prompts_, ParsePrompts(file_, text));
  return Status::Ok();
}

Result<std::vector<GenerationRequest>> BenchLoad::Make(const Engine& engine, int64_t vocabulary, int64_t first,
                                                       int64_t count) const {
  std::vector<GenerationRequest> requests;
  requests.reserve(static_cast<size_t>(count));
  for (int64_t i = first; i < first + count; ++i) {
    std::mt19937_64 random(
        CounterBits(static_cast<uint64_t>(seed_), static_cast<uint64_t>(i), 0, RandomPurpose::kSeed));
    GenerationRequest request;
    request.sampling.seed = random() >> 1;
    request.sampling.temperature = temperature_;
    request.sampling.max_tokens = Draw(output_, &random);
    request.sampling.ignore_eos = ignore_eos_ || prompts_.empty();
    if (prompts_.empty()) {
      request.prompt.resize(static_cast<size_t>(Draw(input_, &random)));
      for (int32_t& id : request.prompt) id = static_cast<int32_t>(Draw({0, vocabulary - 1}, &random));
    } else {
      const std::string& text = prompts_[static_cast<size_t>(i % file_prompts())];
      DEEPINFER_RETURN_IF_ERROR(engine.Tokenize(text, special_, &request.prompt));
      const int32_t begin = engine.bos_token_id();
      if (request.prompt.empty() || request.prompt[0] != begin) request.prompt.insert(request.prompt.begin(), begin);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

std::string BenchLoad::Describe() const {
  const std::string prompts = prompts_.empty() ? fmt::format("random prompts of {} tokens", RangeText(input_))
                                               : fmt::format("prompts of {}", file_);
  return fmt::format("{}, answers of at most {}, temperature {:g}, seed {}", prompts, RangeText(output_), temperature_,
                     seed_);
}

}  // namespace deepinfer
