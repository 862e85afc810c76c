// Attention: which keys a row sees and in what softmax; same bits whether a key lies in the ring or is fresh (spec
// c.5).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "attention_test_util.h"
#include "ops/ops.h"
#include "ops/reference/unpack.h"

namespace deepinfer::test {
namespace {

class AttentionTest : public OpsTest {};

// One head, keys (1, 0, ...) and (0, 1, ...): the output shows the probabilities.
TEST_P(AttentionTest, SinkJoinsTheDenominatorOnly) {
  Tensor kv(2, 32);
  kv.Fill(0);
  kv.row(0)[0] = 1;
  kv.row(1)[1] = 1;
  const SequenceRows rows(kv, 1, 1, 4, 8);
  Tensor q(1, 32);
  q.Fill(0);
  q.row(0)[0] = 2;
  q.row(0)[1] = 4;
  const AttentionSequence sequences[] = {rows.At(0)};
  for (const double sink : {-1000.0, 0.0, 1.5, 1000.0}) {
    const OwnedVector sinks({static_cast<float>(sink)}, false);
    Tensor out(1, 32);
    ops().Attention(q, 1, sequences, 4, SelectedRows(), sinks, 0.5f, out);
    const double largest = std::max(sink, 2.0);
    const double e0 = std::exp(1 - largest), e1 = std::exp(2 - largest);
    const double sum = e0 + e1 + std::exp(sink - largest);
    EXPECT_NEAR(out.row(0)[0], e0 / sum, 1e-6) << sink;
    EXPECT_NEAR(out.row(0)[1], e1 / sum, 1e-6) << sink;
    EXPECT_EQ(out.row(0)[2], 0);
  }
}

// Key p has value 1 in channel p only and q = 0: every visible key gets 1 / (count + 1), every other exactly 0.
TEST_P(AttentionTest, WindowByHand) {
  Tensor kv(20, 32);
  kv.Fill(0);
  for (int64_t p = 0; p < 20; ++p) kv.row(p)[p] = 1;
  const OwnedVector sink({0}, false);
  struct Case {
    int64_t first;
    int32_t count;
    int window;
    int64_t window_start;
  };
  for (const Case& c : {Case{0, 20, 5, 0}, Case{7, 6, 5, 0}, Case{12, 8, 16, 0}, Case{10, 4, 1, 0}, Case{10, 6, 5, 8},
                        Case{10, 6, 5, 12}, Case{3, 4, 16, 0}}) {
    const SequenceRows rows(kv, c.first, c.count, c.window, 18);
    Tensor q(c.count, 32);
    q.Fill(0);
    Tensor out(c.count, 32);
    AttentionSequence sequence = rows.At(0);
    sequence.window_start = c.window_start;
    ops().Attention(q, 1, std::span(&sequence, 1), c.window, SelectedRows(), sink, 1, out);
    for (int32_t t = 0; t < c.count; ++t) {
      const int64_t position = c.first + t;
      const int64_t oldest = std::max({int64_t{0}, c.window_start, position - c.window + 1});
      const int64_t visible = std::max<int64_t>(0, position - oldest + 1);
      for (int64_t p = 0; p < 20; ++p) {
        const bool seen = p >= oldest && p <= position;
        const float expected = seen ? 1.0f / static_cast<float>(visible + 1) : 0;
        ASSERT_NEAR(out.row(t)[p], expected, seen ? 1e-6f : 0) << "position " << position << " key " << p;
      }
    }
  }
}

// DSpark: every row of the block sees the whole block and the W positions before it.
TEST_P(AttentionTest, WholeBlockByHand) {
  Tensor kv(20, 32);
  kv.Fill(0);
  for (int64_t p = 0; p < 20; ++p) kv.row(p)[p] = 1;
  const OwnedVector sink({0}, false);
  for (const int64_t first : {0, 2, 10}) {
    for (const int64_t start : {int64_t{0}, first - 1}) {
      const SequenceRows rows(kv, first, 5, 4, 9);
      Tensor q(5, 32);
      q.Fill(0);
      Tensor out(5, 32);
      AttentionSequence sequence = rows.At(0);
      sequence.whole_block = true;
      sequence.window_start = std::max<int64_t>(start, 0);
      ops().Attention(q, 1, std::span(&sequence, 1), 4, SelectedRows(), sink, 1, out);
      const int64_t oldest = std::max({int64_t{0}, start, first - 4});
      for (int32_t t = 0; t < 5; ++t) {
        for (int64_t p = 0; p < 20; ++p) {
          const bool seen = p >= oldest && p < first + 5;
          const float expected = seen ? 1.0f / static_cast<float>(first + 5 - oldest + 1) : 0;
          ASSERT_NEAR(out.row(t)[p], expected, seen ? 1e-6f : 0) << "first " << first << " row " << t << " key " << p;
        }
      }
    }
  }
}

// Selected rows join the window; a token in both sets counts twice.
TEST_P(AttentionTest, SelectedRowsByHand) {
  Tensor kv(1, 32);
  kv.Fill(0);
  kv.row(0)[0] = 1;
  Tensor global(4, 32);
  global.Fill(0);
  for (int64_t j = 0; j < 4; ++j) global.row(j)[j] = 1;
  const OwnedRows compressed = StoreAll(global, RowFormat::kCompressedFp4, 2);
  const SequenceRows rows(kv, 0, 1, 4, 8);
  AttentionSequence sequence = rows.At(0);
  sequence.compressed = compressed;
  Picks picks(1, 3);
  picks.Add(0, 0);
  picks.Add(0, 3);
  Tensor q(1, 32);
  q.Fill(0);
  Tensor out(1, 32);
  const OwnedVector sink({0}, false);
  ops().Attention(q, 1, std::span(&sequence, 1), 4, picks.view(), sink, 1, out);
  // e4m3(1/6) = 0.171875 and 1 / 0.171875 = 5.8 rounds to 6: the stored 1 is 1.03125.
  EXPECT_NEAR(out.row(0)[0], (1 + 1.03125) / 4, 1e-6);
  EXPECT_EQ(out.row(0)[1], 0);
  EXPECT_NEAR(out.row(0)[3], 1.03125 / 4, 1e-6);
}

// Against the formula in double, on a batch of several sequences in mixed phases.
TEST_P(AttentionTest, MatchesTheFormulaAndTheReference) {
  Random random(1);
  struct Case {
    int heads;
    int64_t width;
    int window;
    int64_t topk;
  };
  for (const Case& c : {Case{1, 32, 1, 4}, Case{3, 64, 16, 0}, Case{4, 64, 16, 12}, Case{5, 96, 20, 40},
                        Case{16, 128, 33, 7}, Case{8, 512, 128, 64}}) {
    struct Part {
      int64_t first;
      int32_t count;
      bool whole_block;
    };
    const Part parts[] = {{0, 9, false},  {40, 1, false},   {137, 5, true},
                          {30, 0, false}, {129, 12, false}, {2, 5, true}};
    std::vector<AttentionSequence> sequences;
    std::vector<std::unique_ptr<SequenceRows>> owners;
    std::vector<std::unique_ptr<OwnedRows>> compressed;
    int32_t total = 0;
    for (const Part& part : parts) {
      const Tensor kv = RandomTensor(part.first + part.count, c.width, random);
      owners.push_back(std::make_unique<SequenceRows>(kv, part.first, part.count, c.window, c.window + 6));
      compressed.push_back(
          std::make_unique<OwnedRows>(StoreAll(RandomTensor(70, c.width, random), RowFormat::kCompressedFp4, 16)));
      sequences.push_back(owners.back()->At(total));
      sequences.back().compressed = *compressed.back();
      sequences.back().whole_block = part.whole_block;
      if (part.first == 129) sequences.back().window_start = 125;
      total += part.count;
    }
    Picks picks = Picks::RandomOf(total, std::max<int64_t>(c.topk, 1), 70, random);
    const SelectedRows selected = c.topk == 0 ? SelectedRows() : picks.view();
    Tensor q(total, c.heads * c.width);
    for (int64_t t = 0; t < total; ++t) {
      for (int64_t i = 0; i < q.columns(); ++i) q.row(t)[i] = random.Normal() * 0.3f;
    }
    const OwnedVector sink = RandomVector(c.heads, false, random);
    const std::vector<float> sinks = reference::UnpackVector(sink);
    const float scale = 1 / std::sqrt(static_cast<float>(c.width));

    Tensor formula(total, q.columns());
    for (const AttentionSequence& s : sequences) {
      for (int32_t t = s.first_row; t < s.first_row + s.row_count; ++t) {
        const int64_t position = s.first_position + t - s.first_row;
        std::vector<std::vector<float>> keys;
        const auto add = [&](const PackedRows& rows, int64_t row) {
          keys.emplace_back(static_cast<size_t>(c.width));
          reference::UnpackRow(rows, row, keys.back().data());
        };
        const int64_t oldest = s.whole_block ? s.first_position - c.window : position - c.window + 1;
        const int64_t newest = s.whole_block ? s.first_position + s.row_count - 1 : position;
        for (int64_t p = std::max({oldest, int64_t{0}, s.window_start}); p <= newest; ++p) {
          p < s.first_position ? add(s.ring, p % s.ring_slots) : add(s.fresh, p - s.first_position);
        }
        for (int32_t k = 0; c.topk > 0 && k < selected.counts[t]; ++k) add(s.compressed, selected.rows.row(t)[k]);
        for (int h = 0; h < c.heads; ++h) {
          const float* query = q.row(t) + h * c.width;
          std::vector<double> weight;
          double largest = sinks[static_cast<size_t>(h)];
          for (const std::vector<float>& key : keys) {
            double dot = 0;
            for (int64_t i = 0; i < c.width; ++i) dot += double{query[i]} * double{key[static_cast<size_t>(i)]};
            weight.push_back(dot * double{scale});
            largest = std::max(largest, weight.back());
          }
          double sum = std::exp(sinks[static_cast<size_t>(h)] - largest);
          for (double& w : weight) sum += w = std::exp(w - largest);
          for (int64_t i = 0; i < c.width; ++i) {
            double value = 0;
            for (size_t j = 0; j < keys.size(); ++j) value += weight[j] * double{keys[j][static_cast<size_t>(i)]};
            formula.row(t)[h * c.width + i] = static_cast<float>(value / sum);
          }
        }
      }
    }
    Tensor actual(total, q.columns());
    ops().Attention(q, c.heads, sequences, c.window, selected, sink, scale, actual);
    ASSERT_TRUE(Near(actual, formula, 1e-5f)) << "heads " << c.heads << " width " << c.width;
    ASSERT_TRUE(actual.GapsUntouched());
    Tensor expected(total, q.columns());
    reference().Attention(q, c.heads, sequences, c.window, selected, sink, scale, expected);
    ASSERT_TRUE(Near(actual, expected, 1e-5f));
  }
}

// A prompt in one shot, in chunks, and token by token: every chunk finds the same keys in other places.
TEST_P(AttentionTest, ChunkingKeepsTheBits) {
  Random random(2);
  const int heads = 3;
  const int64_t width = 64;
  const int window = 16;
  const int64_t length = 45;
  const Tensor kv = RandomTensor(length, width, random);
  const OwnedRows compressed = StoreAll(RandomTensor(20, width, random), RowFormat::kCompressedFp4, 8);
  const Tensor q = RandomTensor(length, heads * width, random);
  const OwnedVector sink = RandomVector(heads, false, random);
  const Picks picks = Picks::RandomOf(length, 10, 20, random);
  const auto run = [&](Ops& each, int64_t chunk) {
    Tensor out(length, heads * width);
    for (int64_t first = 0; first < length; first += chunk) {
      std::vector<int64_t> rows;
      for (int64_t p = first; p < std::min(first + chunk, length); ++p) rows.push_back(p);
      const SequenceRows stored(kv, first, static_cast<int32_t>(rows.size()), window, window + 6);
      AttentionSequence sequence = stored.At(0);
      sequence.compressed = compressed;
      Picks part = picks.Gather(rows);
      each.Attention(q.Gather(rows), heads, std::span(&sequence, 1), window, part.view(), sink, 0.1f,
                     out.view().RowRange(first, first + static_cast<int64_t>(rows.size())));
    }
    return out;
  };
  const Tensor whole = run(ops(), length);
  for (const int64_t chunk : {1, 3, 7, 16, 44}) ASSERT_TRUE(SameBits(run(ops(), chunk), whole)) << chunk;
  ASSERT_TRUE(SameBits(run(peer(), 1), whole));
}

// Many sequences of one token each, as in decoding.
TEST_P(AttentionTest, RowsAreIndependent) {
  Random random(3);
  const int heads = 4;
  const int64_t width = 64;
  const int window = 12;
  const Tensor kv = RandomTensor(60, width, random);
  const OwnedRows compressed = StoreAll(RandomTensor(50, width, random), RowFormat::kCompressedFp4, 8);
  const Tensor q = RandomTensor(17, heads * width, random);
  const OwnedVector sink = RandomVector(heads, false, random);
  const Picks picks = Picks::RandomOf(17, 30, 50, random);
  ExpectRowIndependence(ops(), peer(), 17, [&](Ops& each, const std::vector<int64_t>& rows) {
    std::vector<std::unique_ptr<SequenceRows>> owners;
    std::vector<AttentionSequence> sequences;
    for (const int64_t row : rows) {
      owners.push_back(std::make_unique<SequenceRows>(kv, row * 3, 1, window, window + 6));
      sequences.push_back(owners.back()->At(static_cast<int32_t>(sequences.size())));
      sequences.back().compressed = compressed;
    }
    Picks part = picks.Gather(rows);
    Tensor out(static_cast<int64_t>(rows.size()), heads * width);
    each.Attention(q.Gather(rows), heads, sequences, window, part.view(), sink, 0.1f, out);
    return out;
  });
}

TEST_P(AttentionTest, RotatedBackIsTheTwoOps) {
  Random random(11);
  constexpr int kHeads = 16, kWindow = 128;
  for (const int64_t width : {32, 512}) {
    for (const int32_t count : {1, 3}) {
      const SequenceRows rows(RandomTensor(200, width, random), 190, count, kWindow, kWindow + 6);
      const AttentionSequence sequence = rows.At(0);
      const OwnedVector sink = RandomVector(kHeads, false, random);
      const Tensor q = RandomTensor(count, kHeads * width, random), table = RandomTensor(count, 8, random);
      Tensor expected(count, kHeads * width), actual(count, kHeads * width);
      ops().Attention(q, kHeads, std::span(&sequence, 1), kWindow, SelectedRows(), sink, 0.1f, expected);
      ops().Rope(expected, kHeads, table, true);
      ops().AttentionRotatedBack(q, kHeads, std::span(&sequence, 1), kWindow, SelectedRows(), sink, 0.1f, table,
                                 actual);
      ASSERT_TRUE(SameBits(actual, expected)) << "width " << width << " rows " << count;
      ASSERT_TRUE(actual.GapsUntouched());
    }
  }
}

TEST_P(AttentionTest, NoSequencesAndNoKeys) {
  const OwnedVector sink({1}, false);
  Tensor none(0, 32);
  ops().Attention(none, 1, {}, 4, SelectedRows(), sink, 1, none);
  // A window that starts after the row leaves the sink alone: the output is zero, not NaN.
  Tensor kv(1, 32);
  kv.Fill(3);
  const SequenceRows rows(kv, 0, 1, 4, 8);
  AttentionSequence sequence = rows.At(0);
  sequence.window_start = 1;
  Tensor q(1, 32);
  q.Fill(1);
  Tensor out(1, 32);
  ops().Attention(q, 1, std::span(&sequence, 1), 4, SelectedRows(), sink, 1, out);
  for (int c = 0; c < 32; ++c) EXPECT_EQ(out.row(0)[c], 0);
}

DEEPINFER_INSTANTIATE_BACKENDS(AttentionTest);

}  // namespace
}  // namespace deepinfer::test
