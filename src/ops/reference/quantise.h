// Quantise: the three roundings of the model, each group by group (spec c.1, c.7).
//
//   FP8 groups of 32:  scale = 2^ceil(log2(max(amax, 1e-4) / 448)),    value = e4m3(x / scale)
//   FP4 groups of 32:  scale = 2^ceil(log2(max(amax, 6*2^-126) / 6)),  value = e2m1(x / scale)
//   FP4 groups of 16:  scale = e4m3(max(amax, 6*2^-9) / 6),            value = e2m1(x / scale), saturating
//
// The divisions by 448 and 6 in the power-of-two scales are multiplications by the F32 reciprocals, as in the
// official code. Thread-safety: pure functions. Ownership: outputs are the caller's.
#ifndef DEEPINFER_OPS_REFERENCE_QUANTISE_H_
#define DEEPINFER_OPS_REFERENCE_QUANTISE_H_

#include <cstdint>

#include "ops/packed_rows.h"

namespace deepinfer::reference {

/// The E8M0 byte of the FP8 scale of 32 values.
uint8_t Fp8ScaleByte(const float* x);

/// The E8M0 byte of the index FP4 scale of 32 values.
uint8_t IndexFp4ScaleByte(const float* x);

/// The E4M3 byte of the compressed FP4 scale of 16 values.
uint8_t CompressedFp4ScaleByte(const float* x);

/// What an FP8 or FP4 weight is multiplied with: x through E4M3 in groups of 32 (spec c.1). out may be x.
void QuantiseActivations(const float* x, int64_t columns, float* out);

/// An index query through E2M1 in groups of 32 (spec c.6). out may be x.
void QuantiseIndexQuery(const float* x, int64_t columns, float* out);

/// Stores x [rows.channels] as packed row `row`.
void PackRow(const float* x, const PackedRows& rows, int64_t row);

}  // namespace deepinfer::reference

#endif  // DEEPINFER_OPS_REFERENCE_QUANTISE_H_
