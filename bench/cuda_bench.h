// The bench of the CUDA kernels: device memory, timing, and one table row per case.
//
// Thread-safety: one thread. Ownership: buffers own device memory. Errors: the program ends with a message.
#ifndef DEEPINFER_BENCH_CUDA_BENCH_H_
#define DEEPINFER_BENCH_CUDA_BENCH_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/tensor_view.h"
#include "base/weight_matrix.h"
#include "cuda_probe.h"
#include "ops/cuda/skinny.h"

namespace deepinfer::bench {

void Check(cudaError_t error, const char* what);

/// Device memory that is freed at the end of its scope.
class Buffer {
 public:
  explicit Buffer(int64_t bytes);
  ~Buffer() { cudaFree(data_); }
  Buffer(Buffer&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

/// The limits of this GPU, measured in this run.
struct Limits {
  double read_bytes_per_second = 0;
  double bf16_flops_per_second = 0;
  std::string bf16_source;  ///< what measured it
};

struct Bench {
  cudaStream_t stream = nullptr;
  Limits limits;
  std::string only;                                 ///< part of a case's name, or empty
  cuda::SkinnyFeed feed = cuda::SkinnyFeed::kAuto;  ///< of cases that do not compare feeds
  int stages = 0;                                   ///< UseSkinnyFeed
  bool Wanted(const std::string& name) const { return name.find(only) != std::string::npos; }
  /// Seconds of one call of `run(i)`, i = 0 .. calls - 1: a graph of all calls, replayed; the median.
  double Time(int calls, const std::function<void(int)>& run) const;
  /// One row: share of the read bandwidth by `bytes`, of the tensor peak by `flops`; 0 leaves one out.
  void Report(const std::string& name, double seconds, double bytes, double flops) const;
};

/// A random weight of kF8Block32, kF4Row32 or kBF16 on the device.
struct DeviceWeight {
  DeviceWeight(const Bench& bench, WeightFormat format, int64_t rows, int64_t columns, uint64_t seed);
  WeightMatrix view;
  Buffer bytes;  ///< values, then scales
};

/// Random rows, and their quantised form.
struct DeviceRows {
  DeviceRows(const Bench& bench, int64_t rows, int64_t columns, uint64_t seed, cuda::ColumnOrder order);
  Buffer floats, values;
  ConstFloatView view;
  cuda::Bf16Rows quantised;
};

/// ||a - b|| / ||b||.
double RelativeDifference(const Bench& bench, const float* a, const float* b, int64_t count);

void BenchLinear(const Bench& bench);
void BenchExperts(const Bench& bench);
void BenchWide(const Bench& bench);
void BenchAttention(const Bench& bench);
void BenchIndex(const Bench& bench);
void BenchExpertLayers(const Bench& bench);
void BenchSmallOps(const Bench& bench);

}  // namespace deepinfer::bench

#endif  // DEEPINFER_BENCH_CUDA_BENCH_H_
