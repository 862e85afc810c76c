// Any output: the same events whatever the chunks, of whole characters and without marks, calls in order, arguments
// that are JSON objects. The first bytes choose the options; a byte below 0x18 that is no white space stands for a
// piece of markup.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "text/json_text.h"
#include "text/output_parser.h"
#include "text/utf8.h"

namespace {

using deepinfer::OutputEvent;
using deepinfer::OutputParser;
using deepinfer::OutputParserOptions;
using Kind = deepinfer::OutputEvent::Kind;

void Require(bool condition) {
  if (!condition) std::abort();
}

std::string Text(std::string_view bytes, const OutputParserOptions& options) {
  const std::string open = "<" + options.dsml;
  const std::string close = "</" + options.dsml;
  const std::string pieces[] = {open,
                                close,
                                options.dsml,
                                options.end_think,
                                " calls>\n",
                                " invoke name=\"f\">\n",
                                open + "invoke name=\"g\">",
                                " parameter name=\"",
                                "\" string=\"true\">",
                                "",
                                "",  // tab and newline
                                "\" string=\"false\">",
                                close + " calls>",
                                "",  // carriage return
                                open + " parameter name=\"a\" string=\"false\">",
                                close + " invoke>",
                                "```json\n",
                                "\n```",
                                "</think>",
                                "｜DSML｜",
                                "</",
                                "｜D",
                                "SML｜",
                                "END"};
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < std::size(pieces) && c != '\t' && c != '\n' && c != '\r') {
      text += pieces[byte];
    } else {
      text += c;
    }
  }
  // Marks are no UTF-8, so the text between them is repaired.
  std::string repaired;
  std::string between;
  for (const char c : text) {
    if (OutputParser::kDsmlMark.front() == c || OutputParser::kEndThinkMark.front() == c) {
      repaired += deepinfer::RepairUtf8(between) + c;
      between.clear();
    } else {
      between += c;
    }
  }
  return repaired + deepinfer::RepairUtf8(between);
}

struct Outcome {
  std::vector<OutputEvent> events;
  std::string stop_sequence;
  int calls;
  bool operator==(const Outcome&) const = default;
};

// Feeds `text` in pieces of `characters` characters; neighbouring pieces of the same thing become one event.
Outcome Parse(const OutputParserOptions& options, const std::string& text, size_t characters, bool complete) {
  OutputParser parser(options);
  std::vector<OutputEvent> events;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    for (size_t i = 0; i < characters && end < text.size(); ++i) {
      end += deepinfer::FirstUtf8Unit(std::string_view(text).substr(end)).length;
    }
    parser.Feed(std::string_view(text).substr(at, end - at), &events);
    at = end;
  }
  parser.Finish(complete, &events);
  Require(parser.done());
  Outcome outcome{{}, parser.stop_sequence(), parser.calls()};
  for (const OutputEvent& event : events) {
    Require(deepinfer::IsValidUtf8(event.text));
    std::vector<OutputEvent>& merged = outcome.events;
    const bool whole = event.kind == Kind::kCallBegin || event.kind == Kind::kCallEnd;
    if (!whole && !merged.empty() && merged.back().kind == event.kind && merged.back().call == event.call) {
      merged.back().text += event.text;
    } else {
      merged.push_back(event);
    }
  }
  return outcome;
}

void CheckCalls(const Outcome& outcome, bool complete) {
  int begun = 0;
  int ended = 0;
  std::string arguments;
  for (const OutputEvent& event : outcome.events) {
    if (event.kind == Kind::kReasoning || event.kind == Kind::kText) Require(begun == 0);
    if (event.kind == Kind::kCallBegin) Require(begun == ended && event.call == begun++);
    if (event.kind == Kind::kCallArguments) {
      Require(event.call == begun - 1 && ended == begun - 1);
      arguments = event.text;
    }
    if (event.kind == Kind::kCallEnd) {
      Require(event.call == ended++);
      const auto json = deepinfer::ParseJson(arguments);
      Require(json.ok() && json->AsObject() != nullptr);
    }
  }
  Require(begun == outcome.calls && (!complete || ended == begun));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  OutputParserOptions options;
  options.start = static_cast<deepinfer::OutputStart>(data[0] % 5);
  options.parse_tool_calls = (data[1] & 1) == 0;
  options.json_object = (data[1] & 2) != 0;
  const bool complete = (data[1] & 4) == 0;
  if ((data[1] & 8) != 0) {
    options.dsml = std::string(OutputParser::kDsmlMark);
    options.end_think = std::string(OutputParser::kEndThinkMark);
  }
  if ((data[1] & 16) != 0) options.tool_names = {"g", "h"};
  options.max_calls = data[1] >> 5;
  static const std::vector<std::string> kStops[] = {
      {}, {"END"}, {"\n\n"}, {"\n", "EN"}, {"aab", "ab"}, {"<", "</think>"}, {"｜D"}, {"", "日本", "\n<"}};
  options.stop = kStops[data[2] % std::size(kStops)];
  const size_t characters = 1 + data[3] % 16;

  const std::string text = Text({reinterpret_cast<const char*>(data) + 4, size - 4}, options);
  const Outcome whole = Parse(options, text, text.size(), complete);
  CheckCalls(whole, complete);
  Require(Parse(options, text, characters, complete) == whole);
  return 0;
}
