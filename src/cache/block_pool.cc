#include "cache/block_pool.h"

#include <bit>
#include <cassert>
#include <limits>
#include <string>
#include <utility>

namespace deepinfer {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int32_t kWordBits = 64;

uint64_t Bit(int64_t index) { return uint64_t{1} << (index % kWordBits); }

}  // namespace

Result<std::unique_ptr<BlockPool>> BlockPool::Create(int64_t block_bytes, int64_t blocks,
                                                     const DeviceAllocator& allocate) {
  if (block_bytes < 1 || block_bytes % kAlignment != 0) {
    return Status::InvalidArgument("block pool: blocks of " + std::to_string(block_bytes) +
                                   " bytes, a positive multiple of 64 expected");
  }
  if (blocks < 0 || blocks > std::numeric_limits<int32_t>::max()) {
    return Status::InvalidArgument("block pool: " + std::to_string(blocks) + " blocks, 0 to 2147483647 expected");
  }
  std::unique_ptr<BlockPool> pool(new BlockPool(block_bytes, blocks));
  const bool fits = blocks == 0 || block_bytes <= std::numeric_limits<int64_t>::max() / blocks;
  Result<DeviceMemory> memory = fits ? allocate(block_bytes * blocks) : Status::ResourceExhausted("too many");
  if (!memory.ok() || !pool->references_.Allocate(blocks)) {
    return Status::ResourceExhausted("block pool: the system has no room for " + std::to_string(blocks) +
                                     " blocks of " + std::to_string(block_bytes) + " bytes");
  }
  pool->memory_ = std::move(*memory);
  pool->free_count_ = blocks;
  int64_t bits = blocks;
  do {
    std::vector<uint64_t>& words = pool->free_levels_.emplace_back((bits + kWordBits - 1) / kWordBits, ~uint64_t{0});
    if (bits % kWordBits != 0) words.back() = Bit(bits) - 1;
    bits = static_cast<int64_t>(words.size());
  } while (bits > 1);
  return pool;
}

std::optional<int32_t> BlockPool::Allocate() {
  if (free_count_ == 0) return std::nullopt;
  int64_t id = 0;
  for (size_t level = free_levels_.size(); level-- > 0;) {
    id = id * kWordBits + std::countr_zero(free_levels_[level][id]);
  }
  MarkHeld(static_cast<int32_t>(id));
  references_[id] = 1;
  return static_cast<int32_t>(id);
}

void BlockPool::AddReference(int32_t id) {
  assert(references_[id] > 0);
  ++references_[id];
}

void BlockPool::Release(int32_t id) {
  assert(references_[id] > 0);
  if (--references_[id] == 0) MarkFree(id);
}

int64_t BlockPool::bytes() const {
  int64_t words = 0;
  for (const std::vector<uint64_t>& level : free_levels_) words += static_cast<int64_t>(level.size());
  return memory_.bytes() + references_.bytes() + words * static_cast<int64_t>(sizeof(uint64_t));
}

void BlockPool::MarkFree(int32_t id) {
  ++free_count_;
  int64_t index = id;
  for (std::vector<uint64_t>& words : free_levels_) {
    words[index / kWordBits] |= Bit(index);
    index /= kWordBits;
  }
}

void BlockPool::MarkHeld(int32_t id) {
  --free_count_;
  int64_t index = id;
  for (std::vector<uint64_t>& words : free_levels_) {
    words[index / kWordBits] &= ~Bit(index);
    if (words[index / kWordBits] != 0) return;
    index /= kWordBits;
  }
}

}  // namespace deepinfer
