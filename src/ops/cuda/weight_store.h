// WeightStore: copies of weights that stay on the GPU, found by their host address. Weights that have no bytes
// (base/generated_weights.h) are made by a kernel instead.
//
// Thread-safety: one thread. Ownership: owns the copies, which lie in slabs; host bytes must not change or move.
#ifndef DEEPINFER_OPS_CUDA_WEIGHT_STORE_H_
#define DEEPINFER_OPS_CUDA_WEIGHT_STORE_H_

#include <cstdint>
#include <unordered_map>

#include "base/generated_weights.h"
#include "ops/cuda/command_list.h"
#include "ops/cuda/device_arena.h"

namespace deepinfer::cuda {

/// Bytes `offset` .. `offset + bytes` - 1 of a generated weight, at `to`, which is a multiple of 8. False when the
/// launch could not be made.
bool FillWeights(cudaStream_t stream, const WeightRecipe& recipe, int64_t offset, int64_t bytes, uint8_t* to);

class WeightStore {
 public:
  /// The copy of these bytes, made at the first call; null when the GPU has no memory left. Recorded commands are
  /// flushed before a copy.
  const uint8_t* Find(const uint8_t* host, int64_t bytes, CommandList& commands);

  /// A table of `bytes` bytes that an op keeps under the address of the weights it speaks of; made by the first call.
  const uint8_t* Table(const void* weights, const void* table, int64_t bytes, CommandList& commands);
  /// The same table; null when it was not made.
  const uint8_t* FindTable(const void* weights) const;

  int64_t bytes() const { return slabs_.bytes(); }

 private:
  const uint8_t* Copy(const void* host, int64_t bytes, CommandList& commands);

  struct Entry {
    int64_t bytes;
    const uint8_t* device;
  };
  DeviceArena slabs_{int64_t{256} << 20, false};
  std::unordered_map<const void*, Entry> copies_;
  std::unordered_map<const void*, const uint8_t*> tables_;
};

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_WEIGHT_STORE_H_
