#include "engine/generator.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "checkpoint/model_config.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

const std::string kNano = std::string(DEEPINFER_SOURCE_DIR) + "/models/nano";

const Tokenizer& NanoTokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::Load(kNano + "/tokenizer.json").value();
  return *tokenizer;
}

ModelConfig NanoConfig() {
  std::ifstream file(kNano + "/config.json");
  std::stringstream text;
  text << file.rdbuf();
  return ParseModelConfig(text.str()).value();
}

/// Says the tokens of a script, one after each position from the end of the prompt on, and records what it is fed.
class ScriptedModel : public Model {
 public:
  ScriptedModel(int64_t max_rows, int64_t max_context)
      : config_(NanoConfig()), layout_(SequenceLayout::FromConfig(config_)), logits_(config_.vocab_size) {
    options_.max_rows_per_step = max_rows;
    options_.max_context = max_context;
  }

  std::vector<int32_t> script;
  int64_t script_start = 0;  // position of the script's first token
  bool broken = false;
  std::vector<size_t> steps;  // rows of each Forward()
  int sequences = 0;

  const ModelConfig& config() const override { return config_; }
  const ModelOptions& options() const override { return options_; }
  int64_t workspace_bytes() const override { return 0; }
  int64_t sequence_bytes(int64_t) const override { return 0; }
  Result<std::unique_ptr<SequenceState>> NewSequence(int64_t max_tokens) const override {
    ++const_cast<ScriptedModel*>(this)->sequences;
    return SequenceState::Create(layout_, max_tokens);
  }
  Result<ForwardResult> Forward(const Batch& batch) override {
    const BatchItem& item = batch.items[0];
    steps.push_back(item.ids.size());
    item.sequence->Append(item.ids);
    ForwardResult result;
    if (item.logits == LogitsRows::kNone) return result;
    std::fill(logits_.begin(), logits_.end(), broken ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
    const size_t index = item.sequence->length() - script_start;
    if (!broken) logits_[index < script.size() ? script[index] : 64] = 20;
    result.logits = ConstFloatView(logits_.data(), 1, config_.vocab_size);
    return result;
  }
  Status Truncate(SequenceState& sequence, int64_t length) const override { return sequence.Truncate(length); }
  Status ExtendDraft(SequenceState&, ConstFloatView, int64_t) override { return Status::Ok(); }
  Result<Draft> DraftBlock(SequenceState&, int32_t) override { return Draft{}; }
  void SetProbe(ForwardProbe*) override {}

 private:
  ModelConfig config_;
  ModelOptions options_;
  std::shared_ptr<const SequenceLayout> layout_;
  std::vector<float> logits_;
};

std::vector<int32_t> Ids(std::string_view text) {
  std::vector<int32_t> ids;
  EXPECT_TRUE(NanoTokenizer().Encode(text, &ids).ok());
  return ids;
}

constexpr int32_t kEnd = 1;
constexpr int32_t kEndThink = 7;

/// A greedy request for a prompt of `length` tokens, and a script that answers it.
GenerationRequest Greedy(size_t length) {
  GenerationRequest request;
  for (size_t i = 0; i < length; ++i) request.prompt.push_back(100 + i);
  request.sampling.temperature = 0;
  return request;
}

TEST(Generator, PrefillsInChunksAndStopsAtTheEndToken) {
  ScriptedModel model(4, 100);
  model.script = Ids("Hello there");
  const size_t words = model.script.size();
  model.script.push_back(kEnd);
  model.script_start = 10;
  Generator generator(model, NanoTokenizer());
  std::string streamed;
  const Result<Generation> result =
      generator.Run(Greedy(10), [&](OutputPart, std::string_view text) { streamed += text; });
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result.value().content, "Hello there");
  EXPECT_EQ(streamed, "Hello there");
  EXPECT_EQ(result.value().ids, model.script);
  EXPECT_EQ(result.value().finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.value().prompt_tokens, 10);
  std::vector<size_t> steps = {4, 4, 2};
  steps.resize(3 + words, 1);
  EXPECT_EQ(model.steps, steps);
}

TEST(Generator, LimitsAndIgnoredEndToken) {
  ScriptedModel model(64, 20);
  model.script = Ids("a b c d e f g h i j k l m n o p");
  model.script[1] = kEnd;
  model.script_start = 10;
  Generator generator(model, NanoTokenizer());
  GenerationRequest request = Greedy(10);
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = 3;
  Result<Generation> result = generator.Run(request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().ids.size(), 3u);
  EXPECT_EQ(result.value().finish_reason, FinishReason::kLength);
  // The end token is never text.
  EXPECT_EQ(result.value().content, NanoTokenizer().Decode(model.script, true).substr(0, 3));

  request.sampling.max_tokens = SamplingParams::kNoLimit;
  result = generator.Run(request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().ids.size(), 10u);  // the context of 20 is full
  EXPECT_EQ(result.value().finish_reason, FinishReason::kLength);
}

TEST(Generator, StopTextsCrossTokens) {
  ScriptedModel model(64, 100);
  const std::string text = "First line\nUser: second";
  model.script = Ids(text);
  model.script_start = 5;
  for (const std::string stop : {"\nUser:", "ne\nUs", "line", "F", "second"}) {
    Generator generator(model, NanoTokenizer());
    GenerationRequest request = Greedy(5);
    request.sampling.stops = {"never", stop};
    std::string streamed;
    const Result<Generation> result =
        generator.Run(request, [&](OutputPart, std::string_view piece) { streamed += piece; });
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result.value().content, text.substr(0, text.find(stop))) << stop;
    EXPECT_EQ(streamed, result.value().content);
    EXPECT_EQ(result.value().finish_reason, FinishReason::kStopSequence);
    EXPECT_EQ(result.value().stop_sequence, stop);
  }
}

TEST(Generator, PiecesAreWholeCharactersAndABrokenEndIsReplaced) {
  ScriptedModel model(64, 100);
  const std::string text = "caf\xC3\xA9 \xF0\x9F\xA6\x8A \xE7\x8B\x90 \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80";
  model.script = Ids(text);
  model.script_start = 5;
  Generator generator(model, NanoTokenizer());
  GenerationRequest request = Greedy(5);
  request.sampling.max_tokens = model.script.size();
  const auto check = [](OutputPart, std::string_view piece) { EXPECT_TRUE(IsValidUtf8(piece)) << piece; };
  Result<Generation> result = generator.Run(request, check);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().content, text);

  // Cut inside the last character: the tokens of a rocket are single bytes in Nano's vocabulary.
  request.sampling.max_tokens = model.script.size() - 1;
  result = generator.Run(request, check);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.value().content.ends_with(kReplacementCharacter)) << result.value().content;
  EXPECT_TRUE(IsValidUtf8(result.value().content));
}

TEST(Generator, ReasoningEndsAtItsTokenAndHasNoStops) {
  ScriptedModel model(64, 100);
  model.script = Ids("9 + 4 = 13.");
  model.script.push_back(kEndThink);
  for (int32_t id : Ids("It is 13. Yes.")) model.script.push_back(id);
  model.script_start = 5;
  GenerationRequest request = Greedy(5);
  request.end_of_reasoning = kEndThink;
  request.starts_in_reasoning = true;
  request.sampling.stops = {"."};
  std::string reasoning, content;
  Generator generator(model, NanoTokenizer());
  Result<Generation> result = generator.Run(request, [&](OutputPart part, std::string_view text) {
    (part == OutputPart::kReasoning ? reasoning : content) += text;
  });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().reasoning, "9 + 4 = 13.");
  EXPECT_EQ(result.value().content, "It is 13");
  EXPECT_EQ(reasoning, result.value().reasoning);
  EXPECT_EQ(content, result.value().content);

  // Without the marker all of it is content, the marker's text included.
  request = Greedy(5);
  request.sampling.max_tokens = model.script.size();
  result = generator.Run(request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().content, "9 + 4 = 13.</think>It is 13. Yes.");
}

TEST(Generator, KeepsTheSequenceBetweenRuns) {
  ScriptedModel model(64, 1000);
  model.script = Ids("One two three");
  model.script.push_back(kEnd);
  model.script_start = 50;
  Generator generator(model, NanoTokenizer());
  GenerationRequest request = Greedy(50);
  Result<Generation> result = generator.Run(request);
  ASSERT_TRUE(result.ok());
  const int64_t held = 50 + static_cast<int64_t>(model.script.size()) - 1;

  // The next turn of a conversation: all of the last one, then more.
  request.prompt.insert(request.prompt.end(), model.script.begin(), model.script.end());
  request.prompt.insert(request.prompt.end(), 20, 300);
  model.script_start = static_cast<int64_t>(request.prompt.size());
  model.steps.clear();
  result = generator.Run(request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().reused_tokens, held);
  EXPECT_EQ(model.steps[0], request.prompt.size() - held);
  EXPECT_EQ(model.sequences, 1);

  // The same prompt again: the answer is rolled back and the last token fed anew.
  model.steps.clear();
  result = generator.Run(request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().content, "One two three");
  EXPECT_EQ(model.steps[0], 1u);
  EXPECT_EQ(model.sequences, 1);

  // Another prompt: beyond the rollback, so from the start.
  request.prompt[3] = 200;
  result = generator.Run(request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().reused_tokens, 0);
  EXPECT_EQ(model.sequences, 2);
}

TEST(Generator, CancelKeepsWhatIsThere) {
  ScriptedModel model(2, 100);
  model.script = Ids("one two three four five six");
  model.script_start = 5;
  std::atomic<bool> cancel = false;
  GenerationRequest request = Greedy(5);
  request.cancel = &cancel;
  Generator generator(model, NanoTokenizer());
  Result<Generation> result = generator.Run(request, [&](OutputPart, std::string_view text) {
    if (text.find("two") != std::string_view::npos) cancel = true;
  });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(result.value().content, "one two");

  result = generator.Run(request);  // still set: stops during prefill
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(result.value().ids.empty());

  cancel = false;
  request.sampling.max_tokens = 3;
  result = generator.Run(request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().finish_reason, FinishReason::kLength);
}

TEST(Generator, Logprobs) {
  ScriptedModel model(64, 100);
  model.script = Ids("yes");
  model.script.push_back(kEnd);
  model.script_start = 5;
  GenerationRequest request = Greedy(5);
  request.sampling.logprobs = 2;
  Generator generator(model, NanoTokenizer());
  const Result<Generation> result = generator.Run(request);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result.value().logprobs.size(), result.value().ids.size());
  for (size_t i = 0; i < result.value().ids.size(); ++i) {
    EXPECT_EQ(result.value().logprobs[i].chosen.id, result.value().ids[i]);
    EXPECT_EQ(result.value().logprobs[i].top.size(), 2u);
  }
}

TEST(Generator, RefusesWhatItCannotRun) {
  ScriptedModel model(64, 20);
  Generator generator(model, NanoTokenizer());
  Result<Generation> result = generator.Run(Greedy(0));
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  result = generator.Run(Greedy(20));
  EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(result.status().message().find("20 tokens leave no room in the context of 20 tokens"), std::string::npos);
  GenerationRequest request = Greedy(3);
  request.prompt[1] = 8192;
  result = generator.Run(request);
  EXPECT_EQ(result.status().message(), "prompt: expected token ids of 0 to 8191, found 8192");
  request = Greedy(3);
  request.sampling.top_p = 2;
  EXPECT_EQ(generator.Run(request).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(model.steps.empty());

  model.broken = true;
  EXPECT_EQ(generator.Run(Greedy(3)).status().code(), StatusCode::kInternal);
  model.broken = false;
  request = Greedy(3);
  request.sampling.max_tokens = 2;
  EXPECT_TRUE(generator.Run(request).ok());
}

}  // namespace
}  // namespace deepinfer
