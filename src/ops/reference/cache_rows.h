// Cache rows: writing the packed KV rows and pooling what goes into them (spec c.6, c.7). Contracts: ops/ops.h.
//
// Thread-safety: pure functions.
#ifndef DEEPINFER_OPS_REFERENCE_CACHE_ROWS_H_
#define DEEPINFER_OPS_REFERENCE_CACHE_ROWS_H_

#include "ops/ops.h"

namespace deepinfer::reference {

void StoreRows(ConstFloatView x, const PackedRows& rows, std::span<const int64_t> destination);
void CopyRows(const PackedRows& from, std::span<const int64_t> source, const PackedRows& to,
              std::span<const int64_t> destination);
void PoolPairs(std::span<const float* const> first, std::span<const float* const> second, FloatView out);

}  // namespace deepinfer::reference

#endif  // DEEPINFER_OPS_REFERENCE_CACHE_ROWS_H_
