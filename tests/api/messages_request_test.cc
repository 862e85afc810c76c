// Messages: settings, conversions that the recorded vectors do not reach, and refusals by the field that they name.
#include "api/messages_request.h"

#include <gtest/gtest.h>

#include "prompt_vectors.h"

namespace deepinfer {
namespace {

using testing::ErrorOf;

constexpr char kProtocol[] = "messages";

std::string With(const std::string& fields) {
  return R"({"model":"m","messages":[{"role":"user","content":"q"}],)" + fields + "}";
}

// A request without thinking and with these messages, the content of the array.
std::string Messages(const std::string& messages) {
  return R"({"model":"m","thinking":{"type":"disabled"},"messages":[)" + messages + "]}";
}

// A request with one user message of these blocks.
std::string Blocks(const std::string& blocks) { return Messages(R"({"role":"user","content":[)" + blocks + "]}"); }

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

TEST(MessagesRequest, Settings) {
  const Result<ConversationRequest> request =
      ParseMessagesRequest(With(R"("max_tokens":9,"temperature":2,"top_p":0.1,"stop_sequences":["a","b"],"stream":true,
              "metadata":{"user_id":"x"},"thinking":{"type":"adaptive","budget_tokens":1024},
              "output_config":{"effort":"low"},"top_k":40,"container":"ignored")"));
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->settings.max_tokens, 9);
  EXPECT_EQ(request->settings.temperature, 2.0);
  EXPECT_EQ(request->settings.top_p, 0.1);
  EXPECT_EQ(request->settings.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request->settings.stream);
  EXPECT_EQ(request->settings.user, "x");
  EXPECT_EQ(request->settings.top_k, 40);
  EXPECT_TRUE(request->conversation.thinking);
  EXPECT_EQ(request->conversation.effort, 50);
  EXPECT_FALSE(ParseMessagesRequest(With(R"("stream":false)"))->settings.max_tokens.has_value());
}

TEST(MessagesRequest, BlocksBecomeText) {
  EXPECT_EQ(Text(Blocks(R"({"type":"text","text":"a"},{"type":"tool_reference","tool_name":"t"},
                           {"type":"document","source":{}},
                           {"type":"image","source":{"type":"url","url":"https://a/b.png"}})")),
            "<｜User｜>a\n\nt\n\n[Unsupported Document]\n\n<｜deepseek_image｜><｜Assistant｜></think>");
  EXPECT_EQ(Text(Messages(R"({"role":"user","content":"q"},{"role":"assistant","content":[
                               {"type":"text","text":"a"},{"type":"text","text":"b"}]},
                             {"role":"system","content":[{"type":"text","text":"s"},{"type":"text","text":"t"}]})")),
            "<｜User｜>q<｜Assistant｜></think>a\n\nb<｜end▁of▁sentence｜><｜User｜><system-reminder>\ns\n\nt\n"
            "</system-reminder><｜Assistant｜></think>");
  // Nothing in the system prompt is as good as none.
  EXPECT_EQ(Text(With(R"("system":"","thinking":{"type":"disabled"})")), "<｜User｜>q<｜Assistant｜></think>");
  EXPECT_EQ(Text(With(R"("system":[],"thinking":{"type":"disabled"})")), "<｜User｜>q<｜Assistant｜></think>");
}

TEST(MessagesRequest, ThinkingBlocksAreJoined) {
  const RequestOptions keep{.reasoning_history = ReasoningHistory::kKeep};
  const std::string text = Text(
      R"({"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant","content":[
           {"type":"thinking","thinking":"r","signature":"s"},{"type":"thinking","thinking":"t"},
           {"type":"text","text":"a"}]},{"role":"user","content":"p"}]})",
      keep);
  EXPECT_NE(text.find("<｜Assistant｜><think>r\n\nt</think>a<｜end▁of▁sentence｜>"), std::string::npos) << text;
}

TEST(MessagesRequest, ToolResults) {
  const std::string text = Text(Messages(
      R"({"role":"user","content":"q"},{"role":"assistant","content":[
           {"type":"tool_use","id":"a","name":"f","input":{"x":1.50,"y":"é","big":123456789012345678901}},
           {"type":"tool_use","id":"b","name":"g","input":{}}]},
         {"role":"user","content":[{"type":"tool_result","tool_use_id":"b"},
           {"type":"tool_result","tool_use_id":"a","is_error":true,"content":"r"},{"type":"text","text":"go"}]})"));
  EXPECT_NE(text.find("<｜DSML｜ parameter name=\"x\" string=\"false\">1.5</｜DSML｜ parameter>\n"
                      "<｜DSML｜ parameter name=\"y\" string=\"true\">é</｜DSML｜ parameter>\n"
                      "<｜DSML｜ parameter name=\"big\" string=\"false\">123456789012345678901</｜DSML｜ parameter>\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("<｜User｜><tool_result>r</tool_result>\n\n<tool_result></tool_result>\n\ngo<｜Assistant｜>"),
            std::string::npos)
      << text;
}

TEST(MessagesRequest, ToolsAndChoice) {
  const std::string tools = R"("tools":[{"name":"f","type":"custom","input_schema":{"type":"object"}}],)";
  const auto choice = [&](const std::string& value) {
    return ParseMessagesRequest(With(tools + R"("thinking":{"type":"disabled"},"tool_choice":)" + value));
  };
  EXPECT_EQ(choice(R"({"type":"auto","disable_parallel_tool_use":true})")->conversation.tool_choice, ToolChoice::kAuto);
  EXPECT_EQ(choice(R"({"type":"auto","disable_parallel_tool_use":true})")->settings.max_tool_calls, 1);
  EXPECT_FALSE(choice(R"({"type":"auto"})")->settings.max_tool_calls.has_value());
  EXPECT_EQ(choice(R"({"type":"any"})")->conversation.tool_choice, ToolChoice::kAuto);
  EXPECT_EQ(choice(R"({"type":"none"})")->conversation.tool_choice, ToolChoice::kNone);
  EXPECT_EQ(choice(R"({"type":"tool","name":"f"})")->conversation.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(choice(R"({"type":"tool","name":"f"})")->conversation.named_tool, "f");
}

TEST(MessagesRequest, ServerToolsAreRefusedOrIgnored) {
  const std::string tools = With(R"("tools":[{"type":"web_search_20250305","name":"web_search"}])");
  const std::string history = Messages(
      R"({"role":"user","content":"q"},{"role":"assistant","content":[
           {"type":"server_tool_use","id":"a","name":"web_search","input":{}},
           {"type":"web_search_tool_result","tool_use_id":"a","content":[]},{"type":"text","text":"a"}]})");
  EXPECT_TRUE(ErrorOf(kProtocol, tools).starts_with("tools[0].type: server tools are not available"));
  EXPECT_TRUE(ErrorOf(kProtocol, history).starts_with("messages[1].content[0].type: \"server_tool_use\" blocks"));
  const RequestOptions ignore{.messages_web_search = WebSearchTools::kIgnore};
  EXPECT_TRUE(ParseMessagesRequest(tools, ignore)->conversation.tools.empty());
  EXPECT_EQ(Text(history, ignore), "<｜User｜>q<｜Assistant｜></think>a<｜end▁of▁sentence｜><｜Assistant｜></think>");
  EXPECT_TRUE(ErrorOf(kProtocol, With(R"("tools":[{"type":"bash_20250124","name":"bash"}])"), ignore)
                  .starts_with("tools[0].type: server tools are not available, found \"bash_20250124\""));
}

TEST(MessagesRequest, SettingErrors) {
  ExpectErrors({
      {"", "request body: expected a JSON object, found nothing"},
      {R"({"messages":[{"role":"user","content":"q"}]})", "model: this field is required"},
      {R"({"model":"m"})", "messages: this field is required"},
      {Messages(""), "messages: expected at least one item"},
      {With(R"("max_tokens":0)"), "max_tokens: expected an integer"},
      {With(R"("temperature":3)"), "temperature: expected a number from 0 to 2"},
      {With(R"("stop_sequences":"a")"), "stop_sequences: expected an array"},
      {With(R"("stop_sequences":[""])"), "stop_sequences[0]: expected a string that is not empty, found \"\""},
      {With(R"("stop_sequences":[1])"), "stop_sequences[0]: expected a string that is not empty, found 1"},
      {With(R"("stop_sequences":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])"),
       "stop_sequences: expected at most 16 stop sequences, found 17"},
      {With(R"("output_config":"low")"), "output_config: expected an object"},
      {With(R"("output_config":{"effort":"minimal"})"),
       "output_config.effort: expected low, medium, high, xhigh, ultra or max, or an integer from 1 to 100"},
      {With(R"("output_config":{"effort":"none"})"), "output_config.effort: expected"},
      {With(R"("thinking":{"type":"on"})"), "thinking.type: expected enabled, adaptive or disabled"},
      {With(R"("system":5)"), "system: expected a string or an array of parts, found 5"},
      {With(R"("system":[{"type":"image","source":{"type":"url","url":"http://a"}}])"),
       "system[0]: an image cannot stand here"},
      {With(R"("system":[{"type":"thinking"}])"), "system[0].type: expected text, image, document or tool_reference"},
      {With(R"("tools":[{"name":"f"}])"), "tools[0].input_schema: this field is required"},
      {With(R"("tools":[{"name":"f","input_schema":{"type":"array"}}])"),
       "tools[0].input_schema.type: expected \"object\", found \"array\""},
      {With(R"("tools":[{"name":"f","input_schema":{"type":"object","properties":[]}}])"),
       "tools[0].input_schema.properties: expected an object of schemas, found an array"},
      {With(R"("tools":[{"name":"f g","input_schema":{"type":"object"}}])"), "tools[0].name: expected 1 to 128"},
      {With(R"("tools":[{"name":"f","input_schema":{"type":"object"}},{"name":"f","input_schema":{"type":"object"}}])"),
       "tools: two tools are named \"f\""},
      {With(R"("tool_choice":"auto")"), "tool_choice: expected an object, found \"auto\""},
      {With(R"("tool_choice":{"type":"required"})"), "tool_choice.type: expected auto, any, tool or none"},
      {With(R"("tool_choice":{"type":"tool"})"), "tool_choice.name: this field is required"},
      {With(R"("tool_choice":{"type":"tool","name":"f"})"), "tool_choice.name: tools has no tool named \"f\""},
      {With(R"("metadata":{"user_id":["x"]})"), "metadata.user_id: expected a string, found an array"},
      {With(R"("output_format":{"type":"json_schema"})"), "output_format.schema: this field is required"},
      {With(R"("output_config":{"format":{"type":"json_schema","schema":5}})"),
       "output_config.format.schema: expected a JSON Schema, found 5"},
  });
}

TEST(MessagesRequest, MessageErrors) {
  const std::string use = R"({"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]})";
  const std::string result = R"({"type":"tool_result","tool_use_id":"a","content":"r"})";
  const auto user = [](const std::string& blocks) { return R"(,{"role":"user","content":[)" + blocks + "]}"; };
  ExpectErrors({
      {Messages(R"({"role":"tool","content":"x"})"),
       "messages[0].role: expected user, assistant or system, found \"tool\""},
      {Messages(R"({"role":"user"})"), "messages[0].content: this field is required"},
      {Messages(R"({"role":"user","content":{}})"), "messages[0].content: expected a string or an array of blocks"},
      {Messages(R"({"role":"user","content":[]})"), "messages[0].content: expected at least one item"},
      {Messages(R"({"role":"assistant","content":[]})"), "messages[0].content: expected at least one item"},
      {Blocks("1"), "messages[0].content[0]: expected an object"},
      {Blocks("{}"), "messages[0].content[0].type: this field is required"},
      {Blocks(R"({"type":"video"})"),
       "messages[0].content[0].type: \"video\" blocks are not accepted in a user message"},
      {Blocks(R"({"type":"thinking","thinking":"x"})"),
       "messages[0].content[0].type: \"thinking\" blocks are not accepted"},
      {Blocks(R"({"type":"tool_use","id":"a","name":"f","input":{}})"),
       "messages[0].content[0].type: \"tool_use\" blocks are not accepted in a user message"},
      {Blocks(R"({"type":"text"})"), "messages[0].content[0].text: this field is required"},
      {Blocks(R"({"type":"image"})"), "messages[0].content[0].source: this field is required"},
      {Blocks(R"({"type":"image","source":{"type":"file","file_id":"x"}})"),
       "messages[0].content[0].source.type: stored files are not available"},
      {Blocks(R"({"type":"image","source":{"type":"base64","data":"AA"}})"),
       "messages[0].content[0].source.media_type: this field is required"},
      {Blocks(R"({"type":"image","source":{"type":"base64","media_type":"image/tiff","data":"AA"}})"),
       "messages[0].content[0].source.media_type: expected an image of type"},
      {Blocks(R"({"type":"image","source":{"type":"url","url":"file:///etc/passwd"}})"),
       "messages[0].content[0].source.url: expected an http or https address"},
      {Messages(R"({"role":"assistant","content":[{"type":"image","source":{"type":"url","url":"http://a"}}]})"),
       "messages[0].content[0]: images can stand in user messages and tool results only"},
      {Messages(R"({"role":"assistant","content":[{"type":"tool_result","tool_use_id":"a"}]})"),
       "messages[0].content[0].type: \"tool_result\" blocks are not accepted in an assistant message"},
      {Messages(R"({"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f"}]})"),
       "messages[0].content[0].input: this field is required"},
      {Messages(R"({"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":"x"}]})"),
       "messages[0].content[0].input: expected an object, found \"x\""},
      {Messages(R"({"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},
                                                  {"type":"text","text":"x"}]})"),
       "messages[0].content[1]: text cannot follow a tool_use"},
      {Messages(R"({"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},
                                                  {"type":"tool_use","id":"a","name":"f","input":{}}]})"),
       "messages[0].content[1].id: two calls have the id \"a\""},
      {Messages(use), "messages[0].content[0]: the results of an assistant message's calls must follow it at once"},
      {Messages(use + R"(,{"role":"user","content":"x"})"), "messages[0].content[0]: the results"},
      {Messages(use + R"(,{"role":"system","content":"x"})"), "messages[0].content[0]: the results"},
      {Messages(use + "," + use), "messages[0].content[0]: the results"},
      {Messages(use + user(R"({"type":"text","text":"x"},)" + result)), "messages[0].content[0]: the results"},
      {Messages(use + user(R"({"type":"tool_result","tool_use_id":"b"})")),
       "messages[1].content[0].tool_use_id: \"b\" is no unanswered call"},
      {Messages(use + user(result + "," + result)), "messages[1].content[1].tool_use_id: \"a\" is no unanswered call"},
      {Messages(use + user(R"({"type":"tool_result"})")), "messages[1].content[0].tool_use_id: this field is required"},
      {Messages(use + user(R"({"type":"tool_result","tool_use_id":"a","content":5})")),
       "messages[1].content[0].content: expected a string or an array of parts"},
      {Messages(R"({"role":"user","content":[)" + result + "]}"),
       "messages[0].content[0].tool_use_id: \"a\" is no unanswered call"},
  });
}

}  // namespace
}  // namespace deepinfer
