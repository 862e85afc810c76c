// Building blocks of the row kernels: columns in vectors, stored vectors as F32, sums in one order on every target.
//
// Reductions add 64 lanes: lane l owns columns l, l + 64, ...; the lanes then fold as a tree (l += l + 32, + 16, ... +
// 1). The order depends on the row's width only; targets with fused multiply-add therefore agree to the bit.
// Thread-safety: pure functions. Include from a file that foreach_target.h compiles once per instruction set.
#if defined(DEEPINFER_OPS_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_OPS_CPU_ROWS_INL_H_
#undef DEEPINFER_OPS_CPU_ROWS_INL_H_
#else
#define DEEPINFER_OPS_CPU_ROWS_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/weight_matrix.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer {
namespace cpu {
namespace HWY_NAMESPACE {

using RowTag = hwy::HWY_NAMESPACE::CappedTag<float, 16>;
using RowVec = hwy::HWY_NAMESPACE::Vec<RowTag>;
inline constexpr int64_t kRowLanes = static_cast<int64_t>(hwy::HWY_NAMESPACE::MaxLanes(RowTag()));

/// Calls body(tag, column) for begin..end in whole vectors, then lane by lane: for elementwise work only.
template <class Body>
HWY_INLINE void ForColumns(int64_t begin, int64_t end, const Body& body) {
  int64_t column = begin;
  for (; column + kRowLanes <= end; column += kRowLanes) body(RowTag(), column);
  for (; column < end; ++column) body(hwy::HWY_NAMESPACE::CappedTag<float, 1>(), column);
}

/// The lanes of `d` at any byte address. (Vector loads need no alignment; the load of a single lane does.)
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> LoadBytes(D d, const uint8_t* bytes) {
  using T = hwy::HWY_NAMESPACE::TFromD<D>;
  if constexpr (hwy::HWY_NAMESPACE::MaxLanes(D()) == 1) {
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return hwy::HWY_NAMESPACE::Set(d, value);
  } else {
    return hwy::HWY_NAMESPACE::LoadU(d, reinterpret_cast<const T*>(bytes));
  }
}

/// F32 or BF16 values at any byte address.
struct StoredF32 {
  const uint8_t* data;
  template <class D>
  HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> Load(D d, int64_t column) const {
    return LoadBytes(d, data + 4 * column);
  }
};
struct StoredBf16 {
  const uint8_t* data;
  template <class D>
  HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> Load(D d, int64_t column) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::RebindToUnsigned<D> d32;
    const auto half = LoadBytes(hn::Rebind<uint16_t, D>(), data + 2 * column);
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, half)));
  }
};

/// Calls body(reader) with the reader of the vector's format.
template <class Body>
HWY_INLINE void WithStored(const uint8_t* data, bool is_bf16, const Body& body) {
  if (is_bf16) {
    body(StoredBf16{data});
  } else {
    body(StoredF32{data});
  }
}

/// A sum over columns in the order above.
class LaneSum {
 public:
  static constexpr int64_t kLanes = 64;
  static constexpr int64_t kVectors = kLanes / kRowLanes;

  HWY_INLINE LaneSum() {
    for (int64_t i = 0; i < kVectors; ++i) sums_[i] = hwy::HWY_NAMESPACE::Zero(RowTag());
  }
  /// Adds a * b for lanes index * kRowLanes...
  HWY_INLINE void MulAdd(int64_t index, RowVec a, RowVec b) {
    sums_[index] = hwy::HWY_NAMESPACE::MulAdd(a, b, sums_[index]);
  }
  HWY_INLINE float Total() const {
    namespace hn = hwy::HWY_NAMESPACE;
    HWY_ALIGN float lanes[kLanes];
    for (int64_t i = 0; i < kVectors; ++i) hn::Store(sums_[i], RowTag(), lanes + i * kRowLanes);
    for (int64_t half = kLanes / 2; half >= kRowLanes; half /= 2) {
      for (int64_t i = 0; i < half; i += kRowLanes) {
        hn::Store(hn::Add(hn::Load(RowTag(), lanes + i), hn::Load(RowTag(), lanes + i + half)), RowTag(), lanes + i);
      }
    }
    for (int64_t half = kRowLanes / 2; half > 0; half /= 2) {
      for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    return lanes[0];
  }

 private:
  RowVec sums_[kVectors];
};

/// `count` < 64 values, then zeros.
struct PaddedLanes {
  HWY_ALIGN float lanes[LaneSum::kLanes];
  HWY_INLINE PaddedLanes(const float* values, int64_t count) {
    for (int64_t i = 0; i < LaneSum::kLanes; ++i) lanes[i] = i < count ? values[i] : 0.0f;
  }
};

/// Adds the squares of x[begin..columns), fewer than 64, to `sum`.
HWY_INLINE void AddTailSquares(const float* x, int64_t begin, int64_t columns, LaneSum& sum) {
  if (begin == columns) return;
  const PaddedLanes tail(x + begin, columns - begin);
  for (int64_t i = 0; i < LaneSum::kVectors; ++i) {
    const RowVec v = hwy::HWY_NAMESPACE::Load(RowTag(), tail.lanes + i * kRowLanes);
    sum.MulAdd(i, v, v);
  }
}

/// 1 / sqrt(sum / count + eps).
HWY_INLINE float InverseRoot(float sum, int64_t count, float eps) {
  return 1.0f / std::sqrt(sum / static_cast<float>(count) + eps);
}

/// 1 / sqrt(mean(x^2) + eps).
HWY_INLINE float InverseRms(const float* x, int64_t columns, float eps) {
  namespace hn = hwy::HWY_NAMESPACE;
  LaneSum sum;
  int64_t column = 0;
  for (; column + LaneSum::kLanes <= columns; column += LaneSum::kLanes) {
    for (int64_t i = 0; i < LaneSum::kVectors; ++i) {
      const RowVec v = hn::LoadU(RowTag(), x + column + i * kRowLanes);
      sum.MulAdd(i, v, v);
    }
  }
  AddTailSquares(x, column, columns, sum);
  return InverseRoot(sum.Total(), columns, eps);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace deepinfer
HWY_AFTER_NAMESPACE();

#endif  // DEEPINFER_OPS_CPU_ROWS_INL_H_
