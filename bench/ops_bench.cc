// Times the row ops of the CPU backend on released widths: time, bytes moved per second, and their share of the memory
// read bandwidth that the same threads reach in the same run. One row (decode) stays in the caches, so its share may
// exceed 1; 256 rows come from memory.
//
// Usage: ops_bench [--threads=N] [Google Benchmark flags]; rows are the argument after the slash.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/dtype.h"
#include "ops/cpu/engram.h"
#include "ops/cpu/machine_limits.h"
#include "ops/cpu/pack.h"
#include "ops/cpu/rope.h"
#include "ops/cpu/route.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/streams.h"

namespace deepinfer {
namespace {

constexpr int64_t kWidth = 5120;
constexpr int kStreams = 4;
constexpr int kHeads = 64;
constexpr int64_t kHeadWidth = 512;
constexpr int64_t kRotary = 64;
constexpr int64_t kExperts = 384;
constexpr int64_t kPicks = 6;
constexpr int64_t kInner = 2304;

ThreadPool* g_pool = nullptr;
double g_read_bytes_per_second = 0;

// Rows of normal values.
struct Rows {
  Rows(int64_t rows, int64_t columns)
      : values(static_cast<size_t>(rows * columns)), view(values.data(), rows, columns) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> some(1021);
    for (float& value : some) value = normal(random);
    for (size_t i = 0; i < values.size(); ++i) values[i] = some[i % some.size()];
  }
  std::vector<float> values;
  FloatView view;
};

struct Bf16Vector {
  explicit Bf16Vector(int64_t size) : values(static_cast<size_t>(size), FloatToBf16(0.75f)) {}
  operator WeightVector() const {  // NOLINT: implicit on purpose
    return {reinterpret_cast<const uint8_t*>(values.data()), true, static_cast<int64_t>(values.size())};
  }
  std::vector<uint16_t> values;
};

WeightVector F32Vector(const std::vector<float>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), false, static_cast<int64_t>(values.size())};
}

// Runs `op` and reports the rate of `bytes`, its least traffic, and that rate's share of the read bandwidth.
template <typename Op>
void Run(benchmark::State& state, int64_t bytes, const Op& op) {
  op();
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) op();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const double rate = static_cast<double>(bytes) * static_cast<double>(state.iterations()) / elapsed.count();
  state.counters["GB/s"] = rate / 1e9;
  state.counters["of_read"] = rate / g_read_bytes_per_second;
}

void Embed(benchmark::State& state) {
  const int64_t rows = state.range(0);
  std::vector<uint16_t> table(static_cast<size_t>(1000 * kWidth), 0x3f80);
  const WeightMatrix weight{reinterpret_cast<const uint8_t*>(table.data()), nullptr, WeightFormat::kBF16, 1000, kWidth};
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < rows; ++t) ids.push_back(static_cast<int32_t>(t * 373 % 1000));
  Rows out(rows, kWidth);
  Run(state, rows * kWidth * 6, [&] { cpu::Embed(*g_pool, weight, ids, out.view); });
}

void RmsNorm(benchmark::State& state) {
  const int64_t rows = state.range(0);
  Rows x(rows, kWidth), out(rows, kWidth);
  const Bf16Vector weight(kWidth);
  Run(state, rows * kWidth * 8, [&] { cpu::RmsNorm(*g_pool, x.view, weight, 1e-20f, out.view); });
}

void RopeTable(benchmark::State& state) {
  const int64_t rows = state.range(0);
  std::vector<int64_t> positions;
  for (int64_t t = 0; t < rows; ++t) positions.push_back(100000 + t);
  const std::vector<float> frequencies(kRotary / 2, 0.37f);
  Rows out(rows, kRotary);
  Run(state, rows * kRotary * 4, [&] { cpu::RopeTable(*g_pool, positions, frequencies, out.view); });
}

void Rope(benchmark::State& state) {
  const int64_t rows = state.range(0);
  Rows x(rows, kHeads * kHeadWidth);
  Rows cos_sin(rows, kRotary);
  std::fill(cos_sin.values.begin(), cos_sin.values.end(), 0.70710678f);  // keeps the values' size
  Run(state, rows * kHeads * kRotary * 8, [&] { cpu::Rope(*g_pool, x.view, kHeads, cos_sin.view, false); });
}

void MixStreams(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const int64_t outputs = (2 + kStreams) * kStreams;
  Rows streams(rows, kStreams * kWidth), out(rows, outputs);
  Rows fn(outputs, kStreams * kWidth);
  const WeightMatrix weight{reinterpret_cast<const uint8_t*>(fn.values.data()), nullptr, WeightFormat::kF32, outputs,
                            kStreams * kWidth};
  const std::vector<float> base(static_cast<size_t>(outputs), 0.5f), scale(3, 0.1f);
  cpu::LinearScratch scratch;
  if (!scratch.Reserve({.rows = rows, .columns = kStreams * kWidth}, g_pool->workers()).ok()) std::abort();
  Run(state, weight.total_bytes() + rows * kStreams * kWidth * 4, [&] {
    cpu::MixStreams(*g_pool, scratch, streams.view, kStreams, weight, F32Vector(base), F32Vector(scale), 20, 1e-6f,
                    1e-20f, out.view);
  });
}

void CollapseNorm(benchmark::State& state) {
  const int64_t rows = state.range(0);
  Rows streams(rows, kStreams * kWidth), pre(rows, kStreams), normed(rows, kWidth);
  const Bf16Vector weight(kWidth);
  Run(state, rows * (kStreams + 1) * kWidth * 4,
      [&] { cpu::CollapseNorm(*g_pool, streams.view, kStreams, pre.view, weight, 1e-20f, normed.view, {}); });
}

void SpreadStreams(benchmark::State& state) {
  const int64_t rows = state.range(0);
  Rows streams(rows, kStreams * kWidth), y(rows, kWidth), mix(rows, (2 + kStreams) * kStreams);
  std::fill(mix.values.begin(), mix.values.end(), 0.2f);  // below 1 / n: keeps the values' size
  Run(state, rows * (2 * kStreams + 1) * kWidth * 4,
      [&] { cpu::SpreadStreams(*g_pool, y.view, mix.view, kStreams, streams.view); });
}

void MeanStreams(benchmark::State& state) {
  const int64_t rows = state.range(0);
  Rows streams(rows, kStreams * kWidth), out(rows, kWidth);
  Run(state, rows * (kStreams + 1) * kWidth * 4, [&] { cpu::MeanStreams(*g_pool, streams.view, kStreams, out.view); });
}

void StoreRows(benchmark::State& state, RowFormat format, int32_t channels) {
  const int64_t rows = state.range(0);
  Rows x(rows, channels);
  const int64_t row_bytes = PackedRowBytes(format, channels).total();
  std::vector<uint8_t> page(static_cast<size_t>(rows * row_bytes));
  uint8_t* pages[1] = {page.data()};
  const PackedRows packed{pages, static_cast<int32_t>(rows), format, channels};
  std::vector<int64_t> destination;
  for (int64_t t = 0; t < rows; ++t) destination.push_back(t);
  Run(state, rows * (channels * 4 + row_bytes), [&] { cpu::StoreRows(x.view, packed, destination); });
}

void Route(benchmark::State& state) {
  const int64_t rows = state.range(0);
  Rows x(rows, kWidth), weights(rows, kPicks);
  std::vector<uint16_t> gate;
  std::mt19937 random(2);
  for (int64_t i = 0; i < kExperts * kWidth; ++i) gate.push_back(static_cast<uint16_t>(0x3c00 + random() % 0x80));
  const WeightMatrix weight{reinterpret_cast<const uint8_t*>(gate.data()), nullptr, WeightFormat::kBF16, kExperts,
                            kWidth};
  const std::vector<float> bias(kExperts, 0.1f);
  std::vector<int32_t> picks(static_cast<size_t>(rows * kPicks));
  cpu::LinearScratch linear;
  cpu::RouteScratch scratch;
  const ScratchLimits limits{.rows = rows, .columns = kWidth, .experts = kExperts};
  if (!linear.Reserve(limits, g_pool->workers()).ok() || !scratch.Reserve(limits).ok()) std::abort();
  Run(state, weight.total_bytes() + rows * kWidth * 4, [&] {
    cpu::Route(*g_pool, linear, scratch, x.view, weight, F32Vector(bias), true, 1.5f, {picks.data(), rows, kPicks},
               weights.view);
  });
}

void SwiGlu(benchmark::State& state) {
  const int64_t rows = state.range(0);
  Rows gate(rows, kInner), up(rows, kInner), hidden(rows, kInner);
  Run(state, rows * kInner * 12, [&] { cpu::SwiGlu(*g_pool, gate.view, up.view, 10.0f, hidden.view); });
}

void Add(benchmark::State& state) {
  const int64_t rows = state.range(0);
  Rows y(rows, kWidth), out(rows, kWidth);
  std::fill(y.values.begin(), y.values.end(), 0.0f);
  Run(state, rows * kWidth * 12, [&] { cpu::Add(*g_pool, y.view, out.view); });
}

void GatherRows(benchmark::State& state) {
  const int64_t rows = state.range(0);
  constexpr int64_t kColumns = 24, kTableRows = 1 << 20, kTableWidth = 256;
  std::vector<uint8_t> values(static_cast<size_t>(kTableRows * kTableWidth), 0x39);
  std::vector<uint8_t> scales(static_cast<size_t>(kTableRows * kTableWidth / 32), 127);
  const WeightMatrix table{values.data(), scales.data(), WeightFormat::kF8Row32, kTableRows, kTableWidth};
  std::mt19937 random(3);
  std::vector<int64_t> index(static_cast<size_t>(rows * kColumns));
  Rows out(rows, kColumns * kTableWidth);
  for (int64_t& row : index) row = static_cast<int64_t>(random() % kTableRows);
  const int64_t moved = rows * kColumns * (kTableWidth * 5 + kTableWidth / 32);
  Run(state, moved, [&] {
    // Other rows each time, by a cheap full-period step, so that they come from memory as in a real table.
    for (int64_t& row : index) row = (row * 5 + 12345) % kTableRows;
    cpu::GatherRows(*g_pool, table, {index.data(), rows, kColumns}, out.view);
  });
}

void EngramInject(benchmark::State& state) {
  const int64_t rows = state.range(0);
  Rows streams(rows, kStreams * kWidth), kv(rows, (kStreams + 1) * kWidth);
  const Bf16Vector q(kStreams * kWidth), k(kStreams * kWidth);
  Run(state, (rows * (3 * kStreams + 1) * 4 + 2 * kStreams * 2) * kWidth,
      [&] { cpu::EngramInject(*g_pool, kv.view, q, k, kStreams, 1e-20f, streams.view); });
}

void OneAndMany(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(1)->Arg(6)->Arg(256)->UseRealTime()->MinTime(0.1)->Unit(benchmark::kMicrosecond);
}

BENCHMARK(Embed)->Apply(OneAndMany);
BENCHMARK(RmsNorm)->Apply(OneAndMany);
BENCHMARK(RopeTable)->Apply(OneAndMany);
BENCHMARK(Rope)->Apply(OneAndMany);
BENCHMARK(MixStreams)->Apply(OneAndMany);
BENCHMARK(CollapseNorm)->Apply(OneAndMany);
BENCHMARK(SpreadStreams)->Apply(OneAndMany);
BENCHMARK(MeanStreams)->Apply(OneAndMany);
BENCHMARK_CAPTURE(StoreRows, window, RowFormat::kWindowFp8, 512)->Apply(OneAndMany);
BENCHMARK_CAPTURE(StoreRows, compressed, RowFormat::kCompressedFp4, 512)->Apply(OneAndMany);
BENCHMARK_CAPTURE(StoreRows, index, RowFormat::kIndexFp4, 128)->Apply(OneAndMany);
BENCHMARK(Route)->Apply(OneAndMany);
BENCHMARK(SwiGlu)->Apply(OneAndMany);
BENCHMARK(Add)->Apply(OneAndMany);
BENCHMARK(GatherRows)->Apply(OneAndMany);
BENCHMARK(EngramInject)->Apply(OneAndMany);

int Main(int argc, char** argv) {
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--threads=", 10) == 0) {
      threads = std::atoi(argv[i] + 10);
      std::copy(argv + i + 1, argv + argc, argv + i);
      --argc;
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  ThreadPool pool(threads);
  g_pool = &pool;
  const auto limits = cpu::MeasureMachineLimits(pool, 1.0);
  if (!limits.ok()) {
    std::fprintf(stderr, "%s\n", limits.status().message().c_str());
    return 1;
  }
  g_read_bytes_per_second = limits->read_bytes_per_second;
  std::fprintf(stderr, "threads %d, memory read %.1f GB/s\n", pool.workers(), g_read_bytes_per_second / 1e9);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) { return deepinfer::Main(argc, argv); }
