// The ops between the products: their times, and the share of the read bandwidth by the least they must move.
#include "cuda_bench.h"
#include "ops/cuda/exact_linear.h"
#include "ops/cuda/kernels.h"

namespace deepinfer::bench {
namespace {

constexpr int64_t kWidth = 5120;
constexpr int kStreams = 4;
constexpr int64_t kExperts = 384;
constexpr int kSets = 16;

std::string Name(const char* name, int64_t rows) { return std::string(name) + ", " + std::to_string(rows) + " rows"; }

}  // namespace

void BenchSmallOps(const Bench& bench) {
  const int64_t most = 4096;
  const DeviceRows x(bench, most, kWidth, 1, cuda::ColumnOrder::kFp8),
      streams(bench, most, kWidth * kStreams, 2, cuda::ColumnOrder::kFp8);
  Buffer out_buffer(most * kWidth * kStreams * 4), mix_buffer(most * 24 * 4), norm_buffer(kWidth * 4),
      fn_buffer(24 * kWidth * kStreams * 4), base_buffer(24 * 4), gate_buffer(kExperts * kWidth * 2),
      logits_buffer(most * kExperts * 4), picks(most * 6 * 4), weights_buffer(most * 6 * 4), squares(most * 4),
      terms_buffer(most * cuda::kExactTerms * kWidth * 2);
  FillFloats(bench.stream, norm_buffer.as<float>(), kWidth, 3);
  FillFloats(bench.stream, fn_buffer.as<float>(), 24 * kWidth * kStreams, 4);
  FillFloats(bench.stream, base_buffer.as<float>(), 24, 5);
  FillFloats(bench.stream, mix_buffer.as<float>(), most * 24, 6);
  FillBf16(bench.stream, gate_buffer.as<void>(), kExperts * kWidth, 7);
  const WeightVector norm{norm_buffer.as<uint8_t>(), false, kWidth};
  const WeightVector base{base_buffer.as<uint8_t>(), false, 24};
  const WeightVector bias{norm_buffer.as<uint8_t>(), false, kExperts};
  const WeightMatrix fn{fn_buffer.as<uint8_t>(), nullptr, WeightFormat::kF32, 24, kWidth * kStreams};
  const WeightMatrix gate{gate_buffer.as<uint8_t>(), nullptr, WeightFormat::kBF16, kExperts, kWidth};
  for (const int64_t rows : {1, 64, 4096}) {
    const bool few = rows <= 64;  // as CudaOps decides
    const FloatView out(out_buffer.as<float>(), rows, kWidth);
    const FloatView wide(out_buffer.as<float>(), rows, kWidth * kStreams);
    const FloatView mix(mix_buffer.as<float>(), rows, 24);
    const ConstFloatView in = x.view.RowRange(0, rows), many = streams.view.RowRange(0, rows);
    const double row_bytes = static_cast<double>(rows * kWidth * 4);
    const auto time = [&](const char* name, double bytes, const std::function<void()>& run) {
      if (!bench.Wanted(name)) return;
      bench.Report(Name(name, rows), bench.Time(kSets, [&](int) { run(); }), bytes, 0);
    };
    time("rms norm + quantise 5120", row_bytes * 3.5, [&] {
      cuda::RmsNorm(bench.stream, in, norm, 1e-20f, out, {});
      cuda::QuantiseRows(bench.stream, out, cuda::ColumnOrder::kFp8, x.quantised);
    });
    time("mix streams (projection, Sinkhorn)", 4 * row_bytes + 24 * kWidth * kStreams * 4.0, [&] {
      if (few) {
        cuda::LinearAndSquares(bench.stream, many, fn, mix, squares.as<float>());
      } else {
        cuda::LinearAndSquaresOfMany(bench.stream, many, fn, mix, squares.as<float>());
      }
      cuda::FinishMix(bench.stream, many, squares.as<float>(), kStreams, base, base, 20, 1e-6f, 1e-20f, mix);
    });
    time("collapse + norm", 5 * row_bytes,
         [&] { cuda::CollapseNorm(bench.stream, many, kStreams, mix, norm, 1e-20f, out, {}, {}); });
    time("spread streams", 9 * row_bytes, [&] { cuda::SpreadStreams(bench.stream, in, mix, kStreams, wide); });
    time("router (gate, top-6)", row_bytes + kExperts * kWidth * 2.0, [&] {
      const FloatView logits(logits_buffer.as<float>(), rows, kExperts);
      const cuda::Bf16Rows terms{terms_buffer.as<uint16_t>(), kWidth};
      cuda::SplitRows(bench.stream, in, cuda::ColumnOrder::kPlain, terms);
      cuda::Bf16Linear(bench.stream, terms, rows, gate, logits);
      cuda::FinishRoute(bench.stream, logits, bias, true, 1.5f, picks.as<int32_t>(), 6, 6,
                        {weights_buffer.as<float>(), rows, 6});
    });
  }
}

}  // namespace deepinfer::bench
