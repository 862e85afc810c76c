// PrefixTree: which prefixes have their KV in the pool. A radix tree over full blocks of token ids; a node is one block
// below its parent's prefix, so the path from a root is a prefix (serving.md 7.1).
//
// Namespaces are trees of their own: prompts meet only under equal keys (the engine's key is the cache salt and the
// replay mode; it keeps keys short). Children are found by xxHash and confirmed by comparing the ids, so equal hashes
// cost time and never mix contents.
//
// References: a node holds one reference to its KV block and, if it has one, one to its ring snapshot. A node is
// numbered by its block, so there are at most as many nodes as blocks.
// Pins: a pinned node and everything above it stay. Whoever reads or writes blocks of the tree holds a pin on the
// deepest of them; then evictable_blocks() is what EvictBlocks can free. A NodeId is valid while its node is pinned,
// or until the next call that evicts. kRoot stands for the empty prefix; pinning and touching it does nothing.
//
// Invariants (checked against a brute-force model in tests/cache/prefix_tree_test.cc):
//   1. a parent is present while a child is; 2. no two children of a node have equal ids;
//   3. evictable_blocks() = nodes that have no pin on themselves or below; 4. eviction takes leaves only, the least
//   recently used first; ticks are unique, so the order depends on the calls and nothing else.
//
// Cost: Match and Touch O(blocks of the path); Insert, Unpin of a node whose parent is pinned O(log n); Pin and Unpin
// up to the next pinned ancestor; evictions O(log n) each. Nothing allocates after Create but a namespace's first
// block and the vector of a match.
// Thread-safety: one thread, the engine's. Ownership: the pools are the caller's and outlive the tree, whose
// destructor releases its references.
#ifndef DEEPINFER_CACHE_PREFIX_TREE_H_
#define DEEPINFER_CACHE_PREFIX_TREE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/aligned_buffer.h"
#include "cache/kv_pool.h"
#include "cache/lru_index.h"
#include "deepinfer/status.h"

namespace deepinfer {

using NodeId = int32_t;
inline constexpr NodeId kRoot = -1;
inline constexpr int32_t kNoSnapshot = -1;

/// A node on the path of a match.
struct MatchedBlock {
  NodeId node = kRoot;
  int32_t block = 0;               ///< KV block id
  int32_t snapshot = kNoSnapshot;  ///< ring snapshot id: the rings after the last token of this block
};

/// The longest cached prefix of full blocks.
struct PrefixMatch {
  std::vector<MatchedBlock> path;  ///< from the root down

  NodeId deepest() const { return path.empty() ? kRoot : path.back().node; }
};

/// Counters since Create; they only grow.
struct PrefixTreeStatistics {
  int64_t queries = 0;
  int64_t query_tokens = 0;  ///< prompt tokens of those queries
  int64_t hit_tokens = 0;    ///< how many of them were found
  int64_t inserted_blocks = 0;
  int64_t evicted_blocks = 0;     ///< by EvictBlocks, EvictNamespace and Clear
  int64_t evicted_snapshots = 0;  ///< by EvictSnapshot, or with their node
};

class PrefixTree {
 public:
  /// kInvalidArgument: block_tokens < 1; kResourceExhausted: no memory for bytes_per_node() * blocks.block_count().
  static Result<std::unique_ptr<PrefixTree>> Create(KvPool& blocks, BlockPool& snapshots,
                                                    int64_t block_tokens = kKvBlockTokens);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  /// The cached prefix of `ids`; changes nothing.
  PrefixMatch Match(std::string_view name_space, std::span<const int32_t> ids) const;
  /// Counts one query in the statistics: once per request, however often it is matched while it waits.
  void CountQuery(int64_t prompt_tokens, int64_t hit_tokens);

  /// The child of `parent` (of kRoot: of the namespace's root) with these block_tokens ids. When there is none, one is
  /// made that takes a reference to `block`; when there is one, `block` is left alone (block(result) != block).
  /// `block` is held by the caller and is in the tree nowhere else.
  NodeId Insert(std::string_view name_space, NodeId parent, std::span<const int32_t> ids, int32_t block);

  void Pin(NodeId node);
  void Unpin(NodeId node);
  /// Marks the node and everything above it as used now; the deeper, the later.
  void Touch(NodeId node);

  /// Gives the node a ring snapshot and takes a reference to it. False: it has one already, nothing changes.
  bool AttachSnapshot(NodeId node, int32_t snapshot);
  /// Takes the snapshot away and releases it, if the node has one. Not while it is pinned.
  void DetachSnapshot(NodeId node);
  /// Pins the node together with its snapshot, and marks the snapshot as used now.
  void PinSnapshot(NodeId node);
  void UnpinSnapshot(NodeId node);

  /// Drops least recently used leaves without pins until `count` blocks are free or none is left; returns how many
  /// became free.
  int64_t EvictBlocks(int64_t count);
  /// Drops the least recently used snapshot that is not pinned. False: there is none.
  bool EvictSnapshot();
  /// Drops what no pin holds, in one namespace or in all; returns the number of nodes dropped.
  int64_t EvictNamespace(std::string_view name_space);
  int64_t Clear();

  int32_t block(NodeId node) const { return node; }
  int32_t snapshot(NodeId node) const { return nodes_[node].snapshot; }
  /// kRoot for the first block of a prefix.
  NodeId parent(NodeId node) const { return nodes_[node].parent < 0 ? kRoot : nodes_[node].parent; }
  /// Blocks from the root to this node, itself included: it ends the prefix of depth * block_tokens tokens.
  int64_t depth(NodeId node) const { return node == kRoot ? 0 : nodes_[node].depth; }

  int64_t node_count() const { return node_count_; }
  int64_t snapshot_count() const { return snapshot_count_; }
  int64_t namespace_count() const { return static_cast<int64_t>(namespace_of_key_.size()); }
  /// Blocks that EvictBlocks can free, and snapshots that EvictSnapshot can; O(1).
  int64_t evictable_blocks() const { return evictable_; }
  int64_t evictable_snapshots() const { return snapshot_lru_.size(); }
  const PrefixTreeStatistics& statistics() const { return statistics_; }

  /// Host memory reserved per KV block, an upper bound, and in all (namespace keys apart).
  static int64_t bytes_per_node(int64_t block_tokens = kKvBlockTokens);
  int64_t bytes() const;

 private:
  struct Node {
    uint64_t hash;          // of parent and ids
    uint64_t last_use;      // tick
    uint64_t snapshot_use;  // tick
    int32_t parent;         // node, or -1 - index in namespaces_
    int32_t next;           // 1 + next node of the bucket, 0: last
    int32_t name_space;     // index in namespaces_
    int32_t depth;          // 1 below the root; 0: no node
    int32_t children;
    int32_t blocked_children;  // children that cannot be evicted
    int32_t pins;
    int32_t snapshot;
    int32_t snapshot_pins;
  };
  struct Namespace {
    std::string key;
    int32_t children = 0;  // nodes right below the root; 0: unused
  };
  struct KeyHash {
    using is_transparent = void;
    size_t operator()(std::string_view key) const { return std::hash<std::string_view>()(key); }
  };

  PrefixTree(KvPool& blocks, BlockPool& snapshots, int64_t block_tokens)
      : blocks_(blocks), snapshots_(snapshots), block_tokens_(block_tokens) {}

  std::span<const int32_t> IdsOf(NodeId node) const;
  uint64_t HashOf(int32_t parent, std::span<const int32_t> ids) const;
  int32_t& BucketOf(uint64_t hash) const;
  /// The child with these ids, kRoot when there is none. `parent` as in Node.
  NodeId Find(int32_t parent, uint64_t hash, std::span<const int32_t> ids) const;
  int32_t FindOrAddNamespace(std::string_view key);
  bool Blocked(NodeId node) const { return nodes_[node].pins > 0 || nodes_[node].blocked_children > 0; }
  void PropagateBlocked(NodeId node);
  void PropagateUnblocked(NodeId node);
  void DropSnapshot(NodeId node);
  void Remove(NodeId leaf);
  int64_t RemoveUpwards(NodeId node);

  KvPool& blocks_;
  BlockPool& snapshots_;
  int64_t block_tokens_ = 0;
  int64_t node_count_ = 0;
  int64_t snapshot_count_ = 0;
  int64_t evictable_ = 0;
  uint64_t tick_ = 0;
  PrefixTreeStatistics statistics_;
  AlignedBuffer<Node> nodes_;       // [blocks], by block id
  AlignedBuffer<int32_t> ids_;      // [blocks, block_tokens]
  AlignedBuffer<int32_t> buckets_;  // [a power of two >= blocks], 1 + first node, 0: empty
  LruIndex leaf_lru_;               // unblocked nodes without children
  LruIndex snapshot_lru_;           // nodes with a snapshot that is not pinned
  std::vector<Namespace> namespaces_;
  std::vector<int32_t> unused_namespaces_;
  std::unordered_map<std::string, int32_t, KeyHash, std::equal_to<>> namespace_of_key_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_PREFIX_TREE_H_
