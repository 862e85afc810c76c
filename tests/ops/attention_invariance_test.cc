// Promise 1 for attention and index selection, at sizes where the CPU backend shares one token among its threads: the
// same bits for any thread count, batch, split between ring and fresh rows, and instruction set with fused
// multiply-adds; index picks on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "base/aligned_buffer.h"
#include "hwy/highway.h"
#include "hwy/targets.h"
#include "ops/cpu/index_top_k.h"
#include "ops_test_util.h"

namespace deepinfer::test {
namespace {

std::unique_ptr<Ops> MakeOps(int threads) {
  std::unique_ptr<Ops> ops = MakeCpuOps(threads);
  ScratchLimits limits;
  limits.rows = 64;
  limits.columns = 1024;
  limits.outputs = 1024;
  limits.experts_per_token = 1;
  limits.experts = 1;
  limits.heads = 32;
  limits.head_width = 512;
  limits.attended_rows = 300;
  limits.index_rows = 4096;
  limits.candidate_blocks = 200;
  const Status status = ops->Reserve(limits);
  EXPECT_TRUE(status.ok()) << status.message();
  return ops;
}

// Random codes and moderate scales.
OwnedRows RandomRows(RowFormat format, int32_t channels, int64_t count, int32_t rows_per_page, Random& random) {
  OwnedRows rows(format, channels, count, rows_per_page);
  const RowBytes bytes = PackedRowBytes(format, channels);
  for (int64_t row = 0; row < count; ++row) {
    for (int64_t i = 0; i < bytes.values; ++i) {
      uint8_t byte = random.Byte();
      if (format == RowFormat::kWindowFp8 && (byte & 0x7f) == 0x7f) byte ^= 1;
      rows.view().values(row)[i] = byte;
    }
    for (int64_t i = 0; i < bytes.scales; ++i) {
      const int64_t byte = format == RowFormat::kCompressedFp4 ? 0x28 + random.Below(16) : 116 + random.Below(5);
      rows.view().scales(row)[i] = static_cast<uint8_t>(byte);
    }
  }
  return rows;
}

void CopyRow(const PackedRows& from, int64_t source, const PackedRows& to, int64_t destination) {
  const RowBytes bytes = PackedRowBytes(from.format, from.channels);
  std::memcpy(to.values(destination), from.values(source), static_cast<size_t>(bytes.values));
  std::memcpy(to.scales(destination), from.scales(source), static_cast<size_t>(bytes.scales));
}

// Consecutive tokens of one sequence far into it, each with its own picks.
class AttentionWork {
 public:
  static constexpr int kHeads = 20;
  static constexpr int32_t kWidth = 512;
  static constexpr int kWindow = 100;
  static constexpr int32_t kSlots = 120;
  static constexpr int64_t kFirst = 250;
  static constexpr int64_t kTopk = 60;

  explicit AttentionWork(int64_t tokens, uint64_t seed)
      : random_(seed),
        tokens_(tokens),
        window_(RandomRows(RowFormat::kWindowFp8, kWidth, kFirst + tokens, 16, random_)),
        compressed_(RandomRows(RowFormat::kCompressedFp4, kWidth, 125, 8, random_)),
        q_(RandomTensor(tokens, kHeads * kWidth, random_)),
        sink_(RandomVector(kHeads, true, random_)) {
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<int32_t> all(125);
      std::iota(all.begin(), all.end(), 0);
      for (size_t i = all.size() - 1; i > 0; --i) std::swap(all[i], all[static_cast<size_t>(random_.Below(i + 1))]);
      all.resize(static_cast<size_t>(t % 3 == 2 ? 17 : kTopk));
      std::sort(all.begin(), all.end());
      counts_.push_back(static_cast<int32_t>(all.size()));
      all.resize(kTopk, -1);
      picks_.insert(picks_.end(), all.begin(), all.end());
    }
  }

  // Tokens begin..end-1 in one call; what comes before stands in the ring.
  void Attend(Ops& ops, int64_t begin, int64_t end, FloatView out) {
    OwnedRows ring(RowFormat::kWindowFp8, kWidth, kSlots, 7);
    OwnedRows fresh(RowFormat::kWindowFp8, kWidth, std::max<int64_t>(end - begin, 1), 5);
    for (int64_t p = kFirst + begin - kSlots; p < kFirst + begin; ++p) CopyRow(window_, p, ring, p % kSlots);
    for (int64_t t = begin; t < end; ++t) CopyRow(window_, kFirst + t, fresh, t - begin);
    AttentionSequence sequence;
    sequence.row_count = static_cast<int32_t>(end - begin);
    sequence.first_position = kFirst + begin;
    sequence.ring = ring;
    sequence.ring_slots = kSlots;
    sequence.fresh = fresh;
    sequence.compressed = compressed_;
    const SelectedRows selected{{picks_.data() + begin * kTopk, end - begin, kTopk}, counts_.data() + begin};
    ops.Attention(q_.view().RowRange(begin, end), kHeads, std::span(&sequence, 1), kWindow, selected, sink_, 0.03f,
                  out.RowRange(begin, end));
  }

  Tensor Run(Ops& ops, std::vector<int64_t> cuts = {}) {
    Tensor out(tokens_, kHeads * kWidth);
    out.Fill(std::numeric_limits<float>::quiet_NaN());
    cuts.push_back(tokens_);
    int64_t begin = 0;
    for (const int64_t end : cuts) {
      Attend(ops, begin, end, out);
      begin = end;
    }
    return out;
  }

 private:
  Random random_;
  int64_t tokens_;
  OwnedRows window_;
  OwnedRows compressed_;
  Tensor q_;
  OwnedVector sink_;
  std::vector<int32_t> picks_;
  std::vector<int32_t> counts_;
};

TEST(AttentionInvariance, ThreadsAndBatch) {
  for (const int64_t tokens : {1, 2, 7, 13}) {
    AttentionWork work(tokens, 1);
    const Tensor expected = work.Run(*MakeOps(1));
    for (const int threads : {2, 3, 5}) {
      const std::unique_ptr<Ops> ops = MakeOps(threads);
      ASSERT_TRUE(SameBits(work.Run(*ops), expected)) << tokens << " tokens, " << threads << " threads";
    }
  }
}

TEST(AttentionInvariance, RingOrFreshAtEveryCut) {
  constexpr int64_t kTokens = 9;
  AttentionWork work(kTokens, 2);
  const std::unique_ptr<Ops> one = MakeOps(1);
  const std::unique_ptr<Ops> three = MakeOps(3);
  const Tensor expected = work.Run(*one);
  for (int64_t cut = 1; cut < kTokens; ++cut) {
    ASSERT_TRUE(SameBits(work.Run(*one, {cut}), expected)) << cut;
    ASSERT_TRUE(SameBits(work.Run(*three, {cut}), expected)) << cut;
  }
  ASSERT_TRUE(SameBits(work.Run(*three, {1, 2, 3, 4, 5, 6, 7, 8}), expected));
}

TEST(AttentionInvariance, InstructionSets) {
  AttentionWork work(3, 3);
  const Tensor expected = work.Run(*MakeOps(1));
  const bool fused = HasFusedProducts(*MakeOps(1));
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    const std::unique_ptr<Ops> ops = MakeOps(2);
    const Tensor actual = work.Run(*ops);
    if (fused && HasFusedProducts(*ops)) {
      EXPECT_TRUE(SameBits(actual, expected)) << ops->name();
    } else {
      EXPECT_TRUE(Near(actual, expected, 1e-5f)) << ops->name();
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

struct Picked {
  std::vector<std::vector<int32_t>> rows;
  std::vector<std::vector<int32_t>> blocks;
  bool operator==(const Picked&) const = default;
};

// Consecutive tokens over thousands of keys: publishes candidates, then selects inside them.
class IndexWork {
 public:
  static constexpr int32_t kHeads = 30;
  static constexpr int32_t kWidth = 128;
  static constexpr int64_t kKeys = 2900;

  IndexWork(int32_t tokens, uint64_t seed)
      : random_(seed),
        tokens_(tokens),
        keys_(RandomRows(RowFormat::kIndexFp4, kWidth, kKeys, 48, random_)),
        q_(RandomTensor(tokens, kHeads * kWidth, random_)),
        weights_(RandomTensor(tokens, kHeads, random_)) {}

  void SetWeight(int64_t t, int64_t head, float weight) { weights_.row(t)[head] = weight; }

  Picked Run(Ops& ops, bool restricted, int32_t chunk) {
    IndexSettings settings;
    settings.heads = kHeads;
    settings.head_width = kWidth;
    settings.topk = 90;
    settings.block_size = 12;
    settings.topk_blocks = 200;  // of 242
    Picked picked;
    for (int32_t begin = 0; begin < tokens_; begin += chunk) {
      const int64_t count = std::min(chunk, tokens_ - begin);
      std::vector<int32_t> rows(static_cast<size_t>(count * settings.topk));
      std::vector<int32_t> counts(static_cast<size_t>(count));
      std::vector<int32_t> blocks(static_cast<size_t>(count * settings.topk_blocks));
      std::vector<int32_t> block_counts(static_cast<size_t>(count));
      const CandidateBlocks candidates{{blocks.data(), count, settings.topk_blocks}, block_counts.data()};
      const SelectedRows selected{{rows.data(), count, settings.topk}, counts.data()};
      const IndexSequence sequence{0, static_cast<int32_t>(count), kKeys - tokens_ + begin, keys_};
      for (int pass = 0; pass < (restricted ? 2 : 1); ++pass) {
        settings.publish_candidates = pass == 0;
        settings.restrict_to_candidates = pass == 1;
        ops.SelectRows(q_.view().RowRange(begin, begin + count), weights_.view().RowRange(begin, begin + count),
                       std::span(&sequence, 1), settings, candidates, selected);
      }
      for (int64_t t = 0; t < count; ++t) {
        picked.rows.emplace_back(selected.rows.row(t), selected.rows.row(t) + selected.counts[t]);
        picked.blocks.emplace_back(candidates.blocks.row(t), candidates.blocks.row(t) + candidates.counts[t]);
      }
    }
    return picked;
  }

 private:
  Random random_;
  int32_t tokens_;
  OwnedRows keys_;
  Tensor q_;
  Tensor weights_;
};

TEST(IndexInvariance, ThreadsAndBatch) {
  constexpr int32_t kTokens = 21;
  IndexWork work(kTokens, 4);
  const std::unique_ptr<Ops> one = MakeOps(1);
  for (const bool restricted : {false, true}) {
    const Picked expected = work.Run(*one, restricted, kTokens);
    for (const std::vector<int32_t>& blocks : expected.blocks) ASSERT_EQ(blocks.size(), 200u);
    for (const std::vector<int32_t>& rows : expected.rows) ASSERT_EQ(rows.size(), 90u);
    for (const int threads : {1, 2, 3}) {
      const std::unique_ptr<Ops> ops = MakeOps(threads);
      for (const int32_t chunk : {1, 5, 10, kTokens}) {
        ASSERT_TRUE(work.Run(*ops, restricted, chunk) == expected) << threads << " threads, chunks of " << chunk;
      }
    }
  }
}

TEST(IndexInvariance, InstructionSetsAndReference) {
  IndexWork work(2, 5);
  const Picked expected = work.Run(*MakeReferenceOps(), true, 2);
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    EXPECT_TRUE(work.Run(*MakeOps(2), true, 2) == expected) << hwy::TargetName(target);
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Lists that could hold more than all rows need no room for it: nothing is ever scored.
TEST(IndexInvariance, ListsLongerThanAllRows) {
  Random random(8);
  const OwnedRows keys = RandomRows(RowFormat::kIndexFp4, 32, 64, 16, random);
  const Tensor q = RandomTensor(64, 2 * 32, random);
  const Tensor weights = RandomTensor(64, 2, random);
  const std::unique_ptr<Ops> ops = MakeCpuOps(1);
  ScratchLimits limits;
  limits.rows = 64;
  limits.columns = limits.outputs = 64;
  limits.heads = 2;
  limits.head_width = 32;
  limits.attended_rows = 640;
  limits.index_rows = 64;
  limits.candidate_blocks = 2048;
  ASSERT_TRUE(ops->Reserve(limits).ok());
  IndexSettings settings;
  settings.heads = 2;
  settings.head_width = 32;
  settings.topk = 512;
  settings.block_size = 8;
  settings.topk_blocks = 2048;
  settings.publish_candidates = true;
  std::vector<int32_t> rows(64 * 512), counts(64), blocks(64 * 2048), block_counts(64);
  const IndexSequence sequence{0, 64, 0, keys};
  ops->SelectRows(q, weights, std::span(&sequence, 1), settings, {{blocks.data(), 64, 2048}, block_counts.data()},
                  {{rows.data(), 64, 512}, counts.data()});
  for (int32_t t = 0; t < 64; ++t) {
    EXPECT_EQ(counts[static_cast<size_t>(t)], t + 1);
    EXPECT_EQ(block_counts[static_cast<size_t>(t)], t / 8 + 1);
  }
}

// Damaged numbers give some full, ascending list.
TEST(IndexInvariance, SurvivesNanAndInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::unique_ptr<Ops> ops = MakeOps(2);
  for (const float weight : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
    IndexWork work(3, 6);
    work.SetWeight(1, 3, weight);
    work.SetWeight(1, 4, -weight);
    const Picked picked = work.Run(*ops, true, 3);
    for (const std::vector<int32_t>& rows : picked.rows) {
      ASSERT_EQ(rows.size(), 90u);
      ASSERT_TRUE(std::is_sorted(rows.begin(), rows.end(), std::less_equal<>()) || rows.size() < 2);
      ASSERT_LT(rows.back(), IndexWork::kKeys);
    }
  }
}

std::vector<int32_t> BestRows(const std::vector<float>& scores, int64_t k) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(std::min<int64_t>(k, std::ssize(order))));
  std::sort(order.begin(), order.end());
  return order;
}

// Streams that fill the list again and again, in one list and merged from several.
TEST(TopKList, ExactOnEveryStream) {
  constexpr int64_t kCount = 5000;
  Random random(7);
  for (const int shape : {0, 1, 2, 3, 4}) {
    AlignedBuffer<float> scores;
    ASSERT_TRUE(scores.Allocate(kCount + 64));
    for (int64_t i = 0; i < kCount; ++i) {
      const float rising = static_cast<float>(i) - 2500;
      scores[i] = shape == 0   ? rising
                  : shape == 1 ? -rising
                  : shape == 2 ? (random.Below(2) == 0 ? 0.0f : -0.0f)
                  : shape == 3 ? static_cast<float>(random.Below(9)) - 4
                               : random.Normal();
    }
    const std::vector<float> all(scores.data(), scores.data() + kCount);
    for (const int64_t k : {1, 7, 300, 4999, 6000}) {
      for (const int64_t parts : {1, 3}) {
        std::vector<std::vector<uint64_t>> memory;
        std::vector<uint64_t> spare(static_cast<size_t>(cpu::TopKList::Capacity(k)));
        std::vector<cpu::TopKList> lists(static_cast<size_t>(parts));
        for (int64_t part = 0; part < parts; ++part) {
          memory.emplace_back(static_cast<size_t>(cpu::TopKList::Capacity(k)));
          cpu::TopKList& list = lists[static_cast<size_t>(part)];
          list.Reset(memory.back().data(), spare.data(), k);
          const int64_t end = kCount / 16 * (part + 1) / parts * 16 + (part + 1 == parts ? kCount % 16 : 0);
          for (int64_t i = kCount / 16 * part / parts * 16; i < end; i += 160) {
            list.Push(scores.data() + i, std::min<int64_t>(160, end - i), nullptr, i);
          }
        }
        for (int64_t part = 1; part < parts; ++part) lists[0].Merge(lists[static_cast<size_t>(part)], spare.data());
        std::vector<int32_t> rows(static_cast<size_t>(std::min(k, kCount)));
        ASSERT_EQ(lists[0].Finish(spare.data(), rows.data()), std::ssize(rows));
        ASSERT_EQ(rows, BestRows(all, k)) << "stream " << shape << " k " << k << " parts " << parts;
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::test
