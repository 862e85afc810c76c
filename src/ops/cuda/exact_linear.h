// Tensor core products of activations that are not quantised (ActivationFormat::kExact).
//
// An F32 value is the sum of three BF16 terms of eight bits each, to the last bit or nearly, so a row becomes three
// rows whose products with the weight are exact and are added at the end: first plus second, plus third. Sums as the
// skinny products' (skinny.h): F32 accumulators of m16n8k16 within 128 columns, then F32 additions in an order that the
// weight's shape fixes. Thread-safety, ownership: as kernels.h.
#ifndef DEEPINFER_OPS_CUDA_EXACT_LINEAR_H_
#define DEEPINFER_OPS_CUDA_EXACT_LINEAR_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/tensor_view.h"
#include "base/weight_matrix.h"
#include "ops/cuda/row_forms.h"
#include "ops/cuda/skinny.h"

namespace deepinfer::cuda {

inline constexpr int kExactTerms = 3;

/// Rows 3 t .. 3 t + 2 of `out` [3 T, columns] are the terms of row t; columns a multiple of 32.
void SplitRows(cudaStream_t stream, ConstFloatView x, ColumnOrder order, const Bf16Rows& out);

/// out.row(t) = (terms.row(3 t) + terms.row(3 t + 1)) + terms.row(3 t + 2); and out in these forms.
void JoinTerms(cudaStream_t stream, ConstFloatView terms, FloatView out, const RowForms& forms);

/// Whether Bf16Linear takes this weight: kBF16, columns a multiple of 64, rows of 16; its bytes at a multiple of 16.
bool Bf16LinearFits(const WeightMatrix& weight, int groups);

/// out = x W^T; terms: SplitRows(x) in ColumnOrder::kPlain.
void Bf16Linear(cudaStream_t stream, const Bf16Rows& terms, int64_t rows, const WeightMatrix& weight, FloatView out);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_EXACT_LINEAR_H_
