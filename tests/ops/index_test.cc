// SelectRows: index scores, ties, candidate blocks and their forced and dropped members (spec c.6).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "base/dtype.h"
#include "ops/ops.h"
#include "ops/reference/quantise.h"
#include "ops/reference/unpack.h"
#include "ops_test_util.h"

namespace deepinfer::test {
namespace {

using Lists = std::vector<std::vector<int32_t>>;

OwnedRows StoreKeys(const Tensor& keys, int32_t rows_per_page) {
  OwnedRows rows(RowFormat::kIndexFp4, static_cast<int32_t>(keys.columns()), keys.rows(), rows_per_page);
  std::vector<int64_t> destination;
  for (int64_t t = 0; t < keys.rows(); ++t) destination.push_back(t);
  MakeReferenceOps()->StoreRows(keys, rows, destination);
  return rows;
}

struct Selection {
  Lists selected;
  Lists candidates;
};

// Runs the op; `candidates` are read when the settings restrict.
Selection Select(Ops& ops, const Tensor& q, const Tensor& weights, std::span<const IndexSequence> sequences,
                 const IndexSettings& settings, const Lists& candidates = {}) {
  const int64_t rows = q.rows();
  std::vector<int32_t> selected(static_cast<size_t>(rows * settings.topk), -1);
  std::vector<int32_t> counts(static_cast<size_t>(rows), -1);
  const int64_t width = std::max(settings.topk_blocks, 1);
  std::vector<int32_t> blocks(static_cast<size_t>(rows * width), -1);
  std::vector<int32_t> block_counts(static_cast<size_t>(rows), 0);
  for (size_t t = 0; t < candidates.size(); ++t) {
    std::copy(candidates[t].begin(), candidates[t].end(), blocks.begin() + static_cast<long>(t) * width);
    block_counts[t] = static_cast<int32_t>(candidates[t].size());
  }
  CandidateBlocks candidate_view;
  if (settings.publish_candidates || settings.restrict_to_candidates) {
    candidate_view = {TensorView<int32_t>(blocks.data(), rows, width), block_counts.data()};
  }
  ops.SelectRows(q, weights, sequences, settings, candidate_view,
                 {TensorView<int32_t>(selected.data(), rows, settings.topk), counts.data()});
  Selection result;
  for (int64_t t = 0; t < rows; ++t) {
    const auto list = [&](const std::vector<int32_t>& all, int64_t stride, int32_t count) {
      return std::vector<int32_t>(all.begin() + t * stride, all.begin() + t * stride + count);
    };
    const int32_t count = counts[static_cast<size_t>(t)];
    EXPECT_GE(count, 0) << "row " << t << " was not written";
    EXPECT_LE(count, settings.topk);
    result.selected.push_back(list(selected, settings.topk, std::clamp(count, 0, settings.topk)));
    result.candidates.push_back(list(blocks, width, block_counts[static_cast<size_t>(t)]));
  }
  return result;
}

// One head and one-hot vectors: row j scores scores[j] (values that E2M1 with its own scale holds).
class ByHand {
 public:
  explicit ByHand(const std::vector<float>& scores) : q_(1, 32), weights_(1, 1), keys_(MakeKeys(scores)) {
    q_.Fill(0);
    q_.row(0)[0] = 1;
    weights_.row(0)[0] = 1;
  }
  Selection Run(Ops& ops, int64_t position, IndexSettings settings, const Lists& candidates = {}, float weight = 1) {
    settings.heads = 1;
    settings.head_width = 32;
    weights_.row(0)[0] = weight;
    IndexSequence sequence;
    sequence.row_count = 1;
    sequence.first_position = position;
    sequence.keys = keys_;
    return Select(ops, q_, weights_, std::span(&sequence, 1), settings, candidates);
  }

 private:
  static OwnedRows MakeKeys(const std::vector<float>& scores) {
    Tensor keys(static_cast<int64_t>(scores.size()), 32);
    keys.Fill(0);
    for (size_t j = 0; j < scores.size(); ++j) keys.row(static_cast<int64_t>(j))[0] = scores[j];
    return StoreKeys(keys, 4);
  }
  Tensor q_;
  Tensor weights_;
  OwnedRows keys_;
};

class IndexTest : public OpsTest {};

TEST_P(IndexTest, BestRowsAscending) {
  ByHand index({3, 1, 6, 2, 4, 12, 8});
  IndexSettings settings;
  settings.topk = 3;
  EXPECT_EQ(index.Run(ops(), 6, settings).selected[0], (std::vector<int32_t>{2, 5, 6}));
  EXPECT_EQ(index.Run(ops(), 4, settings).selected[0], (std::vector<int32_t>{0, 2, 4}));  // later rows not visible
  EXPECT_EQ(index.Run(ops(), 1, settings).selected[0], (std::vector<int32_t>{0, 1}));     // fewer than topk
}

TEST_P(IndexTest, RatioTwoSeesClosedGroupsOnly) {
  ByHand index({3, 1, 6, 2});
  IndexSettings settings;
  settings.topk = 8;
  settings.ratio = 2;
  EXPECT_EQ(index.Run(ops(), 0, settings).selected[0], (std::vector<int32_t>{}));
  EXPECT_EQ(index.Run(ops(), 1, settings).selected[0], (std::vector<int32_t>{0}));
  EXPECT_EQ(index.Run(ops(), 4, settings).selected[0], (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(index.Run(ops(), 5, settings).selected[0], (std::vector<int32_t>{0, 1, 2}));
}

TEST_P(IndexTest, TiesGoToTheEarliest) {
  IndexSettings settings;
  settings.topk = 3;
  EXPECT_EQ(ByHand({2, 4, 2, 2, 4, 2}).Run(ops(), 5, settings).selected[0], (std::vector<int32_t>{0, 1, 4}));
  // Negative products score exactly 0, and so does a zero product: all tie.
  EXPECT_EQ(ByHand({-1, -4, 0, -2, -0.0f}).Run(ops(), 4, settings).selected[0], (std::vector<int32_t>{0, 1, 2}));
  // A negative head weight: positive products score below the zeros of negative ones; -0 ties with +0.
  EXPECT_EQ(ByHand({2, -4, 1, 0, -2}).Run(ops(), 4, settings, {}, -1).selected[0], (std::vector<int32_t>{1, 3, 4}));
  EXPECT_EQ(ByHand({2, 3, 1, 4}).Run(ops(), 3, settings, {}, -1).selected[0], (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(ByHand({4, 3, 1, 4}).Run(ops(), 3, settings, {}, -1).selected[0], (std::vector<int32_t>{0, 1, 2}));
}

TEST_P(IndexTest, PublishesCandidates) {
  // blocks of two: maxima 3, 6, 2, 12, and 1 for the newest
  ByHand index({3, 1, 6, 2, 2, 1, 12, 8, 1});
  IndexSettings settings;
  settings.topk = 2;
  settings.block_size = 2;
  settings.topk_blocks = 3;
  settings.publish_candidates = true;
  Selection result = index.Run(ops(), 8, settings);
  EXPECT_EQ(result.candidates[0], (std::vector<int32_t>{1, 3, 4}));  // the newest block is forced in
  EXPECT_EQ(result.selected[0], (std::vector<int32_t>{6, 7}));       // the publisher itself is not restricted
  result = index.Run(ops(), 4, settings);
  EXPECT_EQ(result.candidates[0], (std::vector<int32_t>{0, 1, 2}));  // blocks 3, 4 have no visible row
  result = index.Run(ops(), 0, settings);
  EXPECT_EQ(result.candidates[0], (std::vector<int32_t>{0}));
  settings.topk_blocks = 1;
  EXPECT_EQ(index.Run(ops(), 8, settings).candidates[0], (std::vector<int32_t>{4}));
  settings.ratio = 2;
  EXPECT_EQ(index.Run(ops(), 0, settings).candidates[0], (std::vector<int32_t>{}));
}

TEST_P(IndexTest, CandidateTiesGoToTheEarliest) {
  ByHand index({0, 0, 0, 0, 0, 0, 0, 0});
  IndexSettings settings;
  settings.topk = 1;
  settings.block_size = 2;
  settings.topk_blocks = 2;
  settings.publish_candidates = true;
  EXPECT_EQ(index.Run(ops(), 7, settings).candidates[0], (std::vector<int32_t>{0, 3}));
}

TEST_P(IndexTest, RestrictsToCandidates) {
  ByHand index({3, 1, 6, 2, 2, 1, 12, 8, 1});
  IndexSettings settings;
  settings.topk = 3;
  settings.block_size = 2;
  settings.topk_blocks = 4;
  settings.restrict_to_candidates = true;
  EXPECT_EQ(index.Run(ops(), 8, settings, {{0, 1, 2}}).selected[0], (std::vector<int32_t>{0, 2, 3}));
  // Fewer allowed rows than topk: rows outside the blocks stay out, and so do rows that are not visible.
  EXPECT_EQ(index.Run(ops(), 8, settings, {{0}}).selected[0], (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(index.Run(ops(), 6, settings, {{3}}).selected[0], (std::vector<int32_t>{6}));
  EXPECT_EQ(index.Run(ops(), 8, settings, {{4}}).selected[0], (std::vector<int32_t>{8}));
  EXPECT_EQ(index.Run(ops(), 8, settings, {{}}).selected[0], (std::vector<int32_t>{}));
}

TEST_P(IndexTest, QueriesAreQuantised) {
  // amax 6: the step above 4 is 2, so 4.9 counts as 4 and rows 0 and 1 tie; unquantised, row 1 would win.
  Tensor keys(2, 32);
  keys.Fill(0);
  keys.row(0)[1] = 4;
  keys.row(1)[2] = 4;
  const OwnedRows stored = StoreKeys(keys, 2);
  Tensor q(1, 32);
  q.Fill(0);
  q.row(0)[0] = 6;
  q.row(0)[1] = 4;
  q.row(0)[2] = 4.9f;
  Tensor weights(1, 1);
  weights.Fill(1);
  IndexSequence sequence;
  sequence.row_count = 1;
  sequence.first_position = 1;
  sequence.keys = stored;
  IndexSettings settings;
  settings.heads = 1;
  settings.head_width = 32;
  settings.topk = 1;
  EXPECT_EQ(Select(ops(), q, weights, std::span(&sequence, 1), settings).selected[0], (std::vector<int32_t>{0}));
}

// Several sequences in one batch; head weights are small multiples of 1/2, so that every score is exact in F32 in any
// order of addition, and ties are common.
class Batch {
 public:
  Batch(int32_t heads, int32_t width, Random& random) : heads_(heads), width_(width) {
    const std::pair<int64_t, int32_t> parts[] = {{0, 9}, {250, 1}, {100, 0}, {7, 30}, {290, 10}};
    for (const auto& [first, count] : parts) {
      Tensor keys(300, width);
      for (int64_t j = 0; j < 300; ++j) {
        for (int64_t c = 0; c < width; ++c) keys.row(j)[c] = random.Normal();
      }
      keys_.push_back(std::make_unique<OwnedRows>(StoreKeys(keys, 16)));
      IndexSequence sequence;
      sequence.first_row = rows_;
      sequence.row_count = count;
      sequence.first_position = first;
      sequence.keys = *keys_.back();
      sequences_.push_back(sequence);
      rows_ += count;
    }
    q_ = std::make_unique<Tensor>(rows_, heads * width);
    weights_ = std::make_unique<Tensor>(rows_, heads);
    for (int64_t t = 0; t < rows_; ++t) {
      for (int64_t c = 0; c < heads * width; ++c) q_->row(t)[c] = random.Normal();
      for (int64_t h = 0; h < heads; ++h) weights_->row(t)[h] = static_cast<float>(random.Below(5) - 1) / 2;
    }
  }
  IndexSettings Settings(int32_t topk, int32_t ratio, int32_t block_size, int32_t topk_blocks) const {
    IndexSettings settings;
    settings.heads = heads_;
    settings.head_width = width_;
    settings.topk = topk;
    settings.ratio = ratio;
    settings.block_size = block_size;
    settings.topk_blocks = topk_blocks;
    return settings;
  }
  Selection Run(Ops& ops, const IndexSettings& settings, const Lists& candidates = {}) const {
    return Select(ops, *q_, *weights_, sequences_, settings, candidates);
  }
  /// The same rows, each as a sequence of its own.
  Selection RunAlone(Ops& ops, const IndexSettings& settings, const Lists& candidates = {}) const {
    Selection all;
    for (const IndexSequence& sequence : sequences_) {
      for (int32_t i = 0; i < sequence.row_count; ++i) {
        const int64_t t = sequence.first_row + i;
        IndexSequence one = sequence;
        one.first_row = 0;
        one.row_count = 1;
        one.first_position = sequence.first_position + i;
        const Lists own = candidates.empty() ? Lists() : Lists{candidates[static_cast<size_t>(t)]};
        const Selection result = Select(ops, q_->Gather({t}), weights_->Gather({t}), std::span(&one, 1), settings, own);
        all.selected.push_back(result.selected[0]);
        all.candidates.push_back(result.candidates[0]);
      }
    }
    return all;
  }
  /// Scores by the formula, in double.
  std::vector<double> Scores(int32_t t, int64_t* visible, int32_t ratio) const {
    for (const IndexSequence& sequence : sequences_) {
      if (t < sequence.first_row || t >= sequence.first_row + sequence.row_count) continue;
      *visible = (sequence.first_position + t - sequence.first_row + 1) / ratio;
      std::vector<float> query(static_cast<size_t>(heads_ * width_));
      reference::QuantiseIndexQuery(q_->row(t), heads_ * width_, query.data());
      std::vector<float> key(static_cast<size_t>(width_));
      std::vector<double> scores;
      for (int64_t j = 0; j < *visible; ++j) {
        reference::UnpackRow(sequence.keys, j, key.data());
        double score = 0;
        for (int32_t h = 0; h < heads_; ++h) {
          double dot = 0;
          for (int32_t c = 0; c < width_; ++c) {
            dot += double{query[static_cast<size_t>(h * width_ + c)]} * double{key[static_cast<size_t>(c)]};
          }
          score += double{weights_->row(t)[h]} * std::max(dot, 0.0);
        }
        scores.push_back(score);
      }
      return scores;
    }
    return {};
  }
  int32_t rows() const { return rows_; }

 private:
  int32_t heads_;
  int32_t width_;
  int32_t rows_ = 0;
  std::vector<std::unique_ptr<OwnedRows>> keys_;
  std::vector<IndexSequence> sequences_;
  std::unique_ptr<Tensor> q_;
  std::unique_ptr<Tensor> weights_;
};

TEST_P(IndexTest, MatchesTheFormula) {
  Random random(1);
  for (const auto& [heads, width] : {std::pair{1, 32}, {3, 64}, {8, 128}}) {
    const Batch batch(heads, width, random);
    for (const int32_t topk : {1, 16, 200}) {
      const int32_t ratio = topk == 16 ? 2 : 1;
      const Selection actual = batch.Run(ops(), batch.Settings(topk, ratio, 0, 0));
      for (int32_t t = 0; t < batch.rows(); ++t) {
        int64_t visible = 0;
        const std::vector<double> scores = batch.Scores(t, &visible, ratio);
        std::vector<int32_t> order;
        for (int32_t j = 0; j < visible; ++j) order.push_back(j);
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
          return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
        });
        order.resize(static_cast<size_t>(std::min<int64_t>(visible, topk)));
        std::sort(order.begin(), order.end());
        ASSERT_EQ(actual.selected[static_cast<size_t>(t)], order) << "row " << t << " topk " << topk;
      }
    }
  }
}

TEST_P(IndexTest, LikeReferenceAndIndependent) {
  Random random(2);
  const Batch batch(4, 64, random);
  for (const auto& [topk, block_size, topk_blocks] :
       {std::tuple{16, 4, 8}, {1, 8, 3}, {64, 8, 200}, {100, 1, 50}, {40, 32, 2}}) {
    IndexSettings publish = batch.Settings(topk, 1, block_size, topk_blocks);
    publish.publish_candidates = true;
    IndexSettings restrict = batch.Settings(topk, 1, block_size, topk_blocks);
    restrict.restrict_to_candidates = true;
    const Selection published = batch.Run(ops(), publish);
    const Selection expected = batch.Run(reference(), publish);
    ASSERT_EQ(published.selected, expected.selected);
    ASSERT_EQ(published.candidates, expected.candidates);
    const Selection alone = batch.RunAlone(peer(), publish);
    ASSERT_EQ(published.selected, alone.selected);
    ASSERT_EQ(published.candidates, alone.candidates);

    const Selection restricted = batch.Run(ops(), restrict, published.candidates);
    ASSERT_EQ(restricted.selected, batch.Run(reference(), restrict, published.candidates).selected);
    ASSERT_EQ(restricted.selected, batch.RunAlone(peer(), restrict, published.candidates).selected);
    ASSERT_EQ(restricted.candidates, published.candidates);  // read, not written
  }
}

TEST_P(IndexTest, NoRows) {
  Tensor q(0, 64);
  Tensor weights(0, 2);
  IndexSettings settings;
  settings.heads = 2;
  settings.head_width = 32;
  settings.topk = 4;
  EXPECT_TRUE(Select(ops(), q, weights, {}, settings).selected.empty());
}

DEEPINFER_INSTANTIATE_BACKENDS(IndexTest);

}  // namespace
}  // namespace deepinfer::test
