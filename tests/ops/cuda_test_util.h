// Host tensors and weights as device memory, for the tests of the CUDA launchers.
//
// Thread-safety: none needed. Ownership: every class owns its device memory until the end of its scope.
#ifndef DEEPINFER_TESTS_OPS_CUDA_TEST_UTIL_H_
#define DEEPINFER_TESTS_OPS_CUDA_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "ops/cuda/fp4_pairs.h"
#include "ops/cuda/skinny.h"
#include "ops/cuda/weight_store.h"
#include "ops_test_util.h"

namespace deepinfer::test {

inline constexpr float kUntouched = -77.125f;
inline void Check(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

/// Device memory that is freed at the end of its scope.
class DeviceBytes {
 public:
  DeviceBytes(const void* from, size_t bytes) {
    Check(cudaMalloc(&data_, std::max<size_t>(bytes, 1)));
    Check(cudaMemcpy(data_, from, bytes, cudaMemcpyHostToDevice));
  }
  template <typename T>
  explicit DeviceBytes(const std::vector<T>& values) : DeviceBytes(values.data(), values.size() * sizeof(T)) {}
  DeviceBytes(DeviceBytes&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
  DeviceBytes(const DeviceBytes&) = delete;
  ~DeviceBytes() { cudaFree(data_); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

/// Many pieces of device memory that live as long as this object.
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
      pages.push_back(Copy(host.pages[p] + host.offset, static_cast<size_t>(bytes)));
    }
    device.pages = Copy(pages);
    device.offset = 0;
    return device;
  }

 private:
  std::vector<void*> pieces_;
};

/// F32 rows on the device with gaps and two rows behind the last, which no kernel may touch.
class DeviceFloats {
 public:
  DeviceFloats(int64_t rows, int64_t columns)
      : rows_(rows),
        columns_(columns),
        stride_(columns + 6),
        bytes_(std::vector<float>(static_cast<size_t>((rows + 2) * stride_), kUntouched)) {}
  explicit DeviceFloats(const Tensor& from) : DeviceFloats(from.rows(), from.columns()) {
    for (int64_t t = 0; t < rows_; ++t) {
      Check(cudaMemcpy(bytes_.as<float>() + t * stride_, from.row(t), static_cast<size_t>(columns_) * 4,
                       cudaMemcpyHostToDevice));
    }
  }
  FloatView view() const { return {bytes_.as<float>(), rows_, columns_, stride_}; }
  Tensor Get() const {
    Check(cudaDeviceSynchronize());
    std::vector<float> all(static_cast<size_t>((rows_ + 2) * stride_));
    Check(cudaMemcpy(all.data(), bytes_.as<float>(), all.size() * 4, cudaMemcpyDeviceToHost));
    Tensor out(rows_, columns_);
    bool untouched = true;
    for (int64_t at = 0; at < std::ssize(all); ++at) {
      const float value = all[static_cast<size_t>(at)];
      if (at < rows_ * stride_ && at % stride_ < columns_) {
        out.row(at / stride_)[at % stride_] = value;
      } else {
        untouched = untouched && value == kUntouched;
      }
    }
    EXPECT_TRUE(untouched) << "gaps or rows behind the last";
    return out;
  }

 private:
  int64_t rows_, columns_, stride_;
  DeviceBytes bytes_;
};

/// BF16 rows on the device.
class DeviceRows {
 public:
  DeviceRows(int64_t rows, int64_t columns)
      : rows_(rows), columns_(columns), bytes_(std::vector<uint16_t>(static_cast<size_t>(rows * columns), 0xffff)) {}
  DeviceRows(const Tensor& x, cuda::ColumnOrder order) : DeviceRows(x.rows(), x.columns()) {
    const DeviceFloats floats(x);
    cuda::QuantiseRows(nullptr, floats.view(), order, From(0));
    Check(cudaDeviceSynchronize());
  }
  cuda::Bf16Rows From(int64_t row) const { return {bytes_.as<uint16_t>() + row * columns_, columns_}; }
  std::vector<uint16_t> Get() const {
    Check(cudaDeviceSynchronize());
    std::vector<uint16_t> all(static_cast<size_t>(rows_ * columns_));
    Check(cudaMemcpy(all.data(), bytes_.as<uint16_t>(), all.size() * 2, cudaMemcpyDeviceToHost));
    return all;
  }
  /// The values with columns in plain order.
  Tensor Plain(cuda::ColumnOrder order) const {
    const std::vector<uint16_t> all = Get();
    Tensor out(rows_, columns_);
    for (int64_t t = 0; t < rows_; ++t) {
      for (int64_t c = 0; c < columns_; ++c) {
        const uint16_t bits = all[static_cast<size_t>(t * columns_ + cuda::PlaceOf(order, c))];
        out.row(t)[c] = std::bit_cast<float>(uint32_t{bits} << 16);
      }
    }
    return out;
  }

 private:
  int64_t rows_, columns_;
  DeviceBytes bytes_;
};

/// FP4 codes of the host as WeightStore keeps them: in pair order.
inline std::vector<uint8_t> InPairOrder(std::vector<uint8_t> codes) {
  for (size_t i = 0; i + 4 <= codes.size(); i += 4) {
    uint32_t word = 0;
    std::memcpy(&word, &codes[i], 4);
    word = cuda::ToPairOrder(word);
    std::memcpy(&codes[i], &word, 4);
  }
  return codes;
}

/// A weight's bytes on the device, as kernels take them.
struct DeviceWeight {
  explicit DeviceWeight(const WeightMatrix& from)
      : values(from.data, static_cast<size_t>(from.rows * from.row_bytes())),
        scales(from.scale, static_cast<size_t>(from.total_bytes() - from.rows * from.row_bytes())),
        view(from) {
    view.data = values.as<uint8_t>();
    if (ValuesOf(from.format) == WeightBytes::kFp4Codes) {
      EXPECT_TRUE(cuda::OrderFp4(nullptr, values.as<uint8_t>(), from.rows * from.row_bytes()));
    }
    view.scale = scales.as<uint8_t>();
  }
  DeviceBytes values, scales;
  WeightMatrix view;
};

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_OPS_CUDA_TEST_UTIL_H_
