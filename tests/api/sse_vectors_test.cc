// The recorded streams: model output through the parser and the encoder gives the recorded events, however it is cut.
#include <gtest/gtest.h>

#include <fstream>
#include <ostream>
#include <random>

#include "api/answer_encoder.h"
#include "sse_reader.h"
#include "text/output_parser.h"

namespace deepinfer {
namespace {

using nlohmann::ordered_json;
using testing::ReadSse;
using testing::SseEvent;

struct SseVector {
  std::string name;
  ordered_json json;
};
std::ostream& operator<<(std::ostream& out, const SseVector& vector) { return out << vector.name; }

std::vector<SseVector> Vectors() {
  std::vector<SseVector> vectors;
  std::ifstream file(std::string(DEEPINFER_SOURCE_DIR) + "/tests/data/api/sse_vectors.jsonl");
  for (std::string line; std::getline(file, line);) {
    ordered_json json = ordered_json::parse(line);
    vectors.push_back({json["name"], std::move(json)});
  }
  return vectors;
}

AnswerHead HeadOf(const ordered_json& vector) {
  AnswerHead head;
  const std::string protocol = vector["protocol"];
  head.protocol = protocol == "responses"  ? Protocol::kResponses
                  : protocol == "messages" ? Protocol::kMessages
                                           : Protocol::kChat;
  head.id = vector["response_id"];
  head.model = vector["model"];
  head.created_unix_seconds = 1700000000;
  head.stream = true;
  head.include_usage = vector.value("include_usage", false);
  head.thinking = vector["thinking"];
  return head;
}

OutputParser ParserOf(const ordered_json& vector) {
  const ordered_json& given = vector["parser"];
  OutputParserOptions options;
  options.start = given["start"] == "think_lead" ? OutputStart::kThinkLead : OutputStart::kContentLead;
  EXPECT_TRUE(given["start"] == "think_lead" || given["start"] == "content_lead");
  options.parse_tool_calls = given["parse_tool_calls"];
  options.stop = given["stop"].get<std::vector<std::string>>();
  return OutputParser(std::move(options));
}

std::string Encode(const ordered_json& vector, const std::vector<std::string>& chunks) {
  const std::unique_ptr<AnswerEncoder> encoder = MakeAnswerEncoder(HeadOf(vector));
  OutputParser parser = ParserOf(vector);
  Usage usage{.prompt_tokens = vector["prompt_tokens"], .cached_tokens = vector["prompt_cache_hit_tokens"]};
  std::string out;
  encoder->Start(usage, &out);
  for (const std::string& chunk : chunks) {
    AnswerPiece piece;
    parser.Feed(chunk, &piece.events);
    encoder->Add(0, piece, &out);
  }
  const bool length = vector["backend_finish"] == "length";
  AnswerPiece last;
  parser.Finish(!length, &last.events);
  encoder->Add(0, last, &out);
  AnswerEnd end;
  end.stop_sequence = parser.stop_sequence();
  end.reason = parser.stopped()     ? AnswerFinish::kStopSequence
               : length             ? AnswerFinish::kLength
               : parser.calls() > 0 ? AnswerFinish::kToolCalls
                                    : AnswerFinish::kStop;
  usage.completion_tokens = vector["completion_tokens"];
  encoder->Finish(0, end, usage, &out);
  encoder->End(usage, &out);
  return out;
}

// The text that an event adds to the one before it; null when it is no such event.
ordered_json* DeltaText(ordered_json* data) {
  if (!data->is_object()) return nullptr;
  if (data->contains("choices") && !(*data)["choices"].empty()) {
    ordered_json& delta = (*data)["choices"][0]["delta"];
    if (delta.contains("role") || !(*data)["choices"][0]["finish_reason"].is_null()) return nullptr;
    if (delta.contains("tool_calls")) {
      ordered_json& call = delta["tool_calls"][0];
      return call.contains("id") ? nullptr : &call["function"]["arguments"];
    }
    for (const char* key : {"content", "reasoning_content"}) {
      if (delta.contains(key) && delta[key].is_string()) return &delta[key];
    }
    return nullptr;
  }
  if (!data->contains("delta")) return nullptr;
  ordered_json& delta = (*data)["delta"];
  if (delta.is_string()) return &delta;
  for (const char* key : {"text", "thinking", "partial_json"}) {
    if (delta.contains(key)) return &delta[key];
  }
  return nullptr;
}

void ZeroTimes(ordered_json* data) {
  if (data->is_object()) {
    for (auto member = data->begin(); member != data->end(); ++member) {
      const bool time = member.key() == "created" || member.key() == "created_at" || member.key() == "completed_at";
      if (time && member->is_number()) {
        EXPECT_TRUE(*member == 0 || *member >= 1700000000);
        *member = 0;
      } else {
        ZeroTimes(&*member);
      }
    }
  } else if (data->is_array()) {
    for (ordered_json& item : *data) ZeroTimes(&item);
  }
}

// As the vectors ask: no times, neighbouring deltas of one item merged. Sequence numbers count events from 0, so they
// are checked and counted anew.
std::vector<SseEvent> Normalised(std::vector<SseEvent> events) {
  std::vector<SseEvent> merged;
  int sequence_number = 0;
  for (SseEvent& event : events) {
    ZeroTimes(&event.data);
    if (event.data.is_object() && event.data.contains("sequence_number")) {
      EXPECT_EQ(event.data["sequence_number"], sequence_number++);
      event.data["sequence_number"] = 0;
    }
    ordered_json* text = DeltaText(&event.data);
    ordered_json* before = merged.empty() ? nullptr : DeltaText(&merged.back().data);
    if (text != nullptr && before != nullptr) {
      const std::string whole = before->get<std::string>() + text->get<std::string>();
      const std::string kept = *before;
      *before = *text;
      if (merged.back() == event) {
        *before = whole;
        continue;
      }
      *before = kept;
    }
    merged.push_back(std::move(event));
  }
  return merged;
}

std::vector<SseEvent> Expected(const ordered_json& vector) {
  std::vector<SseEvent> events;
  for (const ordered_json& event : vector["expected_sse"]) {
    events.push_back({event["event"].is_null() ? "" : event["event"].get<std::string>(), event["data"]});
  }
  return Normalised(std::move(events));
}

// The recorded server counts no reasoning tokens; ours says how many there were, as the hosted service does.
void DropReasoningTokens(const ordered_json& vector, std::vector<SseEvent>* events) {
  if (vector["protocol"] != "chat_completions" || !vector["thinking"]) return;
  ordered_json& usage = (*events)[events->size() - 2].data["usage"];
  EXPECT_EQ(usage["completion_tokens_details"], ordered_json({{"reasoning_tokens", 0}}));
  usage.erase("completion_tokens_details");
}

// Fields come in any order.
std::string Lines(const std::vector<SseEvent>& events) {
  std::string lines;
  for (const SseEvent& event : events) lines += event.event + " " + nlohmann::json(event.data).dump() + "\n";
  return lines;
}

void ExpectRecorded(const ordered_json& vector, const std::vector<std::string>& chunks) {
  std::vector<SseEvent> events = Normalised(ReadSse(Encode(vector, chunks)));
  ASSERT_GE(events.size(), 2u);
  DropReasoningTokens(vector, &events);
  EXPECT_EQ(Lines(events), Lines(Expected(vector)));
}

class SseVectorTest : public ::testing::TestWithParam<SseVector> {};

TEST_P(SseVectorTest, EventsAreTheRecordedOnes) {
  ExpectRecorded(GetParam().json, GetParam().json["output_chunks"].get<std::vector<std::string>>());
}

TEST_P(SseVectorTest, HoweverTheOutputIsCut) {
  std::string output;
  for (const ordered_json& chunk : GetParam().json["output_chunks"]) output += chunk.get<std::string>();
  std::mt19937 random(7);
  for (int round = 0; round < 200 && !HasFailure(); ++round) {
    const unsigned longest = 1 + random() % 30;
    std::vector<std::string> chunks;
    for (size_t at = 0; at < output.size();) {
      size_t end = std::min<size_t>(output.size(), at + 1 + random() % longest);
      while (end < output.size() && (output[end] & 0xC0) == 0x80) ++end;
      chunks.push_back(output.substr(at, end - at));
      at = end;
    }
    ExpectRecorded(GetParam().json, chunks);
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, SseVectorTest, ::testing::ValuesIn(Vectors()),
                         [](const auto& info) { return info.param.name; });

TEST(SseVectorFile, HoldsThreeProtocols) {
  std::map<std::string, int> count;
  for (const SseVector& vector : Vectors()) ++count[vector.json["protocol"]];
  EXPECT_EQ(count, (std::map<std::string, int>{{"chat_completions", 6}, {"messages", 6}, {"responses", 5}}));
}

}  // namespace
}  // namespace deepinfer
