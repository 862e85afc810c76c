// The generator on the bundled model: what is kept between runs and how prompts are cut must not change an answer.
#include <gtest/gtest.h>

#include "checkpoint/weights.h"
#include "engine/generator.h"
#include "ops/ops.h"
#include "text/token_map.h"

namespace deepinfer {
namespace {

class NanoGenerator : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string folder = std::string(DEEPINFER_SOURCE_DIR) + "/models/nano";
    tokenizer_ = Tokenizer::Load(folder + "/tokenizer.json").value();
    checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::Open(folder).value());
    token_map_ = BuildTokenMap(*tokenizer_).value();
    ops_ = MakeCpuOps(1);
  }
  static void TearDownTestSuite() {
    ops_.reset();
    checkpoint_.reset();
    tokenizer_.reset();
  }

  static std::unique_ptr<Model> NewModel(int64_t rows_per_step) {
    ModelOptions options;
    options.max_rows_per_step = rows_per_step;
    options.max_context = 1024;
    options.max_logits_rows = 1;
    return Model::Create(*checkpoint_, token_map_, *ops_, options).value();
  }

  static GenerationRequest Request(std::string_view text, int64_t max_tokens) {
    GenerationRequest request;
    request.prompt = {0};
    EXPECT_TRUE(tokenizer_->Encode(text, &request.prompt).ok());
    request.sampling.seed = 11;
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 0;
    return request;
  }

  /// Ids and log probabilities, exactly.
  static void ExpectSame(const Generation& one, const Generation& other) {
    EXPECT_EQ(one.ids, other.ids);
    EXPECT_EQ(one.content, other.content);
    ASSERT_EQ(one.logprobs.size(), other.logprobs.size());
    for (size_t i = 0; i < one.logprobs.size(); ++i) {
      EXPECT_EQ(one.logprobs[i].chosen.logprob, other.logprobs[i].chosen.logprob) << i;
    }
  }

  static std::unique_ptr<Tokenizer> tokenizer_;
  static std::unique_ptr<Checkpoint> checkpoint_;
  static std::vector<int32_t> token_map_;
  static std::unique_ptr<Ops> ops_;
};

std::unique_ptr<Tokenizer> NanoGenerator::tokenizer_;
std::unique_ptr<Checkpoint> NanoGenerator::checkpoint_;
std::vector<int32_t> NanoGenerator::token_map_;
std::unique_ptr<Ops> NanoGenerator::ops_;

constexpr char kStory[] =
    "Once upon a time there was a fox who lived in a wood. Every morning the fox went to the river to drink, and every "
    "evening it told the other animals what it had seen there. One day it saw something new: a small boat with nobody "
    "in "
    "it, and in the boat a box, and on the box a key. The fox thought about it for a long time and then";

TEST_F(NanoGenerator, ChunksOfThePromptDoNotMatter) {
  const GenerationRequest request = Request(kStory, 12);
  ASSERT_GT(request.prompt.size(), 64u);
  const std::unique_ptr<Model> whole = NewModel(512);
  const Generation expected = Generator(*whole, *tokenizer_).Run(request).value();
  for (int64_t rows : {1, 7}) {
    const std::unique_ptr<Model> model = NewModel(rows);
    ExpectSame(Generator(*model, *tokenizer_).Run(request).value(), expected);
  }
}

TEST_F(NanoGenerator, WhatIsKeptBetweenRunsDoesNotMatter) {
  const std::unique_ptr<Model> model = NewModel(512);
  Generator kept(*model, *tokenizer_);
  const GenerationRequest first = Request(kStory, 12);
  const Generation answer = kept.Run(first).value();
  ExpectSame(kept.Run(first).value(), answer);  // rolled back

  GenerationRequest second = first;  // the next turn
  second.prompt.insert(second.prompt.end(), answer.ids.begin(), answer.ids.end());
  EXPECT_TRUE(tokenizer_->Encode(" And then the owl came and said", &second.prompt).ok());
  const Generation next = kept.Run(second).value();
  EXPECT_GT(next.reused_tokens, static_cast<int64_t>(first.prompt.size()));
  ExpectSame(next, Generator(*model, *tokenizer_).Run(second).value());

  const GenerationRequest other = Request("Something else entirely", 6);
  const Generation anew = kept.Run(other).value();
  EXPECT_LE(anew.reused_tokens, 1);
  ExpectSame(anew, Generator(*model, *tokenizer_).Run(other).value());
}

}  // namespace
}  // namespace deepinfer
