// JSON reading (strict, bounded, number spellings kept) and writing (as Python's json.dumps with ensure_ascii=False).
#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "text/json_text.h"

namespace deepinfer {
namespace {

std::string Python(std::string_view text) {
  const Result<JsonValue> value = ParseJson(text);
  if (!value.ok()) return "error: " + value.status().message();
  std::string out;
  AppendPythonJson(*value, &out);
  return out;
}

std::string Nested(size_t depth, std::string_view open, std::string_view close) {
  std::string text;
  for (size_t i = 0; i < depth; ++i) text += open;
  text += "1";
  for (size_t i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(PromptJsonText, WritesLikePython) {
  // Right-hand sides printed by Python 3.11.
  const std::pair<const char*, const char*> cases[] = {
      {R"({"b":1,"a":[true,false,null]})", R"({"b": 1, "a": [true, false, null]})"},
      {" \t\r\n{ } ", "{}"},
      {"[]", "[]"},
      {R"([[],{},[{}]])", R"([[], {}, [{}]])"},
      {R"("\u00e9\u7b2c\ud83d\ude00 é")", "\"é第😀 é\""},
      {R"("\"\\\/\b\f\n\r\t\u0001\u001F\u007f")", "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\""},
      {R"("\u2028 </script>")", "\"\xe2\x80\xa8 </script>\""},
      {"0", "0"},
      {"-0", "0"},
      {"-17", "-17"},
      {"18446744073709551616", "18446744073709551616"},
      {"-123456789012345678901234567890", "-123456789012345678901234567890"},
      {"1.0", "1.0"},
      {"1.50", "1.5"},
      {"-0.0", "-0.0"},
      {"1e5", "100000.0"},
      {"1E-5", "1e-05"},
      {"0.0001", "0.0001"},
      {"0.00001234", "1.234e-05"},
      {"1e15", "1000000000000000.0"},
      {"1e16", "1e+16"},
      {"9999999999999998.0", "9999999999999998.0"},
      {"123456789.123456789", "123456789.12345679"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"5e-324", "5e-324"},
      {"1e-400", "0.0"},
      {"-1e-400", "-0.0"},
      {"0.1", "0.1"},
      {"100.0e-2", "1.0"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(Python(text), expected) << text;
}

TEST(PromptJsonText, KeepsNumbersBeyondADouble) {
  const std::string digits(400, '9');
  EXPECT_EQ(Python("[" + digits + "]"), "[" + digits + "]");
  EXPECT_EQ(Python("1e400"), "1e400");
  EXPECT_EQ(Python("-1.5E+999999999999999999999"), "-1.5E+999999999999999999999");
  EXPECT_FALSE(ParseJson("1e400")->AsDouble().has_value());
  EXPECT_FALSE(ParseJson(digits)->AsInt64().has_value());
  EXPECT_EQ(ParseJson("0e999999999999999999999")->AsDouble(), 0.0);
  EXPECT_EQ(ParseJson("1e-999999999999999999999")->AsDouble(), 0.0);
}

TEST(PromptJsonText, IntegersAreThoseWrittenAsIntegers) {
  EXPECT_EQ(ParseJson("9223372036854775807")->AsInt64(), INT64_MAX);
  EXPECT_EQ(ParseJson("-9223372036854775808")->AsInt64(), INT64_MIN);
  EXPECT_FALSE(ParseJson("9223372036854775808")->AsInt64().has_value());
  EXPECT_FALSE(ParseJson("1.0")->AsInt64().has_value());
  EXPECT_FALSE(ParseJson("1e2")->AsInt64().has_value());
  EXPECT_FALSE(ParseJson("true")->AsInt64().has_value());
  EXPECT_FALSE(ParseJson("\"1\"")->AsInt64().has_value());
}

TEST(PromptJsonText, FloatsReadBackTheSame) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random();
    double value;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    std::string text;
    AppendPythonFloat(value, &text);
    EXPECT_EQ(ParseJson(text)->AsDouble(), value) << text;
    EXPECT_NE(text.find_first_of(".e"), std::string::npos) << text;
  }
}

TEST(PromptJsonText, RepeatedKeysKeepFirstPlaceAndLastValue) {
  EXPECT_EQ(Python(R"({"a":1,"b":2,"a":3})"), R"({"a": 3, "b": 2})");
  EXPECT_EQ(Python(R"({"x":{"k":1,"k":2},"x":[{"":1,"":{"":2,"":3}}]})"), R"({"x": [{"": {"": 3}}]})");
  std::string many = "{";
  for (int i = 0; i < 200000; ++i) many += "\"k" + std::to_string(i % 1000) + "\":" + std::to_string(i) + ",";
  many.back() = '}';
  const Result<JsonValue> value = ParseJson(many);
  ASSERT_TRUE(value.ok());
  ASSERT_EQ(value->AsObject()->size(), 1000u);
  EXPECT_EQ((*value->AsObject())[7].key, "k7");
  EXPECT_EQ((*value->AsObject())[7].value.AsInt64(), 199007);
}

TEST(PromptJsonText, ErrorsSayWhereAndWhat) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "line 1, column 1: expected a JSON value, found the end of the text"},
      {"  \n ", "line 2, column 2: expected a JSON value, found the end of the text"},
      {"[1,\n 2,,]", "line 2, column 4: expected a JSON value, found ','"},
      {"{\"a\" 1}", "line 1, column 6: expected ':' after a key, found '1'"},
      {"{\"a\":1,}", "line 1, column 8: expected a key in double quotes, found '}'"},
      {"{a:1}", "line 1, column 2: expected a key in double quotes, found 'a'"},
      {"[1 2]", "line 1, column 4: expected ',' or ']' after an array item, found '2'"},
      {"{\"a\":1 \"b\":2}", "line 1, column 8: expected ',' or '}' after an object member, found '\"'"},
      {"01", "line 1, column 2: expected the end of the text after the JSON value, found '1'"},
      {"-", "line 1, column 2: expected a digit after '-', found the end of the text"},
      {"1.", "line 1, column 3: expected a digit after the decimal point, found the end of the text"},
      {"1e+", "line 1, column 4: expected a digit in the exponent, found the end of the text"},
      {"+1", "line 1, column 1: expected a JSON value, found '+'"},
      {".5", "line 1, column 1: expected a JSON value, found '.'"},
      {"nul", "line 1, column 1: expected a JSON value, found 'n'"},
      {"NaN", "line 1, column 1: expected a JSON value, found 'N'"},
      {"\xEF\xBB\xBF{}", "line 1, column 1: expected a JSON value, found byte 0xEF"},
      {"'a'", "line 1, column 1: expected a JSON value, found '''"},
      {"\"a", "line 1, column 3: expected '\"' at the end of a string, found the end of the text"},
      {"\"a\nb\"", "line 1, column 3: expected a control character to be escaped inside a string, found byte 0x0A"},
      {"\"\\x\"", "line 1, column 3: expected an escape (one of \" \\ / b f n r t u) after '\\', found 'x'"},
      {"\"\\u12g4\"", "line 1, column 6: expected four hexadecimal digits after '\\u', found 'g'"},
      {"\"\\ud800\"", "line 1, column 8: expected a low surrogate escape after a high surrogate escape, found '\"'"},
      {"\"\\ud800\\u0041\"",
       "line 1, column 14: expected a low surrogate escape after a high surrogate escape, found '\"'"},
      {"\"\\udc00\"", "line 1, column 8: expected a high surrogate before a low surrogate escape, found '\"'"},
      {"\"\xff\"", "line 1, column 2: expected valid UTF-8 inside a string, found byte 0xFF"},
      {"\"\xc0\x80\"", "line 1, column 2: expected valid UTF-8 inside a string, found byte 0xC0"},
      {"\"\xed\xa0\x80\"", "line 1, column 2: expected valid UTF-8 inside a string, found byte 0xED"},
      {"\"\xf4\x90\x80\x80\"", "line 1, column 2: expected valid UTF-8 inside a string, found byte 0xF4"},
      {"\"\xe2\x82\"", "line 1, column 2: expected valid UTF-8 inside a string, found byte 0xE2"},
  };
  for (const auto& [text, message] : cases) {
    const Result<JsonValue> value = ParseJson(text);
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(value.status().message(), message) << text;
  }
}

TEST(PromptJsonText, DepthIsLimited) {
  for (const auto& [open, close] : {std::pair("[", "]"), std::pair("{\"a\":", "}")}) {
    EXPECT_TRUE(ParseJson(Nested(kMaxJsonDepth, open, close)).ok());
    for (const size_t depth : {size_t{kMaxJsonDepth} + 1, size_t{1000000}}) {
      const Result<JsonValue> deep = ParseJson(Nested(depth, open, close));
      ASSERT_FALSE(deep.ok());
      EXPECT_NE(deep.status().message().find("nested deeper than 128 levels"), std::string::npos);
    }
  }
}

// A second parser agrees on what is JSON and on what it means, for well-formed and for damaged text.
TEST(PromptJsonText, AgreesWithAnotherParser) {
  const std::string seeds[] = {
      R"({"a":[1,-2.5e3,"x\u00e9\n",{"b":null}],"é":true,"":[[]]})",
      R"([0.1,1E+2,"\ud83d\ude00","\\\/",false,{"k":{"k":[]}},12345678901234567890])",
  };
  std::mt19937 random(11);
  const std::string_view alphabet("{}[]\",:\\u0123456789.eE+-truefalsn \n\xc3\xa9\xf0\x9f\x80");
  size_t accepted = 0;
  for (int i = 0; i < 10000; ++i) {
    std::string text = seeds[i % 2];
    for (unsigned edits = random() % 4; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        default:
          text.erase(at, 1);
      }
    }
    const Result<JsonValue> ours = ParseJson(text);
    const auto theirs = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (theirs.is_discarded()) {
      // The other parser refuses numbers beyond a double.
      EXPECT_TRUE(!ours.ok() || text.find_first_of("eE") != std::string::npos) << text;
      continue;
    }
    ASSERT_TRUE(ours.ok()) << text << ": " << ours.status().message();
    ++accepted;
    std::string rewritten;
    AppendPythonJson(*ours, &rewritten);
    EXPECT_EQ(nlohmann::json::parse(rewritten), nlohmann::json::parse(text)) << text;
  }
  EXPECT_GT(accepted, 2000u);
}

}  // namespace
}  // namespace deepinfer
