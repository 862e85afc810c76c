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
constexpr size_t kMaxSteps = 16;
// Small limits and inputs: what a large grammar does wrong a small one does too, a thousand times more often.
constexpr size_t kMaxInput = 512;

/// Every byte, some texts of several, and an end. The longest is short, so that counts are high soon (token_mask.h).
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
  if (size > kMaxInput) return 0;
  const size_t border = std::min(input.find('\0'), input.size());
  GrammarLimits limits;
  limits.max_regex_nodes = 8'000;
  limits.max_states = 2'000;
  limits.max_edges = 8'000;
  limits.max_work = 60'000;
  auto source = DEEPINFER_FUZZ_FRONT_END(input.substr(0, border), limits);
  if (!source.ok()) {
    const std::string message = source.status().message();
    Require(!message.empty());
    return 0;
  }
  MatcherLimits matcher_limits;
  matcher_limits.recogniser.max_bytes = size_t{1} << 20;
  matcher_limits.recogniser.max_items_per_row = 2'000;
  matcher_limits.recogniser.max_regex_nodes = 8'000;
  matcher_limits.recogniser.max_work = 60'000;
  const auto grammar = CompiledGrammar::Make(std::move(*source), SmallTrie(), matcher_limits);
  Matcher matcher(grammar, {kEnd});
  std::vector<int32_t> accepted;
  // Whether `matcher` is as one that matched the accepted tokens from the start, and its mask the tokens that it takes;
  // true when a limit leaves that open.
  const auto agrees = [&] {
    bool exhausted = false;
    Matcher again(grammar, {kEnd});
    for (const int32_t earlier : accepted) {
      const auto retaken = again.Accept(earlier);
      if (!retaken.ok()) return true;
      if (!*retaken) return false;
    }
    const std::vector<uint32_t> expected = MaskOf(&again, &exhausted);
    if (exhausted) return true;
    const std::vector<uint32_t> found = MaskOf(&matcher, &exhausted);
    if (exhausted) return true;
    if (found != expected || matcher.MayEnd() != again.MayEnd()) return false;
    for (int32_t token = 0; token < SmallTrie()->width(); ++token) {
      const auto taken = again.Accept(token);
      if (!taken.ok()) return true;
      if (*taken != ((found[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0)) return false;
      if (*taken) again.Rollback(1);
    }
    return true;
  };
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
      Require(agrees());
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
  }
  Require(agrees());
  return 0;
}
