// Chat Completions: settings, conversions that the recorded vectors do not reach, and every refusal by the field it
// names.
#include "api/chat_request.h"

#include <gtest/gtest.h>

#include "prompt_vectors.h"

namespace deepinfer {
namespace {

using testing::ErrorOf;

constexpr char kProtocol[] = "chat_completions";

// A request with one user message, plus `fields` (`"n":1,"seed":2`).
std::string With(const std::string& fields) {
  return R"({"model":"m","messages":[{"role":"user","content":"json"}],)" + fields + "}";
}

// A request without thinking and with these messages, the content of the array.
std::string Messages(const std::string& messages) {
  return R"({"model":"m","thinking":{"type":"disabled"},"messages":[)" + messages + "]}";
}

std::string Text(const std::string& body, const RequestOptions& options = {}) {
  const std::string text = testing::TextOf(kProtocol, body, options);
  const std::string begin = "<｜begin▁of▁sentence｜>";
  return text.starts_with(begin) ? text.substr(begin.size()) : text;
}

void ExpectErrors(const std::vector<std::pair<std::string, std::string>>& cases) {
  for (const auto& [body, message] : cases) {
    const std::string error = ErrorOf(kProtocol, body);
    EXPECT_TRUE(error.starts_with(message)) << "error:    " << error << "\nexpected: " << message << "\n"
                                            << body.substr(0, 400);
  }
}

constexpr char kTool[] = R"({"type":"function","function":{"name":"f"}})";

TEST(ChatRequest, Settings) {
  const Result<ConversationRequest> request = ParseChatRequest(
      With(R"("max_tokens":7,"temperature":0.5,"top_p":1,"frequency_penalty":-2,"presence_penalty":2,"n":1,
              "seed":9223372036854775807,"stop":["a","","b"],"stream":true,"stream_options":{"include_usage":true},
              "unknown":[1],"service_tier":5)"));
  ASSERT_TRUE(request.ok()) << request.status().message();
  const RequestSettings& settings = request->settings;
  EXPECT_EQ(settings.model, "m");
  EXPECT_EQ(settings.max_tokens, 7);
  EXPECT_EQ(settings.temperature, 0.5);
  EXPECT_EQ(settings.top_p, 1.0);
  EXPECT_EQ(settings.frequency_penalty, -2.0);
  EXPECT_EQ(settings.presence_penalty, 2.0);
  EXPECT_EQ(settings.n, 1);
  EXPECT_EQ(settings.seed, INT64_MAX);
  EXPECT_EQ(settings.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(settings.stream);
  EXPECT_TRUE(settings.include_usage);
}

TEST(ChatRequest, SettingsLeftOpen) {
  // null is as good as absent.
  const Result<ConversationRequest> request = ParseChatRequest(
      With(R"("max_tokens":null,"temperature":null,"top_p":null,"stop":null,"stream":null,"stream_options":null,
              "seed":null,"tools":null,"tool_choice":null,"response_format":null,"thinking":null,
              "reasoning_effort":null,"parallel_tool_calls":null,"n":null)"));
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_FALSE(request->settings.max_tokens.has_value());
  EXPECT_FALSE(request->settings.temperature.has_value());
  EXPECT_FALSE(request->settings.top_p.has_value());
  EXPECT_FALSE(request->settings.seed.has_value());
  EXPECT_TRUE(request->settings.stop.empty());
  EXPECT_FALSE(request->settings.stream);
  EXPECT_TRUE(request->conversation.thinking);
  EXPECT_EQ(request->conversation.effort, 75);
}

TEST(ChatRequest, MaxCompletionTokensIsTheSameLimit) {
  EXPECT_EQ(ParseChatRequest(With(R"("max_completion_tokens":5)"))->settings.max_tokens, 5);
  EXPECT_EQ(ParseChatRequest(With(R"("max_completion_tokens":5,"max_tokens":6)"))->settings.max_tokens, 5);
  ExpectErrors({{With(R"("max_completion_tokens":5,"max_tokens":0)"), "max_tokens: expected an integer"}});
}

TEST(ChatRequest, Logprobs) {
  EXPECT_FALSE(ParseChatRequest(With(R"("logprobs":false,"top_logprobs":0)"))->settings.logprobs.has_value());
  EXPECT_EQ(ParseChatRequest(With(R"("logprobs":true)"))->settings.logprobs, 0);
  EXPECT_EQ(ParseChatRequest(With(R"("logprobs":true,"top_logprobs":20)"))->settings.logprobs, 20);
}

TEST(ChatRequest, ParallelToolCallsOffIsOneCall) {
  EXPECT_FALSE(ParseChatRequest(With(R"("parallel_tool_calls":true)"))->settings.max_tool_calls.has_value());
  EXPECT_EQ(ParseChatRequest(With(R"("parallel_tool_calls":false)"))->settings.max_tool_calls, 1);
}

TEST(ChatRequest, ThinkingInTheTemplateArguments) {
  const auto thinks = [](const std::string& fields) { return ParseChatRequest(With(fields))->conversation.thinking; };
  EXPECT_TRUE(thinks(R"("chat_template_kwargs":{},"add_generation_prompt":false)"));
  EXPECT_FALSE(thinks(R"("chat_template_kwargs":{"enable_thinking":false})"));
  EXPECT_FALSE(thinks(R"("chat_template_kwargs":{"thinking":false,"enable_thinking":true})"));
  EXPECT_FALSE(thinks(R"("chat_template_kwargs":{"thinking":false},"reasoning_effort":"high")"));
  EXPECT_TRUE(thinks(R"("chat_template_kwargs":{"thinking":false},"thinking":{"type":"enabled"})"));
}

// While thinking a required call is made after the reasoning, so the prompt ends as any other does.
TEST(ChatRequest, RequiredCallWhileThinking) {
  for (const std::string choice : {R"("required")", R"({"type":"function","function":{"name":"f"}})"}) {
    std::string fields = R"("tool_choice":)";
    fields.append(choice).append(R"(,"tools":[)").append(kTool).append("]");
    const Result<Prompt> prompt = testing::PromptOf(kProtocol, With(fields));
    ASSERT_TRUE(prompt.ok()) << prompt.status().message();
    EXPECT_TRUE(prompt->Text().ends_with("<｜Assistant｜><think>"));
    EXPECT_EQ(prompt->start, OutputStart::kThinkLead);
  }
}

TEST(ChatRequest, OutputForms) {
  using Kind = StructuredOutput::Kind;
  struct Case {
    const char* field;
    Kind kind;
    const char* source;
    const char* name;
  };
  const Case cases[] = {
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"null"}}})",
       Kind::kJsonSchema, R"({"type": "null"})", "response_format.json_schema.schema"},
      {R"("response_format":{"type":"json_schema","schema":true})", Kind::kJsonSchema, "true",
       "response_format.schema"},
      {R"("response_format":{"type":"json_object"},"stop":"json")", Kind::kJsonSchema, R"({"type": "object"})",
       "response_format"},
      {R"("response_format":{"type":"regex","pattern":"a+"})", Kind::kRegex, "a+", "response_format.pattern"},
      {R"("response_format":{"type":"ebnf","ebnf":"root ::= x"})", Kind::kEbnf, "root ::= x", "response_format.ebnf"},
      {R"("response_format":{"type":"grammar","grammar":"root ::= x"})", Kind::kEbnf, "root ::= x",
       "response_format.grammar"},
      {R"("guided_json":{"minimum":0.10})", Kind::kJsonSchema, R"({"minimum": 0.1})", "guided_json"},
      {R"("guided_json":"{}")", Kind::kJsonSchema, "{}", "guided_json"},
      {R"("guided_regex":"a")", Kind::kRegex, "a", "guided_regex"},
      {R"("guided_choice":["a b","c|d","\u00e9"])", Kind::kRegex, "a\\x20b|c\\x7Cd|\xC3\xA9", "guided_choice"},
      {R"("guided_grammar":"root ::= x")", Kind::kEbnf, "root ::= x", "guided_grammar"},
      {R"("structured_outputs":{"json":{}})", Kind::kJsonSchema, "{}", "structured_outputs.json"},
      {R"("structured_outputs":{"json_object":true})", Kind::kJsonSchema, R"({"type": "object"})",
       "structured_outputs.json_object"},
      {R"("structured_outputs":{"regex":"b"})", Kind::kRegex, "b", "structured_outputs.regex"},
      {R"("response_format":{"type":"text"})", Kind::kNone, "", ""},
      {R"("guided_regex":null)", Kind::kNone, "", ""},
  };
  for (const Case& one : cases) {
    std::string body = With(one.field);
    if (std::string(one.field).find("json_object\"}") != std::string::npos) {
      body = R"({"model":"m","messages":[{"role":"user","content":"as JSON"}],)" + std::string(one.field) + "}";
    }
    const Result<ConversationRequest> request = ParseChatRequest(body);
    ASSERT_TRUE(request.ok()) << one.field << ": " << request.status().message();
    EXPECT_EQ(request->settings.structured_output.kind, one.kind) << one.field;
    EXPECT_EQ(request->settings.structured_output.source, one.source) << one.field;
    EXPECT_EQ(request->settings.grammar_field, one.name) << one.field;
    const Result<ConversationRequest> ignoring = ParseChatRequest(body, {.ignore_schemas = true});
    ASSERT_TRUE(ignoring.ok()) << one.field;
    EXPECT_FALSE(ignoring->settings.structured_output.wanted()) << one.field;
  }
}

TEST(ChatRequest, Strict) {
  // SDKs set strict by default.
  EXPECT_TRUE(ParseChatRequest(With(R"("tools":[{"type":"function","function":{"name":"f","strict":true}}])"))
                  ->conversation.tools[0]
                  .strict);
}

TEST(ChatRequest, UserHasTwoNames) {
  EXPECT_EQ(ParseChatRequest(With(R"("user":"a")"))->settings.user, "a");
  EXPECT_EQ(ParseChatRequest(With(R"("user_id":"b")"))->settings.user, "b");
  EXPECT_EQ(ParseChatRequest(With(R"("user_id":"b","user":"a")"))->settings.user, "a");
  ExpectErrors({{With(R"("user_id":5)"), "user_id: expected a string, found 5"}});
}

TEST(ChatRequest, ServerDefaults) {
  const RequestOptions options{.thinking = false, .effort = 10};
  EXPECT_FALSE(ParseChatRequest(With(R"("n":1)"), options)->conversation.thinking);
  EXPECT_EQ(ParseChatRequest(With(R"("thinking":{"type":"enabled"})"), options)->conversation.effort, 10);
  EXPECT_TRUE(ParseChatRequest(With(R"("reasoning_effort":"low")"), options)->conversation.thinking);
  EXPECT_EQ(ParseChatRequest(With(R"("reasoning_effort":"low")"), options)->conversation.effort, 50);
}

TEST(ChatRequest, RolesAndContent) {
  EXPECT_EQ(Text(Messages(R"({"role":"developer","content":"D"},{"role":"user","content":"Q","name":"n"})")),
            "<｜System｜>D<｜User｜>Q<｜Assistant｜></think>");
  EXPECT_EQ(Text(Messages(R"({"role":"system","content":[{"type":"text","text":""}]},{"role":"user","content":[]})")),
            "<｜User｜><｜Assistant｜></think>");
  EXPECT_EQ(Text(Messages(R"({"role":"user","content":"q"},
                             {"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]})")),
            "<｜User｜>q<｜Assistant｜></think>a\n\nb<｜end▁of▁sentence｜><｜Assistant｜></think>");
  EXPECT_EQ(
      Text(Messages(R"({"role":"user","content":"x"},{"role":"assistant","tool_calls":[
                               {"id":"","function":{"name":"f","arguments":"{}"}}]},
                             {"role":"tool","tool_call_id":"","content":[{"type":"text","text":"t"},
                               {"type":"image_url","image_url":{"url":"data:image/webp;base64,AA==","detail":"low"}}]})")),
      "<｜User｜>x<｜Assistant｜></think>\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n\n</｜DSML｜ invoke>\n"
      "</｜DSML｜ calls><｜end▁of▁sentence｜><｜User｜><tool_result>t\n\n<｜deepseek_image｜></tool_result>"
      "<｜Assistant｜></think>");
}

TEST(ChatRequest, Images) {
  const auto images = [](const std::string& part) {
    const Result<Prompt> prompt = testing::PromptOf(kProtocol, Messages(R"({"role":"user","content":[)" + part + "]}"));
    return prompt.ok() ? prompt->images.at(0).url : prompt.status().message();
  };
  EXPECT_EQ(images(R"({"type":"image_url","image_url":{"url":"http://a/b"}})"), "http://a/b");
  EXPECT_EQ(images(R"({"type":"image_url","image_url":{"url":"data:image/gif;base64,AA=="}})"),
            "data:image/gif;base64,AA==");
  EXPECT_EQ(images(R"({"type":"image_url","image_url":{"url":"base64,AA=="}})"), "base64,AA==");
  EXPECT_EQ(images(R"({"type":"file","file_data":"data:image/png;base64,AA=="})"), "data:image/png;base64,AA==");
  EXPECT_EQ(images(R"({"type":"file","file":{"file_data":"data:image/png;base64,AA==","filename":"x"}})"),
            "data:image/png;base64,AA==");
  const std::string at_limit = "https://" + std::string(8192 - 8, 'a');
  EXPECT_EQ(images(R"({"type":"image_url","image_url":{"url":")" + at_limit + R"("}})"), at_limit);
  EXPECT_EQ(images(R"({"type":"image_url","image_url":{"url":")" + at_limit + R"(a"}})"),
            "messages[0].content[0].image_url.url: expected an address of at most 8192 bytes, found 8193");
}

TEST(ChatRequest, ToolSchemasKeepTheirSpelling) {
  const std::string text = Text(With(
      R"("thinking":{"type":"disabled"},"tools":[{"type":"function","function":{"parameters":{"type":"object",
         "z":1e-7,"a":123456789012345678901234567890,"a":2.50,"é":"\u00e9\u2028"},"name":"f","strict":true,
         "description":null}}])"));
  EXPECT_NE(text.find("\n{\"name\": \"f\", \"description\": \"\", \"parameters\": {\"type\": \"object\", \"z\": 1e-07, "
                      "\"a\": 2.5, \"é\": \"é\xe2\x80\xa8\"}}\n"),
            std::string::npos)
      << text;
}

TEST(ChatRequest, StrictReasoningWithCalls) {
  const std::string call = R"("tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]})";
  const std::string result = R"(,{"role":"tool","tool_call_id":"a","content":"r"}]})";
  const std::string head = R"({"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant",)";
  const RequestOptions strict{.require_reasoning_with_calls = true};
  EXPECT_TRUE(ParseChatRequest(head + call + result).ok());
  EXPECT_TRUE(ParseChatRequest(head + R"("reasoning_content":"r",)" + call + result, strict).ok());
  EXPECT_TRUE(ErrorOf(kProtocol, head + call + result, strict).starts_with("messages[1].reasoning_content: "));
}

TEST(ChatRequest, BodyErrors) {
  ExpectErrors({
      {"", "request body: expected a JSON object, found nothing"},
      {" \n", "request body: expected a JSON object, found nothing"},
      {"[]", "request body: expected a JSON object, found an array"},
      {"null", "request body: expected a JSON object, found null"},
      {"\"x\"", "request body: expected a JSON object, found \"x\""},
      {"{\"model\":\"m\",", "request body: not valid JSON: line 1, column 14: expected a key in double quotes"},
      {"{\"model\":\"\xff\"}", "request body: not valid JSON: line 1, column 11: expected valid UTF-8"},
      {"{\"model\":\"\\ud800\"}", "request body: not valid JSON: line 1, column 17: expected a low surrogate"},
      {With("\"x\":" + std::string(128, '[') + std::string(128, ']')),
       "request body: not valid JSON: line 1, column 191: arrays and objects are nested deeper than 128 levels"},
      {With("\"x\":" + std::string(1000000, '[')),
       "request body: not valid JSON: line 1, column 191: arrays and objects"},
      {"{}", "model: this field is required"},
      {R"({"model":null})", "model: this field is required"},
      {R"({"model":5})", "model: expected a string, found 5"},
  });
}

TEST(ChatRequest, SettingErrors) {
  ExpectErrors({
      {With(R"("max_tokens":0)"), "max_tokens: expected an integer from 1 to 4294967295, found 0"},
      {With(R"("max_tokens":-1)"), "max_tokens: expected an integer"},
      {With(R"("max_tokens":1.5)"), "max_tokens: expected an integer from 1 to 4294967295, found 1.5"},
      {With(R"("max_tokens":"5")"), "max_tokens: expected an integer from 1 to 4294967295, found \"5\""},
      {With(R"("max_tokens":99999999999999999999)"), "max_tokens: expected an integer"},
      {With(R"("max_completion_tokens":0)"), "max_completion_tokens: expected an integer"},
      {With(R"("temperature":2.01)"), "temperature: expected a number from 0 to 2, found 2.01"},
      {With(R"("temperature":-0.1)"), "temperature: expected a number from 0 to 2, found -0.1"},
      {With(R"("temperature":1e999)"), "temperature: expected a number from 0 to 2, found 1e999"},
      {With(R"("temperature":true)"), "temperature: expected a number from 0 to 2, found true"},
      {With(R"("top_p":0)"), "top_p: expected a number above 0 and up to 1"},
      {With(R"("top_p":1e-400)"), "top_p: expected a number above 0 and up to 1"},
      {With(R"("top_p":1.1)"), "top_p: expected a number from 0 to 1, found 1.1"},
      {With(R"("frequency_penalty":2.5)"), "frequency_penalty: expected a number from -2 to 2, found 2.5"},
      {With(R"("presence_penalty":-3)"), "presence_penalty: expected a number from -2 to 2, found -3"},
      {With(R"("n":129)"), "n: expected an integer from 1 to 128, found 129"},
      {With(R"("n":0)"), "n: expected an integer from 1 to 128, found 0"},
      {With(R"("logprobs":3)"), "logprobs: expected true or false, found 3"},
      {With(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs: expected an integer from 0 to 20, found 21"},
      {With(R"("top_logprobs":1)"), "top_logprobs: this field needs logprobs to be true"},
      {With(R"("chat_template_kwargs":{"thinking":"no"})"), "chat_template_kwargs.thinking: expected true or false"},
      {With(R"("seed":-1)"), "seed: expected an integer from 0 to 9223372036854775807, found -1"},
      {With(R"("seed":9223372036854775808)"), "seed: expected an integer"},
      {With("\"seed\":" + std::string(400, '9')), "seed: expected an integer"},
      {With(R"("stop":5)"), "stop: expected a string or an array of strings, found 5"},
      {With(R"("stop":["a",5])"), "stop[1]: expected a string, found 5"},
      {With(R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])"),
       "stop: expected at most 16 stop sequences, found 17"},
      {With(R"("stream":"yes")"), "stream: expected true or false, found \"yes\""},
      {With(R"("stream_options":{})"), "stream_options: this field needs stream to be true"},
      {With(R"("stream":true,"stream_options":[])"), "stream_options: expected an object, found an array"},
      {With(R"("stream":true,"stream_options":{"include_usage":1})"),
       "stream_options.include_usage: expected true or false, found 1"},
      {With(R"("thinking":"on")"), "thinking: expected an object, found \"on\""},
      {With(R"("thinking":{})"), "thinking.type: this field is required"},
      {With(R"("thinking":{"type":"maybe"})"),
       "thinking.type: expected enabled, adaptive or disabled, found \"maybe\""},
      {With(R"("thinking":{"type":"enabled","budget_tokens":"x"})"), "thinking.budget_tokens: expected an integer"},
      {With(R"("reasoning_effort":true)"),
       "reasoning_effort: expected none, minimal, low, medium, high, xhigh or max, or an "
       "integer from 1 to 100, found true"},
      {With(R"("reasoning_effort":0)"), "reasoning_effort: expected"},
      {With(R"("reasoning_effort":101)"), "reasoning_effort: expected"},
      {With(R"("reasoning_effort":50.5)"), "reasoning_effort: expected"},
      {With(R"("reasoning_effort":"ultra")"), "reasoning_effort: expected"},
      {With(R"("reasoning_effort":"High")"), "reasoning_effort: expected"},
      {With(R"("parallel_tool_calls":"no")"), "parallel_tool_calls: expected true or false"},
      {With(R"("response_format":"json_object")"), "response_format: expected an object"},
      {With(R"("response_format":{})"), "response_format.type: this field is required"},
      {With(R"("response_format":{"type":"xml"})"),
       "response_format.type: expected text, json_object, json_schema, regex, ebnf or grammar, found \"xml\""},
      {With(R"("response_format":{"type":"json_schema"})"), "response_format.json_schema: this field is required"},
      {With(R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})"),
       "response_format.json_schema.schema: this field is required"},
      {With(R"("response_format":{"type":"json_schema","json_schema":{"schema":[]}})"),
       "response_format.json_schema.schema: expected a JSON Schema, found an array"},
      {With(R"("response_format":{"type":"regex"})"), "response_format.pattern: this field is required"},
      {With(R"("guided_choice":[])"), "guided_choice: expected a list of texts that is not empty"},
      {With(R"("guided_choice":["a",1])"), "guided_choice[1]: expected a string, found 1"},
      {With(R"("guided_regex":"a","structured_outputs":{"regex":"b"})"),
       "guided_regex: the form of the output is given already by structured_outputs.regex; give only one of them"},
      {With(R"("structural_tag":{})"), "structural_tag: not available"},
  });
}

TEST(ChatRequest, ToolErrors) {
  const auto function = [](const std::string& fields) {
    return With(R"("tools":[{"type":"function","function":{)" + fields + "}}]");
  };
  const std::string off = R"("thinking":{"type":"disabled"},)";
  ExpectErrors({
      {With(R"("tools":{})"), "tools: expected an array, found an object"},
      {With(R"("tools":[5])"), "tools[0]: expected an object, found 5"},
      {With(R"("tools":[{"function":{"name":"f"}}])"), "tools[0].type: this field is required"},
      {With(R"("tools":[{"type":"retrieval"}])"), "tools[0].type: expected function, found \"retrieval\""},
      {With(R"("tools":[{"type":"function"}])"), "tools[0].function: this field is required"},
      {function(""), "tools[0].function.name: this field is required"},
      {function(R"("name":"")"), "tools[0].function.name: expected 1 to 128 characters of A-Z, a-z, 0-9, _ and -"},
      {function(R"("name":"a b")"), "tools[0].function.name: expected 1 to 128 characters"},
      {function(R"("name":"a::b")"), "tools[0].function.name: expected 1 to 128 characters"},
      {function(R"("name":"é")"), "tools[0].function.name: expected 1 to 128 characters"},
      {function(R"("name":")" + std::string(129, 'a') + "\""), "tools[0].function.name: expected 1 to 128 characters"},
      {function(R"("name":"f","description":5)"), "tools[0].function.description: expected a string"},
      {function(R"("name":"f","strict":5)"), "tools[0].function.strict: expected true or false"},
      {function(R"("name":"f","parameters":[])"), "tools[0].function.parameters: expected a JSON Schema object"},
      {function(R"("name":"f","parameters":{})"), "tools[0].function.parameters.type: expected \"object\""},
      {function(R"("name":"f","parameters":{"type":"string"})"),
       "tools[0].function.parameters.type: expected \"object\", found \"string\""},
      {With(std::string(R"("tools":[)") + kTool + "," + kTool + "]"), "tools: two tools are named \"f\""},
      {With(R"("tool_choice":"always")"), "tool_choice: expected none, auto or required, found \"always\""},
      {With(R"("tool_choice":5)"), "tool_choice: expected none, auto or required, found 5"},
      {With(off + R"("tool_choice":"required")"), "tool_choice: a tool call is required but tools is empty"},
      {With(R"("tool_choice":{})"), "tool_choice.type: this field is required"},
      {With(R"("tool_choice":{"type":"function"})"), "tool_choice.function: this field is required"},
      {With(R"("tool_choice":{"type":"function","function":{}})"), "tool_choice.function.name: this field is required"},
      {With(std::string(R"("tool_choice":{"type":"function","function":{"name":"g"}},"tools":[)") + kTool + "]"),
       "tool_choice.function.name: tools has no tool named \"g\""},
  });
}

TEST(ChatRequest, MessageErrors) {
  const std::string user = R"({"role":"user","content":"q"},)";
  ExpectErrors({
      {R"({"model":"m"})", "messages: this field is required"},
      {R"({"model":"m","messages":"hi"})", "messages: expected an array, found \"hi\""},
      {Messages(""), "messages: expected at least one item, found an empty array"},
      {Messages(R"({"role":"system","content":""})"), "messages: expected at least one message besides empty system"},
      {Messages("5"), "messages[0]: expected an object, found 5"},
      {Messages("null"), "messages[0]: expected an object, found null"},
      {Messages("{}"), "messages[0].role: this field is required"},
      {Messages(R"({"role":"bot","content":"x"})"),
       "messages[0].role: expected system, developer, user, assistant, tool or latest_reminder, found \"bot\""},
      {Messages(R"({"role":["user"],"content":"x"})"), "messages[0].role: expected system"},
      {Messages(R"({"role":"user"})"), "messages[0].content: this field is required"},
      {Messages(R"({"role":"user","content":null})"), "messages[0].content: this field is required"},
      {Messages(R"({"role":"user","content":5})"),
       "messages[0].content: expected a string or an array of parts, found 5"},
      {Messages(R"({"role":"user","content":["x"]})"), "messages[0].content[0]: expected an object, found \"x\""},
      {Messages(R"({"role":"user","content":[{}]})"), "messages[0].content[0].type: this field is required"},
      {Messages(R"({"role":"user","content":[{"type":"audio"}]})"),
       "messages[0].content[0].type: expected text, image_url or file, found \"audio\""},
      {Messages(R"({"role":"user","content":[{"type":"text"}]})"),
       "messages[0].content[0].text: this field is required"},
      {Messages(R"({"role":"user","content":[{"type":"text","text":{}}]})"),
       "messages[0].content[0].text: expected a string, found an object"},
      {Messages(R"({"role":"user","content":[{"type":"image_url","image_url":"http://a"}]})"),
       "messages[0].content[0].image_url: expected an object"},
      {Messages(R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"ftp://a"}}]})"),
       "messages[0].content[0].image_url.url: expected an http or https address or a base64 data URL, found "
       "\"ftp://a\""},
      {Messages(R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/bmp;base64,AA"}}]})"),
       "messages[0].content[0].image_url.url: expected an image of type image/png, image/jpeg, image/gif or "
       "image/webp, "
       "found \"image/bmp\""},
      {Messages(R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"http://a","detail":"max"}}]})"),
       "messages[0].content[0].image_url.detail: expected auto, low or high"},
      {Messages(R"({"role":"user","content":[{"type":"file","file_id":"x"}]})"),
       "messages[0].content[0].file_id: stored files are not available"},
      {Messages(R"({"role":"user","content":[{"type":"file","file":{"file_id":"x"}}]})"),
       "messages[0].content[0].file.file_id: stored files are not available"},
      {Messages(R"({"role":"user","content":[{"type":"file","file_data":"data:application/pdf;base64,AA"}]})"),
       "messages[0].content[0].file_data: expected an image of type"},
      {Messages(R"({"role":"user","content":[{"type":"file","file_data":"http://a/b.png"}]})"),
       "messages[0].content[0].file_data: expected a base64 data URL"},
      {Messages(R"({"role":"system","content":[{"type":"image_url","image_url":{"url":"http://a"}}]})"),
       "messages[0].content[0]: an image cannot stand here"},
      {Messages(user + R"({"role":"assistant","content":[{"type":"image_url","image_url":{"url":"http://a"}}]})"),
       "messages[1].content[0]: an image cannot stand here"},
      {Messages(R"({"role":"latest_reminder","content":[]})"),
       "messages[0].content: expected a string, found an array"},
      {Messages(user + R"({"role":"assistant"})"),
       "messages[1].content: an assistant message needs content or tool_calls"},
      {Messages(user + R"({"role":"assistant","content":null,"reasoning_content":"r"})"),
       "messages[1].content: an assistant message needs content or tool_calls"},
      {Messages(user + R"({"role":"assistant","content":"a","reasoning_content":5})"),
       "messages[1].reasoning_content: expected a string, found 5"},
      {Messages(user + R"({"role":"assistant","content":"a","prefix":1})"),
       "messages[1].prefix: expected true or false"},
      {Messages(R"({"role":"assistant","content":"a","prefix":true},{"role":"user","content":"q"})"),
       "messages[0].prefix: only the last message can be a prefix"},
      {With(R"("response_format":{"type":"json_object"},"messages":[{"role":"user","content":"go"}])"),
       "response_format: json_object needs the word json in the text of a message"},
  });
}

TEST(ChatRequest, ToolCallErrors) {
  const auto call = [](const std::string& id) {
    return R"({"id":")" + id + R"(","type":"function","function":{"name":"f","arguments":"{}"}})";
  };
  const auto assistant = [](const std::string& calls) {
    return R"({"role":"user","content":"q"},{"role":"assistant","content":"","tool_calls":)" + calls + "}";
  };
  const auto result = [](const std::string& id) {
    return R"(,{"role":"tool","tool_call_id":")" + id + R"(","content":"r"})";
  };
  const std::string one = assistant(std::string("[").append(call("a")).append("]"));
  ExpectErrors({
      {Messages(assistant("[]")), "messages[1].tool_calls: expected at least one item"},
      {Messages(assistant("{}")), "messages[1].tool_calls: expected an array"},
      {Messages(assistant("[1]")), "messages[1].tool_calls[0]: expected an object"},
      {Messages(assistant("[{}]")), "messages[1].tool_calls[0].function: this field is required"},
      {Messages(assistant(R"([{"type":"custom"}])")), "messages[1].tool_calls[0].type: expected function"},
      {Messages(assistant(R"([{"function":{"name":"f","arguments":"{}"}}])")),
       "messages[1].tool_calls[0].id: this field is required"},
      {Messages(assistant(R"([{"id":"a","function":{"arguments":"{}"}}])")),
       "messages[1].tool_calls[0].function.name: this field is required"},
      {Messages(assistant(R"([{"id":"a","function":{"name":"f","arguments":{}}}])")),
       "messages[1].tool_calls[0].function.arguments: expected a string, found an object"},
      {Messages(assistant(std::string("[").append(call("a")).append(",").append(call("a")).append("]"))),
       "messages[1].tool_calls[1].id: two calls have the id \"a\""},
      {Messages(one),
       "messages[1].tool_calls[0]: the results of an assistant message's calls must follow it at once; none "
       "answers \"a\""},
      {Messages(one + R"(,{"role":"user","content":"x"})" + result("a")), "messages[1].tool_calls[0]: the results"},
      {Messages(one + R"(,{"role":"latest_reminder","content":"x"})" + result("a")),
       "messages[1].tool_calls[0]: the results"},
      {Messages(one + result("b")), "messages[2].tool_call_id: \"b\" is no unanswered call"},
      {Messages(one + result("a") + result("a")), "messages[3].tool_call_id: \"a\" is no unanswered call"},
      {Messages(one + result("a") + R"(,{"role":"user","content":"x"})" + result("a")),
       "messages[4].tool_call_id: \"a\" is no unanswered call"},
      {Messages(R"({"role":"user","content":"q"})" + result("a")),
       "messages[1].tool_call_id: \"a\" is no unanswered call"},
      {Messages(one + R"(,{"role":"tool","content":"r"})"), "messages[2].tool_call_id: this field is required"},
      {Messages(one + R"(,{"role":"tool","tool_call_id":"a"})"), "messages[2].content: this field is required"},
  });
  // Ids are unique within one turn; another turn may use them again.
  EXPECT_TRUE(ParseChatRequest(Messages(one + result("a") + "," + one + result("a"))).ok());
}

TEST(ChatRequest, ErrorsQuoteOnOneLineAndShorten) {
  const std::string error =
      ErrorOf(kProtocol, Messages(R"({"role":"line\nbreak)" + std::string(1000, 'x') + R"(","content":"x"})"));
  EXPECT_NE(error.find("line\\nbreakxxx"), std::string::npos);
  EXPECT_LT(error.size(), 200u);
}

}  // namespace
}  // namespace deepinfer
