// The answer encoders where the recorded streams do not reach: bodies, several choices, log probabilities, usage,
// failures, namespaces, custom tools, malformed arguments.
#include "api/answer_encoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "sse_reader.h"

namespace deepinfer {
namespace {

using nlohmann::ordered_json;
using testing::ReadSse;
using testing::SseEvent;
using Kind = OutputEvent::Kind;

constexpr Usage kStartUsage{.prompt_tokens = 10, .cached_tokens = 4};
constexpr Usage kUsage{.prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 7, .reasoning_tokens = 3};

AnswerHead Head(Protocol protocol, bool stream, bool thinking = false) {
  AnswerHead head;
  head.protocol = protocol;
  head.id = "r1";
  head.model = "m";
  head.created_unix_seconds = 5;
  head.stream = stream;
  head.thinking = thinking;
  return head;
}

struct Step {
  AnswerPiece piece;
  int64_t choice = 0;
};

// The whole life of an answer; every choice ends for `end`.
std::string Encode(AnswerHead head, const std::vector<Step>& steps, const AnswerEnd& end = {},
                   std::string* stored = nullptr) {
  const int64_t choices = head.choices;
  const std::unique_ptr<AnswerEncoder> encoder = MakeAnswerEncoder(std::move(head));
  std::string out;
  encoder->Start(kStartUsage, &out);
  for (const Step& step : steps) encoder->Add(step.choice, step.piece, &out);
  for (int64_t choice = 0; choice < choices; ++choice) encoder->Finish(choice, end, kUsage, &out);
  encoder->End(kUsage, &out);
  if (stored != nullptr) *stored = encoder->StoredBody();
  return out;
}

Step Events(std::vector<OutputEvent> events, int64_t choice = 0) { return {{std::move(events), {}, {}}, choice}; }
Step Text(const std::string& text, int64_t choice = 0) { return Events({{Kind::kText, text, 0}}, choice); }

std::vector<OutputEvent> Call(const std::string& name, const std::string& arguments, int index = 0) {
  return {{Kind::kCallBegin, name, index}, {Kind::kCallArguments, arguments, index}, {Kind::kCallEnd, "", index}};
}

TokenProbabilities Token(const std::string& bytes, double logprob, std::vector<TokenProbability> top = {}) {
  return {{bytes, logprob}, std::move(top)};
}

ordered_json Json(const std::string& text) { return ordered_json::parse(text); }

TEST(ChatEncoder, Body) {
  const std::string body =
      Encode(Head(Protocol::kChat, false, true),
             {Events({{Kind::kReasoning, "hm", 0}, {Kind::kReasoning, "m", 0}, {Kind::kText, "a\"b", 0}}),
              Events(Call("f", "{\"x\": 1}"))},
             {AnswerFinish::kToolCalls, ""});
  EXPECT_EQ(
      body,
      R"({"id":"r1","object":"chat.completion","created":5,"model":"m","system_fingerprint":null,"choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"a\"b","reasoning_content":"hmm","tool_calls":[{"id":"call_r1_0",)"
      R"("type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}}]},"logprobs":null,)"
      R"("finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17,)"
      R"("prompt_tokens_details":{"cached_tokens":4},"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":6,)"
      R"("completion_tokens_details":{"reasoning_tokens":3}}})");
}

TEST(ChatEncoder, ContentIsNullOnlyBesideCalls) {
  const auto message = [](const std::vector<Step>& steps) {
    return Json(Encode(Head(Protocol::kChat, false), steps))["choices"][0]["message"];
  };
  EXPECT_TRUE(message({Events(Call("f", "{}"))})["content"].is_null());
  EXPECT_EQ(message({})["content"], "");
  EXPECT_FALSE(message({}).contains("reasoning_content"));
  EXPECT_FALSE(message({}).contains("tool_calls"));
}

TEST(ChatEncoder, FinishReasons) {
  const std::pair<AnswerFinish, std::string> cases[] = {
      {AnswerFinish::kStop, "stop"},        {AnswerFinish::kStopSequence, "stop"},
      {AnswerFinish::kLength, "length"},    {AnswerFinish::kToolCalls, "tool_calls"},
      {AnswerFinish::kEndOfStream, "stop"}, {AnswerFinish::kContentFilter, "content_filter"},
  };
  for (const auto& [reason, name] : cases) {
    EXPECT_EQ(Json(Encode(Head(Protocol::kChat, false), {}, {reason, ""}))["choices"][0]["finish_reason"], name);
  }
}

TEST(ChatEncoder, ChoicesInterleave) {
  AnswerHead head = Head(Protocol::kChat, true);
  head.choices = 2;
  const std::vector<SseEvent> events =
      ReadSse(Encode(head, {Text("a", 1), Text("b", 0), Events(Call("f", "{}"), 1), Events(Call("g", "{}"), 0)}));
  std::string order;
  std::vector<std::string> ids;
  for (const SseEvent& event : events) {
    if (!event.data.is_object()) continue;
    ASSERT_EQ(event.data["choices"].size(), 1u);
    const ordered_json& choice = event.data["choices"][0];
    order += std::to_string(choice["index"].get<int>());
    if (choice["delta"].contains("tool_calls") && choice["delta"]["tool_calls"][0].contains("id")) {
      ids.push_back(choice["delta"]["tool_calls"][0]["id"]);
    }
  }
  EXPECT_EQ(order, "0110110001");
  EXPECT_EQ(ids, (std::vector<std::string>{"call_r1_1_0", "call_r1_0"}));
  // Usage rides on the chunk that ends the last choice.
  EXPECT_FALSE(events[events.size() - 3].data.contains("usage"));
  EXPECT_EQ(events[events.size() - 2].data["usage"]["completion_tokens"], 7);
}

TEST(ChatEncoder, UsageInItsOwnChunk) {
  AnswerHead head = Head(Protocol::kChat, true);
  head.usage_in_own_chunk = true;
  for (const bool include : {true, false}) {
    head.include_usage = include;
    const std::vector<SseEvent> events = ReadSse(Encode(head, {Text("a")}));
    ASSERT_EQ(events.size(), include ? 5u : 4u);
    EXPECT_EQ(events.back().data, "[DONE]");
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(events[i].data["choices"].size(), 1u);
      EXPECT_EQ(events[i].data.contains("usage"), include);
      if (include) {
        EXPECT_TRUE(events[i].data["usage"].is_null());
      }
    }
    if (!include) continue;
    EXPECT_TRUE(events[3].data["choices"].empty());
    EXPECT_EQ(events[3].data["usage"]["total_tokens"], 17);
  }
}

TEST(ChatEncoder, EventsOfOnePieceShareAChunk) {
  const std::vector<SseEvent> events = ReadSse(
      Encode(Head(Protocol::kChat, true),
             {Events({{Kind::kText, "", 0}, {Kind::kText, "a", 0}, {Kind::kText, "", 0}, {Kind::kText, "b", 0}}),
              Events({{Kind::kCallBegin, "f", 0}, {Kind::kCallArguments, "{", 0}, {Kind::kCallArguments, "}", 0}})}));
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[1].data["choices"][0]["delta"]["content"], "ab");
  EXPECT_EQ(events[3].data["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"], "{}");
}

TEST(ChatEncoder, LogprobsRideOnTheTextOfTheirTokens) {
  AnswerHead head = Head(Protocol::kChat, true, true);
  head.logprobs = true;
  const std::vector<Step> steps = {
      {{{{Kind::kReasoning, "h", 0}}, {}, {Token("h", -0.5, {{"h", -0.5}, {"i", -1}})}}, 0},
      {{{}, {Token("\xe2", -1)}, {}}, 0},  // text that is still held back
      {{{{Kind::kText, "…", 0}}, {Token("\x80\xa6", -std::numeric_limits<double>::infinity())}, {}}, 0},
      {{{}, {Token("\n", -2)}, {}}, 0},  // text that is dropped
  };
  const std::vector<SseEvent> events = ReadSse(Encode(head, steps));
  ASSERT_EQ(events.size(), 5u);
  EXPECT_TRUE(events[0].data["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(events[1].data["choices"][0]["logprobs"],
            Json(R"({"content":[],"refusal":null,"reasoning_content":[{"token":"h","logprob":-0.5,"bytes":[104],
                     "top_logprobs":[{"token":"h","logprob":-0.5,"bytes":[104]},
                                     {"token":"i","logprob":-1.0,"bytes":[105]}]}]})"));
  EXPECT_EQ(events[2].data["choices"][0]["logprobs"],
            Json(R"({"content":[{"token":"�","logprob":-1.0,"bytes":[226],"top_logprobs":[]},
                     {"token":"��","logprob":-9999.0,"bytes":[128,166],"top_logprobs":[]}],"refusal":null})"));
  EXPECT_EQ(events[3].data["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[3].data["choices"][0]["logprobs"]["content"][0]["token"], "\n");

  head.stream = false;
  const ordered_json logprobs = Json(Encode(head, steps))["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["content"].size(), 3u);
  EXPECT_EQ(logprobs["reasoning_content"].size(), 1u);
  EXPECT_EQ(Json(Encode(head, {}))["choices"][0]["logprobs"], Json(R"({"content":[],"refusal":null})"));
}

TEST(ChatEncoder, Fingerprint) {
  AnswerHead head = Head(Protocol::kChat, false);
  head.system_fingerprint = "fp";
  EXPECT_EQ(Json(Encode(head, {}))["system_fingerprint"], "fp");
}

TEST(CompletionsEncoder, BodyOfSeveralChoicesWithEchoAndLogprobs) {
  AnswerHead head = Head(Protocol::kCompletions, false);
  head.choices = 2;
  head.echo = {"né", "x"};
  head.logprobs = true;
  head.echo_logprobs = {{Token("n", std::nan("")), Token("\xc3", -1), Token("\xa9", -2)}, {}};
  const ordered_json body =
      Json(Encode(head, {{{{{Kind::kText, "ab", 0}}, {Token("ab", -3, {{"ab", -3}, {"c", -4}})}, {}}, 0}, Text("y", 1)},
                  {AnswerFinish::kLength, ""}));
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"], Json(R"([{"index":0,"text":"néab","logprobs":{"text_offset":[0,1,2,2],
      "token_logprobs":[null,-1.0,-2.0,-3.0],"tokens":["n","bytes:\\xc3","bytes:\\xa9","ab"],
      "top_logprobs":[null,{"bytes:\\xc3":-1.0},{"bytes:\\xa9":-2.0},{"ab":-3.0,"c":-4.0}]},"finish_reason":"length"},
      {"index":1,"text":"xy","logprobs":{"text_offset":[],"token_logprobs":[],"tokens":[],"top_logprobs":[]},
       "finish_reason":"length"}])"));
  EXPECT_EQ(body["usage"]["total_tokens"], 17);
  EXPECT_FALSE(body["usage"].contains("completion_tokens_details"));
}

TEST(CompletionsEncoder, TheChosenTokenIsAmongTheTopOnes) {
  AnswerHead head = Head(Protocol::kCompletions, false);
  head.logprobs = true;
  const ordered_json body = Json(Encode(head, {{{{{Kind::kText, "a", 0}}, {Token("a", -3, {{"b", -1}})}, {}}, 0}}));
  EXPECT_EQ(body["choices"][0]["logprobs"]["top_logprobs"], Json(R"([{"b":-1.0,"a":-3.0}])"));
}

TEST(CompletionsEncoder, Stream) {
  AnswerHead head = Head(Protocol::kCompletions, true);
  head.include_usage = true;
  head.echo = {"p"};
  head.logprobs = true;
  const std::vector<SseEvent> events = ReadSse(Encode(head, {{{{{Kind::kText, "a", 0}}, {Token("a", -1)}, {}}, 0},
                                                             {{{{Kind::kText, "b", 0}}, {Token("b", -2)}, {}}, 0}}));
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0].data, Json(R"({"id":"r1","object":"text_completion","created":5,"model":"m",
      "system_fingerprint":null,"choices":[{"index":0,"text":"p","logprobs":null,"finish_reason":null}],
      "usage":null})"));
  EXPECT_EQ(events[2].data["choices"][0]["logprobs"]["text_offset"], Json("[1]"));
  EXPECT_EQ(events[3].data["choices"][0], Json(R"({"index":0,"text":"","logprobs":null,"finish_reason":"stop"})"));
  EXPECT_TRUE(events[4].data["choices"].empty());
  EXPECT_EQ(events[4].data["usage"]["prompt_cache_hit_tokens"], 4);
  EXPECT_EQ(events[5].data, "[DONE]");
  head.include_usage = false;
  const std::vector<SseEvent> without = ReadSse(Encode(head, {Text("a")}));
  ASSERT_EQ(without.size(), 4u);
  for (size_t i = 0; i < 3; ++i) EXPECT_FALSE(without[i].data.contains("usage"));
}

Tool MakeTool(const std::string& name, const std::string& tool_namespace, const std::string& local, bool custom) {
  Tool tool;
  tool.name = name;
  tool.tool_namespace = tool_namespace;
  tool.local_name = local;
  tool.custom = custom;
  return tool;
}

TEST(ResponsesEncoder, NamespacesAndCustomTools) {
  AnswerHead head = Head(Protocol::kResponses, true);
  head.tools = {MakeTool("fs::read_1", "fs", "read", false), MakeTool("apply_patch", "", "apply_patch", true)};
  const std::vector<SseEvent> events = ReadSse(Encode(
      head,
      {Events(Call("fs::read_1", "{}")), Events({{Kind::kCallBegin, "apply_patch", 1}}),
       Events({{Kind::kCallArguments, R"({"input": "a\)", 1}}),
       Events({{Kind::kCallArguments, R"(nb"})", 1}, {Kind::kCallEnd, "", 1}}), Events(Call("unknown", "{}", 2))},
      {AnswerFinish::kToolCalls, ""}));
  const ordered_json output = events.back().data["response"]["output"];
  EXPECT_EQ(output, Json(R"([
      {"type":"function_call","id":"fc_r1_0","status":"completed","call_id":"call_r1_0","name":"read","namespace":"fs",
       "arguments":"{}"},
      {"type":"custom_tool_call","id":"ctc_r1_1","status":"completed","call_id":"call_r1_1","name":"apply_patch",
       "input":"a\nb"},
      {"type":"function_call","id":"fc_r1_2","status":"completed","call_id":"call_r1_2","name":"unknown",
       "arguments":"{}"}])"));
  std::string types;
  std::string input;
  for (const SseEvent& event : events) {
    if (event.data.value("output_index", -1) != 1) continue;
    EXPECT_EQ(event.event, event.data["type"]);
    types += event.event.substr(9) + " ";
    if (event.data.contains("delta")) input += event.data["delta"].get<std::string>();
    if (event.data.contains("input")) {
      EXPECT_EQ(event.data["input"], "a\nb");
    }
  }
  EXPECT_EQ(types,
            "output_item.added custom_tool_call_input.delta custom_tool_call_input.delta custom_tool_call_input.done "
            "output_item.done ");
  EXPECT_EQ(input, "a\nb");
}

TEST(ResponsesEncoder, BodyRepeatsFieldsOfTheRequestAndIsStored) {
  AnswerHead head = Head(Protocol::kResponses, false);
  head.repeated_fields = R"( {"metadata":{"k":"v"},"store":true} )";
  std::string stored;
  const std::string body = Encode(head, {Text("a")}, {}, &stored);
  EXPECT_EQ(body, stored);
  ordered_json json = Json(body);
  EXPECT_GT(json["completed_at"], 1700000000);
  json.erase("completed_at");
  EXPECT_EQ(json, Json(R"({"id":"r1","object":"response","created_at":5,"model":"m","status":"completed","error":null,
      "incomplete_details":null,"output":[{"type":"message","id":"msg_r1_0","status":"completed","role":"assistant",
      "phase":"final_answer","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"a"}]}],
      "metadata":{"k":"v"},"store":true,
      "usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"output_tokens":7,
      "output_tokens_details":{"reasoning_tokens":3},"total_tokens":17}})"));
  head.repeated_fields = "{}";
  EXPECT_TRUE(ordered_json::accept(Encode(head, {})));
}

TEST(ResponsesEncoder, IncompleteItems) {
  for (const auto& [reason, name] :
       {std::pair{AnswerFinish::kLength, "max_output_tokens"}, {AnswerFinish::kContentFilter, "content_filter"}}) {
    // A call that was cut off.
    const ordered_json body = Json(
        Encode(Head(Protocol::kResponses, false),
               {Text("a"), Events({{Kind::kCallBegin, "f", 0}, {Kind::kCallArguments, "{\"x", 0}})}, {reason, ""}));
    EXPECT_EQ(body["status"], "incomplete");
    EXPECT_EQ(body["incomplete_details"]["reason"], name);
    EXPECT_EQ(body["output"][0]["status"], "completed");
    EXPECT_EQ(body["output"][0]["phase"], "commentary");
    EXPECT_EQ(body["output"][1]["status"], "incomplete");
    EXPECT_EQ(body["output"][1]["arguments"], "{\"x");
  }
}

TEST(ResponsesEncoder, Logprobs) {
  AnswerHead head = Head(Protocol::kResponses, true);
  head.logprobs = true;
  const std::vector<Step> steps = {{{{{Kind::kText, "a", 0}}, {Token("a", -1, {{"a", -1}})}, {}}, 0},
                                   {{Call("f", "{}"), {Token("<", -2)}, {}}, 0}};
  const std::vector<SseEvent> events = ReadSse(Encode(head, steps));
  const ordered_json expected =
      Json(R"([{"token":"a","logprob":-1.0,"bytes":[97],"top_logprobs":[{"token":"a","logprob":-1.0,"bytes":[97]}]}])");
  int seen = 0;
  for (const SseEvent& event : events) {
    if (event.event != "response.output_text.delta" && event.event != "response.output_text.done") continue;
    EXPECT_EQ(event.data["logprobs"], expected);
    ++seen;
  }
  EXPECT_EQ(seen, 2);
  // Tokens of a call's markup belong to no text.
  EXPECT_EQ(events.back().data["response"]["output"][0]["content"][0]["logprobs"], expected);
}

TEST(MessagesEncoder, Body) {
  EXPECT_EQ(
      Encode(
          Head(Protocol::kMessages, false, true),
          {Events({{Kind::kReasoning, "hm", 0}, {Kind::kText, "a", 0}}), Events(Call("f", "{\"x\": [1.50, \"é\"]}"))},
          {AnswerFinish::kToolCalls, ""}),
      R"({"id":"r1","type":"message","role":"assistant","model":"m","content":[{"type":"thinking","thinking":"hm",)"
      R"("signature":"r1"},{"type":"text","text":"a"},{"type":"tool_use","id":"toolu_r1_0","name":"f",)"
      R"("input":{"x": [1.50, "é"]}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":6,)"
      R"("cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":7,"service_tier":"standard"}})");
}

TEST(MessagesEncoder, MalformedInputIsAnEmptyObject) {
  for (const char* arguments : {"{\"x", "[1]", "5", "", "{\"x\": NaN}", "{} {}"}) {
    const ordered_json body = Json(Encode(Head(Protocol::kMessages, false), {Events(Call("f", arguments))}));
    EXPECT_EQ(body["content"][0]["input"], ordered_json::object()) << arguments;
  }
}

TEST(MessagesEncoder, StopReasons) {
  const std::pair<AnswerEnd, std::string> cases[] = {
      {{AnswerFinish::kStop, ""}, R"({"stop_reason":"end_turn","stop_sequence":null})"},
      {{AnswerFinish::kEndOfStream, ""}, R"({"stop_reason":"end_turn","stop_sequence":null})"},
      {{AnswerFinish::kStopSequence, "\n"}, R"({"stop_reason":"stop_sequence","stop_sequence":"\n"})"},
      {{AnswerFinish::kLength, ""}, R"({"stop_reason":"max_tokens","stop_sequence":null})"},
      {{AnswerFinish::kToolCalls, ""}, R"({"stop_reason":"tool_use","stop_sequence":null})"},
      {{AnswerFinish::kContentFilter, ""}, R"({"stop_reason":"refusal","stop_sequence":null})"},
  };
  for (const auto& [end, expected] : cases) {
    const std::vector<SseEvent> events = ReadSse(Encode(Head(Protocol::kMessages, true), {Text("a")}, end));
    EXPECT_EQ(events[events.size() - 2].data["delta"], Json(expected));
  }
}

TEST(AnswerEncoder, AFailureEndsAStreamCleanly) {
  const ApiError error = ApiError::Overloaded("full\n", 1);
  const auto fail = [&](Protocol protocol, std::string* stored = nullptr) {
    const std::unique_ptr<AnswerEncoder> encoder = MakeAnswerEncoder(Head(protocol, true));
    std::string out;
    encoder->Start(kStartUsage, &out);
    encoder->Add(0, Text("a").piece, &out);
    const size_t before = out.size();
    encoder->Fail(error, &out);
    if (stored != nullptr) *stored = encoder->StoredBody();
    return out.substr(before);
  };
  const std::string openai = "data: " + ErrorBody(Protocol::kChat, error) + "\n\ndata: [DONE]\n\n";
  EXPECT_EQ(fail(Protocol::kChat), openai);
  EXPECT_EQ(fail(Protocol::kCompletions), openai);
  EXPECT_EQ(fail(Protocol::kMessages), "event: error\ndata: " + ErrorBody(Protocol::kMessages, error) + "\n\n");

  std::string stored;
  const std::vector<SseEvent> events = ReadSse(fail(Protocol::kResponses, &stored));
  EXPECT_EQ(events[events.size() - 2].data["item"]["status"], "incomplete");
  const ordered_json& failed = events.back().data;
  EXPECT_EQ(failed["type"], "response.failed");
  EXPECT_EQ(failed["response"]["status"], "failed");
  EXPECT_EQ(failed["response"]["error"], Json(R"({"code":"server_error","message":"full\n"})"));
  EXPECT_TRUE(failed["response"]["usage"].is_null());
  EXPECT_EQ(failed["response"], Json(stored));
}

TEST(AnswerEncoder, AFailureWithoutAStreamIsTheErrorBody) {
  const ApiError error = ApiError::Internal("oops");
  for (const Protocol protocol : {Protocol::kChat, Protocol::kCompletions, Protocol::kResponses, Protocol::kMessages}) {
    const std::unique_ptr<AnswerEncoder> encoder = MakeAnswerEncoder(Head(protocol, false, true));
    std::string out;
    encoder->Start(kStartUsage, &out);
    encoder->Add(0, Text("a").piece, &out);
    EXPECT_EQ(out, "");
    encoder->Fail(error, &out);
    EXPECT_EQ(out, ErrorBody(protocol, error));
  }
}

TEST(Usage, TellsTiersOnlyWhenOneStandsBehindTheDevice) {
  const auto told = [](std::vector<CachedTokens> by_tier) {
    Usage usage = kUsage;
    usage.cached_tokens_by_tier = std::move(by_tier);
    std::string chat, responses, messages;
    AppendCompletionUsage(usage, false, &chat);
    AppendResponsesUsage(usage, &responses);
    AppendMessagesUsage(usage, &messages);
    ordered_json tiers = Json(chat)["prompt_tokens_details"]["cached_tokens_by_tier"];
    EXPECT_EQ(tiers, Json(responses)["input_tokens_details"]["cached_tokens_by_tier"]);
    EXPECT_EQ(tiers, Json(messages)["cached_tokens_by_tier"]);
    EXPECT_EQ(Json(chat)["prompt_tokens_details"]["cached_tokens"], 4);
    EXPECT_EQ(Json(messages)["cache_read_input_tokens"], 4);
    return tiers.dump();
  };
  EXPECT_EQ(told({}), "null");
  EXPECT_EQ(told({{"device", 4}}), "null");
  EXPECT_EQ(told({{"device", 4}, {"disk", 0}}), "null");
  EXPECT_EQ(told({{"disk", 4}}), R"({"disk":4})");
  EXPECT_EQ(told({{"device", 1}, {"host", 0}, {"disk", 2}, {"redis", 1}}), R"({"device":1,"disk":2,"redis":1})");
}

}  // namespace
}  // namespace deepinfer
