// The matcher: masks against the naive computation, rollback against matching again, ends, forced bytes.
#include "grammar/matcher.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "grammar_fixture.h"

namespace deepinfer::testing {
namespace {

const std::vector<std::string> kPatterns = {
    "[a-z]{1,7}( [a-z]+)*\\.", "\"([^\"\\\\]|\\\\.){0,6}\"",          "\"[^\"\\\\]{3,12}\" [0-9]+",
    "(Yes|No|Perhaps)!?",      "[0-9]{4}-[0-9]{2}-[0-9]{2}",          "(.|\\n)*",
    "é+(漢|字)*[^a]",          " *\\{ *\"name\" *: *\"[^\"]*\" *\\}",
};

std::shared_ptr<const CompiledGrammar> Compiled(const std::string& pattern, const MatcherLimits& limits = {}) {
  auto grammar = CompileRegex(pattern);
  EXPECT_TRUE(grammar.ok()) << grammar.status().message();
  return CompiledGrammar::Make(std::move(*grammar), NanoTrie(), limits);
}

std::vector<int32_t> MaskOf(Matcher* matcher) {
  std::vector<uint32_t> words(NanoTrie()->words());
  EXPECT_TRUE(matcher->FillMask(words).ok());
  return TokensOf(words);
}

TEST(MatcherTest, MaskIsTheNaiveOne) {
  const int32_t end = EndToken(*NanoTrie());
  std::mt19937 random(5);
  for (const std::string& pattern : kPatterns) {
    const auto grammar = Compiled(pattern);
    for (int walk = 0; walk < 4; ++walk) {
      Matcher matcher(grammar, {end});
      std::string text;
      for (int step = 0; step < 12; ++step) {
        std::vector<int32_t> naive = NaiveMask(grammar->grammar(), text, *NanoTrie());
        if (matcher.MayEnd()) {
          naive.push_back(end);
          std::ranges::sort(naive);
        }
        EXPECT_EQ(matcher.MayEnd(), Accepts(grammar->grammar(), text));
        const std::vector<int32_t> mask = MaskOf(&matcher);
        ASSERT_EQ(mask, naive) << pattern << " after " << text;
        ASSERT_FALSE(mask.empty());
        const int32_t token = mask[random() % mask.size()];
        ASSERT_TRUE(*matcher.Accept(token));
        if (token == end) break;
        text += NanoTrie()->BytesOf(token);
      }
    }
  }
}

TEST(MatcherTest, StatesThatDifferInHighCountsShareMasks) {
  // The naive mask knows nothing of that.
  const auto length = static_cast<int>(NanoTrie()->longest_token());
  const std::string count = std::to_string(length + 9);
  const std::string more = std::to_string(length + 400);
  const std::vector<std::string> patterns = {
      "[a-z ]{" + count + "}!",
      "[a-z ]{0," + more + "}",
      "([a-z]{1,9} ){" + count + "," + more + "}end",
      "((a|the| )?){" + count + "}x{" + more + "}",
      "([a-z]{0," + more + "}[0-9]| {" + count + "}){3," + more + "}[.]",
  };
  const int32_t end = EndToken(*NanoTrie());
  std::mt19937 random(8);
  for (const std::string& pattern : patterns) {
    const auto grammar = Compiled(pattern);
    Matcher matcher(grammar, {end});
    std::string text;
    for (int step = 0; step < 90; ++step) {
      std::vector<int32_t> mask = MaskOf(&matcher);
      if (step % 9 == 0) {
        std::vector<int32_t> naive = NaiveMask(grammar->grammar(), text, *NanoTrie());
        if (matcher.MayEnd()) naive.push_back(end);
        std::ranges::sort(naive);
        ASSERT_EQ(mask, naive) << pattern << " after " << text;
      }
      if (mask.size() > 1) std::erase(mask, end);
      const int32_t token = mask[random() % mask.size()];
      ASSERT_TRUE(*matcher.Accept(token));
      if (token == end) break;
      text += NanoTrie()->BytesOf(token);
    }
  }
}

TEST(MatcherTest, TokensOutsideTheMaskAreRefusedAndChangeNothing) {
  const auto grammar = Compiled(kPatterns[0]);
  const int32_t end = EndToken(*NanoTrie());
  Matcher matcher(grammar, {end});
  const std::vector<int32_t> before = MaskOf(&matcher);
  for (int32_t token = -1; token <= NanoTrie()->width(); ++token) {
    const bool in_mask = std::ranges::binary_search(before, token);
    const auto accepted = matcher.Accept(token);
    ASSERT_TRUE(accepted.ok());
    ASSERT_EQ(*accepted, in_mask) << token;
    if (*accepted) matcher.Rollback(1);
  }
  EXPECT_EQ(MaskOf(&matcher), before);
  EXPECT_EQ(matcher.accepted(), 0u);
}

TEST(MatcherTest, RollbackIsAsIfTheTokensHadNotBeen) {
  const int32_t end = EndToken(*NanoTrie());
  std::mt19937 random(7);
  MatcherLimits small;  // emptied and matched again in the middle of things
  small.recogniser.max_bytes = 300'000;
  for (const MatcherLimits& limits : {MatcherLimits{}, small}) {
    for (const std::string& pattern : kPatterns) {
      const auto grammar = Compiled(pattern, limits);
      Matcher matcher(grammar, {end});
      std::vector<int32_t> tokens;
      for (int step = 0; step < 60; ++step) {
        if (!tokens.empty() && random() % 3 == 0) {
          const size_t count = random() % (tokens.size() + 1);
          matcher.Rollback(count);
          tokens.resize(tokens.size() - count);
        }
        const std::vector<int32_t> mask = MaskOf(&matcher);
        Matcher again(grammar, {end});
        for (const int32_t token : tokens) ASSERT_TRUE(*again.Accept(token));
        ASSERT_EQ(mask, MaskOf(&again)) << pattern;
        ASSERT_EQ(matcher.MayEnd(), again.MayEnd());
        ASSERT_EQ(matcher.accepted(), tokens.size());
        if (mask.empty()) continue;  // ended
        tokens.push_back(mask[random() % mask.size()]);
        ASSERT_TRUE(*matcher.Accept(tokens.back()));
      }
    }
  }
}

TEST(MatcherTest, EndsExactlyWhereTheGrammarAccepts) {
  const int32_t end = EndToken(*NanoTrie());
  Matcher matcher(Compiled("ab?"), {end});
  EXPECT_FALSE(*matcher.Accept(end));
  const auto accept_byte = [&](char c) {
    for (int32_t token = 0; token < NanoTrie()->width(); ++token) {
      if (NanoTrie()->BytesOf(token) == std::string(1, c)) return *matcher.Accept(token);
    }
    return false;
  };
  EXPECT_TRUE(accept_byte('a'));
  EXPECT_TRUE(matcher.MayEnd());
  EXPECT_FALSE(*matcher.MustEnd());
  EXPECT_TRUE(accept_byte('b'));
  EXPECT_TRUE(*matcher.MustEnd());
  EXPECT_EQ(MaskOf(&matcher), std::vector<int32_t>{end});
  EXPECT_TRUE(*matcher.Accept(end));
  EXPECT_TRUE(matcher.ended());
  EXPECT_TRUE(MaskOf(&matcher).empty());
  EXPECT_FALSE(accept_byte('b'));
  matcher.Rollback(2);
  EXPECT_FALSE(matcher.ended());
  EXPECT_TRUE(matcher.MayEnd());
  EXPECT_FALSE(*matcher.MustEnd());
}

TEST(MatcherTest, ForcedBytesAreWhatEveryTextContinuesWith) {
  Matcher matcher(Compiled("\\{\"name\": (\"ab|\"ac)\"\\}"), {});
  EXPECT_EQ(*matcher.ForcedBytes(100), "{\"name\": \"a");
  EXPECT_EQ(*matcher.ForcedBytes(4), "{\"na");
  EXPECT_TRUE(*matcher.Admits("{\"name\": \"ab"));
  EXPECT_FALSE(*matcher.Admits("{\"name\": \"ad"));
  Matcher open(Compiled("a*"), {});
  EXPECT_EQ(*open.ForcedBytes(100), "");
}

TEST(MatcherTest, NoFallbackPastTheLimits) {
  MatcherLimits limits;
  limits.recogniser.max_bytes = 100'000;
  const auto grammar = Compiled("(a|b)*a(a|b){2000}c", limits);
  Matcher matcher(grammar, {});
  std::vector<uint32_t> words(NanoTrie()->words());
  Status status;
  for (int step = 0; step < 3000 && status.ok(); ++step) {
    status = matcher.FillMask(words);
    if (!status.ok()) break;
    const std::vector<int32_t> tokens = TokensOf(words);
    ASSERT_FALSE(tokens.empty());
    const auto accepted = matcher.Accept(tokens[static_cast<size_t>(step) * 7919 % tokens.size()]);
    status = accepted.status();
  }
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace deepinfer::testing
