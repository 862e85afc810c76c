// What cuda_bench measures a GPU by. Thread-safety: any thread. Ownership: none.
#ifndef DEEPINFER_BENCH_CUDA_PROBE_H_
#define DEEPINFER_BENCH_CUDA_PROBE_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace deepinfer::bench {

enum class Fill : uint8_t { kAny, kE4m3, kScales };

void FillBytes(cudaStream_t stream, void* data, int64_t bytes, uint64_t seed, Fill fill);
/// Triangular on -2 .. 2.
void FillFloats(cudaStream_t stream, float* data, int64_t count, uint64_t seed);
void FillBf16(cudaStream_t stream, void* data, int64_t count, uint64_t seed);
/// sums[0] += |a - b|^2, sums[1] += |b|^2.
void Compare(cudaStream_t stream, const float* a, const float* b, int64_t count, double* sums);

}  // namespace deepinfer::bench

#endif  // DEEPINFER_BENCH_CUDA_PROBE_H_
