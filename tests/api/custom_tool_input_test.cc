// The input of a custom tool call: read out of its arguments alike however they are cut.
#include "api/custom_tool_input.h"

#include <gtest/gtest.h>

#include <random>

#include "text/json_text.h"

namespace deepinfer {
namespace {

std::string Whole(const std::string& arguments) {
  CustomToolInput reader;
  std::string input;
  reader.Feed(arguments, &input);
  reader.Finish(&input);
  return input;
}

std::string ByteByByte(const std::string& arguments) {
  CustomToolInput reader;
  std::string input;
  for (const char c : arguments) reader.Feed({&c, 1}, &input);
  reader.Finish(&input);
  return input;
}

TEST(CustomToolInput, Cases) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"input": "a"})", "a"},
      {"{\n \"input\"\t:\"\"}", ""},
      {R"({"input":"q\" b\\ s\/ \b\f\n\r\t é \u00e9 \u20ac \ud83d\ude00"})", "q\" b\\ s/ \b\f\n\r\t é é € 😀"},
      {R"({"input":"\ud83d x \ude00 \ud83d\u0041 \uzzzz"})", "\uFFFD x \uFFFD \uFFFDA \uFFFD"},
      {R"({"input":"cut)", "cut"},
      {R"({"input":"cut\)", "cut"},
      {R"({"input":"cut\u00)", "cut"},
      {R"({"input":"a","more":1})", "a"},
      {R"({"more":1,"input":"a"})", "a"},
      {R"({"input":5})", R"({"input":5})"},
      {R"({"other":"a"})", R"({"other":"a"})"},
      {R"({"inp)", R"({"inp)"},
      {"[1]", "[1]"},
      {"{}", ""},
      {"", ""},
  };
  for (const auto& [arguments, input] : cases) {
    EXPECT_EQ(Whole(arguments), input) << arguments;
    EXPECT_EQ(ByteByByte(arguments), input) << arguments;
  }
}

TEST(CustomToolInput, RandomTexts) {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (unsigned i = random() % 40; i > 0; --i) {
      static constexpr const char* kPieces[] = {"\"",   "\\", "\n", "u0041", "é",
                                                "\x01", "}",  "😀",  "x",     "*** Begin Patch"};
      text += kPieces[random() % std::size(kPieces)];
    }
    std::string arguments = "{\"input\": ";
    AppendPythonString(text, &arguments);
    arguments += "}";
    EXPECT_EQ(Whole(arguments), text);
    EXPECT_EQ(ByteByByte(arguments), text);
  }
}

}  // namespace
}  // namespace deepinfer
