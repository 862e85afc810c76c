// What a client puts together from a stream is what the body without a stream holds, for random answers.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "api/answer_encoder.h"
#include "sse_reader.h"

namespace deepinfer {
namespace {

using nlohmann::ordered_json;
using testing::ReadSse;
using testing::SseEvent;
using Kind = OutputEvent::Kind;

constexpr Usage kUsage{.prompt_tokens = 20, .cached_tokens = 16, .completion_tokens = 9, .reasoning_tokens = 2};

// A random answer, cut into random pieces.
struct Script {
  AnswerHead head;
  std::vector<std::pair<int64_t, AnswerPiece>> pieces;
  std::vector<AnswerEnd> ends;  // [choices]
};

class ScriptMaker {
 public:
  ScriptMaker(Protocol protocol, uint32_t seed) : protocol_(protocol), random_(seed) {}

  Script Make() {
    Script script;
    AnswerHead& head = script.head;
    head.protocol = protocol_;
    head.id = "r" + std::to_string(Below(100));
    head.model = RandomText();
    head.include_usage = Below(2) == 0;
    head.usage_in_own_chunk = Below(2) == 0;
    head.thinking = protocol_ != Protocol::kCompletions && Below(2) == 0;
    head.logprobs = protocol_ != Protocol::kMessages && Below(2) == 0;
    const bool several = protocol_ == Protocol::kChat || protocol_ == Protocol::kCompletions;
    head.choices = several ? 1 + Below(3) : 1;
    Tool patch;
    patch.name = patch.local_name = "apply_patch";
    patch.custom = true;
    head.tools = {patch};
    std::vector<std::vector<AnswerPiece>> pieces;
    for (int64_t choice = 0; choice < head.choices; ++choice) {
      if (protocol_ == Protocol::kCompletions && Below(2) == 0) head.echo.resize(choice + 1, "echo");
      AnswerEnd end;
      pieces.push_back(Cut(Answer(head.thinking, &end)));
      script.ends.push_back(std::move(end));
    }
    // The choices interleave.
    for (std::vector<size_t> next(pieces.size());;) {
      std::vector<size_t> left;
      for (size_t i = 0; i < pieces.size(); ++i) {
        if (next[i] < pieces[i].size()) left.push_back(i);
      }
      if (left.empty()) break;
      const size_t choice = left[Below(left.size())];
      script.pieces.emplace_back(choice, pieces[choice][next[choice]++]);
    }
    return script;
  }

 private:
  size_t Below(size_t limit) { return random_() % limit; }

  std::string RandomText() {
    static constexpr const char* kTexts[] = {"a", "\"",   "\\", "\n",     "\r\n", "é",
                                             "😀", "\x01", " ",  "data: ", "x y",  "{"};
    std::string text;
    for (size_t i = Below(5); i > 0; --i) text += kTexts[Below(std::size(kTexts))];
    return text;
  }

  std::vector<OutputEvent> Answer(bool thinking, AnswerEnd* end) {
    std::vector<OutputEvent> events;
    for (size_t i = thinking ? Below(4) : 0; i > 0; --i) events.push_back({Kind::kReasoning, RandomText(), 0});
    for (size_t i = Below(5); i > 0; --i) events.push_back({Kind::kText, RandomText(), 0});
    const bool calls = protocol_ != Protocol::kCompletions && Below(2) == 0;
    const int count = calls ? static_cast<int>(1 + Below(3)) : 0;
    const bool cut = Below(4) == 0;
    for (int call = 0; call < count; ++call) {
      events.push_back({Kind::kCallBegin, Below(2) == 0 ? "apply_patch" : "f", call});
      static constexpr const char* kPieces[] = {"{\"", "input", "\": \"", "a\\n", "b\\\"", "\"", "}"};
      const size_t pieces = Below(3) == 0 ? Below(std::size(kPieces) + 1) : std::size(kPieces);
      for (size_t i = 0; i < pieces; ++i) events.push_back({Kind::kCallArguments, kPieces[i], call});
      if (!cut || call + 1 < count) events.push_back({Kind::kCallEnd, "", call});
    }
    end->reason = cut ? AnswerFinish::kLength : calls ? AnswerFinish::kToolCalls : AnswerFinish::kStopSequence;
    end->stop_sequence = end->reason == AnswerFinish::kStopSequence ? RandomText() : "";
    return events;
  }

  std::vector<AnswerPiece> Cut(const std::vector<OutputEvent>& events) {
    std::vector<AnswerPiece> pieces(1);
    for (const OutputEvent& event : events) {
      if (Below(2) == 0) pieces.emplace_back();
      pieces.back().events.push_back(event);
      TokenProbabilities token;
      token.chosen = {event.text.substr(0, 1), -0.25 * static_cast<double>(Below(9))};
      (event.kind == Kind::kReasoning ? pieces.back().reasoning_logprobs : pieces.back().content_logprobs)
          .push_back(token);
    }
    return pieces;
  }

  Protocol protocol_;
  std::mt19937 random_;
};

std::string Encode(const Script& script, bool stream) {
  AnswerHead head = script.head;
  head.stream = stream;
  const std::unique_ptr<AnswerEncoder> encoder = MakeAnswerEncoder(head);
  std::string out;
  encoder->Start({.prompt_tokens = 20, .cached_tokens = 16}, &out);
  for (const auto& [choice, piece] : script.pieces) encoder->Add(choice, piece, &out);
  for (int64_t choice = 0; choice < head.choices; ++choice) {
    encoder->Finish(choice, script.ends[static_cast<size_t>(choice)], kUsage, &out);
  }
  encoder->End(kUsage, &out);
  return out;
}

void Extend(const ordered_json& more, ordered_json* list) {
  for (const ordered_json& item : more) list->push_back(item);
}

// What a Chat client has in the end: the body without the fields that only one of the two forms has.
ordered_json ChatFromStream(const std::vector<SseEvent>& events, int64_t choices, bool logprobs) {
  ordered_json body;
  for (int64_t i = 0; i < choices; ++i) {
    body["choices"].push_back({{"content", ""}, {"reasoning", ""}, {"calls", ordered_json::array()}});
    body["choices"].back()["logprobs"] = {ordered_json::array(), ordered_json::array()};
  }
  for (const SseEvent& event : events) {
    if (!event.data.is_object()) continue;
    if (event.data.contains("usage") && !event.data["usage"].is_null()) body["usage"] = event.data["usage"];
    for (const ordered_json& from : event.data["choices"]) {
      ordered_json& to = body["choices"][from["index"].get<size_t>()];
      const ordered_json& delta = from["delta"];
      const auto add = [](const ordered_json& text, ordered_json* whole) {
        if (text.is_string()) *whole = whole->get<std::string>() + text.get<std::string>();
      };
      if (delta.contains("content")) add(delta["content"], &to["content"]);
      if (delta.contains("reasoning_content")) add(delta["reasoning_content"], &to["reasoning"]);
      for (const ordered_json& call : delta.value("tool_calls", ordered_json::array())) {
        if (call.contains("id")) to["calls"].push_back({call["id"], call["function"]["name"], ""});
        add(call["function"]["arguments"], &to["calls"][call["index"].get<size_t>()][2]);
      }
      EXPECT_TRUE(logprobs || from["logprobs"].is_null());
      if (!from["logprobs"].is_null()) {
        Extend(from["logprobs"]["content"], &to["logprobs"][0]);
        Extend(from["logprobs"].value("reasoning_content", ordered_json::array()), &to["logprobs"][1]);
      }
      if (!from["finish_reason"].is_null()) to["finish_reason"] = from["finish_reason"];
    }
  }
  return body;
}

ordered_json ChatFromBody(const ordered_json& from) {
  ordered_json body;
  for (const ordered_json& choice : from["choices"]) {
    const ordered_json& message = choice["message"];
    ordered_json to = {{"content", message["content"].is_null() ? "" : message["content"]},
                       {"reasoning", message.value("reasoning_content", "")},
                       {"calls", ordered_json::array()}};
    for (const ordered_json& call : message.value("tool_calls", ordered_json::array())) {
      to["calls"].push_back({call["id"], call["function"]["name"], call["function"]["arguments"]});
    }
    to["logprobs"] = {ordered_json::array(), ordered_json::array()};
    if (!choice["logprobs"].is_null()) {
      Extend(choice["logprobs"]["content"], &to["logprobs"][0]);
      Extend(choice["logprobs"].value("reasoning_content", ordered_json::array()), &to["logprobs"][1]);
    }
    to["finish_reason"] = choice["finish_reason"];
    body["choices"].push_back(to);
  }
  body["usage"] = from["usage"];
  return body;
}

TEST(AnswerAgreement, Chat) {
  for (uint32_t seed = 0; seed < 1000 && !::testing::Test::HasFailure(); ++seed) {
    const Script script = ScriptMaker(Protocol::kChat, seed).Make();
    ordered_json streamed = ChatFromStream(ReadSse(Encode(script, true)), script.head.choices, script.head.logprobs);
    ordered_json body = ChatFromBody(ordered_json::parse(Encode(script, false)));
    // As with OpenAI, usage in a chunk of its own is told to those who ask.
    if (script.head.usage_in_own_chunk && !script.head.include_usage) body.erase("usage");
    EXPECT_EQ(nlohmann::json(streamed), nlohmann::json(body)) << seed;
  }
}

TEST(AnswerAgreement, Completions) {
  for (uint32_t seed = 0; seed < 1000 && !::testing::Test::HasFailure(); ++seed) {
    const Script script = ScriptMaker(Protocol::kCompletions, seed).Make();
    const ordered_json body = ordered_json::parse(Encode(script, false));
    std::vector<ordered_json> choices(static_cast<size_t>(script.head.choices));
    for (const SseEvent& event : ReadSse(Encode(script, true))) {
      if (!event.data.is_object()) continue;
      for (const ordered_json& from : event.data["choices"]) {
        ordered_json& to = choices[from["index"].get<size_t>()];
        if (to.is_null()) to = body["choices"][from["index"].get<size_t>()], to["text"] = "";
        if (to["logprobs"].is_object() && !to.contains("seen")) {
          to["seen"] = true;
          for (ordered_json& list : to["logprobs"]) list = ordered_json::array();
        }
        to["text"] = to["text"].get<std::string>() + from["text"].get<std::string>();
        to["finish_reason"] = from["finish_reason"];
        if (from["logprobs"].is_null()) continue;
        for (auto list = from["logprobs"].begin(); list != from["logprobs"].end(); ++list) {
          Extend(*list, &to["logprobs"][list.key()]);
        }
      }
    }
    for (size_t i = 0; i < choices.size(); ++i) {
      choices[i].erase("seen");
      EXPECT_EQ(choices[i], body["choices"][i]) << seed;
    }
  }
}

TEST(AnswerAgreement, Responses) {
  for (uint32_t seed = 0; seed < 1000 && !::testing::Test::HasFailure(); ++seed) {
    const Script script = ScriptMaker(Protocol::kResponses, seed).Make();
    const std::vector<SseEvent> events = ReadSse(Encode(script, true));
    ordered_json streamed = events.back().data["response"];
    ordered_json body = ordered_json::parse(Encode(script, false));
    for (ordered_json* one : {&streamed, &body}) one->erase("completed_at");
    EXPECT_EQ(streamed, body) << seed;

    // The events that lead there say the same.
    std::map<size_t, std::string> texts;
    std::map<size_t, size_t> logprobs;
    int sequence_number = 0;
    size_t done = 0;
    for (const SseEvent& event : events) {
      EXPECT_EQ(event.event, event.data["type"]);
      EXPECT_EQ(event.data["sequence_number"], sequence_number++);
      if (!event.data.contains("output_index")) continue;
      const size_t index = event.data["output_index"];
      if (event.data.contains("delta")) texts[index] += event.data["delta"].get<std::string>();
      if (event.event == "response.output_text.delta") logprobs[index] += event.data["logprobs"].size();
      for (const char* key : {"text", "arguments", "input"}) {
        if (event.data.contains(key)) {
          EXPECT_EQ(event.data[key], texts[index]) << seed;
        }
      }
      if (event.event != "response.output_item.done") continue;
      EXPECT_EQ(event.data["item"], body["output"][index]);
      ++done;
    }
    EXPECT_EQ(done, body["output"].size());
    for (size_t i = 0; i < body["output"].size(); ++i) {
      const ordered_json& item = body["output"][i];
      if (!item.contains("content")) continue;
      EXPECT_EQ(item["content"][0]["text"], texts[i]);
      if (item["type"] == "message") {
        EXPECT_GE(item["content"][0]["logprobs"].size(), logprobs[i]);
      }
    }
  }
}

TEST(AnswerAgreement, Messages) {
  for (uint32_t seed = 0; seed < 1000 && !::testing::Test::HasFailure(); ++seed) {
    const Script script = ScriptMaker(Protocol::kMessages, seed).Make();
    ordered_json message;
    std::string input;
    int pings = 0;
    bool open = false;
    for (const SseEvent& event : ReadSse(Encode(script, true))) {
      const ordered_json& data = event.data;
      EXPECT_EQ(event.event, data["type"]);
      pings += event.event == "ping" ? 1 : 0;
      if (event.event == "message_start") message = data["message"];
      if (event.event == "message_delta") {
        message.update(data["delta"]);
        message["usage"] = data["usage"];
      }
      if (event.event == "content_block_start") {
        EXPECT_FALSE(open);
        EXPECT_EQ(data["index"], message["content"].size());
        message["content"].push_back(data["content_block"]);
        input.clear();
        open = true;
      }
      if (event.event.starts_with("content_block_") && event.event != "content_block_start") {
        EXPECT_TRUE(open);
        EXPECT_EQ(data["index"], message["content"].size() - 1);
      }
      if (event.event == "content_block_delta") {
        ordered_json& block = message["content"].back();
        for (const char* key : {"text", "thinking", "signature"}) {
          if (data["delta"].contains(key)) {
            block[key] = block[key].get<std::string>() + data["delta"][key].get<std::string>();
          }
        }
        input += data["delta"].value("partial_json", "");
      }
      if (event.event == "content_block_stop") {
        open = false;
        ordered_json& block = message["content"].back();
        if (block["type"] == "tool_use" && ordered_json::accept(input)) block["input"] = ordered_json::parse(input);
      }
    }
    EXPECT_FALSE(open);
    EXPECT_EQ(pings, message["content"].empty() ? 0 : 1);
    EXPECT_EQ(message, ordered_json::parse(Encode(script, false))) << seed;
  }
}

}  // namespace
}  // namespace deepinfer
