// DeviceArena: memory in pieces, taken in order and given back all at once: of the GPU, for the temporaries of one op
// or for weights, or of the host, pinned, so that the GPU reaches it.
//
// Invariants: 1. every piece starts at a multiple of 256 bytes; 2. blocks are kept, so after a few steps nothing is
// allocated any more. Thread-safety: one thread. Ownership: owns its blocks; pieces live until Reset().
#ifndef DEEPINFER_OPS_CUDA_DEVICE_ARENA_H_
#define DEEPINFER_OPS_CUDA_DEVICE_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepinfer::cuda {

enum class ArenaMemory : uint8_t { kDevice, kPinned };

class DeviceArena {
 public:
  /// Blocks of at least `block_bytes`; `doubles`: a new one is as large as all before it together, so that pieces which
  /// grow step by step do not take a block each.
  explicit DeviceArena(int64_t block_bytes = int64_t{64} << 20, bool doubles = true,
                       ArenaMemory memory = ArenaMemory::kDevice)
      : block_bytes_(block_bytes), doubles_(doubles), memory_(memory) {}
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  /// One block for pieces that take `bytes` bytes in all, multiples of 256 each, from where Take() goes on. False when
  /// there is not so much left.
  bool Reserve(size_t bytes);
  /// Null when there is no memory left.
  void* Take(size_t bytes);
  void Reset();
  int64_t bytes() const { return bytes_; }

 private:
  struct Block {
    uint8_t* data;
    size_t size;
  };
  bool Add(size_t size);

  int64_t block_bytes_;
  bool doubles_;
  ArenaMemory memory_;
  std::vector<Block> blocks_;
  size_t block_ = 0;
  size_t used_ = 0;  // of blocks_[block_]
  int64_t bytes_ = 0;
};

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_DEVICE_ARENA_H_
