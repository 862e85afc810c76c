#include "checkpoint/json_reader.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

std::string ReadOne(std::string_view json) {
  JsonReader reader(json);
  std::string out;
  const Status status = reader.ReadString(&out);
  return status.ok() ? out : "error: " + status.message();
}

TEST(JsonReader, Strings) {
  EXPECT_EQ(ReadOne(" \"plain\""), "plain");
  EXPECT_EQ(ReadOne(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(ReadOne(R"("A\u00e9\u20ac\ud83e\udd8a")"), "A\xc3\xa9\xe2\x82\xac\xf0\x9f\xa6\x8a");
  EXPECT_EQ(ReadOne(R"("\ud83e")"), "error: byte 7: expected the second half of a surrogate pair, found '\"'");
  EXPECT_EQ(ReadOne(R"("\udd8a")"), "error: byte 7: expected the second half of a surrogate pair, found '\"'");
  EXPECT_EQ(ReadOne(R"("\ud83e\u0041")"), "error: byte 13: expected the second half of a surrogate pair, found '\"'");
  EXPECT_EQ(ReadOne(R"("\u12g4")"), "error: byte 3: expected four hexadecimal digits, found '1'");
  EXPECT_EQ(ReadOne(R"("\u-123")"), "error: byte 3: expected four hexadecimal digits, found '-'");
  EXPECT_EQ(ReadOne(R"("\x")"), "error: byte 2: expected an escape, found 'x'");
  EXPECT_EQ(ReadOne("\"a\nb\""), "error: byte 2: expected no control character inside a string, found byte 0x0a");
  EXPECT_EQ(ReadOne("\"open"), "error: byte 5: expected the closing '\"' of a string, found the end");
  EXPECT_EQ(ReadOne("\"open\\"), "error: byte 6: expected an escape, found the end");
}

std::string ReadNumber(std::string_view json) {
  JsonReader reader(json);
  int64_t out = 0;
  const Status status = reader.ReadInteger(&out);
  return status.ok() ? std::to_string(out) : status.message();
}

TEST(JsonReader, Integers) {
  EXPECT_EQ(ReadNumber("0"), "0");
  EXPECT_EQ(ReadNumber(" -17,"), "-17");
  EXPECT_EQ(ReadNumber("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(ReadNumber("9223372036854775808"), "byte 0: expected an integer that fits 64 bits, found '9'");
  for (const char* bad : {"01", "1.0", "1e3", "-", "+1", "x", "", "true", "\"1\""}) {
    EXPECT_NE(ReadNumber(bad).find("expected an integer"), std::string::npos) << bad;
  }
}

TEST(JsonReader, SkipsAnyValue) {
  for (const char* good : {"1", "-1.5e+3", "\"a\\\"b\"", "true", "false", "null", "[]", "{}", "[1, [2, {\"a\": null}]]",
                           "{\"a\": {\"b\": [true]}, \"c\": \"}\"}"}) {
    JsonReader reader(good);
    EXPECT_TRUE(reader.SkipValue().ok()) << good;
    EXPECT_TRUE(reader.ExpectEnd().ok()) << good;
  }
  for (const char* bad : {"", "[1", "[1,]", "{\"a\"}", "{1: 2}", "nul", "}", "[1}"}) {
    JsonReader reader(bad);
    EXPECT_FALSE(reader.SkipValue().ok()) << bad;
  }
}

TEST(JsonReader, DeepNestingIsRefusedNotRecursedInto) {
  const std::string deep(1 << 20, '[');
  JsonReader reader(deep);
  EXPECT_EQ(reader.SkipValue().message(), "byte 65: expected values nested less deeply, found '['");
}

TEST(JsonReader, PaddingMayBeSpaceOrZeroBytes) {
  using namespace std::string_view_literals;
  EXPECT_TRUE(JsonReader("  \n\0\0"sv).ExpectEnd().ok());
  EXPECT_FALSE(JsonReader("  x"sv).ExpectEnd().ok());
}

TEST(IsUtf8, AcceptsAndRefuses) {
  for (const char* good : {"", "plain ascii text", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "eight ok\xe2\x82\xac tail"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xe2\x82", "ascii then \xe2\x28\xa1"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad;
  }
}

}  // namespace
}  // namespace deepinfer
