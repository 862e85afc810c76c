// Attention at 128 window rows and 512 picks of a long context, 64 heads of 512 channels; index scores and selection.
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cuda_bench.h"
#include "ops/cuda/kernels.h"

namespace deepinfer::bench {
namespace {

constexpr int kHeads = 64;
constexpr int64_t kWidth = 512;
constexpr int64_t kColumns = kHeads * kWidth;
constexpr int kWindow = 128;
constexpr int kSlots = 134;  // of a ring
constexpr int kTopk = 512;
constexpr int64_t kContext = 131072;
constexpr int32_t kPageRows = 64;
constexpr int64_t kSequences = 64;
constexpr int kSets = 8;  // of queries and picks

template <typename T>
Buffer Upload(const std::vector<T>& values) {
  Buffer buffer(static_cast<int64_t>(values.size() * sizeof(T)));
  Check(cudaMemcpy(buffer.as<void>(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
  return buffer;
}

}  // namespace

void BenchAttention(const Bench& bench) {
  if (!bench.Wanted("attention") || !cuda::SparseAttentionFits(kHeads, kWidth)) return;
  std::mt19937_64 random(1);
  const int64_t ring_values = kSlots * PackedRowBytes(RowFormat::kWindowFp8, kWidth).values;
  const int64_t ring_bytes = kSlots * PackedRowBytes(RowFormat::kWindowFp8, kWidth).total();
  const int64_t page_bytes = kPageRows * PackedRowBytes(RowFormat::kCompressedFp4, kWidth).total();
  const int64_t pages = kContext / kPageRows;
  const Buffer rings(kSequences * ring_bytes), caches(kSequences * pages * page_bytes);
  // Every byte is an E4M3 code that is no NaN: two E2M1 codes, too, and a scale.
  FillBytes(bench.stream, caches.as<void>(), kSequences * pages * page_bytes, 2, Fill::kE4m3);
  std::vector<uint8_t*> ring_pages, cache_pages;
  for (int64_t i = 0; i < kSequences; ++i) {
    uint8_t* const ring = rings.as<uint8_t>() + i * ring_bytes;
    FillBytes(bench.stream, ring, ring_values, 3, Fill::kE4m3);
    FillBytes(bench.stream, ring + ring_values, ring_bytes - ring_values, 4, Fill::kScales);
    ring_pages.push_back(ring);
    for (int64_t p = 0; p < pages; ++p) {
      cache_pages.push_back(caches.as<uint8_t>() + (i * pages + p) * page_bytes);
    }
  }
  const Buffer ring_list = Upload(ring_pages), cache_list = Upload(cache_pages);

  const std::vector<float> no_sink(kHeads, 0.0f);
  const Buffer sink_buffer = Upload(no_sink);
  const WeightVector sink{sink_buffer.as<uint8_t>(), false, kHeads};
  constexpr float kScale = 2e-4f;  // random codes are large: scores of size 1

  for (const int64_t rows : {1, 4, 16, 64, 2048}) {
    // More rows than sequences: rows that follow each other in few sequences, at whose positions the ring holds all.
    const int64_t each = (rows + kSequences - 1) / kSequences;
    std::vector<cuda::DeviceSequence> list;
    std::vector<int32_t> owner;
    for (int64_t t = 0; t < rows; t += each) {
      cuda::DeviceSequence s;
      s.first_row = static_cast<int32_t>(t);
      s.row_count = static_cast<int32_t>(each);
      s.first_position = kContext;
      s.ring = {ring_list.as<uint8_t*>() + t / each, kSlots, RowFormat::kWindowFp8, kWidth};
      s.fresh = s.ring;
      s.compressed = {cache_list.as<uint8_t*>() + t / each * pages, kPageRows, RowFormat::kCompressedFp4, kWidth};
      s.ring_slots = kSlots;
      for (int64_t i = 0; i < each; ++i) owner.push_back(static_cast<int32_t>(list.size()));
      list.push_back(s);
    }
    const Buffer sequences = Upload(list), owners = Upload(owner);
    const std::vector<int32_t> topk(static_cast<size_t>(rows), kTopk);
    const Buffer counts = Upload(topk);
    std::vector<Buffer> picks, queries;
    for (int set = 0; set < kSets; ++set) {
      std::vector<int32_t> picked;
      for (int64_t t = 0; t < rows; ++t) {
        for (int64_t k = 0; k < kTopk; ++k) {  // ascending, one of every kContext / kTopk
          constexpr int64_t kStep = kContext / kTopk;
          picked.push_back(static_cast<int32_t>(k * kStep + static_cast<int64_t>(random() % kStep)));
        }
      }
      picks.push_back(Upload(picked));
      queries.emplace_back(rows * kColumns * 4);
      FillFloats(bench.stream, queries.back().as<float>(), rows * kColumns, 5 + static_cast<uint64_t>(set));
    }
    const int most_keys = kWindow + kTopk;
    Buffer scratch(cuda::SparseAttentionScratchBytes(rows, kHeads, most_keys));
    Buffer out(rows * kColumns * 4), expected(rows * kColumns * 4);
    Check(cudaDeviceSynchronize(), "copies");  // not of bench.stream
    const auto run = [&](int set) {
      cuda::SparseAttention(bench.stream, {queries[set].as<float>(), rows, kColumns}, kHeads,
                            sequences.as<cuda::DeviceSequence>(), owners.as<int32_t>(), kWindow,
                            {picks[set].as<int32_t>(), kTopk, counts.as<int32_t>()}, sink, kScale, most_keys,
                            scratch.as<void>(), {out.as<float>(), rows, kColumns});
    };
    const std::string name = "attention 128 + 512 keys, " + std::to_string(rows) + " rows";
    if (rows <= kSequences) {  // against the readable form
      cuda::Attention(bench.stream, {queries[0].as<float>(), rows, kColumns}, kHeads,
                      sequences.as<cuda::DeviceSequence>(), owners.as<int32_t>(), kWindow,
                      {picks[0].as<int32_t>(), kTopk, counts.as<int32_t>()}, sink, kScale, most_keys,
                      {expected.as<float>(), rows, kColumns});
      run(0);
      std::printf("%-46s |difference| %.1e of the readable form's\n", name.c_str(),
                  RelativeDifference(bench, out.as<float>(), expected.as<float>(), rows * kColumns));
    }
    // Two BF16 terms of queries and of probabilities.
    const double flops = 2 * 2 * 2.0 * kHeads * kWidth * most_keys * static_cast<double>(rows);
    const double bytes = static_cast<double>(rows * (kWindow * PackedRowBytes(RowFormat::kWindowFp8, kWidth).total() +
                                                     kTopk * PackedRowBytes(RowFormat::kCompressedFp4, kWidth).total() +
                                                     2 * kColumns * 4));
    bench.Report(name, bench.Time(kSets, run), bytes, flops);
  }
}

void BenchIndex(const Bench& bench) {
  if (!bench.Wanted("index")) return;
  constexpr int kIndexHeads = 32;
  constexpr int64_t kIndexWidth = 128, kMostRows = 64;
  const RowBytes key = PackedRowBytes(RowFormat::kIndexFp4, kIndexWidth);
  const int64_t page_bytes = kPageRows * key.total();
  const int64_t pages = kContext / kPageRows;
  const Buffer keys(kMostRows * pages * page_bytes), q(kMostRows * kIndexHeads * kIndexWidth * 4),
      weights(kMostRows * kIndexHeads * 4);
  FillBytes(bench.stream, keys.as<void>(), kMostRows * pages * page_bytes, 1, Fill::kScales);
  FillFloats(bench.stream, q.as<float>(), kMostRows * kIndexHeads * kIndexWidth, 2);
  FillFloats(bench.stream, weights.as<float>(), kMostRows * kIndexHeads, 3);
  std::vector<uint8_t*> list;
  for (int64_t p = 0; p < kMostRows * pages; ++p) list.push_back(keys.as<uint8_t>() + p * page_bytes);
  const Buffer page_list = Upload(list);
  for (const int64_t context : {int64_t{32768}, kContext}) {
    for (const int64_t rows : {1, 8, 64}) {
      std::vector<cuda::DeviceIndexSequence> sequences;
      std::vector<int32_t> owner;
      for (int64_t t = 0; t < rows; ++t) {
        sequences.push_back({static_cast<int32_t>(t),
                             1,
                             context - 1,
                             {page_list.as<uint8_t*>() + t * pages, kPageRows, RowFormat::kIndexFp4, kIndexWidth}});
        owner.push_back(static_cast<int32_t>(t));
      }
      const Buffer device_sequences = Upload(sequences), owners = Upload(owner);
      cuda::IndexArguments arguments{kIndexHeads, kIndexWidth, 1, kTopk, 8, 2048, false, false};
      const Buffer selected(rows * kTopk * 4), counts(rows * 4), blocks(rows * 2048 * 4), block_counts(rows * 4),
          scratch(cuda::SelectInPartsScratchBytes(rows, {kIndexHeads, kIndexWidth, 1, kTopk, 8, 2048, true, false},
                                                  context)),
          block_scores(rows * context / 8 * 4);
      Check(cudaDeviceSynchronize(), "copies");  // not of bench.stream
      const cuda::DeviceLists picks{selected.as<int32_t>(), kTopk, counts.as<int32_t>()};
      const cuda::DeviceLists candidates{blocks.as<int32_t>(), 2048, block_counts.as<int32_t>()};
      const ConstFloatView queries(q.as<float>(), rows, kIndexHeads * kIndexWidth);
      const ConstFloatView head_weights(weights.as<float>(), rows, kIndexHeads);
      const auto* device = device_sequences.as<cuda::DeviceIndexSequence>();
      const double flops = 2.0 * static_cast<double>(rows * context) * kIndexHeads * kIndexWidth;
      const double bytes = static_cast<double>(rows * context * (key.total() + 4));
      const auto time = [&](const char* what, double moved, double done, const std::function<void()>& run) {
        const std::string name = std::string("index ") + what + ", " + std::to_string(context / 1024) + "k keys, " +
                                 std::to_string(rows) + " rows";
        if (bench.Wanted(name)) bench.Report(name, bench.Time(4, [&](int) { run(); }), moved, done);
      };
      const auto in_parts = [&] {
        cuda::SelectInParts(bench.stream, queries, head_weights, device, owners.as<int32_t>(), arguments, candidates,
                            picks, context, scratch.as<void>());
      };
      time("scores", bytes, flops, [&] {
        cuda::IndexScores(bench.stream, queries, head_weights, device, owners.as<int32_t>(), 0, rows, arguments, {},
                          scratch.as<float>(), context);
      });
      time("scores + select", bytes, flops, in_parts);
      arguments.publish = true;
      in_parts();  // the candidates of the next but one
      time("with candidates", bytes, flops, in_parts);
      arguments.publish = false;
      arguments.restrict_to_candidates = true;
      time("of candidates", 0, 0, in_parts);
      arguments.restrict_to_candidates = false;
      if (rows > 8) continue;
      time("scores + select, plain", bytes, 0, [&] {
        cuda::SelectRows(bench.stream, queries, head_weights, device, owners.as<int32_t>(), 0, rows, arguments,
                         candidates, picks, scratch.as<float>(), context, block_scores.as<float>());
      });
    }
  }
}

}  // namespace deepinfer::bench
