#include "output_fixture.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "text/json_text.h"
#include "text/utf8.h"

namespace deepinfer {

std::ostream& operator<<(std::ostream& out, const OutputEvent& event) {
  static constexpr const char* kNames[] = {"reasoning", "text", "call", "arguments", "end"};
  return out << kNames[static_cast<size_t>(event.kind)] << '#' << event.call << '[' << event.text << ']';
}

namespace testing {
namespace {

using Kind = OutputEvent::Kind;

std::string Replaced(std::string_view from, std::string_view to, std::string_view text) {
  std::string replaced;
  while (true) {
    const size_t at = text.find(from);
    replaced += text.substr(0, at);
    if (at == std::string_view::npos) return replaced;
    replaced += to;
    text.remove_prefix(at + from.size());
  }
}

// Calls are begun one after another, with the arguments of each behind its name and at most the last one unended.
void ExpectInOrder(const std::vector<OutputEvent>& merged, int calls, bool complete) {
  int begun = 0;
  int ended = 0;
  std::string arguments;
  for (const OutputEvent& event : merged) {
    switch (event.kind) {
      case Kind::kReasoning:
      case Kind::kText:
        EXPECT_EQ(begun, 0) << "after a call: " << event;
        EXPECT_EQ(event.call, 0);
        EXPECT_FALSE(event.text.empty());
        break;
      case Kind::kCallBegin:
        EXPECT_EQ(ended, begun) << event;
        EXPECT_EQ(event.call, begun++);
        EXPECT_FALSE(event.text.empty());
        arguments.clear();
        break;
      case Kind::kCallArguments:
        EXPECT_EQ(event.call, begun - 1) << event;
        EXPECT_EQ(ended, begun - 1) << event;
        EXPECT_FALSE(event.text.empty());
        arguments = event.text;
        break;
      case Kind::kCallEnd: {
        EXPECT_EQ(event.call, ended++) << event;
        EXPECT_EQ(event.text, "");
        const Result<JsonValue> json = ParseJson(arguments);
        EXPECT_TRUE(json.ok() && json->AsObject() != nullptr) << arguments;
        break;
      }
    }
  }
  EXPECT_EQ(begun, calls);
  EXPECT_TRUE(!complete || ended == begun);
}

}  // namespace

uint64_t RunSeed(const char* what) {
  const char* given = std::getenv("DEEPINFER_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::printf("%s: DEEPINFER_TEST_SEED=%llu\n", what, static_cast<unsigned long long>(seed));
  return seed;
}

std::vector<std::string_view> Characters(std::string_view text) {
  std::vector<std::string_view> characters;
  while (!text.empty()) {
    const size_t length = FirstUtf8Unit(text).length;
    characters.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return characters;
}

std::string WithMarks(std::string_view text) {
  return Replaced(special_token::kEndThink, OutputParser::kEndThinkMark,
                  Replaced(special_token::kDsml, OutputParser::kDsmlMark, text));
}

OutputParserOptions WithMarks(OutputParserOptions options) {
  options.dsml = std::string(OutputParser::kDsmlMark);
  options.end_think = std::string(OutputParser::kEndThinkMark);
  return options;
}

std::vector<OutputEvent> Merged(const std::vector<OutputEvent>& events) {
  std::vector<OutputEvent> merged;
  for (const OutputEvent& event : events) {
    const bool in_pieces =
        event.kind == Kind::kReasoning || event.kind == Kind::kText || event.kind == Kind::kCallArguments;
    if (in_pieces && !merged.empty() && merged.back().kind == event.kind && merged.back().call == event.call) {
      merged.back().text += event.text;
    } else {
      merged.push_back(event);
    }
  }
  return merged;
}

std::string Parsed::All(OutputEvent::Kind kind) const {
  std::string all;
  for (const OutputEvent& event : events) {
    if (event.kind == kind) all += event.text;
  }
  return all;
}

std::ostream& operator<<(std::ostream& out, const Parsed& parsed) {
  for (const OutputEvent& event : parsed.events) out << event << ' ';
  return out << "stop[" << parsed.stop_sequence << "] calls " << parsed.calls;
}

Parsed Parse(const OutputParserOptions& options, const std::vector<std::string_view>& pieces, bool complete) {
  OutputParser parser(options);
  std::vector<OutputEvent> events;
  for (const std::string_view piece : pieces) {
    const bool done = parser.done();
    const size_t before = events.size();
    parser.Feed(piece, &events);
    EXPECT_TRUE(!done || events.size() == before) << "events of a parser that was done";
    EXPECT_FALSE(parser.in_reasoning() && parser.in_text());
    EXPECT_TRUE(!parser.stopped() || parser.done());
  }
  parser.Finish(complete, &events);
  EXPECT_TRUE(parser.done());
  for (const OutputEvent& event : events) EXPECT_TRUE(IsValidUtf8(event.text)) << event;
  Parsed parsed{Merged(events), parser.stop_sequence(), parser.calls()};
  EXPECT_EQ(parser.stopped(), !parsed.stop_sequence.empty());
  ExpectInOrder(parsed.events, parsed.calls, complete);
  return parsed;
}

Parsed Parse(const OutputParserOptions& options, std::string_view text, bool complete) {
  return Parse(options, std::vector<std::string_view>{text}, complete);
}

std::vector<std::string_view> RandomPieces(std::string_view text, size_t most, std::mt19937_64* random) {
  std::vector<std::string_view> pieces;
  const std::vector<std::string_view> characters = Characters(text);
  for (size_t at = 0; at < characters.size();) {
    const size_t count = std::min(1 + (*random)() % most, characters.size() - at);
    size_t bytes = 0;
    for (size_t i = 0; i < count; ++i) bytes += characters[at + i].size();
    pieces.emplace_back(characters[at].data(), bytes);
    at += count;
  }
  return pieces;
}

}  // namespace testing
}  // namespace deepinfer
