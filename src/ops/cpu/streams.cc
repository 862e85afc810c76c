#include "ops/cpu/streams.h"

#include <algorithm>
#include <cassert>

#include "ops/cpu/rows_split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/streams.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/cpu/math-inl.h"
#include "ops/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// comb [count, count]: every element over the sum of its column (`across` = count, `along` = 1) or row (1, count).
HWY_INLINE void DivideBySums(float* HWY_RESTRICT comb, int count, int across, int along, float eps) {
  float sums[kMaxStreams];
  for (int k = 0; k < count; ++k) sums[k] = comb[k * along];
  for (int i = 1; i < count; ++i) {
    for (int k = 0; k < count; ++k) sums[k] += comb[i * across + k * along];
  }
  for (int k = 0; k < count; ++k) sums[k] += eps;
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < count; ++k) comb[i * across + k * along] /= sums[k];
  }
}

#if HWY_TARGET != HWY_SCALAR
// Four streams: the same additions and divisions on the four rows in registers; rows become columns by transposing.
struct FourRows {
  using D = hn::FixedTag<float, 4>;
  using V = hn::Vec<D>;
  V r0, r1, r2, r3;

  HWY_INLINE void DivideByColumnSums(V eps) {
    const V sums = hn::Add(hn::Add(hn::Add(hn::Add(r0, r1), r2), r3), eps);
    r0 = hn::Div(r0, sums);
    r1 = hn::Div(r1, sums);
    r2 = hn::Div(r2, sums);
    r3 = hn::Div(r3, sums);
  }
  HWY_INLINE void Transpose() {
    const D d;
    const V a = hn::InterleaveLower(d, r0, r2), b = hn::InterleaveLower(d, r1, r3);
    const V e = hn::InterleaveUpper(d, r0, r2), f = hn::InterleaveUpper(d, r1, r3);
    r0 = hn::InterleaveLower(d, a, b);
    r1 = hn::InterleaveUpper(d, a, b);
    r2 = hn::InterleaveLower(d, e, f);
    r3 = hn::InterleaveUpper(d, e, f);
  }
};
#endif

HWY_INLINE void Sinkhorn(float* HWY_RESTRICT comb, int n, int iterations, float eps) {
#if HWY_TARGET != HWY_SCALAR
  if (n == 4) {
    const FourRows::D d;
    const auto e = hn::Set(d, eps);
    FourRows rows{hn::LoadU(d, comb), hn::LoadU(d, comb + 4), hn::LoadU(d, comb + 8), hn::LoadU(d, comb + 12)};
    rows.DivideByColumnSums(e);
    for (int iteration = 1; iteration < iterations; ++iteration) {
      rows.Transpose();
      rows.DivideByColumnSums(e);
      rows.Transpose();
      rows.DivideByColumnSums(e);
    }
    hn::StoreU(rows.r0, d, comb);
    hn::StoreU(rows.r1, d, comb + 4);
    hn::StoreU(rows.r2, d, comb + 8);
    hn::StoreU(rows.r3, d, comb + 12);
    return;
  }
#endif
  DivideBySums(comb, n, n, 1, eps);
  for (int iteration = 1; iteration < iterations; ++iteration) {
    DivideBySums(comb, n, 1, n, eps);
    DivideBySums(comb, n, n, 1, eps);
  }
}

// mix holds fn * v on entry, the coefficients on return.
void FinishMixRow(const float* HWY_RESTRICT streams, int64_t columns, int n, const WeightVector& base,
                  const WeightVector& scale, int iterations, float hc_eps, float rms_eps, float* HWY_RESTRICT mix) {
  const float inverse = InverseRms(streams, columns, rms_eps);
  float factors[3];
  WithStored(scale.data, scale.is_bf16, [&](auto stored) HWY_ATTR {
    for (int part = 0; part < 3; ++part) {
      factors[part] = hn::GetLane(stored.Load(hn::CappedTag<float, 1>(), part));
    }
  });
  WithStored(base.data, base.is_bf16, [&](auto stored) HWY_ATTR {
    const auto affine = [&](int64_t begin, int64_t end, float factor) HWY_ATTR {
      ForColumns(begin, end, [&](auto d, int64_t i) HWY_ATTR {
        const auto normed = hn::Mul(hn::LoadU(d, mix + i), hn::Set(d, inverse));
        hn::StoreU(hn::MulAdd(normed, hn::Set(d, factor), stored.Load(d, i)), d, mix + i);
      });
    };
    affine(0, n, factors[0]);
    affine(n, 2 * n, factors[1]);
    affine(2 * n, (2 + n) * n, factors[2]);
  });
  ForColumns(0, 2 * n, [&](auto d, int64_t i) HWY_ATTR { hn::StoreU(Sigmoid(d, hn::LoadU(d, mix + i)), d, mix + i); });
  for (int j = 0; j < n; ++j) mix[j] += hc_eps;
  for (int j = n; j < 2 * n; ++j) mix[j] *= 2;

  float* comb = mix + 2 * n;
  for (int i = 0; i < n; ++i) {
    float* row = comb + i * n;
    const float maximum = *std::max_element(row, row + n);
    for (int j = 0; j < n; ++j) row[j] -= maximum;
  }
  ForColumns(0, n * n,
             [&](auto d, int64_t i) HWY_ATTR { hn::StoreU(ExpNonPositive(d, hn::LoadU(d, comb + i)), d, comb + i); });
  for (int i = 0; i < n; ++i) {
    float* row = comb + i * n;
    float sum = 0;
    for (int j = 0; j < n; ++j) sum += row[j];
    for (int j = 0; j < n; ++j) row[j] = row[j] / sum + hc_eps;
  }
  Sinkhorn(comb, n, iterations, hc_eps);
}

// sum_j pre[j] * streams[j], lanes of `d` at `column`.
template <int kStreams, class D>
HWY_INLINE hn::Vec<D> CollapseAt(D d, const float* streams, int64_t width, int n, const float* pre, int64_t column) {
  const int count = kStreams != 0 ? kStreams : n;
  auto sum = hn::Mul(hn::Set(d, pre[0]), hn::LoadU(d, streams + column));
  for (int j = 1; j < count; ++j) {
    sum = hn::MulAdd(hn::Set(d, pre[j]), hn::LoadU(d, streams + j * width + column), sum);
  }
  return sum;
}

template <int kStreams>
HWY_INLINE void CollapseNormStreams(const float* streams, int64_t width, int n, const float* pre,
                                    const WeightVector& weight, float eps, float* normed, float* collapsed) {
  LaneSum sum;
  int64_t column = 0;
  for (; column + LaneSum::kLanes <= width; column += LaneSum::kLanes) {
    for (int64_t i = 0; i < LaneSum::kVectors; ++i) {
      const RowVec v = CollapseAt<kStreams>(RowTag(), streams, width, n, pre, column + i * kRowLanes);
      sum.MulAdd(i, v, v);
      hn::StoreU(v, RowTag(), collapsed + column + i * kRowLanes);
    }
  }
  ForColumns(column, width, [&](auto d, int64_t at) HWY_ATTR {
    hn::StoreU(CollapseAt<kStreams>(d, streams, width, n, pre, at), d, collapsed + at);
  });
  AddTailSquares(collapsed, column, width, sum);
  const float inverse = InverseRoot(sum.Total(), width, eps);
  WithStored(weight.data, weight.is_bf16, [&](auto stored) HWY_ATTR {
    ForColumns(0, width, [&](auto d, int64_t at) HWY_ATTR {
      const auto scaled = hn::Mul(hn::LoadU(d, collapsed + at), hn::Set(d, inverse));
      hn::StoreU(hn::Mul(stored.Load(d, at), scaled), d, normed + at);
    });
  });
}

// collapsed may be normed.
void CollapseNormRow(const float* streams, int64_t width, int n, const float* pre, const WeightVector& weight,
                     float eps, float* normed, float* collapsed) {
  float factors[kMaxStreams];  // a copy, so that the compiler may keep them in registers across the stores
  std::copy_n(pre, n, factors);
  if (n == 4) {
    CollapseNormStreams<4>(streams, width, n, factors, weight, eps, normed, collapsed);
  } else {
    CollapseNormStreams<0>(streams, width, n, factors, weight, eps, normed, collapsed);
  }
}

// Columns begin..end of all streams.
void SpreadPiece(const float* HWY_RESTRICT y, const float* HWY_RESTRICT mix, int n, int64_t width,
                 float* HWY_RESTRICT streams, int64_t begin, int64_t end) {
  const float* post = mix + n;
  const float* comb = post + n;
  if (n == 4) {
    float* HWY_RESTRICT s0 = streams;
    float* HWY_RESTRICT s1 = streams + width;
    float* HWY_RESTRICT s2 = streams + 2 * width;
    float* HWY_RESTRICT s3 = streams + 3 * width;
    float c[20];
    std::copy_n(post, 20, c);
    ForColumns(begin, end, [&](auto d, int64_t at) HWY_ATTR {
      const auto v = hn::LoadU(d, y + at);
      const auto x0 = hn::LoadU(d, s0 + at), x1 = hn::LoadU(d, s1 + at);
      const auto x2 = hn::LoadU(d, s2 + at), x3 = hn::LoadU(d, s3 + at);
      const auto mixed = [&](int j) HWY_ATTR {
        auto sum = hn::Mul(hn::Set(d, c[j]), v);
        sum = hn::MulAdd(hn::Set(d, c[4 + j]), x0, sum);
        sum = hn::MulAdd(hn::Set(d, c[8 + j]), x1, sum);
        sum = hn::MulAdd(hn::Set(d, c[12 + j]), x2, sum);
        return hn::MulAdd(hn::Set(d, c[16 + j]), x3, sum);
      };
      hn::StoreU(mixed(0), d, s0 + at);
      hn::StoreU(mixed(1), d, s1 + at);
      hn::StoreU(mixed(2), d, s2 + at);
      hn::StoreU(mixed(3), d, s3 + at);
    });
    return;
  }
  constexpr int64_t kBlock = 64;
  HWY_ALIGN float source[kMaxStreams * kBlock];
  for (int64_t block = begin; block < end; block += kBlock) {
    const int64_t count = std::min(kBlock, end - block);
    for (int i = 0; i < n; ++i) std::copy_n(streams + i * width + block, count, source + i * kBlock);
    for (int j = 0; j < n; ++j) {
      ForColumns(0, count, [&](auto d, int64_t at) HWY_ATTR {
        auto sum = hn::Mul(hn::Set(d, post[j]), hn::LoadU(d, y + block + at));
        for (int i = 0; i < n; ++i) {
          sum = hn::MulAdd(hn::Set(d, comb[i * n + j]), hn::LoadU(d, source + i * kBlock + at), sum);
        }
        hn::StoreU(sum, d, streams + j * width + block + at);
      });
    }
  }
}

void MeanPiece(const float* HWY_RESTRICT streams, int64_t width, int n, float* HWY_RESTRICT out, int64_t begin,
               int64_t end) {
  ForColumns(begin, end, [&](auto d, int64_t at) HWY_ATTR {
    auto sum = hn::LoadU(d, streams + at);
    for (int j = 1; j < n; ++j) sum = hn::Add(sum, hn::LoadU(d, streams + j * width + at));
    hn::StoreU(hn::Div(sum, hn::Set(d, static_cast<float>(n))), d, out + at);
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(FinishMixRow);
HWY_EXPORT(CollapseNormRow);
HWY_EXPORT(SpreadPiece);
HWY_EXPORT(MeanPiece);

void MixStreams(ThreadPool& pool, LinearScratch& scratch, ConstFloatView streams, int n, const WeightMatrix& fn,
                const WeightVector& base, const WeightVector& scale, int sinkhorn_iterations, float hc_eps,
                float rms_eps, FloatView out) {
  assert(n >= 1 && n <= kMaxStreams);
  Linear(pool, scratch, streams, fn, ActivationFormat::kExact, 1, out);
  const auto kernel = HWY_DYNAMIC_DISPATCH(FinishMixRow);
  ForRows(pool, streams.rows, 4 * streams.columns, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      kernel(streams.row(t), streams.columns, n, base, scale, sinkhorn_iterations, hc_eps, rms_eps, out.row(t));
    }
  });
}

void CollapseNorm(ThreadPool& pool, ConstFloatView streams, int n, ConstFloatView pre, const WeightVector& weight,
                  float eps, FloatView normed, FloatView collapsed) {
  assert(n >= 1 && n <= kMaxStreams);
  const auto kernel = HWY_DYNAMIC_DISPATCH(CollapseNormRow);
  ForRows(pool, streams.rows, 4 * streams.columns, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      kernel(streams.row(t), normed.columns, n, pre.row(t), weight, eps, normed.row(t),
             collapsed.data != nullptr ? collapsed.row(t) : normed.row(t));
    }
  });
}

void SpreadStreams(ThreadPool& pool, ConstFloatView y, ConstFloatView mix, int n, FloatView streams) {
  assert(n >= 1 && n <= kMaxStreams);
  const auto kernel = HWY_DYNAMIC_DISPATCH(SpreadPiece);
  ForRowPieces(pool, y.rows, y.columns, 4 * (2 * n + 1), [&](int64_t t, int64_t begin, int64_t end) {
    kernel(y.row(t), mix.row(t), n, y.columns, streams.row(t), begin, end);
  });
}

void MeanStreams(ThreadPool& pool, ConstFloatView streams, int n, FloatView out) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(MeanPiece);
  ForRowPieces(pool, out.rows, out.columns, 4 * (n + 1), [&](int64_t t, int64_t begin, int64_t end) {
    kernel(streams.row(t), out.columns, n, out.row(t), begin, end);
  });
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
