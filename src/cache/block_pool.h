// BlockPool: equal blocks of memory with reference counts, planned once. KV blocks (cache/kv_pool.h) and ring snapshots
// are both kept in one.
//
// One mapping is reserved by Create and becomes resident block by block as it is written; Allocate hands out the lowest
// free id, so that a pool that is never full stays compact. Blocks are not cleared between owners.
//
// Invariants: 1. free_count() is the number of ids with reference_count() 0; 2. nothing allocates after Create;
// 3. data(id) never moves.
//
// Thread-safety: ids and counts belong to one thread (the engine's); the bytes of a block belong to whoever holds a
// reference and may be read and written by any thread. Ownership: owns its memory and outlives every holder.
#ifndef DEEPINFER_CACHE_BLOCK_POOL_H_
#define DEEPINFER_CACHE_BLOCK_POOL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/device_memory.h"
#include "deepinfer/status.h"

namespace deepinfer {

class BlockPool {
 public:
  /// kInvalidArgument: block_bytes that is no positive multiple of 64, blocks outside 0 .. 2^31 - 1.
  /// kResourceExhausted: `allocate` has no memory for them.
  static Result<std::unique_ptr<BlockPool>> Create(int64_t block_bytes, int64_t blocks,
                                                   const DeviceAllocator& allocate = DeviceMemory::OnHost);

  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// The lowest free block, with one reference; nothing when all are held.
  std::optional<int32_t> Allocate();
  /// One more holder of a held block.
  void AddReference(int32_t id);
  /// One holder less of a held block; the last one frees it.
  void Release(int32_t id);

  /// The first of block_bytes() bytes on a 64-byte boundary.
  uint8_t* data(int32_t id) const { return memory_.data() + id * block_bytes_; }
  int32_t reference_count(int32_t id) const { return references_[id]; }
  int64_t free_count() const { return free_count_; }
  int64_t block_count() const { return block_count_; }
  int64_t block_bytes() const { return block_bytes_; }
  /// Bytes reserved: the blocks and the pool's own tables (promise 5).
  int64_t bytes() const;

 private:
  BlockPool(int64_t block_bytes, int64_t blocks) : block_bytes_(block_bytes), block_count_(blocks) {}

  void MarkFree(int32_t id);
  void MarkHeld(int32_t id);

  int64_t block_bytes_ = 0;
  int64_t block_count_ = 0;
  int64_t free_count_ = 0;
  DeviceMemory memory_;                // [block_count, block_bytes]
  AlignedBuffer<int32_t> references_;  // [block_count]
  // Level 0 has a bit per block, 1 = free; level n + 1 a bit per word of level n, 1 = that word is not 0. The last
  // level is one word.
  std::vector<std::vector<uint64_t>> free_levels_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_BLOCK_POOL_H_
