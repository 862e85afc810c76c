#include "ops/reference/dot.h"

#include "ops/dot_order.h"

namespace deepinfer::reference {
namespace {

float PortableDot(const float* values, const float* scales, const float* x, int64_t columns) {
  return CanonicalDot(values, scales, x, columns);
}

#if defined(__x86_64__)
[[gnu::target("avx,fma")]] float FmaDot(const float* values, const float* scales, const float* x, int64_t columns) {
  return CanonicalDot(values, scales, x, columns);
}
const bool kHasFma = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx");
#endif

}  // namespace

float Dot(const float* values, const float* scales, const float* x, int64_t columns) {
#if defined(__x86_64__)
  if (kHasFma) return FmaDot(values, scales, x, columns);
#endif
  return PortableDot(values, scales, x, columns);
}

}  // namespace deepinfer::reference
