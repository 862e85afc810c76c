#include "base/duration.h"

#include <gtest/gtest.h>

#include <limits>

namespace deepinfer {
namespace {

TEST(Duration, NumbersAndTheirUnits) {
  EXPECT_EQ(ParseDuration("90s"), 90);
  EXPECT_EQ(ParseDuration("30m"), 1'800);
  EXPECT_EQ(ParseDuration("12h"), 43'200);
  EXPECT_EQ(ParseDuration("3d"), 259'200);
  EXPECT_EQ(ParseDuration("0d"), 0);
  EXPECT_EQ(ParseDuration("9223372036854775807s"), std::numeric_limits<int64_t>::max());
}

TEST(Duration, NothingElse) {
  for (const char* text : {"", "s", "3", "3w", "3D", "3 d", " 3d", "3d ", "-3d", "+3d", "1.5h", "3ds", "1h30m", "d3",
                           "9223372036854775808s", "9223372036854775807m"}) {
    EXPECT_EQ(ParseDuration(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace deepinfer
