// Legacy Completions: settings, the two prompt forms, and refusals by the field that they name.
#include "api/completions_request.h"

#include <gtest/gtest.h>

#include "prompt_vectors.h"

namespace deepinfer {
namespace {

constexpr char kProtocol[] = "completions";

std::string With(const std::string& fields) { return R"({"model":"m","prompt":"p",)" + fields + "}"; }

TEST(CompletionsRequest, Settings) {
  const Result<CompletionsRequest> request =
      ParseCompletionsRequest(With(R"("echo":true,"logprobs":20,"max_tokens":1,"stop":"x","stream":true,
              "stream_options":{"include_usage":true},"frequency_penalty":1,"presence_penalty":0,"seed":3)"));
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->prompt, "p");
  EXPECT_FALSE(request->suffix.has_value());
  EXPECT_TRUE(request->settings.echo);
  EXPECT_EQ(request->settings.logprobs, 20);
  EXPECT_EQ(request->settings.max_tokens, 1);
  EXPECT_EQ(request->settings.stop, std::vector<std::string>{"x"});
  EXPECT_TRUE(request->settings.include_usage);
  EXPECT_EQ(request->settings.frequency_penalty, 1.0);
  EXPECT_EQ(request->settings.seed, 3);
}

TEST(CompletionsRequest, AnEmptySuffixStillAsksForAMiddle) {
  EXPECT_EQ(testing::TextOf(kProtocol, With(R"("suffix":"")")),
            "<｜begin▁of▁sentence｜><｜fim▁begin｜>p<｜fim▁hole｜><｜fim▁end｜>");
  EXPECT_EQ(testing::TextOf(kProtocol, With(R"("suffix":null)")), "<｜begin▁of▁sentence｜>p");
  EXPECT_EQ(testing::TextOf(kProtocol, R"({"model":"m","prompt":""})"), "<｜begin▁of▁sentence｜>");
}

TEST(CompletionsRequest, Errors) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "request body: expected a JSON object, found nothing"},
      {R"({"prompt":"p"})", "model: this field is required"},
      {R"({"model":"m"})", "prompt: this field is required"},
      {R"({"model":"m","prompt":["p"]})", "prompt: expected a string, found an array"},
      {R"({"model":"m","prompt":[1,2]})", "prompt: expected a string, found an array"},
      {With(R"("suffix":5)"), "suffix: expected a string, found 5"},
      {With(R"("echo":"yes")"), "echo: expected true or false, found \"yes\""},
      {With(R"("logprobs":21)"), "logprobs: expected an integer from 0 to 20, found 21"},
      {With(R"("logprobs":-1)"), "logprobs: expected an integer from 0 to 20"},
      {With(R"("max_tokens":0)"), "max_tokens: expected an integer"},
      {With(R"("n":3)"), "n: expected 1, found 3"},
      {With(R"("stream_options":{"include_usage":true})"), "stream_options: this field needs stream to be true"},
  };
  for (const auto& [body, message] : cases) {
    const std::string error = testing::ErrorOf(kProtocol, body);
    EXPECT_TRUE(error.starts_with(message)) << "error:    " << error << "\nexpected: " << message;
  }
}

}  // namespace
}  // namespace deepinfer
