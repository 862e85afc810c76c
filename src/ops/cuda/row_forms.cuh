// Stores values in the forms that products read (row_forms.h): eight columns a thread, or one a lane.
#ifndef DEEPINFER_OPS_CUDA_ROW_FORMS_CUH_
#define DEEPINFER_OPS_CUDA_ROW_FORMS_CUH_

#include <cstdint>
#include <type_traits>

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

/// The column of `count` that is put behind column `i`, where that is at an even place; -1: none.
constexpr int ColumnBehind(ColumnOrder order, int count, int i) {
  for (int k = 0; k < count; ++k) {
    if (PlaceOf(order, i) % 2 == 0 && PlaceOf(order, k) == PlaceOf(order, i) + 1) return k;
  }
  return -1;
}

/// Whether each `count` columns come in pairs that lie in the same way wherever they are.
constexpr bool KeepsPairs(ColumnOrder order, int count) {
  for (int c = 0; c < 128; ++c) {
    if (PlaceOf(order, c) != PlaceOf(order, c - c % count) + PlaceOf(order, c % count)) return false;
  }
  int pairs = 0;
  for (int i = 0; i < count; ++i) pairs += ColumnBehind(order, count, i) >= 0 ? 1 : 0;
  return 2 * pairs == count;
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
  } else if constexpr (KeepsPairs(order, kCount)) {
    uint16_t* const first = row + PlaceOf(order, c);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int behind = ColumnBehind(order, kCount, i);
      if (behind < 0) continue;
      *reinterpret_cast<uint32_t*>(first + PlaceOf(order, i)) = uint32_t{bits[behind]} << 16 | bits[i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) row[PlaceOf(order, c + i)] = bits[i];
  }
}
static_assert(KeepsPairs(ColumnOrder::kFp8Wide, 8) && KeepsPairs(ColumnOrder::kFp4Wide, 8));

/// body(std::integral_constant<ColumnOrder, order>()).
template <typename Body>
void WithOrder(ColumnOrder order, const Body& body) {
  switch (order) {
    case ColumnOrder::kPlain:
      return body(std::integral_constant<ColumnOrder, ColumnOrder::kPlain>());
    case ColumnOrder::kFp8:
      return body(std::integral_constant<ColumnOrder, ColumnOrder::kFp8>());
    case ColumnOrder::kFp4:
      return body(std::integral_constant<ColumnOrder, ColumnOrder::kFp4>());
    case ColumnOrder::kFp8Wide:
      return body(std::integral_constant<ColumnOrder, ColumnOrder::kFp8Wide>());
    case ColumnOrder::kFp4Wide:
      return body(std::integral_constant<ColumnOrder, ColumnOrder::kFp4Wide>());
  }
}

/// The next term of each value, which leaves what is not in it.
template <int kCount>
__device__ __forceinline__ void TakeTerm(float (&rest)[kCount], uint16_t (&bits)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) bits[i] = TakeTerm(rest[i]);
}

/// Quantises `values` by the scale of their group of 32 columns, whose 32 / kCount lanes call it together.
template <int kCount>
__device__ __forceinline__ void QuantiseColumns(const float (&values)[kCount], uint16_t (&bits)[kCount]) {
  static_assert(kCount == 4 || kCount == 8);
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
#pragma unroll
  for (int i = 0; i < kCount; ++i) bits[i] = QuantiseByScale(values[i], scale);
}

/// Columns c .. c + kCount - 1 of row t in every form that is wanted. The 32 / kCount lanes that share 32 columns, a
/// group of the quantisation, call it together.
template <int kCount>
__device__ __forceinline__ void StoreForms(const RowForms& forms, const float (&values)[kCount], int64_t t, int64_t c,
                                           int64_t columns) {
  if (forms.fp8 != nullptr || forms.fp4 != nullptr) {
    uint16_t bits[kCount];
    QuantiseColumns(values, bits);
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
