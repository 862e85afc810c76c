#include "ops/cuda/device_arena.h"

#include <cuda_runtime_api.h>

#include <algorithm>

namespace deepinfer::cuda {
namespace {

constexpr size_t kAlignment = 256;

}  // namespace

DeviceArena::~DeviceArena() {
  for (const Block& block : blocks_) {
    if (memory_ == ArenaMemory::kPinned) {
      cudaFreeHost(block.data);
    } else {
      cudaFree(block.data);
    }
  }
}

bool DeviceArena::Add(size_t size) {
  void* data = nullptr;
  const cudaError_t error = memory_ == ArenaMemory::kPinned ? cudaMallocHost(&data, size) : cudaMalloc(&data, size);
  if (error != cudaSuccess) {
    cudaGetLastError();  // the next launch is not to blame
    return false;
  }
  blocks_.push_back({static_cast<uint8_t*>(data), size});
  bytes_ += static_cast<int64_t>(size);
  block_ = blocks_.size() - 1;
  used_ = 0;
  return true;
}

void* DeviceArena::Take(size_t bytes) {
  bytes = std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  for (; block_ < blocks_.size(); ++block_, used_ = 0) {
    if (used_ + bytes <= blocks_[block_].size) {
      void* piece = blocks_[block_].data + used_;
      used_ += bytes;
      return piece;
    }
  }
  const int64_t least = doubles_ ? std::max(block_bytes_, bytes_) : block_bytes_;
  if (!Add(std::max(bytes, static_cast<size_t>(least)))) return nullptr;
  used_ = bytes;
  return blocks_.back().data;
}

bool DeviceArena::Reserve(size_t bytes) { return bytes == 0 || Add(bytes); }

void DeviceArena::Reset() {
  block_ = 0;
  used_ = 0;
}

}  // namespace deepinfer::cuda
