#include "ops/cpu/machine_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/aligned_buffer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/machine_limits.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Xor of all bytes, eight registers at a time: reads at the machine's pace and cannot be optimised away.
uint64_t ReadAll(const uint8_t* data, int64_t bytes) {
  const hn::ScalableTag<uint64_t> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d)) * 8;
  auto a = hn::Zero(d);
  auto b = a;
  auto c = a;
  auto e = a;
  const auto load = [&](int64_t at) { return hn::Load(d, reinterpret_cast<const uint64_t*>(data + at)); };
  for (int64_t at = 0; at + 8 * step <= bytes; at += 8 * step) {
    a = hn::Xor(hn::Xor(a, load(at)), load(at + step));
    b = hn::Xor(hn::Xor(b, load(at + 2 * step)), load(at + 3 * step));
    c = hn::Xor(hn::Xor(c, load(at + 4 * step)), load(at + 5 * step));
    e = hn::Xor(hn::Xor(e, load(at + 6 * step)), load(at + 7 * step));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Xor(hn::Xor(a, b), hn::Xor(c, e))));
}

// `rounds` times twelve independent multiply-adds; returns their number of floating point operations.
double MultiplyAdd(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, *sink);
  auto v0 = hn::Iota(d, 0.0f), v1 = hn::Iota(d, 1.0f), v2 = hn::Iota(d, 2.0f), v3 = hn::Iota(d, 3.0f);
  auto v4 = hn::Iota(d, 4.0f), v5 = hn::Iota(d, 5.0f), v6 = hn::Iota(d, 6.0f), v7 = hn::Iota(d, 7.0f);
  auto v8 = hn::Iota(d, 8.0f), v9 = hn::Iota(d, 9.0f), v10 = hn::Iota(d, 10.0f), v11 = hn::Iota(d, 11.0f);
  for (int64_t round = 0; round < rounds; ++round) {
    v0 = hn::MulAdd(v0, factor, factor);
    v1 = hn::MulAdd(v1, factor, factor);
    v2 = hn::MulAdd(v2, factor, factor);
    v3 = hn::MulAdd(v3, factor, factor);
    v4 = hn::MulAdd(v4, factor, factor);
    v5 = hn::MulAdd(v5, factor, factor);
    v6 = hn::MulAdd(v6, factor, factor);
    v7 = hn::MulAdd(v7, factor, factor);
    v8 = hn::MulAdd(v8, factor, factor);
    v9 = hn::MulAdd(v9, factor, factor);
    v10 = hn::MulAdd(v10, factor, factor);
    v11 = hn::MulAdd(v11, factor, factor);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(v0, v1), hn::Add(v2, v3)), hn::Add(hn::Add(v4, v5), hn::Add(v6, v7)));
  *sink = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum, hn::Add(hn::Add(v8, v9), hn::Add(v10, v11)))));
  return static_cast<double>(rounds) * 12 * 2 * static_cast<double>(hn::Lanes(d));
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {
namespace {

HWY_EXPORT(ReadAll);
HWY_EXPORT(MultiplyAdd);

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

Result<MachineLimits> MeasureMachineLimits(ThreadPool& pool, double seconds, int64_t buffer_bytes) {
  AlignedBuffer<uint8_t> buffer;
  if (!buffer.Allocate(buffer_bytes)) return Status::ResourceExhausted("no memory for the read bandwidth test");
  pool.Run([&](int worker) {
    const StaticRange range = SplitRange(buffer.size(), worker, pool.workers(), 4096);
    std::memset(buffer.data() + range.begin, 1, static_cast<size_t>(range.end - range.begin));
  });
  MachineLimits limits;
  std::atomic<uint64_t> sink{0};
  const double read_until = Now() + seconds / 2;
  do {
    const double start = Now();
    pool.Run([&](int worker) {
      const StaticRange range = SplitRange(buffer.size(), worker, pool.workers(), 4096);
      sink += HWY_DYNAMIC_DISPATCH(ReadAll)(buffer.data() + range.begin, range.end - range.begin);
    });
    limits.read_bytes_per_second =
        std::max(limits.read_bytes_per_second, static_cast<double>(buffer.size()) / (Now() - start));
  } while (Now() < read_until);
  const double multiply_until = Now() + seconds / 2;
  do {
    std::atomic<double> flops{0};
    const double start = Now();
    pool.Run([&](int) {
      float factor = 0.5f;
      flops.fetch_add(HWY_DYNAMIC_DISPATCH(MultiplyAdd)(2'000'000, &factor));
      sink += factor > 1e9f ? 1 : 0;
    });
    limits.fma_flops_per_second = std::max(limits.fma_flops_per_second, flops.load() / (Now() - start));
  } while (Now() < multiply_until);
  return limits;
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
