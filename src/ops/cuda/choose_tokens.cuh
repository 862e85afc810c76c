// The arithmetic of sampling on the device: ops/sampling_order.h and base/counter_rng.h, to the bit.
#ifndef DEEPINFER_OPS_CUDA_CHOOSE_TOKENS_CUH_
#define DEEPINFER_OPS_CUDA_CHOOSE_TOKENS_CUH_

#include <cstdint>

#include "ops/cuda/choose_tokens_kernels.h"
#include "ops/sampling_order.h"

namespace deepinfer::cuda {

inline constexpr float kLowestLogit = -3.402823466e+38f;
inline constexpr int32_t kLastId = 0x7fffffff;

/// sampling::ExpNonPositive.
__device__ __forceinline__ double ExpNonPositive(double x) {
  constexpr double kTerms[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                               1.0 / 120,      1.0 / 24,      1.0 / 6,      1.0 / 2,     1.0,        1.0};
  constexpr int kCount = sizeof(kTerms) / sizeof(double);
  static_assert(kCount == sizeof(sampling::kExpTerms) / sizeof(double) && kTerms[0] == sampling::kExpTerms[0]);
  if (!(x >= sampling::kExpLowest)) return 0;
  const double shifted = x * sampling::kLog2E + sampling::kRounder;
  const double n = shifted - sampling::kRounder;
  const double r = (x - n * sampling::kLn2High) - n * sampling::kLn2Low;
  double sum = kTerms[0];
#pragma unroll
  for (int i = 1; i < kCount; ++i) sum = sum * r + kTerms[i];
  return __longlong_as_double(__double_as_longlong(sum) + (__double_as_longlong(shifted) << 52));
}

/// sampling::FiniteFloat.
__device__ __forceinline__ float FiniteFloat(double value) {
  constexpr double kLargest = -double{kLowestLogit};
  return static_cast<float>(value < -kLargest ? -kLargest : value > kLargest ? kLargest : value);
}

/// CounterBits of ids `even` and even + 1.
struct NoiseBits {
  uint64_t even, odd;
};
__device__ __forceinline__ NoiseBits CounterBitsOfPair(const DeviceRule& rule, uint32_t even) {
  uint32_t c0 = even / 2, c1 = static_cast<uint32_t>(rule.position), c2 = static_cast<uint32_t>(rule.position >> 32);
  uint32_t c3 = rule.purpose;
  uint32_t k0 = static_cast<uint32_t>(rule.seed), k1 = static_cast<uint32_t>(rule.seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t{0xD2511F53} * c0;
    const uint64_t right = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(right >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(right);
    c2 = static_cast<uint32_t>(left >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(left);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {uint64_t{c1} << 32 | c0, uint64_t{c3} << 32 | c2};
}

/// Gumbel(bits) within a few units of the last place.
__device__ __forceinline__ double Noise(uint64_t bits) {
  return -log(-log((static_cast<double>(bits >> 12) + 0.5) * 0x1p-52));
}

/// More than Gumbel of these bits, and of any; for why see NoiseBounds in ops/cpu/sampling_kernels.cc.
inline constexpr float kMostNoise = 36.75f;
inline constexpr float kBoundSlack = 1e-3f;  // more than what F32 rounds away in sums with a bound, where they matter
__device__ __forceinline__ float NoiseBound(uint64_t bits) {
  constexpr float kLog2 = 0.69314718f;
  const float rest = static_cast<float>(static_cast<int32_t>(~static_cast<uint32_t>(bits >> 32) >> 8));
  return kLog2 * (24 + 127) - static_cast<float>(__float_as_int(rest)) * (kLog2 * 0x1p-23f);
}

/// Larger logits have larger keys, never 0; -0 equals +0.
__device__ __forceinline__ uint32_t KeyOfLogit(float logit) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float LogitOfKey(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

__device__ __forceinline__ bool Keeps(const RankCut& cut, float logit, int32_t id) {
  return logit > cut.logit || (logit == cut.logit && id <= cut.id);
}

/// Keeps the larger logit, of equal ones the lower id.
__device__ __forceinline__ void TakeLarger(LogitAt& largest, float logit, int32_t id) {
  if (logit > largest.logit || (logit == largest.logit && id < largest.id)) largest = {logit, id};
}

/// A row as the law sees it.
struct LawRow {
  const float* logits;
  LogitAt likeliest;  // id -1: nothing to choose from
};
/// Row t after steps 1 to 3, or as the model gave it.
__device__ __forceinline__ LawRow LawRowOf(const SamplingRows& rows, int64_t t, bool raw) {
  const int32_t changed = rows.rules[t].changed_row;
  LawRow row{
      raw || changed < 0 ? rows.logits.data + t * rows.logits.stride : rows.changed + changed * rows.logits.columns,
      {-INFINITY, kLastId}};
  bool numbers = true;
  for (int p = 0; p < rows.parts; ++p) {
    const RowPart& part = rows.row_parts[t * rows.parts + p];
    const LogitAt& largest = raw ? part.raw : part.changed;
    numbers = numbers && part.numbers != 0;
    if (largest.id >= 0) TakeLarger(row.likeliest, largest.logit, largest.id);
  }
  if (!numbers || row.likeliest.id == kLastId) row.likeliest.id = -1;
  return row;
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_CHOOSE_TOKENS_CUH_
