// Device copies for the tests that call launchers. Thread-safety: one thread. Ownership: the pool owns its memory.
#ifndef DEEPINFER_TESTS_OPS_CUDA_DEVICE_POOL_H_
#define DEEPINFER_TESTS_OPS_CUDA_DEVICE_POOL_H_

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ops/packed_rows.h"

namespace deepinfer::test {

inline void Check(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

/// Device memory that lives as long as this object.
class DevicePool {
 public:
  DevicePool() = default;
  DevicePool(const DevicePool&) = delete;
  ~DevicePool() {
    for (void* each : pieces_) cudaFree(each);
  }
  void* Take(size_t bytes) {
    void* data = nullptr;
    Check(cudaMalloc(&data, std::max<size_t>(bytes, 16)));
    pieces_.push_back(data);
    return data;
  }
  template <typename T>
  T* Copy(const T* from, size_t count) {
    void* data = Take(count * sizeof(T));
    if (count > 0) Check(cudaMemcpy(data, from, count * sizeof(T), cudaMemcpyHostToDevice));
    return static_cast<T*>(data);
  }
  template <typename T>
  T* Copy(const std::vector<T>& from) {
    return Copy(from.data(), from.size());
  }
  /// The pages that hold rows 0 .. count - 1.
  PackedRows Rows(const PackedRows& host, int64_t count) {
    PackedRows device = host;
    const int64_t bytes = host.rows_per_page * PackedRowBytes(host.format, host.channels).total();
    std::vector<uint8_t*> pages;
    for (int64_t p = 0; p * host.rows_per_page < count; ++p) {
      pages.push_back(Copy(host.pages[p], static_cast<size_t>(bytes)));
    }
    device.pages = Copy(pages);
    return device;
  }

 private:
  std::vector<void*> pieces_;
};

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_OPS_CUDA_DEVICE_POOL_H_
