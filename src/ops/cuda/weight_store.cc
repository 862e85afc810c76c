#include "ops/cuda/weight_store.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "ops/cuda/launch_order.h"

namespace deepinfer::cuda {
namespace {

constexpr int64_t kTableBytes = int64_t{4} << 20;

// By the copy engine: a kernel ahead that has started early is waited for, one behind waits for this.
bool CopyToWindow(cudaStream_t stream, void* to, const void* from, int64_t bytes) {
  const bool copied = cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream) == cudaSuccess;
  LaunchNextInOrder(stream);
  return copied;
}

}  // namespace

bool WeightStore::Reserve(const WeightTotals& totals) {
  // Pinned memory is taken as it is filled; a small model takes no whole block.
  (void)pinned_.Reserve(static_cast<size_t>(std::min(totals.passing, kPinnedBlockBytes)));
  return slabs_.Reserve(static_cast<size_t>(totals.resident + kTableBytes)) &&
         window_.Reserve(static_cast<size_t>(totals.window > 0 ? totals.window + kTableBytes : 0));
}

uint8_t* WeightStore::Place(const ListedBytes& weight) {
  DeviceArena& arena = weight.resident ? slabs_ : pinned_;
  auto* data = static_cast<uint8_t*>(arena.Take(static_cast<size_t>(weight.bytes)));
  if (data != nullptr) weights_[weight.data] = {weight.bytes, data, weight.resident, weight.kind};
  return data;
}

const uint8_t* WeightStore::Copy(const void* host, int64_t bytes, WeightBytes kind, CommandList& commands) {
  auto* device = static_cast<uint8_t*>(slabs_.Take(static_cast<size_t>(bytes)));
  if (device == nullptr) return nullptr;
  commands.Flush();
  const cudaStream_t stream = commands.stream();
  if (const auto generated = GeneratedWeights::Find(host)) {
    if (!FillWeights(stream, generated->recipe, generated->offset, bytes, device)) return nullptr;
  } else if (cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream) != cudaSuccess) {
    return nullptr;
  }
  return kind != WeightBytes::kFp4Codes || OrderFp4(stream, device, bytes) ? device : nullptr;
}

const WeightStore::Entry* WeightStore::Locate(const uint8_t* host, int64_t bytes, WeightBytes kind,
                                              CommandList& commands) {
  const auto found = weights_.find(host);
  // Two views of one address differ in length where one is a part of the other.
  if (found != weights_.end() && found->second.bytes >= bytes && found->second.kind == kind) return &found->second;
  const uint8_t* device = Copy(host, bytes, kind, commands);
  if (device == nullptr) return nullptr;
  return &(weights_[host] = {bytes, device, true, kind});
}

const uint8_t* WeightStore::Find(const uint8_t* host, int64_t bytes, WeightBytes kind, CommandList& commands) {
  const Entry* entry = Locate(host, bytes, kind, commands);
  if (entry == nullptr || entry->resident) return entry == nullptr ? nullptr : entry->data;
  return PutInWindow(entry->data, bytes, commands);
}

const uint8_t* WeightStore::PutInWindow(const uint8_t* from, int64_t bytes, CommandList& commands) {
  auto* copy = static_cast<uint8_t*>(window_.Take(static_cast<size_t>(bytes)));
  if (copy == nullptr) return nullptr;
  commands.WillWrite(copy, bytes);  // a branch may still read what was there
  commands.Add(&CopyToWindow, copy, from, bytes);
  return copy;
}

const uint8_t* WeightStore::FindInPlace(const uint8_t* host, int64_t bytes, WeightBytes kind, CommandList& commands) {
  const Entry* entry = Locate(host, bytes, kind, commands);
  return entry == nullptr ? nullptr : entry->data;
}

bool WeightStore::Passes(const uint8_t* host) const {
  const auto found = weights_.find(host);
  return found != weights_.end() && !found->second.resident;
}

const uint8_t* WeightStore::FindTable(const void* weights) const {
  const auto found = tables_.find(weights);
  return found == tables_.end() ? nullptr : found->second;
}

const uint8_t* WeightStore::Table(const void* weights, const void* table, int64_t bytes, CommandList& commands) {
  const uint8_t* device = Copy(table, bytes, WeightBytes::kPlain, commands);
  // The table is the caller's and may go.
  if (device != nullptr && commands.Wait().ok()) tables_[weights] = device;
  return device;
}

}  // namespace deepinfer::cuda
