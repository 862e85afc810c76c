// The recorded outputs of tests/data/text/output_vectors.jsonl, in one piece, by characters and in random pieces, with
// the special tokens spelt and marked.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "output_fixture.h"

namespace deepinfer {
namespace {

using testing::Characters;
using testing::Parse;
using testing::Parsed;
using testing::WithMarks;
using Kind = OutputEvent::Kind;

struct OutputVector {
  std::string name;
  OutputParserOptions options;
  std::string output;
  std::vector<std::string> chunks;
  std::string backend_finish;  // empty: the stream just ended
  std::vector<OutputEvent> events;
  std::string finish;
  std::string stop_sequence;
};

std::vector<OutputVector> ReadVectors() {
  const std::map<std::string, OutputStart> starts = {{"think_lead", OutputStart::kThinkLead},
                                                     {"think", OutputStart::kThink},
                                                     {"content_lead", OutputStart::kContentLead},
                                                     {"content", OutputStart::kContent},
                                                     {"calls", OutputStart::kCalls}};
  std::vector<OutputVector> vectors;
  std::ifstream file(std::string(DEEPINFER_SOURCE_DIR) + "/tests/data/text/output_vectors.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    OutputVector vector;
    vector.name = json["name"];
    vector.options.start = starts.at(json["parser"]["start"]);
    vector.options.parse_tool_calls = json["parser"]["parse_tool_calls"];
    vector.options.json_object = json["parser"]["json_object"];
    vector.options.stop = json["parser"]["stop"].get<std::vector<std::string>>();
    vector.chunks = json["output_chunks"].get<std::vector<std::string>>();
    for (const std::string& chunk : vector.chunks) vector.output += chunk;
    if (!json["backend_finish"].is_null()) vector.backend_finish = json["backend_finish"];
    int call = 0;
    for (const auto& event : json["expected_events"]) {
      const std::string type = event["type"];
      if (type == "text") vector.events.push_back({Kind::kText, event["text"]});
      if (type == "reasoning") vector.events.push_back({Kind::kReasoning, event["text"]});
      if (type == "tool_call") {
        vector.events.push_back({Kind::kCallBegin, event["name"], call});
        vector.events.push_back({Kind::kCallArguments, event["arguments"], call++});
      }
      if (type == "finish") {
        vector.finish = event["reason"];
        vector.stop_sequence = event.value("stop_sequence", "");
      }
    }
    vectors.push_back(std::move(vector));
  }
  return vectors;
}

// The vectors have no event for the end of a call, and what stands around a JSON answer is blank in them.
std::vector<OutputEvent> AsRecorded(std::vector<OutputEvent> events, bool json_object) {
  std::erase_if(events, [](const OutputEvent& event) { return event.kind == Kind::kCallEnd; });
  if (json_object) {
    for (OutputEvent& event : events) {
      if (event.kind != Kind::kText) continue;
      event.text.erase(0, event.text.find_first_not_of(' '));
      event.text.erase(event.text.find_last_not_of(' ') + 1);
    }
  }
  return events;
}

std::string FinishReason(const Parsed& parsed, const std::string& backend_finish) {
  if (!parsed.stop_sequence.empty()) return "stop_sequence";
  if (backend_finish.empty()) return "end_of_stream";
  return backend_finish == "stop" && parsed.calls > 0 ? "tool_calls" : backend_finish;
}

TEST(OutputVectors, AnyChunksInBothSpellings) {
  const std::vector<OutputVector> vectors = ReadVectors();
  ASSERT_EQ(vectors.size(), 48u);
  std::mt19937_64 random(testing::RunSeed("output vectors"));
  for (const OutputVector& vector : vectors) {
    SCOPED_TRACE(vector.name);
    const bool complete = vector.backend_finish == "stop";
    for (const bool marked : {false, true}) {
      const OutputParserOptions options = marked ? WithMarks(vector.options) : vector.options;
      const std::string output = marked ? WithMarks(vector.output) : vector.output;
      const auto expect = [&](const std::vector<std::string_view>& pieces) {
        const Parsed parsed = Parse(options, pieces, complete);
        EXPECT_EQ(AsRecorded(parsed.events, options.json_object), AsRecorded(vector.events, options.json_object));
        EXPECT_EQ(FinishReason(parsed, vector.backend_finish), vector.finish);
        EXPECT_EQ(parsed.stop_sequence, vector.stop_sequence);
      };
      expect({output});
      expect(Characters(output));
      for (int i = 0; i < 200; ++i) expect(testing::RandomPieces(output, 1 + random() % 12, &random));
      if (!marked) expect({vector.chunks.begin(), vector.chunks.end()});
      if (::testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace deepinfer
