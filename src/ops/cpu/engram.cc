#include "ops/cpu/engram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "ops/cpu/rows_split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/engram.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/cpu/math-inl.h"
#include "ops/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Values of E4M3 bytes, NaN included.
template <class D>
HWY_INLINE hn::Vec<D> E4m3Values(D d, const uint8_t* HWY_RESTRICT bytes) {
  const hn::Rebind<uint8_t, D> d8;
  const hn::RebindToUnsigned<D> du;
  const auto code = hn::PromoteTo(du, hn::LoadU(d8, bytes));
  const auto magnitude = hn::And(code, hn::Set(du, 0x7fu));
  const auto shifted = hn::ShiftLeft<20>(magnitude);
  const auto normal = hn::BitCast(d, hn::Add(shifted, hn::Set(du, 120u << 23)));
  // Below 8 the code counts steps of 2^-9: they are the mantissa above 2^-6.
  const auto subnormal = hn::Sub(hn::BitCast(d, hn::Add(shifted, hn::Set(du, 121u << 23))), hn::Set(d, 0x1p-6f));
  const auto is_subnormal = hn::RebindMask(d, hn::Lt(magnitude, hn::Set(du, 8u)));
  const auto is_nan = hn::RebindMask(d, hn::Eq(magnitude, hn::Set(du, 0x7fu)));
  auto value = hn::IfThenElse(is_subnormal, subnormal, normal);
  value = hn::IfThenElse(is_nan, hn::Set(d, std::numeric_limits<float>::quiet_NaN()), value);
  return hn::Or(value, hn::BitCast(d, hn::ShiftLeft<24>(hn::And(code, hn::Set(du, 0x80u)))));
}

void UnpackTableRow(const WeightMatrix& table, int64_t row, float* HWY_RESTRICT out) {
  const RowTag d;
  const uint8_t* values = table.data + row * table.row_bytes();
  const uint8_t* scales = table.scale_row(row);
  for (int64_t group = 0; group < table.columns; group += 32) {
    const RowVec scale = hn::Set(d, E8m0ToFloat(scales[group / 32]));
    for (int64_t c = group; c < group + 32; c += kRowLanes) {
      hn::StoreU(hn::Mul(E4m3Values(d, values + c), scale), d, out + c);
    }
  }
}

// The gate of one stream: sigmoid of the signed root of the normalised <h * qw * kw, key>.
template <class Q, class K>
HWY_INLINE float Gate(const float* HWY_RESTRICT h, const float* HWY_RESTRICT key, Q q, K k, int64_t width, float eps) {
  const RowTag d;
  LaneSum dot, h_square, key_square;
  int64_t column = 0;
  for (; column + LaneSum::kLanes <= width; column += LaneSum::kLanes) {
    for (int64_t i = 0; i < LaneSum::kVectors; ++i) {
      const int64_t at = column + i * kRowLanes;
      const RowVec x = hn::LoadU(d, h + at), y = hn::LoadU(d, key + at);
      dot.MulAdd(i, hn::Mul(x, hn::Mul(q.Load(d, at), k.Load(d, at))), y);
      h_square.MulAdd(i, x, x);
      key_square.MulAdd(i, y, y);
    }
  }
  if (column < width) {
    const int64_t rest = width - column;
    HWY_ALIGN float product[LaneSum::kLanes];
    ForColumns(0, rest, [&](auto one, int64_t i) HWY_ATTR {
      const auto weight = hn::Mul(q.Load(one, column + i), k.Load(one, column + i));
      hn::StoreU(hn::Mul(hn::LoadU(one, h + column + i), weight), one, product + i);
    });
    const PaddedLanes left(product, rest), right(key + column, rest);
    for (int64_t i = 0; i < LaneSum::kVectors; ++i) {
      dot.MulAdd(i, hn::Load(d, left.lanes + i * kRowLanes), hn::Load(d, right.lanes + i * kRowLanes));
    }
    AddTailSquares(h, column, width, h_square);
    AddTailSquares(key, column, width, key_square);
  }
  const float cosine = dot.Total() / std::sqrt(static_cast<float>(width)) * InverseRoot(h_square.Total(), width, eps) *
                       InverseRoot(key_square.Total(), width, eps);
  const float root = std::copysign(std::sqrt(std::max(std::fabs(cosine), 1e-6f)), cosine);
  const hn::CappedTag<float, 1> one;
  return hn::GetLane(Sigmoid(one, hn::Set(one, root)));
}

// One stream: h += gate * value. q and k point to the stream's weights.
void InjectStream(const float* HWY_RESTRICT key, const float* HWY_RESTRICT value, const WeightVector& q,
                  const WeightVector& k, int64_t width, float eps, float* HWY_RESTRICT h) {
  float gate = 0;
  WithStored(q.data, q.is_bf16, [&](auto q_stored) HWY_ATTR {
    WithStored(k.data, k.is_bf16, [&](auto k_stored) HWY_ATTR { gate = Gate(h, key, q_stored, k_stored, width, eps); });
  });
  ForColumns(0, width, [&](auto d, int64_t at) HWY_ATTR {
    hn::StoreU(hn::MulAdd(hn::Set(d, gate), hn::LoadU(d, value + at), hn::LoadU(d, h + at)), d, h + at);
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(UnpackTableRow);
HWY_EXPORT(InjectStream);

namespace {

WeightVector From(const WeightVector& vector, int64_t begin, int64_t size) {
  return {vector.data + begin * (vector.is_bf16 ? 2 : 4), vector.is_bf16, size};
}

}  // namespace

void GatherRows(ThreadPool& pool, const WeightMatrix& table, TensorView<const int64_t> rows, FloatView out) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(UnpackTableRow);
  // The rows lie anywhere in a mapped table of some 100 GB. Each may wait for memory or even for the disk, so all
  // workers wait side by side, and rows ahead are requested early.
  constexpr int64_t kAhead = 8;
  const int64_t count = rows.rows * rows.columns;
  const auto index = [&](int64_t item) { return rows.row(item / rows.columns)[item % rows.columns]; };
  ParallelRange(pool, count, 1, [&](int64_t begin, int64_t end) {
    const auto request = [&](int64_t item) {
      const uint8_t* values = table.data + index(item) * table.row_bytes();
      for (int64_t byte = 0; byte < table.row_bytes(); byte += 64) __builtin_prefetch(values + byte);
      __builtin_prefetch(table.scale_row(index(item)));
    };
    for (int64_t item = begin; item < std::min(begin + kAhead, end); ++item) request(item);
    for (int64_t item = begin; item < end; ++item) {
      if (item + kAhead < end) request(item + kAhead);
      kernel(table, index(item), out.row(item / rows.columns) + item % rows.columns * table.columns);
    }
  });
}

void EngramInject(ThreadPool& pool, ConstFloatView kv, const WeightVector& q_weight, const WeightVector& k_weight,
                  int n, float eps, FloatView streams) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(InjectStream);
  const int64_t width = streams.columns / n;
  ForRows(pool, streams.rows * n, 6 * 4 * width, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t t = item / n;
      const int64_t first = item % n * width;
      kernel(kv.row(t) + first, kv.row(t) + n * width, From(q_weight, first, width), From(k_weight, first, width),
             width, eps, streams.row(t) + first);
    }
  });
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
