#include "ops/cpu/linear.h"

#include <algorithm>
#include <atomic>
#include <cassert>

#include "ops/cpu/linear_kernels.h"
#include "ops/cpu/linear_limits.h"

namespace deepinfer::cpu {
namespace {

std::atomic<Bf16Pairs> g_use_bf16_pairs{Bf16Pairs::kWhereFast};

// Zen multiplies twice as fast with VDPBF16PS as in F32. Intel's cores spend four slots of their two vector ports on it
// and one on each of the two F32 multiply-adds that it replaces.
bool Bf16PairsAreFast() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") == 0;
#else
  return false;
#endif
}

}  // namespace

Status LinearScratch::Reserve(const ScratchLimits& limits, int workers) {
  const int64_t columns = PaddedColumns(limits.columns);
  if (!ordered.Allocate(std::min(std::max<int64_t>(limits.rows, 1), kRowBlock) * columns) ||
      !panels.Allocate(workers * kPanelFloats) || !accumulators.Allocate(workers * kAccumulatorFloats)) {
    return Status::ResourceExhausted("no memory for the linear kernels' scratch");
  }
  return Status::Ok();
}

bool HasBf16Pairs() {
#if defined(__x86_64__)
  return kBf16PairsCompiled && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

void UseBf16Pairs(Bf16Pairs use) { g_use_bf16_pairs.store(use); }

LinearPath ChooseLinearPath(WeightFormat format, ActivationFormat activation) {
  const bool small = format == WeightFormat::kF8Block32 || format == WeightFormat::kF4Row32;
  if (!small || activation != ActivationFormat::kFp8Groups32 || !HasBf16Pairs()) return LinearPath::kF32;
  const Bf16Pairs use = g_use_bf16_pairs.load();
  const bool pairs = use == Bf16Pairs::kAlways || (use == Bf16Pairs::kWhereFast && Bf16PairsAreFast());
  return pairs ? LinearPath::kBf16Pairs : LinearPath::kF32;
}

void OrderActivations(const float* x, int64_t columns, ActivationFormat activation, LinearPath path, void* ordered) {
  if (path == LinearPath::kBf16Pairs) {
    OrderRowBf16(x, columns, static_cast<uint16_t*>(ordered));
  } else {
    OrderRowF32(x, columns, activation == ActivationFormat::kFp8Groups32, static_cast<float*>(ordered));
  }
}

void RunLinearSlice(const LinearSlice& slice, LinearPath path) {
  if (slice.begin >= slice.end || slice.rows == 0) return;
  const bool stream = slice.rows <= kStreamRows;
  if (path == LinearPath::kBf16Pairs) {
    stream ? StreamSliceBf16(slice) : BlockSliceBf16(slice);
  } else {
    stream ? StreamSliceF32(slice) : BlockSliceF32(slice);
  }
}

void Linear(ThreadPool& pool, LinearScratch& scratch, ConstFloatView x, const WeightMatrix& weight,
            ActivationFormat activation, int groups, FloatView out) {
  if (x.rows == 0) return;
  if (weight.format == WeightFormat::kF32 || weight.format == WeightFormat::kBF16)
    activation = ActivationFormat::kExact;
  const LinearPath path = ChooseLinearPath(weight.format, activation);
  const int64_t padded = PaddedColumns(weight.columns);
  const int64_t stride = padded * groups;
  const int64_t element = path == LinearPath::kBf16Pairs ? 2 : 4;
  const int64_t group_rows = weight.rows / groups;
  assert(x.columns == weight.columns * groups && group_rows * groups == weight.rows);
  assert(std::min(x.rows, kRowBlock) * stride <= scratch.ordered.size());
  uint8_t* ordered = reinterpret_cast<uint8_t*>(scratch.ordered.data());

  const int64_t grain = x.rows <= kStreamRows ? 1 : kPanelRows;
  const bool small = x.rows * weight.rows * weight.columns < 1 << 15;
  for (int64_t first = 0; first < x.rows; first += kRowBlock) {
    const int64_t rows = std::min(kRowBlock, x.rows - first);
    const auto order = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / groups;
        const int64_t group = i % groups;
        OrderActivations(x.row(first + row) + group * weight.columns, weight.columns, activation, path,
                         ordered + (row * stride + group * padded) * element);
      }
    };
    const auto multiply = [&](int worker, int64_t begin, int64_t end) {
      while (begin < end) {  // one group of outputs after the other
        const int64_t group = begin / group_rows;
        const int64_t stop = std::min(end, (group + 1) * group_rows);
        RunLinearSlice({.x = ordered + group * padded * element,
                        .x_stride = stride,
                        .rows = rows,
                        .weight = weight,
                        .begin = begin,
                        .end = stop,
                        .out = out.row(first),
                        .out_stride = out.stride,
                        .panel = scratch.panels.data() + worker * kPanelFloats,
                        .accumulators = scratch.accumulators.data() + worker * kAccumulatorFloats},
                       path);
        begin = stop;
      }
    };
    if (small) {
      order(0, rows * groups);
      multiply(0, 0, weight.rows);
      continue;
    }
    if (rows * stride < 1 << 14) {
      order(0, rows * groups);
    } else {
      ParallelRange(pool, rows * groups, 1, order);
    }
    pool.Run([&](int worker) {
      const StaticRange range = SplitRange(weight.rows, worker, pool.workers(), grain);
      multiply(worker, range.begin, range.end);
    });
  }
}

}  // namespace deepinfer::cpu
