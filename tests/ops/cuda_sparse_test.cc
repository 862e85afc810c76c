// Sparse attention on the tensor cores: against the reference, and bit for bit the same in any batch and chunking.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "attention_test_util.h"
#include "cuda_test_util.h"
#include "ops/cuda/exact_linear.h"
#include "ops/cuda/kernels.h"

namespace deepinfer::test {
namespace {

constexpr int64_t kWidth = 512;
constexpr int kWindow = 128;
// Of the largest output of a row: queries and probabilities have 16 bits.
constexpr float kTolerance = 2e-5f;

/// What a run needs besides its rows.
struct Setting {
  int heads;
  float scale;
  WeightVector sink;
  int64_t compressed_rows;
  int spare_keys = 0;                // by which the bound of the keys is too large
  const Tensor* rotation = nullptr;  // rotates the outputs back, where there is scratch
};

Tensor RunSparse(const Tensor& q, const std::vector<AttentionSequence>& sequences, const SelectedRows& selected,
                 const Setting& setting) {
  DevicePool pool;
  std::vector<cuda::DeviceSequence> device;
  std::vector<int32_t> owner(static_cast<size_t>(q.rows()), 0);
  int longest_block = 0;
  for (const AttentionSequence& s : sequences) {
    for (int32_t t = s.first_row; t < s.first_row + s.row_count; ++t) {
      owner[static_cast<size_t>(t)] = static_cast<int32_t>(device.size());
    }
    if (s.whole_block) longest_block = std::max(longest_block, s.row_count);
    device.push_back({s.first_row, s.row_count, s.first_position, pool.Rows(s.ring, s.ring_slots),
                      pool.Rows(s.fresh, s.row_count),
                      s.compressed.pages == nullptr ? PackedRows() : pool.Rows(s.compressed, setting.compressed_rows),
                      s.window_start, s.ring_slots, s.whole_block});
  }
  cuda::DeviceLists lists;
  int most_keys = kWindow + longest_block + setting.spare_keys;
  if (selected.counts != nullptr && q.rows() > 0) {
    lists.stride = selected.rows.stride;
    lists.rows = pool.Copy(selected.rows.data, static_cast<size_t>(q.rows() * lists.stride));
    lists.counts = pool.Copy(selected.counts, static_cast<size_t>(q.rows()));
    most_keys += *std::max_element(selected.counts, selected.counts + q.rows());
  }
  WeightVector sink = setting.sink;
  sink.data = reinterpret_cast<const uint8_t*>(pool.Copy(sink.data, static_cast<size_t>(sink.size) * 4));
  // Rows with a gap and one row behind the last, which must stay.
  const int64_t stride = q.columns() + 4;
  std::vector<float> queries(static_cast<size_t>((q.rows() + 1) * stride), NAN), results(queries.size(), kUntouched);
  for (int64_t t = 0; t < q.rows(); ++t) {
    std::copy_n(q.row(t), q.columns(), queries.begin() + t * stride);
  }
  float* const device_out = pool.Copy(results);
  const auto bytes = static_cast<size_t>(cuda::SparseAttentionScratchBytes(q.rows(), setting.heads, most_keys));
  const std::vector<uint8_t> scratch(bytes, 0xff);
  EXPECT_TRUE(cuda::SparseAttentionFits(setting.heads, q.columns() / setting.heads));
  ConstFloatView rotation;
  if (setting.rotation != nullptr) {
    EXPECT_GT(bytes, 0U);
    std::vector<float> table;
    const int64_t columns = setting.rotation->columns();
    for (int64_t t = 0; t < q.rows(); ++t) {
      table.insert(table.end(), setting.rotation->row(t), setting.rotation->row(t) + columns);
    }
    rotation = {pool.Copy(table), q.rows(), columns};
  }
  const FloatView outputs(device_out, q.rows(), q.columns(), stride);
  const DeviceRows terms(cuda::kExactTerms * q.rows(), q.columns());
  cuda::RowForms forms;
  if (setting.rotation != nullptr) forms.fp8_terms = terms.From(0).values;
  cuda::SparseAttention(nullptr, {pool.Copy(queries), q.rows(), q.columns(), stride}, setting.heads, pool.Copy(device),
                        pool.Copy(owner), kWindow, lists, sink, setting.scale, most_keys, pool.Copy(scratch), outputs,
                        rotation, forms);
  Check(cudaGetLastError());
  Check(cudaDeviceSynchronize());
  if (setting.rotation != nullptr) {
    const DeviceRows split(cuda::kExactTerms * q.rows(), q.columns());
    cuda::SplitRows(nullptr, outputs, cuda::ColumnOrder::kFp8, split.From(0));
    EXPECT_EQ(terms.Get(), split.Get());
  }
  Check(cudaMemcpy(results.data(), device_out, results.size() * 4, cudaMemcpyDeviceToHost));
  Tensor out(q.rows(), q.columns());
  bool untouched = true;
  for (int64_t at = 0; at < std::ssize(results); ++at) {
    const float value = results[static_cast<size_t>(at)];
    if (at < q.rows() * stride && at % stride < q.columns()) {
      out.row(at / stride)[at % stride] = value;
    } else {
      untouched = untouched && value == kUntouched;
    }
  }
  EXPECT_TRUE(untouched) << "gaps or the row behind the last";
  return out;
}

Tensor RunReference(const Tensor& q, const std::vector<AttentionSequence>& sequences, const SelectedRows& selected,
                    const Setting& setting) {
  Tensor out(q.rows(), q.columns());
  MakeReferenceOps()->Attention(q, setting.heads, sequences, kWindow, selected, setting.sink, setting.scale, out);
  return out;
}

class CudaSparse : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::SparseAttentionFits(64, kWidth)) GTEST_SKIP() << "another GPU than SM90";
  }
};

Tensor RandomQueries(int64_t rows, int heads, float spread, Random& random) {
  Tensor q(rows, heads * kWidth);
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < q.columns(); ++i) q.row(t)[i] = random.Normal() * spread;
  }
  return q;
}

// One key, whole splits, one less and one more, window rows only, a window cut short, a ring that has gone round, whole
// blocks; each row alone (splits side by side) and all of them at once (splits one after the other).
TEST_F(CudaSparse, LikeReference) {
  struct Part {
    int64_t first;
    int32_t count;
    int32_t picks;  // of each row
    bool whole_block = false;
    int64_t window_start = 0;
  };
  const Part parts[] = {{0, 1, 0},
                        {0, 1, 1},
                        {62, 1, 0},
                        {63, 1, 0},
                        {64, 1, 0},
                        {62, 1, 1},
                        {126, 1, 0},
                        {127, 1, 0},
                        {127, 1, 1},
                        {500, 1, 64},
                        {500, 1, 65},
                        {300, 1, 449},
                        {300, 2, 512},
                        {137, 5, 0, true},
                        {2, 5, 0, true},
                        {30, 0, 0},
                        {129, 3, 7, false, 125},
                        {126, 6, 3}};
  constexpr int64_t kCompressed = 600, kTopk = 512;
  for (const int heads : {64, 16, 80, 128}) {
    Random random(static_cast<uint64_t>(heads));
    const OwnedRows compressed = StoreAll(RandomTensor(kCompressed, kWidth, random), RowFormat::kCompressedFp4, 16);
    const OwnedVector sink = RandomVector(heads, false, random);
    std::vector<AttentionSequence> sequences;
    std::vector<std::unique_ptr<SequenceRows>> owners;
    int32_t total = 0;
    for (const Part& part : parts) {
      const Tensor kv = RandomTensor(part.first + part.count, kWidth, random);
      owners.push_back(std::make_unique<SequenceRows>(kv, part.first, part.count, kWindow, kWindow + 6));
      sequences.push_back(owners.back()->At(total));
      sequences.back().compressed = compressed;
      sequences.back().whole_block = part.whole_block;
      sequences.back().window_start = part.window_start;
      total += part.count;
    }
    Picks picks(total, kTopk);
    for (size_t p = 0; p < sequences.size(); ++p) {
      for (int32_t t = sequences[p].first_row; t < sequences[p].first_row + sequences[p].row_count; ++t) {
        const int64_t skip = random.Below(kCompressed - kTopk);
        for (int32_t k = 0; k < parts[p].picks; ++k) picks.Add(t, skip + k);
      }
    }
    const Setting setting{heads, 1 / std::sqrt(512.0f), sink, kCompressed};
    const Tensor q = RandomQueries(total, heads, 0.3f, random);
    const Tensor expected = RunReference(q, sequences, picks.view(), setting);
    const Tensor all = RunSparse(q, sequences, picks.view(), setting);
    for (int64_t t = 0; t < total; ++t) {
      ASSERT_TRUE(Near(all.view().RowRange(t, t + 1), expected.view().RowRange(t, t + 1), kTolerance))
          << heads << " heads, row " << t;
    }
    for (const AttentionSequence& sequence : sequences) {
      if (sequence.row_count == 0) continue;
      std::vector<int64_t> rows(static_cast<size_t>(sequence.row_count));
      std::iota(rows.begin(), rows.end(), sequence.first_row);
      AttentionSequence alone = sequence;
      alone.first_row = 0;
      Picks few = picks.Gather(rows);
      ASSERT_TRUE(SameBits(RunSparse(q.Gather(rows), {alone}, few.view(), setting), all.Gather(rows)))
          << heads << " heads, sequence at row " << sequence.first_row;
    }
  }
}

// Layers without a selection; sinks that dwarf the scores and that vanish; scores far from 0.
TEST_F(CudaSparse, SinksAndLargeScores) {
  Random random(2);
  const Tensor kv = RandomTensor(200, kWidth, random);
  const SequenceRows rows(kv, 190, 10, kWindow, kWindow + 6);
  const std::vector<AttentionSequence> sequences = {rows.At(0)};
  for (const float level : {-1000.0f, 0.0f, 1000.0f}) {
    const OwnedVector sink(std::vector<float>(64, level), false);
    for (const float spread : {0.3f, 5.0f}) {
      const Setting setting{64, 1 / std::sqrt(512.0f), sink, 0};
      const Tensor q = RandomQueries(10, 64, spread, random);
      const Tensor expected = RunReference(q, sequences, SelectedRows(), setting);
      // Scores of size s are off by 2^-18 s, and probabilities by as much.
      ASSERT_TRUE(Near(RunSparse(q, sequences, SelectedRows(), setting), expected, kTolerance * std::max(1.0f, spread)))
          << "sink " << level << " spread " << spread;
    }
  }
}

// Where splits are joined the outputs are rotated back and split into terms as well.
TEST_F(CudaSparse, RotatesBackWhereSplitsAreJoined) {
  Random random(4);
  const Tensor kv = RandomTensor(200, kWidth, random);
  for (const int heads : {16, 64}) {
    for (const int32_t count : {1, 10}) {
      for (const int64_t rotated : {4, 64, 512}) {
        const SequenceRows rows(kv, 190, count, kWindow, kWindow + 6);
        const OwnedVector sink = RandomVector(heads, false, random);
        const Tensor q = RandomQueries(count, heads, 0.3f, random), table = RandomTensor(count, rotated, random);
        const Setting setting{heads, 1 / std::sqrt(512.0f), sink, 0};
        Tensor expected = RunSparse(q, {rows.At(0)}, SelectedRows(), setting);
        MakeReferenceOps()->Rope(expected, heads, table, true);
        const Setting rotating{heads, 1 / std::sqrt(512.0f), sink, 0, 0, &table};
        ASSERT_TRUE(SameBits(RunSparse(q, {rows.At(0)}, SelectedRows(), rotating), expected))
            << heads << " heads, rows " << count << ", rotated " << rotated;
      }
    }
  }
}

// A prompt in one shot, in chunks and token by token; among strangers; with a generous bound of the keys.
TEST_F(CudaSparse, RowsAreIndependent) {
  Random random(3);
  constexpr int kHeads = 64;
  constexpr int64_t kLength = 330, kFirst = 170, kTopk = 512, kCompressed = 640;
  const int64_t count = kLength - kFirst;
  const Tensor kv = RandomTensor(kLength, kWidth, random);
  const OwnedRows compressed = StoreAll(RandomTensor(kCompressed, kWidth, random), RowFormat::kCompressedFp4, 64);
  const OwnedVector sink = RandomVector(kHeads, false, random);
  const Tensor q = RandomQueries(count, kHeads, 0.3f, random);
  const Picks picks = Picks::RandomOf(count, kTopk, kCompressed, random);
  const auto run = [&](int64_t chunk, int spare_keys) {
    Tensor out(count, q.columns());
    for (int64_t first = 0; first < count; first += chunk) {
      std::vector<int64_t> rows;
      for (int64_t t = first; t < std::min(first + chunk, count); ++t) rows.push_back(t);
      const SequenceRows stored(kv, kFirst + first, static_cast<int32_t>(rows.size()), kWindow, kWindow + 6);
      AttentionSequence sequence = stored.At(0);
      sequence.compressed = compressed;
      Picks part = picks.Gather(rows);
      const Tensor some =
          RunSparse(q.Gather(rows), {sequence}, part.view(), Setting{kHeads, 0.04f, sink, kCompressed, spare_keys});
      for (size_t i = 0; i < rows.size(); ++i) {
        std::copy_n(some.row(static_cast<int64_t>(i)), q.columns(), out.row(rows[i]));
      }
    }
    return out;
  };
  const Tensor whole = run(count, 0);
  for (const int64_t chunk : {1, 7, 13, 64}) ASSERT_TRUE(SameBits(run(chunk, 0), whole)) << chunk;
  ASSERT_TRUE(SameBits(run(8, 1000), whole));

  // 64 sequences of one row each, in reverse order.
  std::vector<std::unique_ptr<SequenceRows>> owners;
  std::vector<AttentionSequence> sequences;
  std::vector<int64_t> rows;
  for (int32_t i = 0; i < 64; ++i) {
    rows.push_back(count - 1 - 2 * i);
    owners.push_back(std::make_unique<SequenceRows>(kv, kFirst + rows.back(), 1, kWindow, kWindow + 6));
    sequences.push_back(owners.back()->At(i));
    sequences.back().compressed = compressed;
  }
  Picks part = picks.Gather(rows);
  ASSERT_TRUE(SameBits(RunSparse(q.Gather(rows), sequences, part.view(), Setting{kHeads, 0.04f, sink, kCompressed}),
                       whole.Gather(rows)));
}

}  // namespace
}  // namespace deepinfer::test
