#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

struct Outcome {
  std::string text;
  std::string stop;
  bool operator==(const Outcome&) const = default;
};

/// Feeds `text` in pieces of `size` bytes.
Outcome FeedInPieces(const std::vector<std::string>& stops, std::string_view text, size_t size) {
  StopMatcher matcher(stops);
  Outcome outcome;
  for (size_t begin = 0; begin < text.size(); begin += size) outcome.text += matcher.Feed(text.substr(begin, size));
  if (matcher.matched() != nullptr) {
    outcome.stop = *matcher.matched();
  } else {
    outcome.text += matcher.Flush();
  }
  return outcome;
}

TEST(StopMatcher, FindsTheFirstToCompleteWhateverTheChunks) {
  const struct {
    std::vector<std::string> stops;
    std::string text;
    Outcome expected;
  } cases[] = {
      {{"END"}, "one END two", {"one ", "END"}},
      {{"END"}, "one EN two", {"one EN two", ""}},
      {{"END"}, "EENDX", {"E", "END"}},
      {{"aab"}, "aaaab", {"aa", "aab"}},
      {{"\n\n"}, "a\nb\n\nc", {"a\nb", "\n\n"}},
      {{"abcd", "bc"}, "xabcd", {"xa", "bc"}},  // completes first
      {{"bc", "abc"}, "xabc", {"xa", "bc"}},    // same byte: listed first
      {{"abc", "bc"}, "xabc", {"x", "abc"}},
      {{"", "z"}, "abc", {"abc", ""}},
      {{"\xC3\xA9"}, "caf\xC3\xA9!", {"caf", "\xC3\xA9"}},
      {{"END"}, "END", {"", "END"}},
      {{}, "anything", {"anything", ""}},
  };
  for (const auto& test : cases) {
    for (size_t size : {1u, 2u, 3u, 5u, 100u}) {
      EXPECT_EQ(FeedInPieces(test.stops, test.text, size), test.expected) << test.text << " by " << size;
    }
  }
}

TEST(StopMatcher, HoldsBackExactlyWhatCouldBeginAStop) {
  StopMatcher matcher({"abab", "bx"});
  EXPECT_EQ(matcher.Feed("za"), "z");
  EXPECT_EQ(matcher.Feed("b"), "");  // "ab" may become abab
  EXPECT_EQ(matcher.Feed("a"), "");  // "aba" too
  EXPECT_EQ(matcher.Feed("c"), "abac");
  EXPECT_EQ(matcher.Feed("b"), "");
  EXPECT_EQ(matcher.Flush(), "b");
}

TEST(StopMatcher, ReleasesNothingAfterTheStop) {
  StopMatcher matcher({"."});
  EXPECT_EQ(matcher.Feed("a.b"), "a");
  EXPECT_EQ(matcher.Feed("c"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

}  // namespace
}  // namespace deepinfer
