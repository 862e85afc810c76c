// Legacy Completions: settings, the two prompt forms, and refusals by the field that they name.
#include "api/completions_request.h"

#include <gtest/gtest.h>

#include "prompt_vectors.h"

namespace deepinfer {
namespace {

constexpr char kProtocol[] = "completions";

std::string With(const std::string& fields) { return R"({"model":"m","prompt":"p",)" + fields + "}"; }

std::string Prompts(const std::string& prompt, const std::string& fields = R"("n":1)") {
  return R"({"model":"m","prompt":)" + prompt + "," + fields + "}";
}

TEST(CompletionsRequest, Settings) {
  const Result<CompletionsRequest> request =
      ParseCompletionsRequest(With(R"("echo":true,"logprobs":20,"max_tokens":1,"stop":"x","stream":true,
              "stream_options":{"include_usage":true},"frequency_penalty":1,"presence_penalty":0,"seed":3)"));
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->prompts, std::vector<CompletionPrompt>{"p"});
  EXPECT_FALSE(request->suffix.has_value());
  EXPECT_TRUE(request->settings.echo);
  EXPECT_EQ(request->settings.logprobs, 20);
  EXPECT_EQ(request->settings.max_tokens, 1);
  EXPECT_EQ(request->settings.stop, std::vector<std::string>{"x"});
  EXPECT_TRUE(request->settings.include_usage);
  EXPECT_EQ(request->settings.frequency_penalty, 1.0);
  EXPECT_EQ(request->settings.seed, 3);
}

TEST(CompletionsRequest, PromptsOfEveryForm) {
  const auto prompts = [](const std::string& prompt) { return ParseCompletionsRequest(Prompts(prompt))->prompts; };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(prompts(R"(["a",""])"), (std::vector<CompletionPrompt>{"a", ""}));
  EXPECT_EQ(prompts("[0,2147483647]"), (std::vector<CompletionPrompt>{Ids{0, 2147483647}}));
  EXPECT_EQ(prompts("[[1],[2,3]]"), (std::vector<CompletionPrompt>{Ids{1}, Ids{2, 3}}));
}

TEST(CompletionsRequest, SeveralAnswers) {
  EXPECT_EQ(ParseCompletionsRequest(With(R"("n":128,"best_of":128)"))->settings.n, 128);
  EXPECT_EQ(ParseCompletionsRequest(With(R"("best_of":1)"))->settings.n, 1);
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
      {Prompts("5"), "prompt: expected a string or an array, found 5"},
      {Prompts("[]"), "prompt: expected at least one item"},
      {Prompts("[[]]"), "prompt[0]: expected at least one token id"},
      {Prompts("[1,-2]"), "prompt[1]: expected a token id, an integer from 0 on, found -2"},
      {Prompts("[1,\"a\"]"), "prompt[1]: expected a token id, an integer from 0 on, found \"a\""},
      {Prompts("[1.5]"), "prompt[0]: expected a token id"},
      {Prompts("[[2147483648]]"), "prompt[0][0]: expected a token id"},
      {Prompts("[\"a\",1]"), "prompt[1]: expected a string or an array of token ids, found 1"},
      {Prompts("[null]"), "prompt[0]: expected a string or an array of token ids"},
      {Prompts("[[1]]", R"("suffix":"s")"), "suffix: a suffix needs a single prompt, given as text"},
      {Prompts(R"(["a","b"])", R"("suffix":"s")"), "suffix: a suffix needs a single prompt, given as text"},
      {Prompts(R"(["a","b","c","d","e","f","g","h","i"])", R"("n":128)"),
       "prompt: expected at most 1024 answers in all, found 9 prompts with n = 128"},
      {With(R"("n":2,"best_of":3)"), "best_of: answers are not ranked; expected n = 2, found 3"},
      {With(R"("response_format":{"type":"json"})"), "response_format.type: expected text, json_object"},
      {With(R"("guided_json":5)"), "guided_json: expected a JSON Schema, found 5"},
      {With(R"("suffix":5)"), "suffix: expected a string, found 5"},
      {With(R"("echo":"yes")"), "echo: expected true or false, found \"yes\""},
      {With(R"("logprobs":21)"), "logprobs: expected an integer from 0 to 20, found 21"},
      {With(R"("logprobs":-1)"), "logprobs: expected an integer from 0 to 20"},
      {With(R"("max_tokens":0)"), "max_tokens: expected an integer"},
      {With(R"("n":129)"), "n: expected an integer from 1 to 128, found 129"},
      {With(R"("stream_options":{"include_usage":true})"), "stream_options: this field needs stream to be true"},
  };
  for (const auto& [body, message] : cases) {
    const std::string error = testing::ErrorOf(kProtocol, body);
    EXPECT_TRUE(error.starts_with(message)) << "error:    " << error << "\nexpected: " << message;
  }
}

}  // namespace
}  // namespace deepinfer
