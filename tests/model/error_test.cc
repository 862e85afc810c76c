// What the model refuses, and that a refusal changes nothing.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "model_fixture.h"

namespace deepinfer::test {
namespace {

ModelOptions SmallOptions() {
  ModelOptions options;
  options.max_rows_per_step = 48;
  options.max_context = 64;
  options.max_logits_rows = 40;
  return options;
}

class ModelErrors : public testing::Test {
 protected:
  ModelErrors() : model_(ModelFolder("tiny2"), MakeCpuOps(1), SmallOptions()) {
    sequence_ = model_.NewSequence(40);
    model_.Feed(*sequence_, RandomIds(21, 8192, 1));
  }

  // The error of a Forward(); checks that the sequence is as before.
  Status Refusal(const std::vector<BatchItem>& items) {
    const std::vector<uint8_t> before = StateBytes(*sequence_);
    const int64_t length = sequence_->length();
    const Result<ForwardResult> result = model_->Forward({items});
    EXPECT_FALSE(result.ok());
    EXPECT_EQ(sequence_->length(), length);
    EXPECT_TRUE(StateBytes(*sequence_) == before);
    return result.status();
  }

  LoadedModel model_;
  std::unique_ptr<SequenceState> sequence_;
};

void ExpectMessage(const Status& status, StatusCode code, const std::string& part) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

TEST_F(ModelErrors, IdsOutsideTheVocabulary) {
  for (const int32_t id : {-1, 8192, 1 << 30}) {
    const std::vector<int32_t> ids = {3, 4, id};
    ExpectMessage(Refusal({{sequence_.get(), ids}}), StatusCode::kInvalidArgument,
                  "token id " + std::to_string(id) + " is outside the vocabulary, expected 0 to 8191");
  }
}

TEST_F(ModelErrors, EmptyItemsAndMissingSequences) {
  const std::vector<int32_t> ids = {3};
  ExpectMessage(Refusal({{sequence_.get(), ids}, {sequence_.get(), {}}}), StatusCode::kInvalidArgument,
                "batch item 1 has no tokens");
  ExpectMessage(Refusal({{nullptr, ids}}), StatusCode::kInvalidArgument, "batch item 0 has no sequence");
}

TEST_F(ModelErrors, MoreTokensThanTheSequenceHolds) {
  const std::vector<int32_t> ids(20, 3);
  ExpectMessage(Refusal({{sequence_.get(), ids}}), StatusCode::kResourceExhausted,
                "would grow its sequence to 41 tokens, its capacity is 40");
}

TEST_F(ModelErrors, MoreRowsThanAStepHolds) {
  const auto other = model_.NewSequence(64);
  const std::vector<int32_t> ids(19, 3);
  const std::vector<int32_t> many(30, 3);
  ExpectMessage(Refusal({{sequence_.get(), ids}, {other.get(), many}}), StatusCode::kResourceExhausted,
                "max_rows_per_step = 48");
  EXPECT_EQ(other->length(), 0);
}

TEST_F(ModelErrors, MoreLogitsThanPlanned) {
  const auto other = model_.NewSequence(64);
  const std::vector<int32_t> ids(41, 3);
  ExpectMessage(Refusal({{other.get(), ids, LogitsRows::kAll}}), StatusCode::kResourceExhausted,
                "logits of 41 rows asked for, max_logits_rows is 40");
  EXPECT_EQ(other->length(), 0);
}

TEST_F(ModelErrors, TheSameSequenceTwice) {
  const auto other = model_.NewSequence(64);
  const std::vector<int32_t> ids = {3};
  ExpectMessage(Refusal({{sequence_.get(), ids}, {other.get(), ids}, {sequence_.get(), ids}}),
                StatusCode::kInvalidArgument, "a sequence appears twice");
}

TEST_F(ModelErrors, SequencesOfAnotherModel) {
  LoadedModel other(ModelFolder("nano"), MakeCpuOps(1), SmallOptions());
  const auto foreign = other.NewSequence(8);
  const std::vector<int32_t> ids = {3};
  ExpectMessage(Refusal({{sequence_.get(), ids}, {foreign.get(), ids}}), StatusCode::kInvalidArgument,
                "made by another model");
  EXPECT_FALSE(model_->Truncate(*foreign, 0).ok());
  EXPECT_FALSE(model_.DraftBlock(*foreign, 1).ok());
}

TEST_F(ModelErrors, RefusalsDoNotChangeWhatFollows) {
  const auto clean = model_.NewSequence(40);
  model_.Feed(*clean, sequence_->ids());
  const std::vector<int32_t> bad = {3, -7};
  EXPECT_FALSE(Refusal({{sequence_.get(), bad}}).ok());
  EXPECT_TRUE(model_.Feed(*sequence_, {5, 6}) == model_.Feed(*clean, {5, 6}));
}

TEST_F(ModelErrors, AnEmptyBatchIsNoError) {
  const Result<ForwardResult> result = model_->Forward({});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->logits.rows, 0);
  EXPECT_EQ(result->taps.rows, 0);
}

TEST_F(ModelErrors, Drafting) {
  ExpectMessage(model_.DraftBlock(*sequence_, 1).status(), StatusCode::kInvalidArgument, "call ExtendDrafts()");
  const std::vector<int32_t> ids = {3, 4};
  const BatchItem item{sequence_.get(), ids};
  const Result<ForwardResult> result = model_->Forward({std::span(&item, 1)});
  ASSERT_TRUE(result.ok());
  ExpectMessage(model_.ExtendDraft(*sequence_, result->taps, 22), StatusCode::kInvalidArgument,
                "positions 22 to 23, but the sequence has 23 tokens");
  ExpectMessage(model_.ExtendDraft(*sequence_, result->taps.RowRange(0, 0), 21), StatusCode::kInvalidArgument,
                "expected [1 to 48, 192]");
  ASSERT_TRUE(model_.ExtendDraft(*sequence_, result->taps, 21).ok());
  ExpectMessage(model_.DraftBlock(*sequence_, 8192).status(), StatusCode::kInvalidArgument, "token id 8192");
  EXPECT_TRUE(model_.DraftBlock(*sequence_, 1).ok());
}

TEST_F(ModelErrors, SequencesLongerThanTheContext) {
  ExpectMessage(model_->NewSequence(65).status(), StatusCode::kInvalidArgument, "max_context = 64");
  ExpectMessage(model_->NewSequence(0).status(), StatusCode::kInvalidArgument, "at least 1 token");
}

TEST(ModelCreate, RefusesWrongOptionsAndTokenMaps) {
  Result<Checkpoint> checkpoint = Checkpoint::Open(ModelFolder("tiny2"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const std::unique_ptr<Ops> ops = MakeReferenceOps();
  const std::vector<int32_t> map = TestTokenMap();
  const auto refusal = [&](const ModelOptions& options, std::span<const int32_t> token_map) {
    return Model::Create(*checkpoint, token_map, *ops, options).status();
  };
  ModelOptions options;
  options.max_context = 8193;
  ExpectMessage(refusal(options, map), StatusCode::kInvalidArgument, "max_position_embeddings = 8192");
  options = ModelOptions();
  options.max_rows_per_step = 0;
  ExpectMessage(refusal(options, map), StatusCode::kInvalidArgument, "max_rows_per_step is 0");
  options = ModelOptions();
  options.max_logits_rows = -1;
  ExpectMessage(refusal(options, map), StatusCode::kInvalidArgument, "max_logits_rows is -1");
  ExpectMessage(refusal(ModelOptions(), std::span(map).first(100)), StatusCode::kInvalidArgument,
                "has 100 ids, but vocab_size is 8192");
}

}  // namespace
}  // namespace deepinfer::test
