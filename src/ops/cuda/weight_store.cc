#include "ops/cuda/weight_store.h"

#include <cuda_runtime_api.h>

namespace deepinfer::cuda {

const uint8_t* WeightStore::Copy(const void* host, int64_t bytes, CommandList& commands) {
  void* device = slabs_.Take(static_cast<size_t>(bytes));
  if (device == nullptr) return nullptr;
  commands.Flush();
  if (const auto generated = GeneratedWeights::Find(host)) {
    auto* bytes_of_weight = static_cast<uint8_t*>(device);
    const bool filled = FillWeights(commands.stream(), generated->recipe, generated->offset, bytes, bytes_of_weight);
    return filled ? bytes_of_weight : nullptr;
  }
  if (cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, commands.stream()) !=
      cudaSuccess) {
    return nullptr;
  }
  return static_cast<const uint8_t*>(device);
}

const uint8_t* WeightStore::Find(const uint8_t* host, int64_t bytes, CommandList& commands) {
  const auto found = copies_.find(host);
  // Two views of one address differ in length where one is a part of the other.
  if (found != copies_.end() && found->second.bytes >= bytes) return found->second.device;
  const uint8_t* device = Copy(host, bytes, commands);
  if (device != nullptr) copies_[host] = {bytes, device};
  return device;
}

const uint8_t* WeightStore::FindTable(const void* weights) const {
  const auto found = tables_.find(weights);
  return found == tables_.end() ? nullptr : found->second;
}

const uint8_t* WeightStore::Table(const void* weights, const void* table, int64_t bytes, CommandList& commands) {
  const uint8_t* device = Copy(table, bytes, commands);
  // The table is the caller's and may go.
  if (device != nullptr && commands.Wait().ok()) tables_[weights] = device;
  return device;
}

}  // namespace deepinfer::cuda
