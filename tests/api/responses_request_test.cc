// Responses: settings, the grouping of items into turns, tools with namespaces, and refusals by the field that they
// name.
#include "api/responses_request.h"

#include <gtest/gtest.h>

#include "prompt_vectors.h"
#include "text/prompt_renderer.h"

namespace deepinfer {
namespace {

using testing::ErrorOf;

constexpr char kProtocol[] = "responses";

std::string With(const std::string& fields) { return R"({"model":"m","input":"q",)" + fields + "}"; }

// A request without thinking and with these items, the content of the array.
std::string Items(const std::string& items, const std::string& fields = "") {
  return R"({"model":"m","reasoning":{"effort":"none"},)" + fields + R"("input":[)" + items + "]}";
}

std::string Text(const std::string& body, const RequestOptions& options = {}) {
  const std::string text = testing::TextOf(kProtocol, body, options);
  const std::string begin = "<｜begin▁of▁sentence｜>";
  return text.starts_with(begin) ? text.substr(begin.size()) : text;
}

void ExpectErrors(const std::vector<std::pair<std::string, std::string>>& cases) {
  for (const auto& [body, message] : cases) {
    const std::string error = ErrorOf(kProtocol, body);
    EXPECT_TRUE(error.starts_with(message)) << "error:    " << error << "\nexpected: " << message << "\n" << body;
  }
}

std::string Call(const std::string& id, const std::string& name = "f") {
  return R"({"type":"function_call","call_id":")" + id + R"(","name":")" + name + R"(","arguments":"{}"})";
}

std::string Output(const std::string& id) {
  return R"({"type":"function_call_output","call_id":")" + id + R"(","output":"out )" + id + R"("})";
}

std::string Say(const std::string& role, const std::string& text) {
  return R"({"role":")" + role + R"(","content":")" + text + R"("})";
}

std::string Reason(const std::string& text) {
  return R"({"type":"reasoning","content":[{"type":"reasoning_text","text":")" + text + R"("}]})";
}

// The messages of an accepted request, one letter a message and its texts.
std::string Shape(const std::string& body) {
  const Result<ResponsesRequest> request = ParseResponsesRequest(body);
  if (!request.ok()) return request.status().message();
  std::string shape;
  for (const Message& message : request->conversation.messages) {
    shape += "SUATL"[static_cast<int>(message.role)];
    shape.append("(").append(TextOf(message));
    if (!message.reasoning.empty()) shape.append(" thinks ").append(message.reasoning);
    for (const ToolCall& call : message.tool_calls)
      shape.append(" calls ").append(call.name).append("/").append(call.id);
    shape += ")";
  }
  return shape;
}

TEST(ResponsesRequest, Settings) {
  const Result<ResponsesRequest> request = ParseResponsesRequest(
      With(R"("max_output_tokens":4,"temperature":1,"top_p":0.5,"stream":true,"user":"u","store":true,
              "reasoning":{"effort":"max","summary":"auto"},"text":{"verbosity":"low","format":{"type":"text"}},
              "stop":5,"previous_response_id":null)"));
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->settings.max_tokens, 4);
  EXPECT_EQ(request->settings.temperature, 1.0);
  EXPECT_EQ(request->settings.top_p, 0.5);
  EXPECT_TRUE(request->settings.stream);
  EXPECT_TRUE(request->settings.stop.empty());
  EXPECT_EQ(request->conversation.effort, 100);
}

TEST(ResponsesRequest, Grouping) {
  const std::string q = Say("user", "q") + ",";
  // Consecutive calls form one turn, sorted by id; outputs follow in the same order.
  EXPECT_EQ(Shape(Items(q + Call("c2", "g") + "," + Call("c1") + "," + Output("c2") + "," + Output("c1"))),
            "U(q)A( calls f/c1 calls g/c2)T(out c1)T(out c2)");
  EXPECT_EQ(Shape(Items(q + Call("a") + "," + Output("a") + "," + Call("b") + "," + Output("b"))),
            "U(q)A( calls f/a)T(out a)A( calls f/b)T(out b)");
  // A call that comes while another waits belongs to the same turn.
  EXPECT_EQ(Shape(Items(q + Call("a") + "," + Call("b") + "," + Output("a") + "," + Call("c") + "," + Output("c") +
                        "," + Output("b"))),
            "U(q)A( calls f/a calls f/b calls f/c)T(out a)T(out b)T(out c)");
  // Calls attach to the assistant message before them; ids may come again in another turn.
  EXPECT_EQ(Shape(Items(q + Say("assistant", "t") + "," + Call("a") + "," + Output("a") + "," + Say("assistant", "u") +
                        "," + Call("a") + "," + Output("a"))),
            "U(q)A(t calls f/a)T(out a)A(u calls f/a)T(out a)");
  EXPECT_EQ(Shape(Items(q + Say("assistant", "a") + "," + Say("assistant", "b") + "," + Say("user", "r"))),
            "U(q)A(a\n\nb)U(r)");
}

TEST(ResponsesRequest, ReasoningBelongsToWhatFollows) {
  const std::string q = Say("user", "q") + ",";
  EXPECT_EQ(Shape(Items(q + Reason("r") + "," + Say("assistant", "a"))), "U(q)A(a thinks r)");
  EXPECT_EQ(Shape(Items(q + Reason("r") + "," + Reason("s") + "," + Call("c") + "," + Output("c"))),
            "U(q)A( thinks r\ns calls f/c)T(out c)");
  EXPECT_EQ(Shape(Items(q + Say("assistant", "a") + "," + Reason("r") + "," + Call("c") + "," + Output("c"))),
            "U(q)A(a)A( thinks r calls f/c)T(out c)");
  EXPECT_EQ(Shape(Items(q + R"({"type":"reasoning","content":[{"text":"r"},{"text":"s"}]},)" + Say("assistant", "a"))),
            "U(q)A(a thinks r\ns)");
  // Encrypted, summarised and empty reasoning is not shown; reasoning that nothing follows is dropped.
  EXPECT_EQ(
      Shape(Items(q + R"({"type":"reasoning","encrypted_content":"x","summary":[]},{"type":"reasoning","content":null},
                               {"type":"reasoning","content":[]},)" +
                  Say("assistant", "a"))),
      "U(q)A(a)");
  EXPECT_EQ(Shape(Items(q + Reason("r"))), "U(q)");
  EXPECT_EQ(Shape(Items(q + Reason("r") + "," + Say("user", "s"))), "U(q)U(s)");
  EXPECT_EQ(Shape(Items(q + Say("assistant", "") + "," + Say("user", "s"))), "U(q)A()U(s)");
}

TEST(ResponsesRequest, RolesAndParts) {
  EXPECT_EQ(Shape(Items(Say("system", "s") + "," + Say("system", "") + "," + Say("developer", "d"),
                        R"("instructions":"i",)")),
            "S(i)S(s)U(d)");
  EXPECT_EQ(Shape(R"({"model":"m","instructions":"","input":""})"), "U()");
  EXPECT_EQ(Text(Items(R"({"type":"message","role":"user","content":[{"type":"input_text","text":"a"},
                          {"type":"input_image","image_url":"http://a","detail":"high"},{"type":"input_file","file_id":"x"}]},
                          {"type":"web_search_call","id":"w"},{"type":"item_reference","id":"x"})")),
            "<｜User｜>a\n\n<｜deepseek_image｜>\n\n[Unsupported Document]<｜Assistant｜></think>");
  EXPECT_EQ(Shape(Items(Say("user", "q") + "," + Call("c") +
                        R"(,{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"x"},
                             {"type":"input_text","text":"y"}]})")),
            "U(q)A( calls f/c)T(x\n\ny)");
}

TEST(ResponsesRequest, CustomTools) {
  const std::string body = Items(
      Say("user", "q") +
          R"(,{"type":"custom_tool_call","call_id":"c","name":"apply_patch","input":"*** \"é\"\n"},
              {"type":"custom_tool_call_output","call_id":"c","output":"ok"})",
      R"("tools":[{"type":"custom","name":"apply_patch","description":"Patch."},{"type":"web_search"},{"type":"mcp"}],)");
  const Result<ResponsesRequest> request = ParseResponsesRequest(body);
  ASSERT_TRUE(request.ok()) << request.status().message();
  ASSERT_EQ(request->conversation.tools.size(), 1u);
  EXPECT_TRUE(request->conversation.tools[0].custom);
  EXPECT_EQ(request->conversation.messages[1].tool_calls[0].arguments, "{\"input\": \"*** \\\"é\\\"\\n\"}");
  const std::string text = Text(body);
  EXPECT_NE(text.find("{\"name\": \"apply_patch\", \"description\": \"Patch.\", \"parameters\": {\"type\": \"object\", "
                      "\"properties\": {\"input\": {\"type\": \"string\"}}, \"required\": [\"input\"]}}"),
            std::string::npos);
  EXPECT_NE(text.find("<｜DSML｜ parameter name=\"input\" string=\"true\">*** \"é\"\n</｜DSML｜ parameter>"),
            std::string::npos);
}

TEST(ResponsesRequest, Namespaces) {
  const std::string tools =
      R"("tools":[{"type":"namespace","name":"fs","tools":[{"type":"function","name":"read","description":"R"},
                    {"type":"function","name":"write"}]},
                  {"type":"namespace","name":"fs","description":"N","tools":[{"type":"function","name":"read"}]},
                  {"type":"function","name":"read"}],)";
  const std::string call =
      R"({"type":"function_call","call_id":"c","namespace":"fs","name":"write","arguments":"{}"},)" + Output("c");
  const Result<ResponsesRequest> request = ParseResponsesRequest(Items(Say("user", "q") + "," + call, tools));
  ASSERT_TRUE(request.ok()) << request.status().message();
  const std::vector<Tool>& read = request->conversation.tools;
  ASSERT_EQ(read.size(), 4u);
  EXPECT_EQ(read[0].name, "read");
  EXPECT_EQ(read[1].name, "fs::read");
  EXPECT_EQ(read[1].description, "R");
  EXPECT_EQ(read[1].tool_namespace, "fs");
  EXPECT_EQ(read[1].local_name, "read");
  EXPECT_EQ(read[2].name, "fs::write");
  EXPECT_EQ(read[3].name, "fs::read_1");
  EXPECT_EQ(read[3].description, "N\n");
  EXPECT_EQ(request->conversation.messages[1].tool_calls[0].name, "fs::write");

  const auto named = [&](const std::string& choice) {
    return ParseResponsesRequest(Items(Say("user", "q"), tools + R"("tool_choice":)" + choice + ","));
  };
  EXPECT_EQ(named(R"({"type":"function","name":"read"})")->conversation.named_tool, "read");
  EXPECT_EQ(named(R"({"type":"function","name":"write","namespace":"fs"})")->conversation.named_tool, "fs::write");
  EXPECT_EQ(named(R"({"type":"web_search"})")->conversation.tool_choice, ToolChoice::kAuto);
  EXPECT_EQ(named("\"required\"")->conversation.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(named("\"none\"")->conversation.tool_choice, ToolChoice::kNone);
}

TEST(ResponsesRequest, WhatIsKeptAndRepeated) {
  const Result<ResponsesRequest> request = ParseResponsesRequest(
      With(R"("instructions":"i","metadata":{"k":"v"},"tools":[{"type":"function","name":"f"}],"store":false,
              "temperature":0.50,"max_tool_calls":3)"));
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_FALSE(request->store);
  EXPECT_EQ(request->input_items,
            R"([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]}])");
  EXPECT_EQ(request->items, request->input_items);
  EXPECT_EQ(request->settings.max_tool_calls, 3);
  EXPECT_EQ(request->repeated_fields,
            R"({"background":false,"store":false,"instructions":"i","max_output_tokens":null,"max_tool_calls":3,)"
            R"("metadata":{"k": "v"},"parallel_tool_calls":true,"previous_response_id":null,)"
            R"("reasoning":{"effort":null,"summary":null},"temperature":0.5,"text":{"format":{"type":"text"}},)"
            R"("tool_choice":"auto","tools":[{"type": "function", "name": "f"}],"top_logprobs":0,"top_p":null,)"
            R"("truncation":"disabled","user":null})");
}

TEST(ResponsesRequest, DefaultsOfWhatIsKept) {
  const Result<ResponsesRequest> request = ParseResponsesRequest(With(R"("metadata":null)"));
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_TRUE(request->store);
  EXPECT_TRUE(request->previous_response_id.empty());
  EXPECT_FALSE(request->settings.logprobs.has_value());
  EXPECT_FALSE(request->settings.max_tool_calls.has_value());
}

TEST(ResponsesRequest, Logprobs) {
  const auto logprobs = [](const std::string& fields) {
    return ParseResponsesRequest(With(fields))->settings.logprobs;
  };
  EXPECT_EQ(logprobs(R"("top_logprobs":5)"), 5);
  EXPECT_EQ(logprobs(R"("include":["message.output_text.logprobs"])"), 0);
  EXPECT_EQ(logprobs(R"("include":["message.output_text.logprobs"],"top_logprobs":2)"), 2);
  EXPECT_FALSE(logprobs(R"("include":["reasoning.encrypted_content"],"top_logprobs":0)").has_value());
}

TEST(ResponsesRequest, OneCallWithoutParallelCalls) {
  EXPECT_EQ(ParseResponsesRequest(With(R"("parallel_tool_calls":false,"max_tool_calls":9)"))->settings.max_tool_calls,
            1);
}

// A conversation that goes on by the id of its last response renders as the one that is sent whole.
TEST(ResponsesRequest, EarlierTurnsStandInFront) {
  const std::string first = Say("user", "a") + "," + Reason("r") + "," + Call("1");
  const std::string rest = Output("1") + "," + Say("assistant", "b") + "," + Say("user", "c");
  std::string asked;
  const StoredItems stored = [&](const std::string& id) -> Result<std::string> {
    asked = id;
    return std::string("[").append(first).append("]");
  };
  const Result<ResponsesRequest> continued =
      ParseResponsesRequest(Items(rest, R"("previous_response_id":"r1","instructions":"i",)"), {}, stored);
  const Result<ResponsesRequest> whole = ParseResponsesRequest(Items(first + "," + rest, R"("instructions":"i",)"));
  ASSERT_TRUE(continued.ok()) << continued.status().message();
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(asked, "r1");
  EXPECT_EQ(continued->previous_response_id, "r1");
  EXPECT_EQ(RenderPrompt(continued->conversation)->Text(), RenderPrompt(whole->conversation)->Text());
  EXPECT_EQ(*ParseJson(continued->items)->AsArray()->at(1).Find("type")->AsString(), "reasoning");
  EXPECT_EQ(ParseJson(continued->items)->AsArray()->size(), 6u);
  EXPECT_EQ(ParseJson(continued->input_items)->AsArray()->size(), 3u);
}

TEST(ResponsesRequest, EarlierTurnsThatFail) {
  const auto error = [](const std::string& body, const StoredItems& stored) {
    return ParseResponsesRequest(body, {}, stored).status();
  };
  const std::string body = With(R"("previous_response_id":"r1")");
  const Status missing = Status::NotFound("previous_response_id: no response r1 is stored");
  EXPECT_EQ(error(body, [&](const std::string&) { return missing; }).code(), StatusCode::kNotFound);
  EXPECT_EQ(error(body, [&](const std::string&) { return missing; }).message(), missing.message());
  EXPECT_EQ(error(body, [&](const std::string&) { return std::string("{}"); }).code(), StatusCode::kCorruption);
  // A call that was stored and is not answered.
  const auto call = [](const std::string&) { return std::string("[").append(Call("1")).append("]"); };
  EXPECT_EQ(error(body, call).message(),
            "previous_response_id[0]: each call needs an output item before the next message; none answers \"1\"");
}

TEST(ResponsesRequest, ItemsJoin) {
  EXPECT_EQ(JoinItems("[]", "[]"), "[]");
  EXPECT_EQ(JoinItems(" [ ] ", "[1]"), "[ 1]");
  EXPECT_EQ(JoinItems("[1]", "[]"), "[1]");
  EXPECT_EQ(JoinItems("[1,[2]]", "[3]"), "[1,[2], 3]");
  EXPECT_EQ(*OutputItems(R"({"output":[{"a":1}],"b":2})"), R"([{"a": 1}])");
  EXPECT_EQ(OutputItems("{}").status().code(), StatusCode::kCorruption);
}

TEST(ResponsesRequest, WebSearchCanBeRefused) {
  const RequestOptions reject{.responses_web_search = WebSearchTools::kReject};
  EXPECT_TRUE(ErrorOf(kProtocol, With(R"("tools":[{"type":"web_search_preview"}])"), reject)
                  .starts_with("tools[0].type: server tools are not available"));
}

TEST(ResponsesRequest, SettingErrors) {
  ExpectErrors({
      {"", "request body: expected a JSON object, found nothing"},
      {R"({"input":"q"})", "model: this field is required"},
      {R"({"model":"m"})", "input: a request needs input or instructions"},
      {R"({"model":"m","instructions":""})", "input: a request needs input or instructions"},
      {R"({"model":"m","instructions":5})", "instructions: expected a string, found 5"},
      {R"({"model":"m","input":5})", "input: expected a string or an array of items, found 5"},
      {Items(""), "input: expected at least one item, found an empty array"},
      {R"({"model":"m","instructions":"i","input":[]})", "input: expected at least one item, found an empty array"},
      {Items(R"({"type":"item_reference","id":"x"})"), "input: expected at least one message, found none"},
      {With(R"("max_output_tokens":0)"), "max_output_tokens: expected an integer"},
      {With(R"("reasoning":"low")"), "reasoning: expected an object"},
      {With(R"("reasoning":{"effort":"ultra"})"), "reasoning.effort: expected none, minimal, low"},
      {With(R"("text":5)"), "text: expected an object, found 5"},
      {With(R"("text":{"format":"json"})"), "text.format: expected an object"},
      {With(R"("text":{"format":{"type":"xml"}})"), "text.format.type: expected text, json_object, json_schema"},
      {With(R"("text":{"format":{"type":"json_schema","name":"x"}})"), "text.format.schema: this field is required"},
      {With(R"("text":{"format":{"type":"json_object"}})"), "text.format: json_object needs the word json"},
      {With(R"("tools":5)"), "tools: expected an array, found 5"},
      {With(R"("tools":[{}])"), "tools[0].type: this field is required"},
      {With(R"("tools":[{"type":"function"}])"), "tools[0].name: this field is required"},
      {With(R"("tools":[{"type":"function","name":"a.b"}])"), "tools[0].name: expected 1 to 128 characters"},
      {With(R"("tools":[{"type":"function","name":"f","parameters":{"type":"object","required":"x"}}])"),
       "tools[0].parameters.required: expected an array of strings, found \"x\""},
      {With(R"("tools":[{"type":"custom","name":"grep"}])"),
       "tools[0].name: the only custom tool available is apply_patch"},
      {With(R"("tools":[{"type":"function","name":"f"},{"type":"function","name":"f"}])"),
       "tools: two tools are named \"f\""},
      {With(R"("tools":[{"type":"namespace","name":"n::m","tools":[]}])"),
       "tools[0].name: expected 1 to 128 characters"},
      {With(R"("tools":[{"type":"namespace","name":"n"}])"), "tools[0].tools: this field is required"},
      {With(R"("tools":[{"type":"namespace","name":"n","tools":[{"type":"custom","name":"f"}]}])"),
       "tools[0].tools[0].type: expected function, found \"custom\""},
      {With(R"("tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"},
                                                                {"type":"function","name":"f"}]}])"),
       "tools[0].tools[1].name: two tools are named \"f\""},
      {With(R"("tool_choice":"any")"), "tool_choice: expected none, auto or required"},
      {With(R"("tool_choice":{"type":"allowed_tools"})"), "tool_choice.type: expected function or custom"},
      {With(R"("tool_choice":{"type":"function","name":"f"})"), "tool_choice.name: tools has no tool named \"f\""},
      {With(R"("background":true)"), "background: responses are not made in the background"},
      {With(R"("conversation":"c")"), "conversation: conversations are not kept; use previous_response_id"},
      {With(R"("prompt":{"id":"p"})"), "prompt: stored prompts are not available"},
      {With(R"("previous_response_id":"r")"), "previous_response_id: this server keeps no responses"},
      {With(R"("previous_response_id":5)"), "previous_response_id: expected a string"},
      {With(R"("store":"yes")"), "store: expected true or false"},
      {With(R"("truncation":"head")"), "truncation: expected auto or disabled"},
      {With(R"("metadata":[])"), "metadata: expected an object"},
      {With(R"("metadata":{"a":5})"), "metadata: expected texts of at most 512 bytes, found 5"},
      {With(R"("include":"x")"), "include: expected an array"},
      {With(R"("include":[5])"), "include[0]: expected a string"},
      {With(R"("top_logprobs":21)"), "top_logprobs: expected an integer from 0 to 20"},
      {With(R"("max_tool_calls":0)"), "max_tool_calls: expected an integer from 1"},
      {With(R"("parallel_tool_calls":1)"), "parallel_tool_calls: expected true or false"},
  });
}

TEST(ResponsesRequest, ItemErrors) {
  const std::string q = Say("user", "q") + ",";
  ExpectErrors({
      {Items("5"), "input[0]: expected an object, found 5"},
      {Items("{}"), "input[0]: expected an item with a type, or a message with a role"},
      {Items(R"({"type":5})"), "input[0].type: expected a string, found 5"},
      {Items(R"({"type":"message"})"), "input[0].role: this field is required"},
      {Items(R"({"role":"tool","content":"x"})"), "input[0].role: expected user, assistant, system or developer"},
      {Items(R"({"role":"user"})"), "input[0].content: this field is required"},
      {Items(R"({"role":"user","content":{}})"), "input[0].content: expected a string or an array of parts"},
      {Items(R"({"role":"user","content":[{"type":"text","text":"x"}]})"),
       "input[0].content[0].type: expected input_text, output_text, input_image or input_file, found \"text\""},
      {Items(R"({"role":"user","content":[{"type":"input_image","file_id":"x"}]})"),
       "input[0].content[0].file_id: stored files are not available"},
      {Items(R"({"role":"user","content":[{"type":"input_image"}]})"),
       "input[0].content[0].image_url: this field is required"},
      {Items(R"({"role":"assistant","content":[{"type":"input_image","image_url":"http://a"}]})"),
       "input[0].content[0]: an image cannot stand here"},
      {Items(R"({"role":"system","content":[{"type":"input_image","image_url":"http://a"}]})"),
       "input[0].content[0]: an image cannot stand here"},
      {Items(R"({"type":"reasoning","content":"x"})"), "input[0].content: expected an array, found \"x\""},
      {Items(R"({"type":"reasoning","content":[{}]})"), "input[0].content[0].text: this field is required"},
      {Items(R"({"type":"function_call","name":"f","arguments":"{}"})"), "input[0].call_id: this field is required"},
      {Items(Call("")), "input[0].call_id: expected a string that is not empty"},
      {Items(R"({"type":"function_call","call_id":"c","arguments":"{}"})"), "input[0].name: this field is required"},
      {Items(R"({"type":"function_call","call_id":"c","name":"f","arguments":{}})"),
       "input[0].arguments: expected a string, found an object"},
      {Items(R"({"type":"custom_tool_call","call_id":"c","name":"f"})"), "input[0].input: this field is required"},
      {Items(Call("c") + "," + Call("c")), "input[1].call_id: two calls have the id \"c\""},
      {Items(q + Call("c")), "input[1]: each call needs an output item; none answers \"c\""},
      {Items(q + Call("c") + "," + Say("user", "x") + "," + Output("c")),
       "input[1]: each call needs an output item before the next message; none answers \"c\""},
      {Items(q + Call("c") + "," + Reason("x") + "," + Output("c")),
       "input[1]: each call needs an output item before the next reasoning; none answers \"c\""},
      {Items(q + Output("c")), "input[1].call_id: \"c\" is no unanswered call"},
      {Items(q + Call("a") + "," + Call("b") + "," + Output("a") + "," + Output("a")),
       "input[4].call_id: \"a\" is no unanswered call"},
      {Items(q + Call("c") + R"(,{"type":"function_call_output","call_id":"c"})"),
       "input[2].output: this field is required"},
      {Items(q + Call("c") + R"(,{"type":"function_call_output","call_id":"c","output":{}})"),
       "input[2].output: expected a string or an array of parts, found an object"},
  });
}

}  // namespace
}  // namespace deepinfer
