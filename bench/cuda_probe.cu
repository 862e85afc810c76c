// The limits of a GPU that cuda_bench compares with, and random device data.
#include "cuda_probe.h"

namespace deepinfer::bench {
namespace {

__device__ uint32_t Hash(uint64_t x) {
  x ^= x >> 31;
  x *= 0x9e3779b97f4a7c15ull;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9ull;
  return static_cast<uint32_t>(x >> 32);
}

__global__ void FillKernel(uint8_t* bytes, int64_t count, uint64_t seed, Fill fill) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    uint8_t byte = static_cast<uint8_t>(Hash(static_cast<uint64_t>(i) + seed * 0x10001));
    if (fill == Fill::kE4m3 && (byte & 0x7f) == 0x7f) byte ^= 1;
    if (fill == Fill::kScales) byte = static_cast<uint8_t>(118 + byte % 8);
    bytes[i] = byte;
  }
}

__global__ void FillFloatKernel(float* values, int64_t count, uint64_t seed) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    const uint32_t bits = Hash(static_cast<uint64_t>(i) + seed * 0x10001);
    values[i] = (static_cast<float>(bits & 0xffff) + static_cast<float>(bits >> 16) - 65535.0f) * 0x1p-15f;
  }
}

__global__ void FillBf16Kernel(uint16_t* values, int64_t count, uint64_t seed) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    const uint32_t bits = Hash(static_cast<uint64_t>(i) + seed * 0x10001);
    const float value = (static_cast<float>(bits & 0xffff) + static_cast<float>(bits >> 16) - 65535.0f) * 0x1p-15f;
    values[i] = static_cast<uint16_t>(__float_as_uint(value) >> 16);
  }
}

__global__ void CompareKernel(const float* a, const float* b, int64_t count, double* sums) {
  double difference = 0, norm = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    const double d = double{a[i]} - double{b[i]};
    difference += d * d;
    norm += double{b[i]} * double{b[i]};
  }
  atomicAdd(sums, difference);
  atomicAdd(sums + 1, norm);
}

}  // namespace

void FillBytes(cudaStream_t stream, void* data, int64_t bytes, uint64_t seed, Fill fill) {
  FillKernel<<<2048, 256, 0, stream>>>(static_cast<uint8_t*>(data), bytes, seed, fill);
}

void FillFloats(cudaStream_t stream, float* data, int64_t count, uint64_t seed) {
  FillFloatKernel<<<2048, 256, 0, stream>>>(data, count, seed);
}

void FillBf16(cudaStream_t stream, void* data, int64_t count, uint64_t seed) {
  FillBf16Kernel<<<2048, 256, 0, stream>>>(static_cast<uint16_t*>(data), count, seed);
}

void Compare(cudaStream_t stream, const float* a, const float* b, int64_t count, double* sums) {
  CompareKernel<<<512, 256, 0, stream>>>(a, b, count, sums);
}

}  // namespace deepinfer::bench
