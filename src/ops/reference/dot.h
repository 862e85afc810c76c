// Dot: the canonical dot product (ops/dot_order.h) with this machine's fused multiply-add instruction when it has one.
// The C library's software fma gives the same bits, many times slower.
//
// Thread-safety: pure function.
#ifndef DEEPINFER_OPS_REFERENCE_DOT_H_
#define DEEPINFER_OPS_REFERENCE_DOT_H_

#include <cstdint>

namespace deepinfer::reference {

/// values, x [columns]; scales [ceil(columns / 32)] or null for 1.
float Dot(const float* values, const float* scales, const float* x, int64_t columns);

}  // namespace deepinfer::reference

#endif  // DEEPINFER_OPS_REFERENCE_DOT_H_
