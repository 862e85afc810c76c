// Times attention and index scoring against the F32 multiply-add peak of this machine, measured in the same run. Index
// scores are integer work, so their share of that peak may pass 100 %. Usage: attention_bench [threads]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "ops/cpu/attention.h"
#include "ops/cpu/index.h"
#include "ops/cpu/machine_limits.h"

namespace deepinfer {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <typename Body>
double BestSeconds(const Body& body) {
  double best = 1e9;
  for (int repeat = 0; repeat < 7; ++repeat) {
    const double start = Now();
    body();
    best = std::min(best, Now() - start);
  }
  return best;
}

// Packed rows with random values and moderate scales.
struct Rows {
  Rows(RowFormat format, int32_t channels, int64_t count, int32_t rows_per_page, uint64_t seed) {
    const int64_t page_bytes = PackedRowBytes(format, channels).total() * rows_per_page;
    const int64_t page_count = (count + rows_per_page - 1) / rows_per_page;
    memory.resize(static_cast<size_t>(page_bytes * page_count));
    std::mt19937_64 random(seed);
    for (uint8_t& byte : memory)
      byte = static_cast<uint8_t>(random()) & (format == RowFormat::kWindowFp8 ? 0xb7 : 0xff);
    for (int64_t p = 0; p < page_count; ++p) pages.push_back(memory.data() + p * page_bytes);
    view = {pages.data(), rows_per_page, format, channels};
    const RowBytes bytes = PackedRowBytes(format, channels);
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t i = 0; i < bytes.scales; ++i) {
        view.scales(row)[i] =
            static_cast<uint8_t>(format == RowFormat::kCompressedFp4 ? 40 + random() % 16 : 124 + random() % 3);
      }
    }
  }

  std::vector<uint8_t> memory;
  std::vector<uint8_t*> pages;
  PackedRows view;
};

std::vector<float> Normal(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

void Report(const char* name, double seconds, double flops, double peak) {
  std::printf("%-44s %9.1f us  %8.1f GFLOP/s  %5.1f %% of FMA peak\n", name, seconds * 1e6, flops / seconds / 1e9,
              100 * flops / seconds / peak);
}

bool BenchAttention(ThreadPool& pool, int64_t tokens, int heads, double peak) {
  constexpr int32_t kWidth = 512;
  constexpr int kWindow = 128;
  constexpr int32_t kTopk = 512;
  constexpr int64_t kFirst = 20000;
  const Rows ring(RowFormat::kWindowFp8, kWidth, 160, 16, 1);
  const Rows fresh(RowFormat::kWindowFp8, kWidth, tokens, 16, 2);
  const Rows compressed(RowFormat::kCompressedFp4, kWidth, kFirst, 64, 3);
  std::vector<int32_t> picks(static_cast<size_t>(tokens * kTopk));
  std::vector<int32_t> counts(static_cast<size_t>(tokens), kTopk);
  std::mt19937_64 random(4);
  for (int64_t t = 0; t < tokens; ++t) {
    int32_t row = 0;
    for (int32_t i = 0; i < kTopk; ++i) picks[static_cast<size_t>(t * kTopk + i)] = row += 1 + random() % 38;
  }
  const std::vector<float> q = Normal(tokens * heads * kWidth, 5);
  const std::vector<float> sink = Normal(heads, 6);
  std::vector<float> out(q.size());
  cpu::AttentionScratch scratch;
  if (!scratch.Reserve({.heads = heads, .head_width = kWidth, .attended_rows = kWindow + kTopk}, pool.workers()).ok()) {
    return false;
  }
  AttentionSequence sequence;
  sequence.row_count = static_cast<int32_t>(tokens);
  sequence.first_position = kFirst;
  sequence.ring = ring.view;
  sequence.ring_slots = 160;
  sequence.fresh = fresh.view;
  sequence.compressed = compressed.view;
  const SelectedRows selected{{picks.data(), tokens, kTopk}, counts.data()};
  const WeightVector sinks{reinterpret_cast<const uint8_t*>(sink.data()), false, heads};
  const double seconds = BestSeconds([&] {
    cpu::Attention(pool, scratch, {q.data(), tokens, heads * kWidth}, heads, {&sequence, 1}, kWindow, selected, sinks,
                   0.0442f, {out.data(), tokens, heads * kWidth});
  });
  char name[64];
  std::snprintf(name, sizeof(name), "attention T=%ld H=%d Dh=512 keys=128+512", static_cast<long>(tokens), heads);
  Report(name, seconds, 4.0 * static_cast<double>(tokens * heads * kWidth * (kWindow + kTopk)), peak);
  return true;
}

bool BenchIndex(ThreadPool& pool, int64_t tokens, int64_t keys, bool restricted, double peak) {
  constexpr int32_t kHeads = 32;
  constexpr int32_t kWidth = 128;
  const IndexSettings settings{.heads = kHeads,
                               .head_width = kWidth,
                               .ratio = 1,
                               .topk = 512,
                               .block_size = 8,
                               .topk_blocks = 2048,
                               .publish_candidates = !restricted,
                               .restrict_to_candidates = restricted};
  const Rows rows(RowFormat::kIndexFp4, kWidth, keys, 64, 7);
  const std::vector<float> q = Normal(tokens * kHeads * kWidth, 8);
  const std::vector<float> weights = Normal(tokens * kHeads, 9);
  std::vector<int32_t> picks(static_cast<size_t>(tokens * settings.topk));
  std::vector<int32_t> counts(static_cast<size_t>(tokens));
  std::vector<int32_t> blocks(static_cast<size_t>(tokens * settings.topk_blocks));
  std::vector<int32_t> block_counts(static_cast<size_t>(tokens), restricted ? settings.topk_blocks : 0);
  for (int64_t i = 0; i < std::ssize(blocks); ++i) {
    blocks[static_cast<size_t>(i)] =
        static_cast<int32_t>(i % settings.topk_blocks * (keys / settings.block_size) / settings.topk_blocks);
  }
  cpu::IndexScratch scratch;
  const ScratchLimits limits{.heads = kHeads,
                             .head_width = kWidth,
                             .attended_rows = 640,
                             .index_rows = keys,
                             .candidate_blocks = settings.topk_blocks};
  if (!scratch.Reserve(limits, pool.workers()).ok()) return false;
  const IndexSequence sequence{0, static_cast<int32_t>(tokens), keys - tokens, rows.view};
  const double seconds = BestSeconds([&] {
    cpu::SelectRows(pool, scratch, {q.data(), tokens, kHeads * kWidth}, {weights.data(), tokens, kHeads},
                    {&sequence, 1}, settings, {{blocks.data(), tokens, settings.topk_blocks}, block_counts.data()},
                    {{picks.data(), tokens, settings.topk}, counts.data()});
  });
  const int64_t scored = restricted ? std::min<int64_t>(keys, 2048 * 8) : keys;
  char name[64];
  std::snprintf(name, sizeof(name), "index T=%ld Hi=32 Di=128 keys=%ld%s", static_cast<long>(tokens),
                static_cast<long>(keys), restricted ? " restricted" : "");
  Report(name, seconds, 2.0 * static_cast<double>(tokens * scored * kHeads * kWidth), peak);
  return true;
}

int Main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency());
  ThreadPool pool(threads);
  const auto measured = cpu::MeasureMachineLimits(pool, 1.0, int64_t{256} << 20);
  if (!measured.ok()) return 1;
  const double peak = measured.value().fma_flops_per_second;
  std::printf("threads %d, FMA peak %.1f GFLOP/s\n", threads, peak / 1e9);
  bool ok = true;
  for (const int heads : {64, 32, 16, 4}) {
    for (const int64_t tokens : {64, 4, 1}) ok = ok && BenchAttention(pool, tokens, heads, peak);
  }
  for (const bool restricted : {false, true}) {
    ok = ok && BenchIndex(pool, 64, 4096, restricted, peak) && BenchIndex(pool, 16, 65536, restricted, peak) &&
         BenchIndex(pool, 1, 65536, restricted, peak) && BenchIndex(pool, 1, 1 << 20, restricted, peak);
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) { return deepinfer::Main(argc, argv); }
