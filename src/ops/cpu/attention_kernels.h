// The inner loops of attention, compiled once per instruction set; attention.cc arranges them.
//
// Shapes: H heads padded to Hp = PaddedHeads(H), Dh channels (a multiple of 32), n keys. De-quantised keys have
// KeyStride(Dh) floats per row. "Split order" of channels is defined in unpack-inl.h.
//
// Thread-safety: pure functions on the caller's buffers; calls on disjoint ranges may run at the same time.
#ifndef DEEPINFER_OPS_CPU_ATTENTION_KERNELS_H_
#define DEEPINFER_OPS_CPU_ATTENTION_KERNELS_H_

#include <cstdint>

#include "ops/cpu/unpack_rows.h"

namespace deepinfer::cpu {

/// Ranges of keys begin at a multiple of this; buffers of n keys or scores have room for n rounded up to it.
inline constexpr int64_t kKeyGrain = 12;
/// Channels of one item of AddValues.
inline constexpr int64_t kValueBlock = 64;
/// Heads of one item of AddValues.
inline constexpr int64_t kHeadTile = 4;

constexpr int64_t PaddedHeads(int64_t heads) { return (heads + kHeadTile - 1) / kHeadTile * kHeadTile; }
/// One cache line of padding keeps the rows of a tile out of each other's cache sets.
constexpr int64_t KeyStride(int64_t width) { return width + 16; }

/// queries [Dh in split order, Hp] from q [H, Dh]; padding heads repeat the last one.
void TransposeQueries(const float* q, int64_t heads, int64_t width, float* queries);

/// De-quantises keys begin..end-1 into values (row j at values + j * KeyStride) and writes scores [n, Hp]: plain dot
/// products, not yet scaled.
void ScoreKeys(const KeyRow* keys, int64_t begin, int64_t end, int64_t width, const float* queries,
               int64_t padded_heads, float* values, float* scores);

/// Turns the scores of heads begin..end-1 (multiples of kHeadTile) into e^(scale * score - m) and writes
/// their sum + e^(sink - m) to denominators[head]. sinks, denominators [Hp].
void SoftmaxWithSink(float* scores, int64_t count, int64_t padded_heads, int64_t begin, int64_t end, float scale,
                     const float* sinks, float* denominators);

/// Items of AddValues for one token.
constexpr int64_t ValueItems(int64_t padded_heads, int64_t width) {
  return (width + kValueBlock - 1) / kValueBlock * (padded_heads / kHeadTile);
}

/// out[h, :] = (sum_j weights[j, h] * values[j, :]) / denominators[h] for the (channel block, head tile) items
/// begin..end-1, channels back in natural order. sums [Hp, Dh] is scratch; out has `heads` rows.
void AddValues(const float* values, const float* weights, int64_t count, int64_t padded_heads, int64_t width,
               int64_t begin, int64_t end, const float* denominators, float* sums, int64_t heads, float* out);

/// Two-way softmax pooling of one pair: first, second = kv [width] ++ gate [width]; out [width].
void PoolPair(const float* first, const float* second, int64_t width, float* out);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_ATTENTION_KERNELS_H_
