#include "ops/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

namespace deepinfer::cuda {

WeightStore::~WeightStore() {
  for (const auto& [key, data] : copies_) cudaFree(data);
}

const uint8_t* WeightStore::Find(const uint8_t* host, int64_t bytes, cudaStream_t stream) {
  const auto [entry, added] = copies_.try_emplace({host, bytes}, nullptr);
  if (!added) return entry->second;
  void* data = nullptr;
  if (cudaMalloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1))) != cudaSuccess ||
      cudaMemcpyAsync(data, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream) != cudaSuccess) {
    cudaFree(data);
    copies_.erase(entry);
    return nullptr;
  }
  entry->second = static_cast<uint8_t*>(data);
  bytes_ += bytes;
  return entry->second;
}

void Staging::Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess || !status_.ok()) return;
  status_ = Status::Internal(std::string("CUDA: ") + what + ": " + cudaGetErrorString(error));
}

void* Staging::Take(int64_t bytes) {
  if (!ok()) return nullptr;
  void* piece = arena_.Take(static_cast<size_t>(bytes));
  if (piece == nullptr) Check(cudaErrorMemoryAllocation, "scratch");
  return piece;
}

void* Staging::Bytes(const void* host, int64_t bytes) {
  void* device = Take(bytes);
  if (device != nullptr && bytes > 0) {
    Check(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_),
          "copy to the GPU");
  }
  return device;
}

FloatView Staging::Temporary(int64_t rows, int64_t columns) {
  const int64_t stride = (columns + 3) / 4 * 4;  // rows start at 16 bytes
  return {Room<float>(rows * stride), rows, columns, stride};
}

FloatView Staging::Upload(ConstFloatView host) {
  if (host.data == nullptr) return {};
  const FloatView device = Temporary(host.rows, host.columns);
  if (ok() && host.rows > 0 && host.columns > 0) {
    Check(cudaMemcpy2DAsync(device.data, static_cast<size_t>(device.stride) * 4, host.data,
                            static_cast<size_t>(std::max(host.stride, host.columns)) * 4,
                            static_cast<size_t>(host.columns) * 4, static_cast<size_t>(host.rows),
                            cudaMemcpyHostToDevice, stream_),
          "copy to the GPU");
  }
  return device;
}

FloatView Staging::Out(FloatView host) {
  if (host.data == nullptr) return {};
  const FloatView device = Temporary(host.rows, host.columns);
  outputs_.push_back({host, device});
  return device;
}

FloatView Staging::InOut(FloatView host) {
  const FloatView device = Upload(host);
  outputs_.push_back({host, device});
  return device;
}

void Staging::CopyBack(void* host, const void* device, int64_t bytes) { copies_.push_back({host, device, bytes}); }

WeightMatrix Staging::Weight(const WeightMatrix& host) {
  WeightMatrix device = host;
  const int64_t value_bytes = host.rows * host.row_bytes();
  const int64_t scale_bytes = host.total_bytes() - value_bytes;
  const auto place = [&](const uint8_t* data, int64_t bytes) -> const uint8_t* {
    if (data == nullptr) return nullptr;
    if (store_ == nullptr) return static_cast<const uint8_t*>(Bytes(data, bytes));
    const uint8_t* copy = store_->Find(data, bytes, stream_);
    if (copy == nullptr) Check(cudaErrorMemoryAllocation, "weights");
    return copy;
  };
  device.data = place(host.data, value_bytes);
  device.scale = place(host.scale, scale_bytes);
  return device;
}

WeightVector Staging::Vector(const WeightVector& host) {
  const WeightMatrix matrix{host.data, nullptr, host.is_bf16 ? WeightFormat::kBF16 : WeightFormat::kF32, 1, host.size};
  WeightVector device = host;
  device.data = Weight(matrix).data;
  return device;
}

PackedRows Staging::Rows(const PackedRows& host, int64_t count) {
  PackedRows device = host;
  const int64_t pages = (count + host.rows_per_page - 1) / host.rows_per_page;
  const int64_t page_bytes = host.rows_per_page * PackedRowBytes(host.format, host.channels).total();
  std::vector<uint8_t*> list(static_cast<size_t>(pages));
  for (int64_t p = 0; p < pages; ++p)
    list[static_cast<size_t>(p)] = static_cast<uint8_t*>(Bytes(host.pages[p], page_bytes));
  device.pages = Array(std::span<uint8_t* const>(list));
  // The list is on this function's stack.
  if (ok()) Check(cudaStreamSynchronize(stream_), "copy to the GPU");
  return device;
}

WeightMatrix Staging::SomeRows(const WeightMatrix& host, std::span<const int64_t> rows) {
  const size_t row_bytes = static_cast<size_t>(host.row_bytes());
  const size_t scale_bytes = static_cast<size_t>(host.scale_row_bytes());
  std::vector<uint8_t> values(rows.size() * row_bytes);
  std::vector<uint8_t> scales(rows.size() * scale_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(values.data() + i * row_bytes, host.data + rows[i] * host.row_bytes(), row_bytes);
    if (scale_bytes > 0) std::memcpy(scales.data() + i * scale_bytes, host.scale_row(rows[i]), scale_bytes);
  }
  WeightMatrix device = host;
  if (host.format == WeightFormat::kF8Block32) device.format = WeightFormat::kF8Row32;
  device.rows = static_cast<int64_t>(rows.size());
  device.data = static_cast<const uint8_t*>(Bytes(values.data(), static_cast<int64_t>(values.size())));
  device.scale = scale_bytes == 0
                     ? nullptr
                     : static_cast<const uint8_t*>(Bytes(scales.data(), static_cast<int64_t>(scales.size())));
  if (ok()) Check(cudaStreamSynchronize(stream_), "copy to the GPU");
  return device;
}

Status Staging::Finish() {
  if (finished_) return status_;
  finished_ = true;
  if (ok()) Check(cudaGetLastError(), "launch");
  for (const Output& output : outputs_) {
    if (!ok() || output.host.rows == 0 || output.host.columns == 0) continue;
    Check(
        cudaMemcpy2DAsync(output.host.data, static_cast<size_t>(std::max(output.host.stride, output.host.columns)) * 4,
                          output.device.data, static_cast<size_t>(output.device.stride) * 4,
                          static_cast<size_t>(output.host.columns) * 4, static_cast<size_t>(output.host.rows),
                          cudaMemcpyDeviceToHost, stream_),
        "copy from the GPU");
  }
  for (const Copy& copy : copies_) {
    if (!ok() || copy.bytes == 0) continue;
    Check(cudaMemcpyAsync(copy.host, copy.device, static_cast<size_t>(copy.bytes), cudaMemcpyDeviceToHost, stream_),
          "copy from the GPU");
  }
  if (ok()) Check(cudaStreamSynchronize(stream_), "kernel");
  if (!ok()) {
    for (const Output& output : outputs_) {
      for (int64_t t = 0; t < output.host.rows; ++t) {
        std::fill_n(output.host.row(t), output.host.columns, std::numeric_limits<float>::quiet_NaN());
      }
    }
    for (const Copy& copy : copies_) std::memset(copy.host, 0, static_cast<size_t>(copy.bytes));
  }
  arena_.Reset();
  return status_;
}

}  // namespace deepinfer::cuda
