// Any bytes as a grammar, and a walk through it: refused with a one-line message, or a grammar whose matcher agrees,
// after every token, rollback and replay, with one that matched the same tokens from the start.
// One source for the front ends: DEEPINFER_FUZZ_FRONT_END is CompileRegex, CompileEbnf or CompileSchema.
// Input: the grammar, a zero byte, then the choices of the walk.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "grammar/front_ends.h"
#include "grammar/matcher.h"

namespace {

using namespace deepinfer;

[[maybe_unused]] Result<Grammar> CompileSchema(std::string_view text, const GrammarLimits& limits) {
  JsonSchemaOptions options;
  options.key_order = JsonSchemaOptions::KeyOrder::kAny;
  return CompileJsonSchema(text, options, limits);
}

void Require(bool condition) {
  if (!condition) std::abort();
}

constexpr int32_t kEnd = 300;
constexpr size_t kMaxSteps = 24;

/// Every byte, some texts of several, and an end.
std::shared_ptr<const TokenTrie> SmallTrie() {
  static const auto trie = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* text :
         {"\": ", "{\"", "\"}", "\", \"", "ab", "abc", "the", "12", "1.", "\n  ", "\xC3\xA9", "\xE6\xBC"}) {
      tokens.emplace_back(text);
    }
    return *TokenTrie::FromTokens(tokens, 320);
  }();
  return trie;
}

std::vector<uint32_t> MaskOf(Matcher* matcher, bool* exhausted) {
  std::vector<uint32_t> words(SmallTrie()->words());
  *exhausted = !matcher->FillMask(words).ok();
  return words;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t border = std::min(input.find('\0'), input.size());
  GrammarLimits limits;
  limits.max_regex_nodes = 30'000;
  limits.max_states = 20'000;
  limits.max_edges = 100'000;
  limits.max_work = 300'000;
  auto source = DEEPINFER_FUZZ_FRONT_END(input.substr(0, border), limits);
  if (!source.ok()) {
    const std::string message = source.status().message();
    Require(!message.empty());
    return 0;
  }
  MatcherLimits matcher_limits;
  matcher_limits.recogniser.max_bytes = size_t{4} << 20;
  matcher_limits.recogniser.max_items_per_row = 20'000;
  matcher_limits.recogniser.max_regex_nodes = 20'000;
  matcher_limits.recogniser.max_work = 100'000;
  const auto grammar = CompiledGrammar::Make(std::move(*source), SmallTrie(), matcher_limits);
  Matcher matcher(grammar, {kEnd});
  std::vector<int32_t> accepted;
  size_t steps = 0;
  for (size_t i = border + 1; i < input.size() && steps < kMaxSteps; ++i, ++steps) {
    const auto choice = static_cast<uint8_t>(input[i]);
    bool exhausted = false;
    const std::vector<uint32_t> mask = MaskOf(&matcher, &exhausted);
    if (exhausted) return 0;
    if (choice % 8 == 7) {
      const size_t count = choice / 8 % (accepted.size() + 1);
      matcher.Rollback(count);
      accepted.resize(accepted.size() - count);
      continue;
    }
    std::vector<int32_t> tokens;
    for (int32_t token = 0; token < SmallTrie()->width(); ++token) {
      const bool in_mask = (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
      if (in_mask) tokens.push_back(token);
    }
    Require(!tokens.empty() || matcher.ended());
    if (tokens.empty()) continue;
    const int32_t token = tokens[choice * 31u % tokens.size()];
    const auto taken = matcher.Accept(token);
    if (!taken.ok()) return 0;
    Require(*taken);
    accepted.push_back(token);
    Matcher again(grammar, {kEnd});
    for (const int32_t earlier : accepted) {
      const auto retaken = again.Accept(earlier);
      if (!retaken.ok()) return 0;
      Require(*retaken);
    }
    const std::vector<uint32_t> expected = MaskOf(&again, &exhausted);
    if (exhausted) return 0;
    const std::vector<uint32_t> found = MaskOf(&matcher, &exhausted);
    if (exhausted) return 0;
    Require(found == expected && matcher.MayEnd() == again.MayEnd());
  }
  return 0;
}
