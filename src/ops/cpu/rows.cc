#include "ops/cpu/rows.h"

#include <cstring>
#include <limits>

#include "ops/cpu/rows_split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/cpu/math-inl.h"
#include "ops/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void EmbedRow(const WeightMatrix& table, int64_t id, float* HWY_RESTRICT out) {
  WithStored(table.data + id * table.row_bytes(), table.format == WeightFormat::kBF16, [&](auto row) HWY_ATTR {
    ForColumns(0, table.columns,
               [&](auto d, int64_t column) HWY_ATTR { hn::StoreU(row.Load(d, column), d, out + column); });
  });
}

void RmsNormRow(const float* x, int64_t columns, const WeightVector& weight, float eps, float* out) {
  const float inverse = InverseRms(x, columns, eps);
  WithStored(weight.data, weight.is_bf16, [&](auto stored) HWY_ATTR {
    ForColumns(0, columns, [&](auto d, int64_t column) HWY_ATTR {
      const auto normed = hn::Mul(hn::LoadU(d, x + column), hn::Set(d, inverse));
      hn::StoreU(hn::Mul(stored.Load(d, column), normed), d, out + column);
    });
  });
}

void SwiGluPiece(const float* gate, const float* up, float limit, float factor, float* hidden, int64_t columns) {
  ForColumns(0, columns, [&](auto d, int64_t column) HWY_ATTR {
    // The bound comes first: x86 minimum and maximum return their second operand when one is NaN.
    const auto g = hn::Min(hn::Set(d, limit), hn::LoadU(d, gate + column));
    const auto u = hn::Min(hn::Set(d, limit), hn::Max(hn::Set(d, -limit), hn::LoadU(d, up + column)));
    hn::StoreU(hn::Mul(hn::Mul(Silu(d, g), u), hn::Set(d, factor)), d, hidden + column);
  });
}

void AddPiece(const float* y, float* out, int64_t columns) {
  ForColumns(0, columns, [&](auto d, int64_t column) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, out + column), hn::LoadU(d, y + column)), d, out + column);
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(EmbedRow);
HWY_EXPORT(RmsNormRow);
HWY_EXPORT(SwiGluPiece);
HWY_EXPORT(AddPiece);

void Embed(ThreadPool& pool, const WeightMatrix& table, std::span<const int32_t> ids, FloatView out) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(EmbedRow);
  ForRows(pool, out.rows, table.row_bytes() + 4 * table.columns, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) kernel(table, ids[static_cast<size_t>(t)], out.row(t));
  });
}

void RmsNorm(ThreadPool& pool, ConstFloatView x, const WeightVector& weight, float eps, FloatView out) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(RmsNormRow);
  ForRows(pool, x.rows, 8 * x.columns, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) kernel(x.row(t), x.columns, weight, eps, out.row(t));
  });
}

void SwiGlu(ThreadPool& pool, ConstFloatView gate, ConstFloatView up, float limit, FloatView hidden) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(SwiGluPiece);
  const float bound = limit > 0 ? limit : std::numeric_limits<float>::infinity();
  // An exponential and a division per value: some three times the time of its traffic.
  ForRowPieces(pool, hidden.rows, hidden.columns, 3 * 12, [&](int64_t t, int64_t begin, int64_t end) {
    kernel(gate.row(t) + begin, up.row(t) + begin, bound, 1.0f, hidden.row(t) + begin, end - begin);
  });
}

void SwiGluRow(const float* gate, const float* up, float limit, float factor, float* hidden, int64_t columns) {
  const float bound = limit > 0 ? limit : std::numeric_limits<float>::infinity();
  HWY_DYNAMIC_DISPATCH(SwiGluPiece)(gate, up, bound, factor, hidden, columns);
}

void AddRow(const float* y, float* out, int64_t columns) { HWY_DYNAMIC_DISPATCH(AddPiece)(y, out, columns); }

void Add(ThreadPool& pool, ConstFloatView y, FloatView out) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(AddPiece);
  ForRowPieces(pool, out.rows, out.columns, 12, [&](int64_t t, int64_t begin, int64_t end) {
    kernel(y.row(t) + begin, out.row(t) + begin, end - begin);
  });
}

void Scale(float factor, FloatView x) {
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t c = 0; c < x.columns; ++c) x.row(t)[c] *= factor;
  }
}

void CopyFloats(std::span<const float* const> from, int64_t columns, std::span<float* const> to) {
  for (size_t i = 0; i < from.size(); ++i) std::copy_n(from[i], columns, to[i]);
}

void KeepRows(std::span<const int32_t> rows, FloatView x) {
  const auto bytes = static_cast<size_t>(x.columns) * sizeof(float);
  for (size_t i = 0; i < rows.size(); ++i) std::memmove(x.row(static_cast<int64_t>(i)), x.row(rows[i]), bytes);
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
