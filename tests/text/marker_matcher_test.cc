// MarkerMatcher against its definition, on random markers over few letters.
#include "text/marker_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>

#include "output_fixture.h"

namespace deepinfer {
namespace {

size_t NewlinesBefore(std::string_view text) { return text.size() - (text.find_last_not_of('\n') + 1); }

int Completed(const std::vector<Marker>& markers, std::string_view seen) {
  for (size_t i = 0; i < markers.size(); ++i) {
    if (!markers[i].text.empty() && seen.ends_with(markers[i].text)) return static_cast<int>(i);
  }
  return MarkerMatcher::kNone;
}

size_t Held(const std::vector<Marker>& markers, std::string_view seen) {
  size_t held = 0;
  for (const Marker& marker : markers) {
    if (marker.text.empty()) continue;
    for (size_t length = 0; length <= std::min(marker.text.size(), seen.size()); ++length) {
      if (!seen.ends_with(std::string_view(marker.text).substr(0, length))) continue;
      const size_t newlines = marker.takes_newlines ? NewlinesBefore(seen.substr(0, seen.size() - length)) : 0;
      held = std::max(held, length + newlines);
    }
  }
  return held;
}

TEST(MarkerMatcher, IsItsDefinition) {
  std::mt19937_64 random(testing::RunSeed("marker matcher"));
  const auto word = [&](std::string_view letters, size_t most) {
    std::string text;
    for (size_t length = random() % (most + 1); length > 0; --length) text += letters[random() % letters.size()];
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<Marker> markers;
    for (size_t count = random() % 5; count > 0; --count) {
      const bool takes_newlines = random() % 2 == 0;
      markers.push_back({word(takes_newlines ? "ab\xFF" : "ab\n", 5), takes_newlines});
    }
    const MarkerSet set(markers);
    MarkerMatcher matcher(&set);
    const std::string text = word("aab\n\n\xFF", 60);
    for (size_t end = 1; end <= text.size(); ++end) {
      const std::string_view seen = std::string_view(text).substr(0, end);
      const int completed = matcher.Step(text[end - 1]);
      ASSERT_EQ(completed, Completed(markers, seen)) << seen;
      ASSERT_EQ(matcher.held(), Held(markers, seen)) << seen;
      if (completed == MarkerMatcher::kNone) continue;
      const Marker& marker = markers[static_cast<size_t>(completed)];
      const size_t length = marker.text.size();
      const size_t newlines = marker.takes_newlines ? NewlinesBefore(seen.substr(0, end - length)) : 0;
      ASSERT_EQ(matcher.CompletedLength(completed), length + newlines) << seen;
    }
  }
}

}  // namespace
}  // namespace deepinfer
