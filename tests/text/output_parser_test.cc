// What the recorded outputs do not reach: malformed calls, policies, marks, what is held back.
#include "text/output_parser.h"

#include <gtest/gtest.h>

#include "output_fixture.h"

namespace deepinfer {
namespace {

using testing::Characters;
using testing::Parse;
using testing::Parsed;
using testing::WithMarks;
using Kind = OutputEvent::Kind;

OutputParserOptions WithTools(OutputStart start = OutputStart::kContentLead) {
  OutputParserOptions options;
  options.start = start;
  options.parse_tool_calls = true;
  return options;
}

OutputParserOptions WithStop(std::vector<std::string> stop, OutputStart start = OutputStart::kContentLead) {
  OutputParserOptions options = WithTools(start);
  options.stop = std::move(stop);
  return options;
}

std::string Parameter(const std::string& name, const std::string& string, const std::string& value) {
  return "<｜DSML｜ parameter name=\"" + name + "\" string=\"" + string + "\">" + value + "</｜DSML｜ parameter>\n";
}

std::string Invoke(const std::string& name, const std::string& parameters) {
  return "<｜DSML｜ invoke name=\"" + name + "\">\n" + parameters + "</｜DSML｜ invoke>\n";
}

std::string Calls(const std::string& invokes) { return "\n\n<｜DSML｜ calls>\n" + invokes + "</｜DSML｜ calls>"; }

// The arguments of the one call in `output`, parsed in one piece and by characters, spelt and marked.
std::string Arguments(const std::string& output, bool complete = true) {
  const Parsed parsed = Parse(WithTools(), output, complete);
  EXPECT_EQ(parsed.calls, 1) << output;
  EXPECT_EQ(Parse(WithTools(), Characters(output), complete), parsed);
  const std::string marked = WithMarks(output);
  EXPECT_EQ(Parse(WithMarks(WithTools()), marked, complete), parsed);
  EXPECT_EQ(Parse(WithMarks(WithTools()), Characters(marked), complete), parsed);
  return parsed.All(Kind::kCallArguments);
}

std::string ArgumentsOf(const std::string& parameters) { return Arguments(Calls(Invoke("f", parameters))); }

TEST(OutputParser, NamesOfParametersAreEscaped) {
  EXPECT_EQ(ArgumentsOf(Parameter("a\\b\n", "false", "1")), R"({"a\\b\n": 1})");
  EXPECT_EQ(ArgumentsOf(Parameter("", "true", "x")), R"({"": "x"})");
  EXPECT_EQ(ArgumentsOf(Parameter("日", "true", "🚀\x01")), "{\"日\": \"🚀\\u0001\"}");
}

TEST(OutputParser, ValuesAreKeptToTheLetterWhenTheyAreJson) {
  for (const std::string value : {"1", "-0", "1.50", "1E+2", "123456789012345678901234567890", "null", "true", "\"x\"",
                                  "[]", "{}", " 1 ", "{\"b\":1,  \"a\":[1,\n2]}", "\"\\u00e9\""}) {
    EXPECT_EQ(ArgumentsOf(Parameter("v", "false", value)), "{\"v\": " + value + "}");
  }
}

TEST(OutputParser, ValuesThatAreNoJsonBecomeStrings) {
  const struct {
    std::string value;
    std::string json;
  } cases[] = {
      {"", R"("")"},
      {"\n", R"("\n")"},
      {"Oslo", R"("Oslo")"},
      {"True", R"("True")"},
      {"NaN", R"("NaN")"},
      {"01", R"("01")"},
      {"1, 2", R"("1, 2")"},
      {"1], [2", R"("1], [2")"},
      {"{\"a\": 1", R"("{\"a\": 1")"},
      {"1, \"b\": 2", R"("1, \"b\": 2")"},
      {"\"a\nb\"", R"("\"a\nb\"")"},
      {"'x'", R"("'x'")"},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(ArgumentsOf(Parameter("v", "false", test.value)), "{\"v\": " + test.json + "}");
  }
  // As deep as ParseJson reads it with the object of the arguments around it.
  const std::string fits = std::string(kMaxJsonDepth - 1, '[') + std::string(kMaxJsonDepth - 1, ']');
  EXPECT_EQ(ArgumentsOf(Parameter("v", "false", fits)), "{\"v\": " + fits + "}");
  EXPECT_EQ(ArgumentsOf(Parameter("v", "false", "[" + fits + "]")), "{\"v\": \"[" + fits + "]\"}");
}

TEST(OutputParser, TheFirstOfRepeatedParametersStays) {
  EXPECT_EQ(ArgumentsOf(Parameter("a", "false", "1") + Parameter("b", "true", "x") + Parameter("a", "true", "y") +
                        Parameter("b", "false", "{") + Parameter("c", "true", "")),
            R"({"a": 1, "b": "x", "c": ""})");
  // Names of different calls have nothing to do with each other.
  const Parsed parsed =
      Parse(WithTools(), Calls(Invoke("f", Parameter("a", "false", "1")) + Invoke("f", Parameter("a", "false", "2"))));
  EXPECT_EQ(parsed.All(Kind::kCallArguments), R"({"a": 1}{"a": 2})");
}

TEST(OutputParser, ACleanStopClosesTheCallThatIsOpen) {
  const std::string call = "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">";
  const std::string one = call + Parameter("a", "true", "x");
  const struct {
    std::string output;
    std::string complete;
    std::string truncated;
  } cases[] = {
      {call, "{}", ""},
      {call + "\n<｜DSML｜ parameter name=\"a", "{}", ""},
      {call + "\n<｜DSML｜ parameter name=\"a\" string=\"tr", "{}", ""},
      {call + "\n<｜DSML｜ parameter name=\"a\" string=\"true\">", R"({"a": ""})", R"({"a": ")"},
      {call + "\n<｜DSML｜ parameter name=\"a\" string=\"true\">x\n</｜DS", R"({"a": "x\n</｜DS"})",
       R"({"a": "x\n</｜DS)"},
      {one, R"({"a": "x"})", R"({"a": "x")"},
      {one + "<｜DSML｜ parameter name=\"b", R"({"a": "x"})", R"({"a": "x")"},
      {one + "<｜DSML｜ parameter name=\"b\" string=\"false\">", R"({"a": "x", "b": ""})", R"({"a": "x", "b": )"},
      {one + "<｜DSML｜ parameter name=\"b\" string=\"false\">12", R"({"a": "x", "b": 12})", R"({"a": "x", "b": 12)"},
      {one + "<｜DSML｜ parameter name=\"b\" string=\"false\">[1, <", R"({"a": "x", "b": "[1, <"})",
       R"({"a": "x", "b": [1, <)"},
      {one + "<｜DSML｜ parameter name=\"a\" string=\"true\">y", R"({"a": "x"})", R"({"a": "x")"},
      {one + "<｜DSML｜ parameter name=\"a\" string=\"false\">1", R"({"a": "x"})", R"({"a": "x")"},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(Arguments(test.output), test.complete);
    EXPECT_EQ(Arguments(test.output, /*complete=*/false), test.truncated);
    const Parsed truncated = Parse(WithTools(), test.output, /*complete=*/false);
    EXPECT_NE(truncated.events.back().kind, Kind::kCallEnd);
  }
}

TEST(OutputParser, MarkupThatIsMissing) {
  // The end of the block, of the invokes, of the parameter; a call never gets the parameters of the next.
  EXPECT_EQ(Arguments("<｜DSML｜ invoke name=\"f\">" + Parameter("a", "false", "1")), R"({"a": 1})");
  const std::string two =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n" + Parameter("a", "false", "1") +
      "<｜DSML｜ invoke name=\"g\">\n<｜DSML｜ parameter name=\"b\" string=\"true\">x</｜DSML｜ invoke>\n"
      "<｜DSML｜ invoke name=\"h\">\n</｜DSML｜ invoke>";
  EXPECT_EQ(Parse(WithTools(), two).events, (std::vector<OutputEvent>{{Kind::kCallBegin, "f", 0},
                                                                      {Kind::kCallArguments, R"({"a": 1})", 0},
                                                                      {Kind::kCallEnd, "", 0},
                                                                      {Kind::kCallBegin, "g", 1},
                                                                      {Kind::kCallArguments, R"({"b": "x"})", 1},
                                                                      {Kind::kCallEnd, "", 1},
                                                                      {Kind::kCallBegin, "h", 2},
                                                                      {Kind::kCallArguments, "{}", 2},
                                                                      {Kind::kCallEnd, "", 2}}));
  // A parameter without a type is none, and takes nothing from the next.
  EXPECT_EQ(ArgumentsOf("<｜DSML｜ parameter name=\"a\">x</｜DSML｜ parameter>\n" + Parameter("b", "true", "y")),
            R"({"b": "y"})");
  // A call without a name is none.
  EXPECT_EQ(Parse(WithTools(), Calls(Invoke("", Parameter("a", "true", "x")))).events, std::vector<OutputEvent>());
}

TEST(OutputParser, CallsOfUnknownToolsAreDropped) {
  OutputParserOptions options = WithTools();
  options.tool_names = {"ns::read", "g", "f"};
  const std::string output =
      "Hi" + Calls(Invoke("rm", Parameter("a", "true", "x")) + Invoke("ns::read", Parameter("b", "true", "y")) +
                   Invoke("F", "") + Invoke("g", Parameter("c", "false", "[")) + Invoke("r", ""));
  EXPECT_EQ(Parse(options, output).events, (std::vector<OutputEvent>{{Kind::kText, "Hi"},
                                                                     {Kind::kCallBegin, "ns::read", 0},
                                                                     {Kind::kCallArguments, R"({"b": "y"})", 0},
                                                                     {Kind::kCallEnd, "", 0},
                                                                     {Kind::kCallBegin, "g", 1},
                                                                     {Kind::kCallArguments, R"({"c": "["})", 1},
                                                                     {Kind::kCallEnd, "", 1}}));
}

TEST(OutputParser, CallsBeyondTheLimitAreDropped) {
  OutputParserOptions options = WithTools();
  options.tool_names = {"f"};
  options.max_calls = 2;
  // Done as soon as the last one has ended, with its own end or where the next begins.
  for (const std::string& last : {Invoke("f", ""), std::string("<｜DSML｜ invoke name=\"f\"> invoke name=\"")}) {
    OutputParser parser(options);
    std::vector<OutputEvent> events;
    parser.Feed("<｜DSML｜ calls>" + Invoke("f", "") + Invoke("x", "") + last, &events);
    EXPECT_TRUE(parser.done());
    EXPECT_FALSE(parser.stopped());
    EXPECT_EQ(parser.calls(), 2);
  }
  const Parsed parsed = Parse(options, Calls(Invoke("f", "") + Invoke("f", "") + Invoke("f", "")));
  EXPECT_EQ(parsed.calls, 2);
  EXPECT_EQ(parsed.All(Kind::kCallBegin), "ff");
}

TEST(OutputParser, BothSpellingsOfTheMarkup) {
  std::string v4 =
      "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"true\">x\n"
      "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
  EXPECT_EQ(Arguments(v4), R"({"a": "x\n"})");
  EXPECT_TRUE(Parse(WithTools(), v4 + "<｜DSML｜invoke name=\"g\">").calls == 1) << "the block has ended";
}

TEST(OutputParser, StopsInTheAnswerOnly) {
  const struct {
    OutputParserOptions options;
    std::string output;
    std::string text;
    std::string stop;
  } cases[] = {
      {WithStop({"\n"}), "\nx", "", "\n"},  // on the same byte the stop comes before the leading newline
      {WithStop({"\n\n"}), "\n\nx\n\ny", "x", "\n\n"},
      {WithStop({"\n\n"}), "a\n\n<｜DSML｜ calls>", "a", "\n\n"},
      {WithStop({"\n<"}), "a\n\n<｜DSML｜ calls>", "a\n", "\n<"},
      {WithStop({"</think>"}), "a</think>", "a", "</think>"},
      {WithStop({"bc", "abc"}), "xabc", "xa", "bc"},
      {WithStop({"abc", "bc"}), "xabc", "x", "abc"},
      {WithStop({"日本"}), "a日日本語", "a日", "日本"},
      {WithStop({"x"}, OutputStart::kThinkLead), "x\n</think>\nyx", "y", "x"},
      {WithStop({"aa"}), "a</think>a", "aa", ""},  // nothing matches across a marker
  };
  for (const auto& test : cases) {
    for (const Parsed& parsed : {Parse(test.options, test.output), Parse(test.options, Characters(test.output))}) {
      EXPECT_EQ(parsed.All(Kind::kText), test.text);
      EXPECT_EQ(parsed.stop_sequence, test.stop);
      EXPECT_EQ(parsed.calls, 0);
    }
  }
}

TEST(OutputParser, JsonAnswers) {
  OutputParserOptions options = WithStop({"END"});
  options.json_object = true;
  const auto expect = [&](const std::string& output, const std::string& text, int calls = 0) {
    for (const Parsed& parsed : {Parse(options, output), Parse(options, Characters(output))}) {
      EXPECT_EQ(parsed.All(Kind::kText), text);
      EXPECT_EQ(parsed.calls, calls);
    }
  };
  expect("END ``` ``{\"a\": 1}", "{\"a\": 1}");
  expect("```\n[1]\n```\nEND {", "[1]");
  expect("```json\n{\"a\": \"``` \"}END", "{\"a\": \"``` \"}");
  expect("nothing", "");
  expect("\n<｜DSML｜ invoke name=\"f\">", "", 1);
  // A call behind the value is no part of it, with and without a fence.
  expect("```json\n{}\n```\n\n<｜DSML｜ invoke name=\"f\">", "{}", 1);
  expect("{}\n\n<｜DSML｜ invoke name=\"f\">", "{}", 1);
  // The prompt may have begun the value.
  EXPECT_TRUE(OutputParser(options).in_text());
  options.start = OutputStart::kContent;
  expect("1, 2]\n```\nbye", "1, 2]");
}

TEST(OutputParser, WithMarksLookAlikesAreText) {
  const std::string look_alike = "a </think> b\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\xEF\xBD\x9C";
  Parsed parsed = Parse(WithMarks(WithTools()), look_alike);
  EXPECT_EQ(parsed.events, (std::vector<OutputEvent>{{Kind::kText, look_alike}}));
  parsed = Parse(WithMarks(WithTools(OutputStart::kThinkLead)), look_alike);
  EXPECT_EQ(parsed.events, (std::vector<OutputEvent>{{Kind::kReasoning, look_alike}}));
  // In a value too, where spelt markup would have ended it.
  const std::string value = "</｜DSML｜ parameter>\n<｜DSML｜ parameter name=\"b\" string=\"true\">";
  parsed = Parse(WithMarks(WithTools()),
                 WithMarks("<｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"a\" string=\"true\">") + value +
                     WithMarks("</｜DSML｜ parameter>"));
  EXPECT_EQ(parsed.All(Kind::kCallArguments),
            R"({"a": "</｜DSML｜ parameter>\n<｜DSML｜ parameter name=\"b\" string=\"true\">"})");
}

TEST(OutputParser, MarksNeverReachAnEvent) {
  const std::string dsml(OutputParser::kDsmlMark);
  const std::string end_think(OutputParser::kEndThinkMark);
  OutputParserOptions options = WithMarks(WithTools());
  // With tools, a mark out of place is dropped.
  EXPECT_EQ(Parse(options, "a" + dsml + "b" + end_think + "c</" + dsml + "d" + dsml).All(Kind::kText), "abc</d");
  const std::string call = "<" + dsml + "invoke name=\"f" + end_think + dsml + "\"><" + dsml + "parameter name=\"" +
                           end_think + "k" + dsml + "\" string=\"";
  for (const std::string type : {"true\">", "false\">\""}) {
    const Parsed parsed =
        Parse(options, call + type + "x" + dsml + end_think + "y<" + dsml + (type == "true\">" ? "" : "\"") + "</" +
                           dsml + "parameter></" + dsml + "invoke>");
    EXPECT_EQ(parsed.All(Kind::kCallBegin), "f");
    EXPECT_EQ(parsed.All(Kind::kCallArguments), R"({"k": "xy<"})");
  }
  options.json_object = true;
  EXPECT_EQ(Parse(options, end_think + dsml + "{" + dsml + "1" + end_think + "}").All(Kind::kText), "{1}");

  // Without tools the DSML mark is text, for stop sequences as well.
  options = WithMarks(WithStop({"SML｜ c"}, OutputStart::kThinkLead));
  options.parse_tool_calls = false;
  const Parsed parsed = Parse(options, "t" + dsml + end_think + "a</" + dsml + " d <" + dsml + " calls>");
  EXPECT_EQ(parsed.All(Kind::kReasoning), "t｜DSML｜");
  EXPECT_EQ(parsed.All(Kind::kText), "a</｜DSML｜ d <｜D");
  EXPECT_EQ(parsed.stop_sequence, "SML｜ c");
}

// The parser gives out all that is certain: what it holds could still be a marker.
TEST(OutputParser, HoldsBackOnlyWhatCouldBeAMarker) {
  OutputParser parser(WithStop({"END"}, OutputStart::kThinkLead));
  const auto feed = [&](std::string_view output) {
    std::vector<OutputEvent> events;
    parser.Feed(output, &events);
    std::string all;
    for (const OutputEvent& event : events) all += event.text;
    return all;
  };
  EXPECT_TRUE(parser.in_reasoning());
  EXPECT_EQ(feed("\n\na E"), "a E");
  EXPECT_EQ(feed("b\n\n"), "b");
  EXPECT_EQ(feed("<"), "");
  EXPECT_EQ(feed("a"), "\n\n<a");
  EXPECT_EQ(feed("\n</think>\nx"), "x");
  EXPECT_TRUE(parser.in_text());
  EXPECT_EQ(feed("\n\nEN"), "\n\n");
  EXPECT_EQ(feed("\n"), "EN");
  EXPECT_EQ(feed("\n<｜DSML｜ calls>"), "");
  EXPECT_FALSE(parser.in_text());
  EXPECT_EQ(feed("<｜DSML｜ invoke name=\"f"), "");
  EXPECT_EQ(parser.calls(), 0);
  EXPECT_EQ(feed("\"><｜DSML｜ parameter name=\"a\" string=\"true\">x"), "f{\"a\": \"x");
  EXPECT_EQ(feed("y\n"), "y\\n");
  EXPECT_EQ(feed("</"), "");
  EXPECT_EQ(feed("\""), "</\\\"");
  EXPECT_EQ(feed("</｜DSML｜"), "\"");
  EXPECT_EQ(feed("</｜DSML｜"), "}");
  EXPECT_EQ(parser.calls(), 1);
  EXPECT_FALSE(parser.done());
  EXPECT_EQ(feed("</｜DSML｜ calls>x"), "");
  EXPECT_TRUE(parser.done());
}

// Millions of bytes that all look like the beginning of a marker, one at a time: with a quadratic step anywhere this
// does not come to an end.
TEST(OutputParser, LongRunsTakeLinearTime) {
  const std::string marker_beginnings[] = {"\n", "<", "</think", "<\n", "\n</", "```", "a"};
  for (const std::string& piece : marker_beginnings) {
    OutputParserOptions options = WithStop({std::string(5000, 'a') + "b", "\n</x"}, OutputStart::kContent);
    OutputParser parser(options);
    std::vector<OutputEvent> events;
    size_t bytes = 0;
    for (int i = 0; i < 1'000'000; ++i) {
      parser.Feed(piece, &events);
      for (const OutputEvent& event : events) bytes += event.text.size();
      events.clear();
    }
    parser.Finish(true, &events);
    for (const OutputEvent& event : events) bytes += event.text.size();
    EXPECT_EQ(bytes, piece.size() * 1'000'000) << piece;
  }
}

}  // namespace
}  // namespace deepinfer
