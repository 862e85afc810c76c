#include "ops/cpu/attention_kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/attention_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/cpu/math-inl.h"
#include "ops/cpu/unpack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag()));

// Register tiles. AVX-512 and NEON have 32 registers, the others 16.
constexpr bool kManyRegisters = kLanes == 16 || HWY_ARCH_ARM_A64;
constexpr int kScoreKeys = kLanes == 16 ? 12 : 6;
constexpr int kScoreVectors = kLanes == 16 ? 2 : HWY_ARCH_ARM_A64 ? 4 : 2;
constexpr int kValueVectors = kManyRegisters ? 4 : 3;
static_assert(kKeyGrain % kScoreKeys == 0);
// Keys whose weighted values are summed before they join an output; their values stay in the first two cache levels
// while all heads use them.
constexpr int64_t kKeyChunk = 128;

// Channels that are summed before they join a score: a chain of all 512 would lose two more bits.
constexpr int64_t kScoreChannels = 32;

// scores[key, head lanes] for K keys and V vectors of heads.
template <int K, int V, class D>
HWY_INLINE void ScoreTile(D d, const float* HWY_RESTRICT values, int64_t value_stride,
                          const float* HWY_RESTRICT queries, int64_t width, int64_t padded_heads,
                          float* HWY_RESTRICT scores) {
  constexpr int64_t kN = static_cast<int64_t>(hn::MaxLanes(D()));
  for (int64_t first = 0; first < width; first += kScoreChannels) {
    const int64_t last = std::min(first + kScoreChannels, width);
    hn::Vec<D> sum[K][V];
    for (int k = 0; k < K; ++k) {
      for (int v = 0; v < V; ++v) sum[k][v] = hn::Zero(d);
    }
    for (int64_t c = first; c < last; ++c) {
      hn::Vec<D> query[V];
      for (int v = 0; v < V; ++v) query[v] = hn::LoadU(d, queries + c * padded_heads + v * kN);
      for (int k = 0; k < K; ++k) {
        const auto value = hn::Set(d, values[k * value_stride + c]);
        for (int v = 0; v < V; ++v) sum[k][v] = hn::MulAdd(value, query[v], sum[k][v]);
      }
    }
    for (int k = 0; k < K; ++k) {
      for (int v = 0; v < V; ++v) {
        float* score = scores + k * padded_heads + v * kN;
        hn::StoreU(first == 0 ? sum[k][v] : hn::Add(hn::LoadU(d, score), sum[k][v]), d, score);
      }
    }
  }
}

// Calls body(tag, vectors, head) for strips that cover the heads begin..end-1, widest first. Both are multiples of 4.
template <int kMaxVectors, class D, class Body>
HWY_INLINE void ForHeadStrips(D d, int64_t begin, int64_t end, const Body& body) {
  constexpr int64_t kN = static_cast<int64_t>(hn::MaxLanes(D()));
  int64_t head = begin;
  if constexpr (kMaxVectors > 1) {
    for (; head + kMaxVectors * kN <= end; head += kMaxVectors * kN) {
      body(d, std::integral_constant<int, kMaxVectors>(), head);
    }
  }
  for (; head + kN <= end; head += kN) body(d, std::integral_constant<int, 1>(), head);
  if constexpr (kN > 4) {
    if (head < end) ForHeadStrips<1>(hn::Half<D>(), head, end, body);
  }
}

void TransposeQueries(const float* HWY_RESTRICT q, int64_t heads, int64_t width, float* HWY_RESTRICT queries) {
  const int64_t padded_heads = PaddedHeads(heads);
  for (int64_t head = 0; head < padded_heads; head += 4) {
    const float* rows[4];
    for (int i = 0; i < 4; ++i) rows[i] = q + std::min(head + i, heads - 1) * width;
    for (int64_t c = 0; c < width; c += 4) {
      // Channel 2i of a block of 32 stands at i, channel 2i + 1 at 16 + i.
      float* even = queries + (c / 32 * 32 + c % 32 / 2) * padded_heads + head;
      float* odd = even + 16 * padded_heads;
#if HWY_TARGET == HWY_SCALAR
      for (int i = 0; i < 4; ++i) {
        even[i] = rows[i][c];
        odd[i] = rows[i][c + 1];
        even[padded_heads + i] = rows[i][c + 2];
        odd[padded_heads + i] = rows[i][c + 3];
      }
#else
      // A 4 x 4 transpose: channels c .. c+3 of four heads.
      const hn::CappedTag<float, 4> d;
      const hn::Repartition<double, decltype(d)> pair;
      const auto row0 = hn::LoadU(d, rows[0] + c);
      const auto row1 = hn::LoadU(d, rows[1] + c);
      const auto row2 = hn::LoadU(d, rows[2] + c);
      const auto row3 = hn::LoadU(d, rows[3] + c);
      const auto low01 = hn::BitCast(pair, hn::InterleaveLower(d, row0, row1));
      const auto low23 = hn::BitCast(pair, hn::InterleaveLower(d, row2, row3));
      const auto high01 = hn::BitCast(pair, hn::InterleaveUpper(d, row0, row1));
      const auto high23 = hn::BitCast(pair, hn::InterleaveUpper(d, row2, row3));
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pair, low01, low23)), d, even);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pair, low01, low23)), d, odd);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pair, high01, high23)), d, even + padded_heads);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pair, high01, high23)), d, odd + padded_heads);
#endif
    }
  }
}

void ScoreKeys(const KeyRow* HWY_RESTRICT keys, int64_t begin, int64_t end, int64_t width,
               const float* HWY_RESTRICT queries, int64_t padded_heads, float* HWY_RESTRICT values,
               float* HWY_RESTRICT scores) {
  const int64_t stride = KeyStride(width);
  for (int64_t first = begin; first < end; first += kScoreKeys) {
    const int64_t last = std::min(first + kScoreKeys, end);
    for (int64_t j = first; j < last; ++j) {
      UnpackRow(Tag(), keys[j].format, keys[j].values, keys[j].scales, width, values + j * stride);
    }
    // The last tile runs over rows left by earlier tokens; nobody reads their scores.
    ForHeadStrips<kScoreVectors>(Tag(), 0, padded_heads, [&](auto d, auto vectors, int64_t head) HWY_ATTR {
      ScoreTile<kScoreKeys, decltype(vectors)::value>(d, values + first * stride, stride, queries + head, width,
                                                      padded_heads, scores + first * padded_heads + head);
    });
  }
}

void SoftmaxWithSink(float* HWY_RESTRICT scores, int64_t count, int64_t padded_heads, int64_t begin, int64_t end,
                     float scale, const float* HWY_RESTRICT sinks, float* HWY_RESTRICT denominators) {
  ForHeadStrips<1>(Tag(), begin, end, [&](auto d, auto, int64_t head) HWY_ATTR {
    const auto factor = hn::Set(d, scale);
    const auto sink = hn::LoadU(d, sinks + head);
    auto maximum = sink;
    for (int64_t j = 0; j < count; ++j) {
      maximum = hn::Max(maximum, hn::Mul(hn::LoadU(d, scores + j * padded_heads + head), factor));
    }
    auto sum = hn::Zero(d);
    for (int64_t j = 0; j < count; ++j) {
      float* score = scores + j * padded_heads + head;
      const auto weight = ExpNonPositive(d, hn::Sub(hn::Mul(hn::LoadU(d, score), factor), maximum));
      hn::StoreU(weight, d, score);
      sum = hn::Add(sum, weight);
    }
    sum = hn::Add(sum, ExpNonPositive(d, hn::Sub(sink, maximum)));
    hn::StoreU(sum, d, denominators + head);
  });
}

// sums[head, channel lanes] += weights * values for `count` keys, kHeadTile heads and V vectors of channels.
template <int V>
HWY_INLINE void ValueTile(const float* HWY_RESTRICT values, int64_t value_stride, const float* HWY_RESTRICT weights,
                          int64_t padded_heads, int64_t count, float* HWY_RESTRICT sums, int64_t width) {
  const Tag d;
  hn::Vec<Tag> sum[kHeadTile][V];
  for (int h = 0; h < kHeadTile; ++h) {
    for (int v = 0; v < V; ++v) sum[h][v] = hn::Zero(d);
  }
  for (int64_t j = 0; j < count; ++j) {
    hn::Vec<Tag> value[V];
    for (int v = 0; v < V; ++v) value[v] = hn::Load(d, values + j * value_stride + v * kLanes);
    for (int h = 0; h < kHeadTile; ++h) {
      const auto weight = hn::Set(d, weights[j * padded_heads + h]);
      for (int v = 0; v < V; ++v) sum[h][v] = hn::MulAdd(weight, value[v], sum[h][v]);
    }
  }
  for (int h = 0; h < kHeadTile; ++h) {
    for (int v = 0; v < V; ++v) {
      float* to = sums + h * width + v * kLanes;
      hn::Store(hn::Add(hn::Load(d, to), sum[h][v]), d, to);
    }
  }
}

void AddValues(const float* HWY_RESTRICT values, const float* HWY_RESTRICT weights, int64_t count, int64_t padded_heads,
               int64_t width, int64_t begin, int64_t end, const float* HWY_RESTRICT denominators,
               float* HWY_RESTRICT sums, int64_t heads, float* HWY_RESTRICT out) {
  const Tag d;
  const int64_t head_tiles = padded_heads / kHeadTile;
  const int64_t stride = KeyStride(width);
  const auto for_items = [&](const auto& body) HWY_ATTR {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t channel = item / head_tiles * kValueBlock;
      body(item % head_tiles * kHeadTile, channel, std::min(channel + kValueBlock, width));
    }
  };
  for_items([&](int64_t head, int64_t first, int64_t last) HWY_ATTR {
    for (int h = 0; h < kHeadTile; ++h)
      std::fill(sums + (head + h) * width + first, sums + (head + h) * width + last, 0.0f);
  });
  for (int64_t key = 0; key < count; key += kKeyChunk) {
    const int64_t keys = std::min(kKeyChunk, count - key);
    for_items([&](int64_t head, int64_t first, int64_t last) HWY_ATTR {
      const float* chunk_weights = weights + key * padded_heads + head;
      int64_t c = first;
      const auto run = [&](auto vectors) HWY_ATTR {
        constexpr int kV = decltype(vectors)::value;
        for (; c + kV * kLanes <= last; c += kV * kLanes) {
          ValueTile<kV>(values + key * stride + c, stride, chunk_weights, padded_heads, keys, sums + head * width + c,
                        width);
        }
      };
      run(std::integral_constant<int, kValueVectors>());
      run(std::integral_constant<int, 2>());
      run(std::integral_constant<int, 1>());
    });
  }
  for_items([&](int64_t head, int64_t first, int64_t last) HWY_ATTR {
    for (int64_t h = head; h < std::min(head + kHeadTile, heads); ++h) {
      const auto divisor = hn::Set(d, denominators[h]);
      for (int64_t block = first; block < last; block += 32) {
        const float* even = sums + h * width + block;
        for (int i = 0; i < 16; i += kLanes) {
          hn::StoreInterleaved2(hn::Div(hn::Load(d, even + i), divisor), hn::Div(hn::Load(d, even + 16 + i), divisor),
                                d, out + h * width + block + 2 * i);
        }
      }
    }
  });
}

void PoolPair(const float* HWY_RESTRICT first, const float* HWY_RESTRICT second, int64_t width,
              float* HWY_RESTRICT out) {
  const Tag d;
  const auto pool = [&](auto tag, int64_t c) HWY_ATTR {
    const auto gate0 = hn::LoadU(tag, first + width + c);
    const auto gate1 = hn::LoadU(tag, second + width + c);
    const auto maximum = hn::Max(gate0, gate1);
    const auto e0 = ExpNonPositive(tag, hn::Sub(gate0, maximum));
    const auto e1 = ExpNonPositive(tag, hn::Sub(gate1, maximum));
    const auto sum = hn::Add(e0, e1);
    const auto part = hn::Mul(hn::Div(e0, sum), hn::LoadU(tag, first + c));
    hn::StoreU(hn::MulAdd(hn::Div(e1, sum), hn::LoadU(tag, second + c), part), tag, out + c);
  };
  int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) pool(d, c);
  for (; c < width; ++c) pool(hn::CappedTag<float, 1>(), c);
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {
namespace {

HWY_EXPORT(TransposeQueries);
HWY_EXPORT(ScoreKeys);
HWY_EXPORT(SoftmaxWithSink);
HWY_EXPORT(AddValues);
HWY_EXPORT(PoolPair);

}  // namespace

void TransposeQueries(const float* q, int64_t heads, int64_t width, float* queries) {
  HWY_DYNAMIC_DISPATCH(TransposeQueries)(q, heads, width, queries);
}

void ScoreKeys(const KeyRow* keys, int64_t begin, int64_t end, int64_t width, const float* queries,
               int64_t padded_heads, float* values, float* scores) {
  HWY_DYNAMIC_DISPATCH(ScoreKeys)(keys, begin, end, width, queries, padded_heads, values, scores);
}

void SoftmaxWithSink(float* scores, int64_t count, int64_t padded_heads, int64_t begin, int64_t end, float scale,
                     const float* sinks, float* denominators) {
  HWY_DYNAMIC_DISPATCH(SoftmaxWithSink)(scores, count, padded_heads, begin, end, scale, sinks, denominators);
}

void AddValues(const float* values, const float* weights, int64_t count, int64_t padded_heads, int64_t width,
               int64_t begin, int64_t end, const float* denominators, float* sums, int64_t heads, float* out) {
  HWY_DYNAMIC_DISPATCH(AddValues)
  (values, weights, count, padded_heads, width, begin, end, denominators, sums, heads, out);
}

void PoolPair(const float* first, const float* second, int64_t width, float* out) {
  HWY_DYNAMIC_DISPATCH(PoolPair)(first, second, width, out);
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
