#include "app/load_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "base/counter_rng.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;

/// Streams of random texts: prefixes have others than requests.
constexpr uint64_t kPrefixStreams = uint64_t{1} << 32;

int64_t DrawAround(int64_t length, double ratio, std::mt19937_64* random) {
  const auto low = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(length) * (1 - ratio)));
  const auto high = std::max(low, static_cast<int64_t>(static_cast<double>(length) * (1 + ratio)));
  // Modulo keeps the draw the same everywhere, which std::uniform_int_distribution does not promise.
  return low + static_cast<int64_t>((*random)() % static_cast<uint64_t>(high - low + 1));
}

bool IsText(const Json& object, const char* key) { return object.contains(key) && object[key].is_string(); }

/// ShareGPT's turns up to the first answer, as messages; null when there is no question in front of it.
Json MessagesOf(const Json& conversations) {
  constexpr std::pair<std::string_view, std::string_view> kRoles[] = {
      {"system", "system"}, {"human", "user"}, {"user", "user"}};
  Json messages = Json::array();
  for (const Json& turn : conversations) {
    if (!turn.is_object() || !IsText(turn, "from") || !IsText(turn, "value")) break;
    const auto role = std::ranges::find(kRoles, turn["from"].get<std::string>(),
                                        &std::pair<std::string_view, std::string_view>::first);
    if (role == std::end(kRoles)) break;
    messages.push_back({{"role", role->second}, {"content", turn["value"]}});
    if (role->second == "user") return messages;
  }
  return nullptr;
}

/// One object of a file; nothing for one to leave out.
Result<std::optional<LoadPrompt>> ReadObject(const std::string& place, const Json& object) {
  LoadPrompt prompt;
  if (object.is_object() && IsText(object, "prompt")) {
    prompt.text = object["prompt"].get<std::string>();
  } else if (object.is_object() && object.contains("messages") && object["messages"].is_array()) {
    prompt.messages = object["messages"];
  } else if (object.is_object() && object.contains("conversations") && object["conversations"].is_array()) {
    prompt.messages = MessagesOf(object["conversations"]);
    if (prompt.messages.is_null()) return std::optional<LoadPrompt>();
  } else {
    return Status::InvalidArgument(place + ": expected an object with \"prompt\", \"messages\" or \"conversations\"");
  }
  for (const char* key : {"output_tokens", "max_tokens"}) {
    if (!object.contains(key)) continue;
    const Json& count = object[key];
    if (!count.is_number_integer() || count.get<int64_t>() < 1) {
      return Status::InvalidArgument(fmt::format("{}: {}: expected a count of at least 1", place, key));
    }
    prompt.output_tokens = count.get<int64_t>();
  }
  return std::optional<LoadPrompt>(std::move(prompt));
}

/// The objects of a file with where they stand.
Result<std::vector<std::pair<std::string, Json>>> ReadObjects(const std::string& name, const std::string& text) {
  std::vector<std::pair<std::string, Json>> objects;
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '[') {
    Json array = Json::parse(text, nullptr, false);
    if (!array.is_array()) return Status::InvalidArgument(name + ": expected a JSON array");
    for (size_t i = 0; i < array.size(); ++i) {
      objects.emplace_back(fmt::format("{}: [{}]", name, i), std::move(array[i]));
    }
    return objects;
  }
  size_t line_number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    objects.emplace_back(fmt::format("{}:{}", name, line_number), Json::parse(line, nullptr, false));
  }
  return objects;
}

}  // namespace

Result<std::vector<LoadPrompt>> ParseLoadFile(const std::string& name, const std::string& text) {
  DEEPINFER_ASSIGN_OR_RETURN(const auto objects, ReadObjects(name, text));
  std::vector<LoadPrompt> prompts;
  for (const auto& [place, object] : objects) {
    DEEPINFER_ASSIGN_OR_RETURN(std::optional<LoadPrompt> prompt, ReadObject(place, object));
    if (prompt.has_value()) prompts.push_back(std::move(*prompt));
  }
  if (prompts.empty()) return Status::InvalidArgument(name + ": expected prompts, found none");
  return prompts;
}

LoadDataset::LoadDataset(const LoadDatasetOptions& options, std::vector<LoadPrompt> of_file)
    : options_(options), of_file_(std::move(of_file)) {}

LoadPrompt LoadDataset::Make(int64_t index) const {
  const auto stream = static_cast<uint64_t>(index);
  std::mt19937_64 random(CounterBits(static_cast<uint64_t>(options_.seed), stream, 2, RandomPurpose::kSeed));
  const int64_t input = DrawAround(options_.input_tokens, options_.range_ratio, &random);
  const int64_t output = DrawAround(options_.output_tokens, options_.range_ratio, &random);
  if (options_.kind == LoadKind::kFile) {
    LoadPrompt prompt = of_file_[stream % of_file_.size()];
    if (prompt.output_tokens == 0) prompt.output_tokens = options_.output_tokens;
    return prompt;
  }
  LoadPrompt prompt;
  prompt.output_tokens = output;
  prompt.input_tokens = input;
  if (options_.kind == LoadKind::kSharedPrefix) {
    const uint64_t prefix = kPrefixStreams + stream % static_cast<uint64_t>(options_.prefixes);
    prompt.text = words_.Make(options_.seed, prefix, options_.prefix_tokens) + ' ';
    prompt.input_tokens += options_.prefix_tokens;
  }
  prompt.text += words_.Make(options_.seed, stream, input);
  return prompt;
}

}  // namespace deepinfer
