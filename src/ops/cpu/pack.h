// Pack: rows of activations to and between the quantised KV formats (spec c.7). Contracts: ops/ops.h.
//
// Both run on the calling thread: a row takes a tenth of a microsecond, and a destination that occurs twice (a ring
// that wraps within one step) keeps the later row. Thread-safety: pure functions. Ownership: views only.
#ifndef DEEPINFER_OPS_CPU_PACK_H_
#define DEEPINFER_OPS_CPU_PACK_H_

#include "ops/ops.h"

namespace deepinfer::cpu {

void StoreRows(ConstFloatView x, const PackedRows& rows, std::span<const int64_t> destination);
void CopyRows(const PackedRows& from, std::span<const int64_t> source, const PackedRows& to,
              std::span<const int64_t> destination);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_PACK_H_
