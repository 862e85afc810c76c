// Weights that are made where they are used (base/generated_weights.h), FP4 codes that are brought to pair order there
// (fp4_pairs.h), and the limits of a GPU (device_limits.h).
#include <cassert>

#include "ops/cuda/device_limits.h"
#include "ops/cuda/fp4_pairs.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/weight_store.h"
#include "ops/cuda/wgmma.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kFillBlocks = 2048;

// A thread makes one word of eight bytes after another; `first` is the word that holds byte `offset`.
__global__ void FillWeightsKernel(WeightRecipe recipe, int64_t offset, int64_t bytes, uint8_t* to) {
  __shared__ uint8_t table[256];
  table[threadIdx.x] = recipe.table[threadIdx.x];
  __syncthreads();
  const int64_t end = (offset + bytes + 7) / 8;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t index = offset / 8 + int64_t{blockIdx.x} * kThreads + threadIdx.x; index < end; index += step) {
    const uint64_t word = recipe.Word(index, table);
    const int64_t at = 8 * index - offset;
    if (offset % 8 == 0 && at + 8 <= bytes) {
      *reinterpret_cast<uint64_t*>(to + at) = word;
      continue;
    }
    for (int k = 0; k < 8; ++k) {
      if (at + k >= 0 && at + k < bytes) to[at + k] = static_cast<uint8_t>(word >> (8 * k));
    }
  }
  __threadfence();  // the kernel behind may read weights before it waits (early_launch.cuh)
}

__global__ void OrderFp4Kernel(uint4* words, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const uint4 released = words[i];
    words[i] =
        make_uint4(ToPairOrder(released.x), ToPairOrder(released.y), ToPairOrder(released.z), ToPairOrder(released.w));
  }
  __threadfence();  // as above
}

__global__ void ReadKernel(const uint4* data, int64_t count, uint32_t* sink) {
  uint32_t mixed = 0;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {
    const uint4 a = __ldcs(data + i), b = __ldcs(data + i + stride);
    const uint4 c = __ldcs(data + i + 2 * stride), d = __ldcs(data + i + 3 * stride);
    mixed ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  if (mixed == 0x12345678u) *sink = mixed;  // the loads are needed
}

constexpr int kGroups = 3;  // warp groups of a block
constexpr int kTilesARound = 4;
constexpr int kATile = 64 * 64 * 2;
constexpr int kBTile = 128 * 64 * 2;
constexpr int kProductBytes = kGroups * kATile + kBTile + 1024;

// Every warp group multiplies the same 64 x 64 by 64 x 128 BF16 tile of shared memory again and again.
__global__ void __launch_bounds__(kGroups * 128) MultiplyKernel(int rounds, float* sink) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t shared[];
  const uint32_t base = (SharedAddress(shared) + 1023) / 1024 * 1024;
  uint8_t* const bytes = shared + (base - SharedAddress(shared));
  for (int i = static_cast<int>(threadIdx.x); i < (kGroups * kATile + kBTile) / 2; i += kGroups * 128) {
    const uint32_t random = static_cast<uint32_t>(i) * 2654435761u;
    // Between 0.5 and 2, either sign: as many bits change as with weights.
    reinterpret_cast<uint16_t*>(bytes)[i] = static_cast<uint16_t>(0x3f00 | random >> 24 | (random & 1) << 15);
  }
  FenceSharedForAsync();
  __syncthreads();
  const uint32_t a = base + kBTile + threadIdx.x / 128 * kATile;
  float sums[64] = {};
  for (int round = 0; round < rounds; ++round) {
    WgmmaFence();
#pragma unroll
    for (uint32_t k = 0; k < 4 * kTilesARound; ++k) {
      Wgmma64x128(sums, SwizzledMatrix(a + k % 4 * 32), SwizzledMatrix(base + k % 4 * 32));
    }
    WgmmaCommit();
    WgmmaWait<0>();
  }
  float total = 0;
#pragma unroll
  for (int i = 0; i < 64; ++i) total += sums[i];
  if (total == 0.25f) *sink = total;
#endif
}

// A stream with two events; frees what it made.
class Timer {
 public:
  Timer() : ok_(Make()) {}
  ~Timer() {
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  bool ok() const { return ok_; }

  // The least time of one launch in about `seconds`; 0 after an error.
  template <typename Launch>
  double Best(double seconds, Launch launch) {
    double best = 0;
    double spent = 0;
    for (int run = 0; spent < seconds || run < 3; ++run) {
      float milliseconds = 0;
      cudaEventRecord(begin_, stream_);
      launch(stream_);
      cudaEventRecord(end_, stream_);
      if (cudaEventSynchronize(end_) != cudaSuccess || cudaGetLastError() != cudaSuccess ||
          cudaEventElapsedTime(&milliseconds, begin_, end_) != cudaSuccess || milliseconds <= 0) {
        return 0;
      }
      spent += 1e-3 * milliseconds;
      if (run > 0 && (best == 0 || 1e-3 * milliseconds < best)) best = 1e-3 * milliseconds;
    }
    return best;
  }

 private:
  bool Make() {
    return cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess &&
           cudaEventCreate(&begin_) == cudaSuccess && cudaEventCreate(&end_) == cudaSuccess;
  }

  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  bool ok_;
};

}  // namespace

bool FillWeights(cudaStream_t stream, const WeightRecipe& recipe, int64_t offset, int64_t bytes, uint8_t* to) {
  static_assert(kThreads == 256);  // a thread an entry of the table
  if (bytes <= 0) return true;
  const int64_t blocks = (bytes / 8 + kThreads) / kThreads;
  FillWeightsKernel<<<static_cast<unsigned>(blocks < kFillBlocks ? blocks : kFillBlocks), kThreads, 0, stream>>>(
      recipe, offset, bytes, to);
  return cudaGetLastError() == cudaSuccess;
}

bool OrderFp4(cudaStream_t stream, uint8_t* codes, int64_t bytes) {
  assert(reinterpret_cast<uintptr_t>(codes) % sizeof(uint4) == 0 && bytes % static_cast<int64_t>(sizeof(uint4)) == 0);
  if (bytes <= 0) return true;
  const int64_t count = bytes / static_cast<int64_t>(sizeof(uint4));
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  OrderFp4Kernel<<<static_cast<unsigned>(blocks < kFillBlocks ? blocks : kFillBlocks), kThreads, 0, stream>>>(
      reinterpret_cast<uint4*>(codes), count);
  return cudaGetLastError() == cudaSuccess;
}

DeviceLimits MeasureDeviceLimits(int device, double seconds, int64_t buffer_bytes) {
  DeviceLimits limits;
  int before = 0;
  int processors = 0;
  int major = 0;
  uint8_t* buffer = nullptr;
  if (cudaGetDevice(&before) != cudaSuccess || cudaSetDevice(device) != cudaSuccess) return limits;
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (cudaMalloc(reinterpret_cast<void**>(&buffer), static_cast<size_t>(buffer_bytes) + 16) == cudaSuccess) {
    Timer timer;
    auto* sink = reinterpret_cast<uint32_t*>(buffer + buffer_bytes);
    WeightRecipe random;
    random.kind = WeightRecipe::Kind::kF32;
    random.deviation = 1;
    if (timer.ok() &&
        timer.Best(0, [&](cudaStream_t stream) { FillWeights(stream, random, 0, buffer_bytes, buffer); }) > 0) {
      const double read = timer.Best(seconds / 2, [&](cudaStream_t stream) {
        ReadKernel<<<processors * 8, 512, 0, stream>>>(reinterpret_cast<const uint4*>(buffer), buffer_bytes / 16, sink);
      });
      // The kernel leaves out the rest of the last sweep.
      const int64_t sweep = int64_t{processors} * 8 * 512 * 4 * 16;
      if (read > 0) limits.read_bytes_per_second = static_cast<double>(buffer_bytes / sweep * sweep) / read;
      constexpr int kRounds = 1024;
      if (major == 9 && cudaFuncSetAttribute(MultiplyKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             kProductBytes) == cudaSuccess) {
        const double product = timer.Best(seconds / 2, [&](cudaStream_t stream) {
          MultiplyKernel<<<processors, kGroups * 128, kProductBytes, stream>>>(kRounds, reinterpret_cast<float*>(sink));
        });
        const double flops = 2.0 * 64 * 128 * 64 * kTilesARound * kRounds * kGroups * processors;
        if (product > 0) limits.tensor_flops_per_second = flops / product;
      }
    }
  }
  cudaFree(buffer);
  cudaGetLastError();  // the next launch is not to blame
  cudaSetDevice(before);
  return limits;
}

}  // namespace deepinfer::cuda
