// What holds for any output: random mixtures of markup, whole and cut.
#include <gtest/gtest.h>

#include "output_fixture.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

using testing::Parse;
using testing::Parsed;
using testing::WithMarks;
using Kind = OutputEvent::Kind;

class Garbage {
 public:
  explicit Garbage(uint64_t seed) : random_(seed) {}

  std::mt19937_64* random() { return &random_; }
  bool OneIn(uint64_t n) { return random_() % n == 0; }

  template <typename T, size_t n>
  const T& Of(const T (&values)[n]) {
    return values[random_() % n];
  }

  // Whole pieces of markup, with `cut` also their beginnings and ends.
  std::string Text(bool cut) {
    static const std::string kPieces[] = {"<｜DSML｜",
                                          "</｜DSML｜",
                                          "</think>",
                                          "<think>",
                                          "\n",
                                          "\n\n",
                                          " calls>\n",
                                          "tool_calls>",
                                          "</｜DSML｜ calls>",
                                          " invoke name=\"f\">\n",
                                          "<｜DSML｜ invoke name=\"g\">",
                                          " parameter name=\"a\" string=\"true\">",
                                          "<｜DSML｜ parameter name=\"a\" string=\"false\">",
                                          "</｜DSML｜ parameter>",
                                          "</｜DSML｜ invoke>",
                                          " parameter name=\"b\" string=\"false\">",
                                          "\"",
                                          "{",
                                          "}",
                                          "[1, ",
                                          "]",
                                          "1",
                                          "null",
                                          "```json\n",
                                          "```\n",
                                          "\n```",
                                          "END",
                                          "日本",
                                          "🚀",
                                          "a",
                                          "\\",
                                          "false\">",
                                          "x y",
                                          "\t"};
    std::string text;
    for (uint64_t pieces = random_() % 30; pieces > 0; --pieces) {
      std::string piece = Of(kPieces);
      if (cut && OneIn(4)) {
        const auto characters = testing::Characters(piece);
        const uint64_t from = random_() % characters.size();
        const uint64_t to = from + random_() % (characters.size() - from) + 1;
        std::string part;
        for (uint64_t i = from; i < to; ++i) part += characters[i];
        piece = part;
      }
      text += piece;
    }
    return text;
  }

  OutputParserOptions Options() {
    static const OutputStart kStarts[] = {OutputStart::kThinkLead, OutputStart::kThink, OutputStart::kContentLead,
                                          OutputStart::kContent, OutputStart::kCalls};
    static const std::string kStops[] = {"END", "\n\n", "\n", "<", "</think>", "a", "日", "aa", "END\n", "", "｜DS"};
    OutputParserOptions options;
    options.start = Of(kStarts);
    options.parse_tool_calls = !OneIn(4);
    options.json_object = OneIn(4);
    if (OneIn(3)) {
      for (uint64_t stops = random_() % 4; stops > 0; --stops) options.stop.push_back(Of(kStops));
    }
    if (OneIn(4)) options.tool_names = {"f"};
    if (OneIn(4)) options.max_calls = 1;
    return options;
  }

 private:
  std::mt19937_64 random_;
};

TEST(OutputProperties, TheSameWhateverTheChunks) {
  Garbage garbage(testing::RunSeed("output chunks"));
  for (int round = 0; round < 20'000 && !::testing::Test::HasFailure(); ++round) {
    OutputParserOptions options = garbage.Options();
    std::string text = garbage.Text(/*cut=*/true);
    if (garbage.OneIn(2)) {
      options = WithMarks(options);
      if (!garbage.OneIn(4)) text = WithMarks(text);
    }
    SCOPED_TRACE(text);
    const bool complete = !garbage.OneIn(3);
    const Parsed whole = Parse(options, text, complete);
    EXPECT_EQ(Parse(options, testing::Characters(text), complete), whole);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(Parse(options, testing::RandomPieces(text, 1 + i * 4u, garbage.random()), complete), whole);
    }
  }
}

// What a call is cut off at changes only its end.
TEST(OutputProperties, ATruncatedAnswerIsTheBeginningOfTheWhole) {
  Garbage garbage(testing::RunSeed("output cut off"));
  for (int round = 0; round < 5'000 && !::testing::Test::HasFailure(); ++round) {
    const OutputParserOptions options = garbage.Options();
    const std::string text = garbage.Text(/*cut=*/false);
    SCOPED_TRACE(text);
    const Parsed complete = Parse(options, text, true);
    const Parsed truncated = Parse(options, text, false);
    for (const Kind kind : {Kind::kReasoning, Kind::kText, Kind::kCallBegin}) {
      EXPECT_EQ(truncated.All(kind), complete.All(kind));
    }
    EXPECT_EQ(truncated.stop_sequence, complete.stop_sequence);
    EXPECT_LE(truncated.events.size(), complete.events.size());
  }
}

// Markup that is not cut is never text, but where dropping a </think> brings its parts together.
TEST(OutputProperties, NoMarkupInTextOrReasoning) {
  Garbage garbage(testing::RunSeed("output markup"));
  int calls = 0;
  for (int round = 0; round < 20'000 && !::testing::Test::HasFailure(); ++round) {
    OutputParserOptions options = garbage.Options();
    options.parse_tool_calls = true;
    const std::string text = garbage.Text(/*cut=*/false);
    SCOPED_TRACE(text);
    const Parsed parsed = Parse(options, text);
    const std::string reasoning = parsed.All(Kind::kReasoning);
    EXPECT_EQ(reasoning.find(special_token::kEndThink), std::string::npos);
    EXPECT_EQ(reasoning.find("<｜DSML｜"), std::string::npos);
    const std::string answer = parsed.All(Kind::kText);
    EXPECT_EQ(answer.find("<｜DSML｜"), std::string::npos);
    EXPECT_TRUE(options.json_object || answer.find(special_token::kEndThink) == std::string::npos) << answer;
    calls += parsed.calls;
  }
  EXPECT_GT(calls, 1000) << "the pieces hardly ever make a call";
}

}  // namespace
}  // namespace deepinfer
