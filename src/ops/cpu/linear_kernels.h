// The linear kernels of every Highway target, reached through dynamic dispatch; linear.cc is their only caller.
//
// Thread-safety: pure functions over a slice that one worker owns.
#ifndef DEEPINFER_OPS_CPU_LINEAR_KERNELS_H_
#define DEEPINFER_OPS_CPU_LINEAR_KERNELS_H_

#include "ops/cpu/linear.h"

namespace deepinfer::cpu {

/// F32 in dot order; through FP8 groups first when `quantise`.
void OrderRowF32(const float* x, int64_t columns, bool quantise, float* ordered);

/// Few rows: weights decoded in registers. slice.rows <= kStreamRows.
void StreamSliceF32(const LinearSlice& slice);

/// Many rows: decoded panels. slice.rows <= kRowBlock.
void BlockSliceF32(const LinearSlice& slice);

/// AVX512_BF16 and VBMI versions; only when HasBf16Pairs(): compiled in, and this CPU has what they were compiled for.
bool HasBf16Pairs();
extern const bool kBf16PairsCompiled;
void OrderRowBf16(const float* x, int64_t columns, uint16_t* ordered);
void StreamSliceBf16(const LinearSlice& slice);
void BlockSliceBf16(const LinearSlice& slice);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_LINEAR_KERNELS_H_
