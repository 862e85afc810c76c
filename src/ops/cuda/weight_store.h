// WeightStore: weights where kernels can read them, found by their host address.
//
// A weight stays on the GPU, or it passes: it stays in pinned host memory and is copied to a window of the GPU for the
// op that uses it (kernels that read it once may do so across the bus, in place). Which is which, a list says
// (load_weights.h); a weight on no list is copied to the GPU at its first use. Weights that have no bytes
// (base/generated_weights.h) are made by a kernel. FP4 codes are in pair order (fp4_pairs.h), wherever they lie.
//
// Thread-safety: one thread. Ownership: owns the copies; host bytes must not change or move.
#ifndef DEEPINFER_OPS_CUDA_WEIGHT_STORE_H_
#define DEEPINFER_OPS_CUDA_WEIGHT_STORE_H_

#include <cstdint>
#include <unordered_map>

#include "base/generated_weights.h"
#include "ops/cuda/command_list.h"
#include "ops/cuda/device_arena.h"
#include "ops/weight_list.h"

namespace deepinfer::cuda {

/// Bytes `offset` .. `offset + bytes` - 1 of a generated weight, at `to`, which is a multiple of 8: memory of the GPU,
/// or pinned. False when the launch could not be made.
bool FillWeights(cudaStream_t stream, const WeightRecipe& recipe, int64_t offset, int64_t bytes, uint8_t* to);

/// Brings FP4 codes from the released to pair order in place, memory of the GPU or pinned. `codes` and `bytes` are
/// multiples of 16. False when the launch could not be made.
bool OrderFp4(cudaStream_t stream, uint8_t* codes, int64_t bytes);

class WeightStore {
 public:
  /// Room for weights of these totals in one piece, before the first Place(). False: the GPU has not that much.
  bool Reserve(const WeightTotals& totals);
  /// Room for a weight of the list, which Find() looks up from now on: the caller fills it, with FP4 codes in pair
  /// order. Null: no memory left.
  uint8_t* Place(const ListedBytes& weight);

  /// The weight in memory of the GPU: of one that passes a copy of this op, which is recorded; of one that was never
  /// asked for a copy made now, for which recorded commands are flushed. Null when the GPU has no memory left.
  const uint8_t* Find(const uint8_t* host, int64_t bytes, WeightBytes kind, CommandList& commands);
  /// The same where a kernel may read one that passes from host memory.
  const uint8_t* FindInPlace(const uint8_t* host, int64_t bytes, WeightBytes kind, CommandList& commands);
  /// A copy of this op, of memory of the GPU or pinned memory, by those of the weights that pass: space_map.cuh asks
  /// that a table of weights lies near them. Recorded.
  const uint8_t* PutInWindow(const uint8_t* from, int64_t bytes, CommandList& commands);
  /// Whether the list has a weight at this address, and whether that passes.
  bool Holds(const uint8_t* host) const { return weights_.contains(host); }
  bool Passes(const uint8_t* host) const;
  /// Copies of weights that pass may be overwritten by the next op's.
  void EndOp() { window_.Reset(); }

  /// A table of `bytes` bytes that an op keeps under the address of the weights it speaks of; made by the first call.
  const uint8_t* Table(const void* weights, const void* table, int64_t bytes, CommandList& commands);
  /// The same table; null when it was not made.
  const uint8_t* FindTable(const void* weights) const;

 private:
  static constexpr int64_t kPinnedBlockBytes = int64_t{1} << 30;

  struct Entry {
    int64_t bytes;
    const uint8_t* data;
    bool resident;
    WeightBytes kind;
  };
  const uint8_t* Copy(const void* host, int64_t bytes, WeightBytes kind, CommandList& commands);
  const Entry* Locate(const uint8_t* host, int64_t bytes, WeightBytes kind, CommandList& commands);

  DeviceArena slabs_{int64_t{256} << 20, false};
  DeviceArena window_{int64_t{64} << 20, false};
  DeviceArena pinned_{kPinnedBlockBytes, false, ArenaMemory::kPinned};
  std::unordered_map<const void*, Entry> weights_;
  std::unordered_map<const void*, const uint8_t*> tables_;
};

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_WEIGHT_STORE_H_
