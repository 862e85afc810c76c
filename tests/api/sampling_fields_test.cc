// The fields of vLLM and those of how a request is served: read where they belong, refused by the field they name.
#include "api/sampling_fields.h"

#include <gtest/gtest.h>

#include "api/chat_request.h"
#include "api/completions_request.h"
#include "api/messages_request.h"
#include "api/responses_request.h"
#include "prompt_vectors.h"

namespace deepinfer {
namespace {

std::string Chat(const std::string& fields) {
  return R"({"model":"m","messages":[{"role":"user","content":"q"}],)" + fields + "}";
}

std::string Completion(const std::string& fields) { return R"({"model":"m","prompt":"p",)" + fields + "}"; }

void ExpectSampling(const RequestSettings& settings) {
  EXPECT_EQ(settings.top_k, -1);
  EXPECT_EQ(settings.min_p, 0.25);
  EXPECT_EQ(settings.repetition_penalty, 1.5);
  ASSERT_EQ(settings.logit_bias.size(), 2u);
  EXPECT_EQ(settings.logit_bias[0].id, 7);
  EXPECT_EQ(settings.logit_bias[0].bias, -100.0f);
  EXPECT_EQ(settings.logit_bias[1].id, 0);
  EXPECT_EQ(settings.logit_bias[1].bias, 0.5f);
  EXPECT_EQ(settings.bad_words, (std::vector<std::string>{"x", " y"}));
  EXPECT_EQ(settings.min_tokens, 3);
  EXPECT_EQ(settings.stop_token_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_TRUE(settings.include_stop_str_in_output);
  EXPECT_TRUE(settings.ignore_eos);
}

TEST(SamplingFields, InBothCompletionProtocols) {
  const std::string fields =
      R"("top_k":-1,"min_p":0.25,"repetition_penalty":1.5,"logit_bias":{"7":-100,"0":0.5},"bad_words":["x"," y"],
         "max_tokens":3,"min_tokens":3,"stop_token_ids":[1,2],"include_stop_str_in_output":true,"ignore_eos":true)";
  const Result<ConversationRequest> chat = ParseChatRequest(Chat(fields));
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  ExpectSampling(chat->settings);
  const Result<CompletionsRequest> completion = ParseCompletionsRequest(Completion(fields));
  ASSERT_TRUE(completion.ok()) << completion.status().message();
  ExpectSampling(completion->settings);
}

TEST(SamplingFields, LeftOpen) {
  const RequestSettings settings = ParseChatRequest(Chat(R"("top_k":null,"logit_bias":null)"))->settings;
  EXPECT_FALSE(settings.top_k.has_value());
  EXPECT_FALSE(settings.min_p.has_value());
  EXPECT_FALSE(settings.repetition_penalty.has_value());
  EXPECT_FALSE(settings.min_tokens.has_value());
  EXPECT_TRUE(settings.logit_bias.empty());
  EXPECT_FALSE(settings.ignore_eos);
  EXPECT_FALSE(settings.replay.has_value());
  EXPECT_EQ(settings.priority, 0);
  EXPECT_FALSE(settings.cache_ttl_seconds.has_value());
  EXPECT_FALSE(settings.no_store);
}

TEST(SamplingFields, HowLongAPrefixIsKept) {
  const auto ttl = [](const std::string& fields) { return ParseChatRequest(Chat(fields))->settings.cache_ttl_seconds; };
  EXPECT_EQ(ttl(R"("cache_ttl":1)"), 1);
  EXPECT_EQ(ttl(R"("cache_ttl":31536000)"), 31'536'000);
  EXPECT_EQ(ttl(R"("cache_ttl":"365d")"), 31'536'000);
  EXPECT_EQ(ttl(R"("cache_ttl":"90s")"), 90);
  EXPECT_EQ(ttl(R"("cache_ttl":"12h")"), 43'200);
  EXPECT_EQ(ttl(R"("cache_ttl":null)"), std::nullopt);
  // OpenAI's field: one of its policies is a time, and ours counts when both are given.
  EXPECT_EQ(ttl(R"("prompt_cache_retention":"24h")"), 86'400);
  EXPECT_EQ(ttl(R"("prompt_cache_retention":"24h","cache_ttl":"30m")"), 1'800);
  for (const char* other : {"null", "\"in-memory\"", "\"in_memory\"", "\"3d\"", "24", "[]"}) {
    EXPECT_EQ(ttl(std::string("\"prompt_cache_retention\":") + other), std::nullopt) << other;
  }
}

TEST(SamplingFields, HowARequestIsServedInEveryProtocol) {
  const std::string fields =
      R"("cache_salt":"s","priority":-5,"replay":"exact","cache_ttl":"3d","no_store":true,"model":"m",)";
  const auto expect = [](const RequestSettings& settings) {
    EXPECT_EQ(settings.cache_salt, "s");
    EXPECT_EQ(settings.priority, -5);
    EXPECT_EQ(settings.replay, ReplayMode::kExact);
    EXPECT_EQ(settings.cache_ttl_seconds, 259'200);
    EXPECT_TRUE(settings.no_store);
  };
  const std::string messages = R"("messages":[{"role":"user","content":"q"}]})";
  expect(ParseChatRequest("{" + fields + messages)->settings);
  expect(ParseMessagesRequest("{" + fields + messages)->settings);
  expect(ParseCompletionsRequest("{" + fields + R"("prompt":"p"})")->settings);
  expect(ParseResponsesRequest("{" + fields + R"("input":"q"})")->settings);
  EXPECT_EQ(ParseChatRequest(Chat(R"("replay":"bounded")"))->settings.replay, ReplayMode::kBounded);
}

TEST(SamplingFields, UserIsAtMost512Characters) {
  std::string longest;
  for (int i = 0; i < 512; ++i) longest += "é";
  EXPECT_EQ(ParseChatRequest(Chat("\"user\":\"" + longest + "\""))->settings.user, longest);
  EXPECT_EQ(testing::ErrorOf("chat_completions", Chat("\"user\":\"" + longest + "x\"")),
            "user: expected at most 512 characters, found 513");
}

TEST(SamplingFields, Errors) {
  const auto many = [](const std::string& item) {
    std::string items = item;
    for (int i = 0; i < 1024; ++i) items.append(",").append(item);
    return items;
  };
  std::string biases = R"("logit_bias":{"0":0)";
  for (int i = 1; i <= 1024; ++i) biases.append(",\"").append(std::to_string(i)).append("\":0");
  const std::pair<std::string, std::string> cases[] = {
      {R"("top_k":-2)", "top_k: expected an integer from -1 to 4294967295, found -2"},
      {R"("top_k":1.5)", "top_k: expected an integer"},
      {R"("min_p":1.01)", "min_p: expected a number from 0 to 1, found 1.01"},
      {R"("repetition_penalty":0)", "repetition_penalty: expected a number above 0, found 0"},
      {R"("repetition_penalty":"x")", "repetition_penalty: expected a number above 0, found \"x\""},
      {R"("repetition_penalty":1e999)", "repetition_penalty: expected a number above 0, found 1e999"},
      {R"("logit_bias":[])", "logit_bias: expected an object, found an array"},
      {R"("logit_bias":{"a":1})", "logit_bias: expected token ids as keys, found \"a\""},
      {R"("logit_bias":{"-1":1})", "logit_bias: expected token ids as keys, found \"-1\""},
      {R"("logit_bias":{"01":1})", "logit_bias: expected token ids as keys, found \"01\""},
      {R"("logit_bias":{"":1})", "logit_bias: expected token ids as keys, found \"\""},
      {R"("logit_bias":{"2147483648":1})", "logit_bias: expected token ids as keys"},
      {R"("logit_bias":{"5":101})", "logit_bias.5: expected a number from -100 to 100, found 101"},
      {R"("logit_bias":{"5":null})", "logit_bias.5: expected a number from -100 to 100, found null"},
      {biases + "}", "logit_bias: expected at most 1024 entries, found 1025"},
      {R"("bad_words":"x")", "bad_words: expected an array"},
      {R"("bad_words":[""])", "bad_words[0]: expected a string that is not empty"},
      {R"("bad_words":[)" + many("\"a\"") + "]", "bad_words: expected at most 1024 texts, found 1025"},
      {R"("max_tokens":3,"min_tokens":4)", "min_tokens: expected an integer from 0 to 3, found 4"},
      {R"("stop_token_ids":[-1])", "stop_token_ids[0]: expected a token id, an integer from 0 on, found -1"},
      {R"("stop_token_ids":[)" + many("1") + "]", "stop_token_ids: expected at most 1024 ids, found 1025"},
      {R"("ignore_eos":"x")", "ignore_eos: expected true or false"},
      {R"("include_stop_str_in_output":1)", "include_stop_str_in_output: expected true or false"},
      {R"("cache_salt":5)", "cache_salt: expected a string"},
      {"\"cache_salt\":\"" + std::string(513, 'a') + "\"", "cache_salt: expected at most 512 characters, found 513"},
      {R"("cache_ttl":0)",
       "cache_ttl: expected 1 s to 365 d, as whole seconds or a text such as 90s, 30m, 12h or 3d, found 0"},
      {R"("cache_ttl":31536001)", "cache_ttl: expected 1 s to 365 d"},
      {R"("cache_ttl":"366d")", "cache_ttl: expected 1 s to 365 d"},
      {R"("cache_ttl":"0s")", "cache_ttl: expected 1 s to 365 d"},
      {R"("cache_ttl":"3 days")", "cache_ttl: expected 1 s to 365 d"},
      {R"("cache_ttl":"90")", "cache_ttl: expected 1 s to 365 d"},
      {R"("cache_ttl":1.5)", "cache_ttl: expected 1 s to 365 d"},
      {R"("cache_ttl":true)", "cache_ttl: expected 1 s to 365 d"},
      {R"("no_store":"yes")", "no_store: expected true or false, found \"yes\""},
      {R"("priority":2147483648)", "priority: expected an integer from -2147483648 to 2147483647"},
      {R"("replay":"none")", "replay: expected bounded or exact, found \"none\""},
      {R"("user":5)", "user: expected a string, found 5"},
  };
  for (const auto& [fields, message] : cases) {
    for (const bool chat : {true, false}) {
      const std::string error =
          testing::ErrorOf(chat ? "chat_completions" : "completions", chat ? Chat(fields) : Completion(fields));
      EXPECT_TRUE(error.starts_with(message)) << "error:    " << error << "\nexpected: " << message;
    }
  }
}

}  // namespace
}  // namespace deepinfer
