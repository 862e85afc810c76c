// What requests for schemas and grammars come to: the engine's grammar, or an error before the first header.
#include <gtest/gtest.h>

#include <string>

#include "grammar/hostile_grammars.h"
#include "grammar/matcher.h"
#include "http_client.h"
#include "test_server.h"
#include "tokenizer_fixture.h"

namespace deepinfer::testing {
namespace {

using nlohmann::json;

json Chat(json more) {
  json body = {{"model", "nano"},
               {"messages", {{{"role", "user"}, {"content", "As JSON, please"}}}},
               {"thinking", {{"type", "disabled"}}}};
  body.update(more);
  return body;
}

json Tool(const std::string& name, json parameters, bool strict) {
  return {{"type", "function"},
          {"function", {{"name", name}, {"parameters", std::move(parameters)}, {"strict", strict}}}};
}

// Whether the answer may begin with `text`, by what the engine was told.
bool Admits(const GenerationRequest& request, const std::string& text) {
  EXPECT_NE(request.grammar, nullptr);
  if (request.grammar == nullptr) return true;
  Matcher matcher(request.grammar, {1});
  std::vector<int32_t> ids;
  EXPECT_TRUE(NanoTokenizer().EncodeWithSpecial(text, &ids).ok());
  const auto opening = std::span(request.prompt).last(static_cast<size_t>(request.constrained_prompt_tokens));
  for (const int32_t id : opening) EXPECT_TRUE(*matcher.Accept(id)) << id;
  for (const int32_t id : ids) {
    if (!*matcher.Accept(id)) return false;
  }
  return true;
}

const json kNumber = {{"type", "object"},
                      {"properties", {{"n", {{"type", "integer"}, {"minimum", 0}}}}},
                      {"required", {"n"}},
                      {"additionalProperties", false}};

TEST(StructuredOutput, EveryProtocolTellsTheEngine) {
  const json format = {{"type", "json_schema"}, {"name", "x"}, {"schema", kNumber}};
  const std::pair<std::string, json> requests[] = {
      {"/v1/chat/completions", Chat({{"response_format", {{"type", "json_schema"}, {"json_schema", format}}}})},
      {"/v1/chat/completions", Chat({{"guided_json", kNumber}})},
      {"/v1/completions", {{"model", "nano"}, {"prompt", "x"}, {"structured_outputs", {{"json", kNumber}}}}},
      {"/v1/responses",
       {{"model", "nano"}, {"input", "x"}, {"text", {{"format", format}}}, {"reasoning", {{"effort", "none"}}}}},
      {"/v1/messages",
       {{"model", "nano"},
        {"max_tokens", 50},
        {"messages", {{{"role", "user"}, {"content", "x"}}}},
        {"output_config", {{"format", format}}}}},
  };
  for (const auto& [path, body] : requests) {
    TestServer server(Says("{\"n\": 5}"));
    EXPECT_EQ(Post(server.port(), path, body).status, 200) << path;
    const auto told = server.engine.requests();
    ASSERT_EQ(told.size(), 1u) << path;
    EXPECT_TRUE(Admits(told[0], "{\"n\": 5}")) << path;
    EXPECT_FALSE(Admits(told[0], "{\"m\"")) << path;
    EXPECT_FALSE(Admits(told[0], "Sure")) << path;
  }
}

TEST(StructuredOutput, CallsAndFormats) {
  TestServer server(Says("x"));
  const json tools = {Tool("f", kNumber, true), Tool("g", kNumber, false)};
  const auto told = [&](json more) {
    more["tools"] = tools;
    EXPECT_EQ(Post(server.port(), "/v1/chat/completions", Chat(std::move(more))).status, 200);
    return server.engine.requests().back();
  };
  const auto call = [](const std::string& name, const std::string& argument) {
    return "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"" + name +
           "\">\n<｜DSML｜ parameter name=\"n\" string=\"false\">" + argument +
           "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  };
  // A strict tool beside free text.
  const GenerationRequest automatic = told({});
  EXPECT_TRUE(Admits(automatic, "Well.\n\n" + call("f", "5")));
  EXPECT_FALSE(Admits(automatic, "Well.\n\n" + call("f", "-5")));
  EXPECT_FALSE(Admits(automatic, "Well.\n\n" + call("h", "5")));
  // A format: its text, or a call.
  const GenerationRequest format = told({{"response_format", {{"type", "regex"}, {"pattern", "yes|no"}}}});
  EXPECT_TRUE(Admits(format, "no"));
  EXPECT_FALSE(Admits(format, "perhaps"));
  EXPECT_TRUE(Admits(format, "\n\n" + call("g", "5")));
  // A call that must be made begins in the prompt.
  const GenerationRequest required = told({{"tool_choice", "required"}});
  EXPECT_GT(required.constrained_prompt_tokens, 0);
  EXPECT_TRUE(Admits(required, "<｜DSML｜ invoke name=\"g\">\n<｜DSML｜ parameter name=\"n\" string=\"false\">12"));
  EXPECT_FALSE(Admits(required, "<｜DSML｜ invoke name=\"h\">"));
  EXPECT_FALSE(Admits(required, "No"));
  // One call at most.
  const std::string two =
      "<｜DSML｜ invoke name=\"g\">\n<｜DSML｜ parameter name=\"n\" string=\"false\">1</｜DSML｜ "
      "parameter>\n</｜DSML｜ invoke>\n<｜DSML｜ invoke";
  EXPECT_TRUE(Admits(required, two));
  EXPECT_FALSE(Admits(told({{"tool_choice", "required"}, {"parallel_tool_calls", false}}), two));
  // Tools that are not strict leave everything free.
  const json lenient = Chat({{"tools", {Tool("g", kNumber, false)}}});
  EXPECT_EQ(Post(server.port(), "/v1/chat/completions", lenient).status, 200);
  EXPECT_EQ(server.engine.requests().back().grammar, nullptr);
}

TEST(StructuredOutput, WhatCannotBeEnforcedIsRefusedByItsField) {
  TestServer server(Says("x"));
  const json never = {{"type", "string"}, {"format", "no such format"}};
  const auto field = [&](const std::string& path, const json& body) {
    const ClientResponse response = Post(server.port(), path, body);
    EXPECT_EQ(response.status, 400) << response.body;
    return response.json()["error"].value("param", "") + " | " + response.json()["error"].value("message", "");
  };
  const auto begins = [](const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; };
  const std::string chat = field("/v1/chat/completions", Chat({{"guided_json", never}}));
  EXPECT_TRUE(begins(chat, "guided_json | guided_json: #/format: ")) << chat;
  const json strict = Tool("f", {{"type", "object"}, {"properties", {{"a", never}}}}, true);
  const std::string tool = field("/v1/chat/completions", Chat({{"tools", {strict}}}));
  EXPECT_TRUE(begins(tool, "tools[0].function.parameters | ")) << tool;
  const json messages = {{{"role", "user"}, {"content", "x"}},
                         {{"role", "assistant"}, {"content", "ex"}, {"prefix", true}}};
  const std::string prefix =
      field("/v1/chat/completions", Chat({{"messages", messages}, {"guided_choice", {"good", "bad"}}}));
  EXPECT_TRUE(begins(prefix, "messages | messages: the assistant's prefix")) << prefix;
  EXPECT_TRUE(server.engine.requests().empty());
}

TEST(StructuredOutput, HostileGrammarsAreRefusedOrServed) {
  TestServer server(Says("x"));
  for (const HostileGrammar& hostile : HostileGrammars()) {
    const char* const names[] = {"", "guided_regex", "guided_json", "guided_grammar"};
    const char* const name = names[static_cast<int>(hostile.form.kind)];
    const ClientResponse response =
        Post(server.port(), "/v1/chat/completions", Chat({{name, hostile.form.source}, {"max_tokens", 5}}));
    EXPECT_TRUE(response.status == 200 || response.status == 400 || response.status == 413)
        << hostile.name << ": " << response.status << " " << response.body.substr(0, 300);
    if (response.status == 400) {
      EXPECT_EQ(response.json()["error"]["param"], name) << hostile.name;
    }
  }
  EXPECT_EQ(Post(server.port(), "/v1/chat/completions", Chat(json::object())).status, 200);
}

}  // namespace
}  // namespace deepinfer::testing
