// Promise 1 on the whole model: the bits of logits, drafts and caches depend on the tokens alone, not on how the prompt
// was cut, what else was in the batch, what was rolled back, or the number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "model_fixture.h"

namespace deepinfer::test {
namespace {

LoadedModel Load(const std::string& name, std::unique_ptr<Ops> ops, ActivationFormat activation) {
  ModelOptions options;
  options.activation = activation;
  options.max_context = 1024;
  return LoadedModel(ModelFolder(name), std::move(ops), options);
}

using Rows = std::vector<std::vector<float>>;

// Feeds ids in chunks of `chunk` tokens, draft rings included; logits of all rows.
Rows FeedInChunks(LoadedModel& model, SequenceState& sequence, std::span<const int32_t> ids, size_t chunk) {
  Rows rows;
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    const auto part = ids.subspan(begin, std::min(chunk, ids.size() - begin));
    const int64_t position = sequence.length();
    const BatchItem item{&sequence, part, LogitsRows::kAll};
    const Result<ForwardResult> result = model->Forward({std::span(&item, 1)});
    EXPECT_TRUE(result.ok()) << result.status().message();
    EXPECT_TRUE(model.ExtendDraft(sequence, result->taps, position).ok());
    for (std::vector<float>& row : CopyRows(result->logits)) rows.push_back(std::move(row));
  }
  return rows;
}

Draft DraftAfter(LoadedModel& model, SequenceState& sequence, int32_t token) {
  Result<Draft> draft = model.DraftBlock(sequence, token);
  EXPECT_TRUE(draft.ok()) << draft.status().message();
  return std::move(draft).value();
}

// One shot against chunks of each size: logits, caches and the drafts that follow.
void ExpectSameBitsForChunks(LoadedModel& model, const std::vector<int32_t>& ids,
                             std::initializer_list<size_t> chunks) {
  const auto whole = model.NewSequence(std::ssize(ids));
  const Rows expected = FeedInChunks(model, *whole, ids, ids.size());
  const Draft expected_draft = DraftAfter(model, *whole, 11);
  for (const size_t chunk : chunks) {
    SCOPED_TRACE(chunk);
    const auto sequence = model.NewSequence(std::ssize(ids));
    EXPECT_TRUE(FeedInChunks(model, *sequence, ids, chunk) == expected);
    EXPECT_TRUE(StateBytes(*sequence) == StateBytes(*whole));
    const Draft draft = DraftAfter(model, *sequence, 11);
    EXPECT_TRUE(draft.logits == expected_draft.logits);
    EXPECT_TRUE(draft.confidence == expected_draft.confidence);
    EXPECT_EQ(draft.ids, expected_draft.ids);
  }
}

class RowIndependence : public testing::TestWithParam<ActivationFormat> {};

TEST_P(RowIndependence, ChunkingDoesNotChangeBits) {
  LoadedModel model = Load("tiny2", MakeCpuOps(1), GetParam());
  // Longer than ring, page and candidate blocks; odd, so that a pair stays open.
  ExpectSameBitsForChunks(model, RandomIds(133, model.config().vocab_size, 1), {1, 3, 7, 64});
}

TEST_P(RowIndependence, BatchingDoesNotChangeBits) {
  LoadedModel model = Load("tiny2", MakeCpuOps(1), GetParam());
  const int64_t vocabulary = model.config().vocab_size;
  // Decode of a long sequence beside a prefill chunk, a first token and a row that wants no logits.
  const std::vector<std::vector<int32_t>> prompts = {
      RandomIds(70, vocabulary, 2), RandomIds(5, vocabulary, 3), {}, RandomIds(33, vocabulary, 4)};
  const std::vector<std::vector<int32_t>> next = {{17}, RandomIds(44, vocabulary, 5), {1}, {9, 8}};

  Rows expected;
  std::vector<std::unique_ptr<SequenceState>> alone;
  std::vector<std::unique_ptr<SequenceState>> together;
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (auto* sequences : {&alone, &together}) {
      sequences->push_back(model.NewSequence(128));
      FeedInChunks(model, *sequences->back(), prompts[i], 50);
    }
    for (std::vector<float>& row : FeedInChunks(model, *alone[i], next[i], 50)) expected.push_back(std::move(row));
  }

  std::vector<BatchItem> items;
  for (size_t i = 0; i < prompts.size(); ++i) items.push_back({together[i].get(), next[i], LogitsRows::kAll});
  const Result<ForwardResult> result = model->Forward({items});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_TRUE(CopyRows(result->logits) == expected);
  int64_t first_row = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const int64_t end_row = first_row + std::ssize(next[i]);
    const auto position = static_cast<int64_t>(prompts[i].size());
    ASSERT_TRUE(model.ExtendDraft(*together[i], result->taps.RowRange(first_row, end_row), position).ok());
    EXPECT_TRUE(StateBytes(*together[i]) == StateBytes(*alone[i])) << "sequence " << i;
    first_row = end_row;
  }
}

TEST_P(RowIndependence, RollbackLeavesNoTrace) {
  LoadedModel model = Load("tiny2", MakeCpuOps(1), GetParam());
  const int64_t vocabulary = model.config().vocab_size;
  const std::vector<int32_t> rejected = RandomIds(SequenceState::kRollback, vocabulary, 7);
  for (const size_t kept : {3, 24, 77}) {  // below the window, at it, past the ring
    const std::vector<int32_t> ids = RandomIds(static_cast<int64_t>(kept), vocabulary, 6);
    const std::vector<int32_t> follow = RandomIds(30, vocabulary, 8);
    const auto clean = model.NewSequence(128);
    FeedInChunks(model, *clean, ids, 40);
    const std::vector<uint8_t> clean_state = StateBytes(*clean);
    const Rows expected = FeedInChunks(model, *clean, follow, 4);
    for (const size_t drop : {1, 2, 5, 16}) {
      SCOPED_TRACE(std::to_string(kept) + " kept, " + std::to_string(drop) + " dropped");
      std::vector<int32_t> fed = ids;
      fed.insert(fed.end(), rejected.begin(), rejected.begin() + static_cast<int64_t>(drop));
      // Kept and dropped tokens share the last chunk, as in a verification that accepts some drafts; and not.
      for (const size_t prefix : {kept - std::min<size_t>(kept, 4), kept}) {
        const auto sequence = model.NewSequence(128);
        FeedInChunks(model, *sequence, std::span(fed).first(prefix), 40);
        FeedInChunks(model, *sequence, std::span(fed).subspan(prefix), fed.size());
        ASSERT_TRUE(model->Truncate(*sequence, static_cast<int64_t>(kept)).ok());
        EXPECT_TRUE(StateBytes(*sequence) == clean_state);
        EXPECT_TRUE(FeedInChunks(model, *sequence, follow, 4) == expected);
        EXPECT_TRUE(StateBytes(*sequence) == StateBytes(*clean));
      }
    }
  }
}

TEST_P(RowIndependence, DraftRingsThatStartAnewForgetWhatWasBefore) {
  LoadedModel model = Load("tiny2", MakeCpuOps(1), GetParam());
  const std::vector<int32_t> ids = RandomIds(60, model.config().vocab_size, 11);
  std::vector<Draft> drafts;
  for (const bool fed_before : {false, true}) {
    const auto sequence = model.NewSequence(64);
    const BatchItem item{sequence.get(), ids, LogitsRows::kNone};
    const Result<ForwardResult> result = model->Forward({std::span(&item, 1)});
    ASSERT_TRUE(result.ok()) << result.status().message();
    if (fed_before) {
      ASSERT_TRUE(model.ExtendDraft(*sequence, result->taps.RowRange(0, 45), 0).ok());
    }
    // Shorter than the window, so that older slots are within its reach.
    ASSERT_TRUE(model.ExtendDraft(*sequence, result->taps.RowRange(50, 60), 50).ok());
    drafts.push_back(DraftAfter(model, *sequence, 5));
  }
  EXPECT_TRUE(drafts[0].logits == drafts[1].logits);
}

TEST_P(RowIndependence, LogitsOfChosenRowsAreThoseOfAllRows) {
  LoadedModel model = Load("tiny2", MakeCpuOps(1), GetParam());
  const std::vector<int32_t> ids = RandomIds(20, model.config().vocab_size, 9);
  const auto all = model.NewSequence(32);
  const Rows expected = model.Feed(*all, ids);
  std::vector<std::unique_ptr<SequenceState>> sequences;
  std::vector<BatchItem> items;
  for (const LogitsRows rows : {LogitsRows::kLast, LogitsRows::kNone, LogitsRows::kAll}) {
    sequences.push_back(model.NewSequence(32));
    items.push_back({sequences.back().get(), ids, rows});
  }
  const Result<ForwardResult> result = model->Forward({items});
  ASSERT_TRUE(result.ok()) << result.status().message();
  const Rows rows = CopyRows(result->logits);
  ASSERT_EQ(rows.size(), 21u);
  EXPECT_TRUE(rows[0] == expected.back());
  EXPECT_TRUE(Rows(rows.begin() + 1, rows.end()) == expected);
  EXPECT_EQ(result->taps.rows, 60);
}

std::string CaseName(const testing::TestParamInfo<ActivationFormat>& info) {
  return info.param == ActivationFormat::kExact ? "f32act" : "fp8act";
}

INSTANTIATE_TEST_SUITE_P(Ops, RowIndependence,
                         testing::Values(ActivationFormat::kExact, ActivationFormat::kFp8Groups32), CaseName);

TEST(ReferenceOps, ChunkingDoesNotChangeBits) {
  LoadedModel model = Load("tiny2", MakeReferenceOps(), ActivationFormat::kFp8Groups32);
  ExpectSameBitsForChunks(model, RandomIds(71, model.config().vocab_size, 1), {1, 30});
}

TEST(ThreadIndependence, OneTwoAndThreeThreadsGiveTheSameBits) {
  for (const ActivationFormat activation : {ActivationFormat::kExact, ActivationFormat::kFp8Groups32}) {
    LoadedModel one = Load("nano", MakeCpuOps(1), activation);
    const std::vector<int32_t> ids = RandomIds(75, one.config().vocab_size, 10);
    const auto expected_sequence = one.NewSequence(128);
    const Rows expected = FeedInChunks(one, *expected_sequence, ids, 75);
    const Draft expected_draft = DraftAfter(one, *expected_sequence, 5);
    for (const int threads : {2, 3}) {
      LoadedModel model = Load("nano", MakeCpuOps(threads), activation);
      const auto sequence = model.NewSequence(128);
      // Chunks and threads change together, so that every split of the work is another one.
      EXPECT_TRUE(FeedInChunks(model, *sequence, ids, 37) == expected) << threads << " threads";
      EXPECT_TRUE(StateBytes(*sequence) == StateBytes(*expected_sequence)) << threads << " threads";
      EXPECT_TRUE(DraftAfter(model, *sequence, 5).logits == expected_draft.logits) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace deepinfer::test
