// Linear products over weights in their released formats: one dot product for decode and prefill.
//
// The canonical dot product (ops/dot_order.h) is computed by three kernels that round alike:
//  * stream  few activation rows: weights are decoded in registers, once, at memory speed;
//  * block   many rows: a panel of weight rows is decoded once for 128 activation rows, then a register tile runs;
//  * avx512bf16_*  the same two with BF16 pair products where both operands are exact in BF16 (FP8 activations in front
//    of FP8 or FP4 weights) and the CPU has AVX512_BF16 and VBMI and is faster with them than in F32. VDPBF16PS is two
//    fused multiply-adds in sequence, the odd element first, so its bits equal the F32 kernels'.
//
// Thread-safety: one caller at a time per scratch. Ownership: LinearScratch owns its buffers.
#ifndef DEEPINFER_OPS_CPU_LINEAR_H_
#define DEEPINFER_OPS_CPU_LINEAR_H_

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "ops/ops.h"

namespace deepinfer::cpu {

/// Activation rows that share one decoded weight panel.
inline constexpr int64_t kRowBlock = 128;
/// Up to this many activation rows the stream kernel runs.
inline constexpr int64_t kStreamRows = 8;
/// Columns of a dot-order chunk; ordered rows are padded to whole chunks.
inline constexpr int64_t kChunk = 128;

inline constexpr int64_t PaddedColumns(int64_t columns) { return (columns + kChunk - 1) / kChunk * kChunk; }

struct LinearScratch {
  Status Reserve(const ScratchLimits& limits, int workers);
  int64_t bytes() const { return ordered.bytes() + panels.bytes() + accumulators.bytes(); }

  AlignedBuffer<float> ordered;       // [kRowBlock, PaddedColumns(columns)] activations in dot order
  AlignedBuffer<float> panels;        // [workers, kPanelFloats] decoded weights
  AlignedBuffer<float> accumulators;  // [workers, kAccumulatorFloats] 16-lane sums between column blocks
};

/// One worker's share of a product: weight rows begin..end against `rows` ordered activation rows.
struct LinearSlice {
  const void* x = nullptr;  ///< [rows, x_stride] ordered activations, F32 or BF16 as the kernel asks
  int64_t x_stride = 0;     ///< elements
  int64_t rows = 0;
  WeightMatrix weight;
  int64_t begin = 0;
  int64_t end = 0;
  float* out = nullptr;  ///< out[row * out_stride + weight row]
  int64_t out_stride = 0;
  float* panel = nullptr;
  float* accumulators = nullptr;
};

/// Which kernels a product runs on.
enum class LinearPath : uint8_t { kF32, kBf16Pairs };

/// kBf16Pairs when operands are exact in BF16 and this CPU has the instructions and is fast at them.
LinearPath ChooseLinearPath(WeightFormat format, ActivationFormat activation);

/// Puts one row into dot order, through FP8 when `activation` asks. `ordered` receives PaddedColumns(columns) elements:
/// F32, or BF16 for kBf16Pairs.
void OrderActivations(const float* x, int64_t columns, ActivationFormat activation, LinearPath path, void* ordered);

/// Runs one slice on the calling thread.
void RunLinearSlice(const LinearSlice& slice, LinearPath path);

/// Ops::Linear.
void Linear(ThreadPool& pool, LinearScratch& scratch, ConstFloatView x, const WeightMatrix& weight,
            ActivationFormat activation, int groups, FloatView out);

/// Where the AVX512_BF16 kernels run, given a CPU that has the instructions. For tests and benchmarks; the bits are the
/// same.
enum class Bf16Pairs : uint8_t { kWhereFast, kAlways, kNever };
void UseBf16Pairs(Bf16Pairs use);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_LINEAR_H_
