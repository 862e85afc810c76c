// KvManager and SequenceCache: the blocks and snapshots of every request: taken at admission, shared through the prefix
// tree, published as they fill, given back at the end (docs/kv-cache.md).
//
// Invariants: (1) every block of a SequenceCache holds one reference; (2) the deepest tree node of a sequence is
// pinned, so that nothing of its path is evicted; (3) after Release() of all sequences every block is free or held by
// the tree alone.
//
// Thread-safety: the engine thread only. The memory of blocks and snapshots is written by the device thread; a snapshot
// becomes visible to others only after the step that wrote it has been read. Ownership: pools and tree.
#ifndef DEEPINFER_ENGINE_SEQUENCE_CACHE_H_
#define DEEPINFER_ENGINE_SEQUENCE_CACHE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/block_pool.h"
#include "cache/kv_pool.h"
#include "cache/prefix_tree.h"
#include "cache/replay_plan.h"
#include "deepinfer/status.h"
#include "engine/step_plan.h"

namespace deepinfer {

/// What one running request holds.
struct SequenceCache {
  std::string name_space;
  ReplaySettings settings;
  ReplayPlan replay;
  const uint8_t* rings = nullptr;   ///< snapshot to restore
  NodeId restored = kRoot;          ///< its node, pinned with the snapshot until the first step was read
  std::vector<int32_t> blocks;      ///< block ids, position / 64
  NodeId deepest = kRoot;           ///< pinned
  int64_t published = 0;            ///< blocks on the path to `deepest`
  std::vector<int64_t> boundaries;  ///< where the prefill saves snapshots, ascending
  size_t next_boundary = 0;

  struct Snapshot {
    int32_t id = kNoSnapshot;
    int64_t position = -1;  ///< -1: empty
  };
  std::vector<Snapshot> saved;  ///< by the prefill, not attached yet
  std::array<Snapshot, kRollingSnapshots> rolling;
};

struct KvManagerOptions {
  int64_t blocks = 0;
  int64_t block_bytes = 0;
  int64_t snapshots = 0;
  int64_t snapshot_bytes = 0;
  bool prefix_cache = true;
  int64_t snapshot_interval = 512;  ///< tokens between the snapshots that a prefill leaves behind
};

class KvManager {
 public:
  /// `allocate`: where KV blocks lie; snapshots are host memory.
  static Result<std::unique_ptr<KvManager>> Create(const KvManagerOptions& options,
                                                   const DeviceAllocator& allocate = DeviceMemory::OnHost);

  /// Matches `ids`, plans the replay and takes blocks for ids.size() + 1 tokens, so that at least `reserve` blocks stay
  /// free or evictable. False: there is no room now; nothing has changed.
  bool Admit(std::span<const int32_t> ids, int64_t prompt_tokens, bool use_hits, int64_t reserve, SequenceCache* cache);

  /// Takes blocks until `tokens` tokens fit. False: out of blocks; those taken so far stay.
  bool Grow(int64_t tokens, SequenceCache* cache);

  /// A buffer for the snapshot behind a prefill chunk that ends at `position`, or nullptr.
  uint8_t* SnapshotBuffer(int64_t position, SequenceCache* cache);
  /// Buffers for the boundaries of decoding.
  std::array<uint8_t*, kRollingSnapshots> TakeRollingBuffers(SequenceCache* cache);

  /// The step that restored the snapshot has been read.
  void ReleaseRestored(SequenceCache* cache);

  /// Puts the full blocks among the first `computed` tokens of `ids` into the tree, with the snapshots that are there.
  void Publish(std::span<const int32_t> ids, int64_t computed, SequenceCache* cache);

  /// Publishes, leaves the last rolling snapshots to the tree and gives everything back. Returns the deepest node of
  /// the sequence, which is no longer pinned.
  NodeId Release(std::span<const int32_t> ids, int64_t computed, SequenceCache* cache);

  /// For what comes from the tiers. Blocks so that `reserve` stay free or evictable, as many as there are, `count` at
  /// most; a snapshot buffer or kNoSnapshot. Each has one reference.
  std::vector<int32_t> TakeBlocks(int64_t count, int64_t reserve);
  int32_t TakeSnapshot() { return AllocateSnapshot(); }
  /// Puts a block below `parent`, gives the reference back and moves the caller's pin from `parent` to the new node.
  NodeId Adopt(std::string_view name_space, NodeId parent, std::span<const int32_t> ids, int32_t block);
  void AdoptSnapshot(NodeId node, int32_t snapshot);
  void GiveBack(int32_t block) { blocks_->Release(block); }
  void GiveBackSnapshot(int32_t snapshot) { snapshots_->Release(snapshot); }

  int64_t Clear() { return tree_->Clear(); }
  uint8_t* block_data(int32_t id) const { return blocks_->data(id); }
  const KvPool& blocks() const { return *blocks_; }
  const BlockPool& snapshots() const { return *snapshots_; }
  const PrefixTree& tree() const { return *tree_; }
  PrefixTree& tree() { return *tree_; }

 private:
  explicit KvManager(const KvManagerOptions& options) : options_(options) {}

  int32_t AllocateBlock();     // -1: none
  int32_t AllocateSnapshot();  // kNoSnapshot: none
  void AttachSaved(int64_t computed, SequenceCache* cache);

  KvManagerOptions options_;
  std::unique_ptr<KvPool> blocks_;
  std::unique_ptr<BlockPool> snapshots_;
  std::unique_ptr<PrefixTree> tree_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_SEQUENCE_CACHE_H_
