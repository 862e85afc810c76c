// Times the linear op against the limits of this machine, measured in the same run: memory reads for one activation
// row, F32 multiply-adds for many. Usage: linear_bench [threads [part of a format's name [rows]]]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/dtype.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/machine_limits.h"

namespace deepinfer {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Case {
  const char* name;
  WeightFormat format;
  ActivationFormat activation;
};

int Main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency());
  ThreadPool pool(threads);
  auto measured = cpu::MeasureMachineLimits(pool, 2.0);
  if (!measured.ok()) return 1;
  const cpu::MachineLimits limits = *measured;
  std::printf("threads %d, read %.1f GB/s, FMA %.1f GFLOP/s\n", threads, limits.read_bytes_per_second / 1e9,
              limits.fma_flops_per_second / 1e9);
  const Case cases[] = {{"f8 official", WeightFormat::kF8Block32, ActivationFormat::kFp8Groups32},
                        {"f8 exact", WeightFormat::kF8Block32, ActivationFormat::kExact},
                        {"f4 official", WeightFormat::kF4Row32, ActivationFormat::kFp8Groups32},
                        {"f4 exact", WeightFormat::kF4Row32, ActivationFormat::kExact},
                        {"bf16", WeightFormat::kBF16, ActivationFormat::kExact},
                        {"f32", WeightFormat::kF32, ActivationFormat::kExact}};
  std::mt19937_64 random(1);
  const char* only = argc > 2 ? argv[2] : "";
  const int64_t only_rows = argc > 3 ? std::atoi(argv[3]) : 0;
  for (const Case& c : cases) {
    if (std::strstr(c.name, only) == nullptr) continue;
    const int64_t columns = 2560;
    WeightMatrix weight{.format = c.format, .rows = 1, .columns = columns};
    weight.rows = (int64_t{400} << 20) / weight.row_bytes() / 32 * 32;
    std::vector<uint8_t> data(static_cast<size_t>(weight.rows * weight.row_bytes()));
    std::vector<uint8_t> scale(static_cast<size_t>(weight.rows * columns / 32), 120);
    for (size_t i = 0; i + 8 <= data.size(); i += 8) {
      const uint64_t bits = random() & (c.format == WeightFormat::kF32         ? 0xbf7fffffbf7fffffull
                                        : c.format == WeightFormat::kBF16      ? 0xbf7fbf7fbf7fbf7full
                                        : c.format == WeightFormat::kF8Block32 ? 0xf7f7f7f7f7f7f7f7ull
                                                                               : ~0ull);
      std::memcpy(&data[i], &bits, 8);
    }
    weight.data = data.data();
    weight.scale = c.format == WeightFormat::kF32 || c.format == WeightFormat::kBF16 ? nullptr : scale.data();
    for (const int64_t rows : {1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 512}) {
      if (only_rows != 0 && rows != only_rows) continue;
      WeightMatrix part = rows <= 32 ? weight : weight.RowRange(0, 4096);
      std::vector<float> x(static_cast<size_t>(rows * columns));
      for (float& v : x) v = std::normal_distribution<float>()(random);
      std::vector<float> out(static_cast<size_t>(rows * part.rows));
      cpu::LinearScratch scratch;
      if (!scratch.Reserve({.rows = rows, .columns = columns}, threads).ok()) return 1;
      double best = 1e9;
      for (int repeat = 0; repeat < 8; ++repeat) {
        const double start = Now();
        cpu::Linear(pool, scratch, {x.data(), rows, columns}, part, c.activation, 1, {out.data(), rows, part.rows});
        best = std::min(best, Now() - start);
      }
      const double bytes = static_cast<double>(part.total_bytes());
      const double flops = 2.0 * static_cast<double>(rows * part.rows * columns);
      std::printf("%-12s rows %4ld: %7.1f GB/s (%5.1f %% of read)  %7.1f GFLOP/s (%5.1f %% of FMA peak)\n", c.name,
                  static_cast<long>(rows), bytes / best / 1e9, 100 * bytes / best / limits.read_bytes_per_second,
                  flops / best / 1e9, 100 * flops / best / limits.fma_flops_per_second);
    }
  }
  return 0;
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) { return deepinfer::Main(argc, argv); }
