// RowForms: where an op that writes F32 rows also writes them as the tensor core products read them.
//
// Few rows cost a launch more than the work, so the op that makes a row makes its forms, too (prepared_rows.h says
// which are wanted). Bits are those of QuantiseRows and SplitRows. Thread-safety: a value. Ownership: none.
#ifndef DEEPINFER_OPS_CUDA_ROW_FORMS_H_
#define DEEPINFER_OPS_CUDA_ROW_FORMS_H_

#include <cstdint>

namespace deepinfer::cuda {

/// Null: not wanted. Rows of as many columns as the F32 rows, a multiple of 32, one behind the other.
struct RowForms {
  uint16_t* fp8 = nullptr;        // [T, columns] quantised, ColumnOrder::kFp8
  uint16_t* fp4 = nullptr;        // [T, columns] quantised, ColumnOrder::kFp4
  uint16_t* terms = nullptr;      // [3 T, columns] terms, ColumnOrder::kPlain
  uint16_t* fp8_terms = nullptr;  // [3 T, columns] terms, ColumnOrder::kFp8

  constexpr bool any() const { return fp8 != nullptr || fp4 != nullptr || terms != nullptr || fp8_terms != nullptr; }
};

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_ROW_FORMS_H_
