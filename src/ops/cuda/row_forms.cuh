// Stores values in the forms that products read (row_forms.h): eight columns a thread, or one a lane.
#ifndef DEEPINFER_OPS_CUDA_ROW_FORMS_CUH_
#define DEEPINFER_OPS_CUDA_ROW_FORMS_CUH_

#include <cstdint>

#include "ops/cuda/exact_linear.h"
#include "ops/cuda/number_formats.cuh"
#include "ops/cuda/row_forms.h"
#include "ops/cuda/skinny.h"
#include "ops/cuda/skinny_rows.cuh"

namespace deepinfer::cuda {

/// Whether each `count` columns side by side stay together.
constexpr bool KeepsTogether(ColumnOrder order, int count) {
  for (int c = 0; c < 128; ++c) {
    if (PlaceOf(order, c) != c - c % count + PlaceOf(order, c % count)) return false;
  }
  return true;
}

/// Columns c .. c + kCount - 1 of a row, c a multiple of kCount, 4 or 8; the row starts at 16 bytes.
template <ColumnOrder order, int kCount>
__device__ __forceinline__ void StoreInOrder(const uint16_t (&bits)[kCount], uint16_t* row, int64_t c) {
  if constexpr (KeepsTogether(order, kCount)) {
    uint32_t words[kCount / 2] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int place = static_cast<int>(PlaceOf(order, i));
      words[place / 2] |= uint32_t{bits[i]} << (16 * (place % 2));
    }
    if constexpr (kCount == 8) {
      *reinterpret_cast<uint4*>(row + c) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
      *reinterpret_cast<uint2*>(row + c) = make_uint2(words[0], words[1]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) row[PlaceOf(order, c + i)] = bits[i];
  }
}

/// The next term of each value, which leaves what is not in it.
template <int kCount>
__device__ __forceinline__ void TakeTerm(float (&rest)[kCount], uint16_t (&bits)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) bits[i] = TakeTerm(rest[i]);
}

/// Columns c .. c + kCount - 1 of row t in every form that is wanted. The 32 / kCount lanes that share 32 columns, a
/// group of the quantisation, call it together.
template <int kCount>
__device__ __forceinline__ void StoreForms(const RowForms& forms, const float (&values)[kCount], int64_t t, int64_t c,
                                           int64_t columns) {
  static_assert(kCount == 4 || kCount == 8);
  if (forms.fp8 != nullptr || forms.fp4 != nullptr) {
    constexpr unsigned kLanes = 32 / kCount;
    const unsigned group = ((1u << kLanes) - 1) << (threadIdx.x % 32 / kLanes * kLanes);
    float largest = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) largest = fmaxf(largest, fabsf(values[i]));
#pragma unroll
    for (unsigned step = kLanes / 2; step > 0; step /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(group, largest, static_cast<int>(step)));
    }
    const uint8_t scale = Fp8ScaleByte(largest);
    uint16_t bits[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) bits[i] = QuantiseByScale(values[i], scale);
    if (forms.fp8 != nullptr) StoreInOrder<ColumnOrder::kFp8>(bits, forms.fp8 + t * columns, c);
    if (forms.fp4 != nullptr) StoreInOrder<ColumnOrder::kFp4>(bits, forms.fp4 + t * columns, c);
  }
  if (forms.terms != nullptr || forms.fp8_terms != nullptr) {
    float rest[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) rest[i] = values[i];
#pragma unroll
    for (int term = 0; term < kExactTerms; ++term) {
      uint16_t bits[kCount];
      TakeTerm(rest, bits);
      const int64_t row = (t * kExactTerms + term) * columns;
      if (forms.terms != nullptr) StoreInOrder<ColumnOrder::kPlain>(bits, forms.terms + row, c);
      if (forms.fp8_terms != nullptr) StoreInOrder<ColumnOrder::kFp8>(bits, forms.fp8_terms + row, c);
    }
  }
}

/// The same of column c by a warp whose lanes have 32 columns side by side.
__device__ __forceinline__ void StoreForms(const RowForms& forms, float value, int64_t t, int64_t c, int64_t columns) {
  if (forms.fp8 != nullptr || forms.fp4 != nullptr) {
    const uint16_t bits = QuantiseInGroup(value);
    if (forms.fp8 != nullptr) forms.fp8[t * columns + PlaceOf(ColumnOrder::kFp8, c)] = bits;
    if (forms.fp4 != nullptr) forms.fp4[t * columns + PlaceOf(ColumnOrder::kFp4, c)] = bits;
  }
  if (forms.terms != nullptr || forms.fp8_terms != nullptr) {
#pragma unroll
    for (int term = 0; term < kExactTerms; ++term) {
      const uint16_t bits = TakeTerm(value);
      const int64_t row = (t * kExactTerms + term) * columns;
      if (forms.terms != nullptr) forms.terms[row + c] = bits;
      if (forms.fp8_terms != nullptr) forms.fp8_terms[row + PlaceOf(ColumnOrder::kFp8, c)] = bits;
    }
  }
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_ROW_FORMS_CUH_
