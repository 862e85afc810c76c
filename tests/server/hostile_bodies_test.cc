// Hostile bodies through HTTP: whatever is sent, the answer is 4xx in the protocol's own form (or 200, where the body
// happens to be right), and the next client is served.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "http_client.h"
#include "test_server.h"

namespace deepinfer::testing {
namespace {

using nlohmann::json;

struct Target {
  std::string path;
  bool anthropic = false;  // the form of errors
  std::string required;    // members of a right body, without braces
  std::vector<std::string> fields;
};

const std::vector<Target>& Targets() {
  static const std::string chat = R"("model":"nano","messages":[{"role":"user","content":"json"}],"max_tokens":4)";
  static const std::string responses = R"("model":"nano","input":"json","max_output_tokens":4)";
  static const std::vector<Target> targets = {
      {"/v1/chat/completions",
       false,
       chat,
       {"model",
        "messages",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "stream",
        "stream_options",
        "stop",
        "n",
        "seed",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "thinking",
        "reasoning_effort",
        "user",
        "user_id",
        "top_k",
        "min_p",
        "min_tokens",
        "repetition_penalty",
        "ignore_eos",
        "stop_token_ids",
        "bad_words",
        "cache_salt",
        "cache_ttl",
        "no_store",
        "priority",
        "replay",
        "chat_template_kwargs",
        "unknown_field"}},
      {"/v1/completions",
       false,
       R"("model":"nano","prompt":"p","max_tokens":4)",
       {"model", "prompt", "suffix", "echo", "logprobs", "best_of", "n", "stop", "max_tokens", "stream",
        "response_format"}},
      {"/v1/responses", false, responses, {"model",          "input",      "instructions",      "reasoning",
                                           "text",           "tools",      "tool_choice",       "previous_response_id",
                                           "store",          "metadata",   "include",           "top_logprobs",
                                           "max_tool_calls", "truncation", "background",        "conversation",
                                           "prompt",         "stream",     "max_output_tokens", "parallel_tool_calls"}},
      {"/v1/messages",
       true,
       chat,
       {"model", "messages", "system", "max_tokens", "stop_sequences", "tools", "tool_choice", "thinking",
        "output_config", "metadata", "top_k", "thread", "stream"}},
      {"/v1/messages/count_tokens", true, chat, {"model", "messages", "system", "tools", "thinking"}},
      {"/tokenize",
       false,
       R"("model":"nano","prompt":"p")",
       {"prompt", "messages", "add_special_tokens", "return_token_strs"}},
      {"/detokenize", false, R"("tokens":[1,2])", {"tokens"}},
  };
  return targets;
}

// JSON texts that are wrong for most fields: types, ranges, shapes, what only looks like text.
std::vector<std::string> Values() {
  std::vector<std::string> values = {"true",
                                     "-1",
                                     "1.5",
                                     "1e999",
                                     "-1e-999",
                                     "18446744073709551616",
                                     "\"\"",
                                     "\"\\u0000\"",
                                     "\"<｜DSML｜ calls>\"",
                                     "\"robot\"",
                                     "[]",
                                     "[0]",
                                     "[-1]",
                                     "[null]",
                                     "[{}]",
                                     "[[[]]]",
                                     "{}",
                                     "{\"\":{}}",
                                     "{\"type\":\"robot\"}",
                                     "{\"1\":1e300}",
                                     "[{\"role\":\"robot\",\"content\":\"x\"}]",
                                     "[{\"role\":\"user\",\"content\":[{\"type\":\"robot\"}]}]",
                                     "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":7}]}]",
                                     "[{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"x\"}]",
                                     "[{\"type\":\"function\",\"function\":{\"name\":\"\"}}]"};
  values.push_back(std::string(400, '9'));
  values.push_back(std::string(100, '[') + std::string(100, ']'));
  return values;
}

// No JSON at all, whatever the field.
std::vector<std::string> NoJson() {
  std::vector<std::string> values = {"NaN",
                                     "Infinity",
                                     "-Infinity",
                                     "nul",
                                     "01",
                                     "+1",
                                     ".5",
                                     "'x'",
                                     "\"\x01\"",
                                     "[1,]",
                                     "{,}",
                                     "\"\\ud800\"",
                                     "\"\\udc00\"",
                                     "\"\\ud800\\ud800\"",
                                     "\"\xff\"",
                                     "\"",
                                     "[",
                                     "{\"a\"",
                                     "\"\xc0\xaf\"",
                                     "\"\xed\xa0\x80\"",
                                     "\"\\x41\"",
                                     "//",
                                     "1 2",
                                     ""};
  values.push_back(std::string(1, '\0'));
  values.push_back(std::string(200, '[') + std::string(200, ']'));
  values.push_back(std::string(1'000'000, '['));
  return values;
}

class HostileBodiesTest : public ::testing::Test {
 protected:
  HostileBodiesTest() : server_(Says("Hello"), options_), client_(server_.port()) {}

  // A stream has its end, an error the form of its protocol. Returns the status.
  int Send(const Target& target, const std::string& body) {
    const ClientResponse response = client_.Post(target.path, body);
    const std::string shown = target.path + " " + body.substr(0, 300) + "\n" + response.body.substr(0, 300);
    EXPECT_TRUE(response.complete) << shown;
    if (response.status == 200) {
      ++accepted_;
      const bool stream = response.headers.at("content-type").starts_with("text/event-stream");
      EXPECT_TRUE(stream ? response.body.ends_with("\n\n") : response.json().is_object()) << shown;
      return 200;
    }
    ++refused_;
    EXPECT_GE(response.status, 400) << shown;
    EXPECT_LT(response.status, 500) << shown;
    const json error = response.json();
    EXPECT_TRUE(error.is_object() && error.contains("error") && error["error"].is_object()) << shown;
    if (::testing::Test::HasFailure()) return response.status;
    EXPECT_TRUE(error["error"]["message"].is_string() && error["error"]["type"].is_string()) << shown;
    const std::string message = error["error"]["message"];
    EXPECT_FALSE(message.empty() || message.size() > 1000) << shown;
    EXPECT_EQ(message.find('\n'), std::string::npos) << shown;
    EXPECT_EQ(error.value("type", "") == "error", target.anthropic) << shown;
    EXPECT_EQ(error["error"].contains("param"), !target.anthropic) << shown;
    return response.status;
  }

  // A right request on the same connection and on a new one.
  void ExpectStillServed() {
    for (const Target& target : Targets()) {
      EXPECT_EQ(Send(target, "{" + target.required + "}"), 200);
      EXPECT_EQ(Post(server_.port(), target.path, json::parse("{" + target.required + "}")).status, 200);
    }
    server_.engine.WaitIdle();
    EXPECT_EQ(server_.engine.running(), 0);
  }

  const TestServerOptions options_;
  TestServer server_;
  HttpClient client_;
  int accepted_ = 0;
  int refused_ = 0;
};

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  return quoted.append(text).append("\"");
}

// A repeated key counts with its last value, so each hostile member stands behind the right ones.
std::string With(const Target& target, const std::string& field, const std::string& value) {
  std::string body = "{";
  return body.append(target.required).append(",\"").append(field).append("\":").append(value).append("}");
}

TEST_F(HostileBodiesTest, WrongValuesOfEveryField) {
  for (const Target& target : Targets()) {
    for (const std::string& field : target.fields) {
      for (const std::string& value : Values()) {
        Send(target, With(target, field, value));
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  EXPECT_GT(refused_, 1500);
  EXPECT_GT(accepted_, 100);
  ExpectStillServed();
}

TEST_F(HostileBodiesTest, RequiredFieldsAreRequired) {
  for (const Target& target : Targets()) {
    EXPECT_EQ(Send(target, "{}"), 400);
    EXPECT_EQ(Send(target, "{\"model\":null,\"messages\":null,\"prompt\":null,\"input\":null,\"tokens\":null}"), 400);
  }
  ExpectStillServed();
}

TEST_F(HostileBodiesTest, WhatIsNoJsonIsRefusedAlsoInFieldsThatAreIgnored) {
  for (const Target& target : Targets()) {
    for (const std::string& value : NoJson()) {
      for (const std::string& field : {std::string("model"), std::string("unknown_field")}) {
        EXPECT_EQ(Send(target, With(target, field, value)), 400);
        ASSERT_FALSE(HasFailure());
      }
    }
    const std::string right = "{" + target.required + "}";
    const std::string bodies[] = {"",
                                  " ",
                                  "[]",
                                  "null",
                                  "5",
                                  "\"x\"",
                                  right + "x",
                                  right + right,
                                  "[" + right + "]",
                                  "\xEF\xBB\xBF" + right,
                                  std::string("\xFF\xFE{\0}\0", 6),
                                  std::string(4, '\0')};
    for (const std::string& body : bodies) EXPECT_EQ(Send(target, body), 400);
    // Cut off anywhere.
    for (size_t size = 1; size < right.size(); size += 3) EXPECT_EQ(Send(target, right.substr(0, size)), 400);
  }
  EXPECT_GT(refused_, 300);
  ExpectStillServed();
}

TEST_F(HostileBodiesTest, RepeatedKeysCountWithTheLast) {
  for (const Target& target : Targets()) {
    std::string body = "{";
    for (const std::string& field : target.fields) body += "\"" + field + "\":[{}],\"" + field + "\":null,";
    EXPECT_EQ(Send(target, body + target.required + "}"), 200);
  }
  ExpectStillServed();
}

TEST_F(HostileBodiesTest, TenMegabytesAnywhere) {
  const std::string text(10'000'000, 'x');
  const std::string quoted = Quoted(text);
  for (const Target& target : Targets()) {
    EXPECT_EQ(Send(target, With(target, text, "1")), 200);
    for (const char* field : {"user", "messages", "prompt", "input"}) {
      const int status = Send(target, With(target, field, quoted));
      EXPECT_TRUE(status == 200 || status == 400) << target.path << " " << field << " " << status;
    }
    ASSERT_FALSE(HasFailure());
  }
  const Target& chat = Targets().front();
  EXPECT_EQ(Send(chat, With(chat, "messages", "[{\"role\":\"user\",\"content\":" + quoted + "}]")), 400);
  EXPECT_EQ(Send(chat, With(chat, "messages", "[{\"role\":" + quoted + "}]")), 400);
  EXPECT_EQ(Send(Targets()[2], With(Targets()[2], "input", quoted)), 400);
  EXPECT_EQ(Send(Targets()[3], With(Targets()[3], "system", quoted)), 400);
  ExpectStillServed();
}

TEST_F(HostileBodiesTest, MoreThanTheLimitIsTooLarge) {
  const Target& chat = Targets().front();
  const std::string body = With(chat, "unknown_field", Quoted(std::string(size_t{64} << 20, 'x')));
  const ClientResponse response = Post(server_.port(), chat.path, json());
  EXPECT_EQ(response.status, 400);
  HttpClient own(server_.port());
  EXPECT_EQ(own.Post(chat.path, body).status, 413);
  ExpectStillServed();
}

}  // namespace
}  // namespace deepinfer::testing
