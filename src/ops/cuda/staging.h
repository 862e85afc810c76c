// Staging: host views as device views for the length of one op.
//
// In() copies to the GPU, Out() gives room and copies back in Finish(), InOut() does both. Thread-safety: one thread.
// Ownership: device pieces belong to the arena, weight copies to the store. Errors: the first CUDA error is kept; from
// then on nothing is launched and Finish() fills the outputs with NaN.
#ifndef DEEPINFER_OPS_CUDA_STAGING_H_
#define DEEPINFER_OPS_CUDA_STAGING_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/tensor_view.h"
#include "base/weight_matrix.h"
#include "deepinfer/status.h"
#include "ops/cuda/device_arena.h"
#include "ops/packed_rows.h"

namespace deepinfer::cuda {

/// Copies of weights that stay on the GPU, found by their host address and size.
class WeightStore {
 public:
  WeightStore() = default;
  ~WeightStore();
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;
  /// The copy of these bytes, made at the first call; null when the GPU has no memory left.
  const uint8_t* Find(const uint8_t* host, int64_t bytes, cudaStream_t stream);
  int64_t bytes() const { return bytes_; }

 private:
  std::map<std::pair<const uint8_t*, int64_t>, uint8_t*> copies_;
  int64_t bytes_ = 0;
};

class Staging {
 public:
  /// `store` null: weights are copied for this op only.
  Staging(cudaStream_t stream, DeviceArena& arena, WeightStore* store)
      : stream_(stream), arena_(arena), store_(store) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  cudaStream_t stream() const { return stream_; }
  bool ok() const { return status_.ok(); }

  ConstFloatView In(ConstFloatView host) { return Upload(host); }
  FloatView Out(FloatView host);
  FloatView InOut(FloatView host);
  /// Device memory only.
  FloatView Temporary(int64_t rows, int64_t columns);
  template <typename T>
  T* Room(int64_t count) {
    return static_cast<T*>(Take(count * static_cast<int64_t>(sizeof(T))));
  }
  template <typename T>
  T* Array(std::span<const T> host) {
    return static_cast<T*>(Bytes(host.data(), static_cast<int64_t>(host.size_bytes())));
  }
  /// Copied back by Finish(): `count` elements.
  template <typename T>
  T* OutArray(T* host, int64_t count) {
    T* device = Room<T>(count);
    CopyBack(host, device, count * static_cast<int64_t>(sizeof(T)));
    return device;
  }
  WeightMatrix Weight(const WeightMatrix& host);
  WeightVector Vector(const WeightVector& host);
  /// Rows 0 .. count - 1, page by page, with the list of their device pages.
  PackedRows Rows(const PackedRows& host, int64_t count);
  /// The rows with these numbers as a table of their own.
  WeightMatrix SomeRows(const WeightMatrix& host, std::span<const int64_t> rows);
  void CopyBack(void* host, const void* device, int64_t bytes);

  /// Copies the outputs back and waits; safe to call twice.
  Status Finish();

 private:
  struct Copy {
    void* host;
    const void* device;
    int64_t bytes;
  };
  struct Output {
    FloatView host;
    FloatView device;
  };
  void* Take(int64_t bytes);
  void* Bytes(const void* host, int64_t bytes);
  FloatView Upload(ConstFloatView host);
  void Check(cudaError_t error, const char* what);

  cudaStream_t stream_;
  DeviceArena& arena_;
  WeightStore* store_;
  Status status_;
  bool finished_ = false;
  std::vector<Output> outputs_;
  std::vector<Copy> copies_;
};

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_STAGING_H_
