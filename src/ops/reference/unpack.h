// Unpack: stored weights and packed KV rows as plain floats, exactly.
//
// Every stored format (BF16, E4M3, E2M1, times a power of two or an E4M3 scale) has few enough bits that F32 holds the
// product without rounding (spec c.13). Thread-safety: pure functions. Ownership: outputs are the caller's.
#ifndef DEEPINFER_OPS_REFERENCE_UNPACK_H_
#define DEEPINFER_OPS_REFERENCE_UNPACK_H_

#include <cstdint>
#include <vector>

#include "base/weight_matrix.h"
#include "ops/packed_rows.h"

namespace deepinfer::reference {

/// All values of a stored vector.
std::vector<float> UnpackVector(const WeightVector& vector);

/// Values of one weight row before their block scales: out [weight.columns].
void UnpackUnscaledRow(const WeightMatrix& weight, int64_t row, float* out);

/// Block scales of one weight row, one per 32 columns: out [weight.columns / 32]. Formats with scales only.
void UnpackScaleRow(const WeightMatrix& weight, int64_t row, float* out);

/// One weight row with its scales applied: out [weight.columns].
void UnpackWeightRow(const WeightMatrix& weight, int64_t row, float* out);

/// One packed KV row: out [rows.channels].
void UnpackRow(const PackedRows& rows, int64_t row, float* out);

}  // namespace deepinfer::reference

#endif  // DEEPINFER_OPS_REFERENCE_UNPACK_H_
