#include "cache/prefix_tree.h"

#include <algorithm>
#include <bit>
#include <cassert>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace deepinfer {
namespace {

/// A bijection that spreads every bit (the finaliser of SplitMix64).
uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

}  // namespace

Result<std::unique_ptr<PrefixTree>> PrefixTree::Create(KvPool& blocks, BlockPool& snapshots, int64_t block_tokens) {
  if (block_tokens < 1) {
    return Status::InvalidArgument("prefix tree: blocks of " + std::to_string(block_tokens) +
                                   " tokens, at least 1 expected");
  }
  std::unique_ptr<PrefixTree> tree(new PrefixTree(blocks, snapshots, block_tokens));
  const int64_t nodes = blocks.block_count();
  const auto buckets = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(nodes)));
  if (!tree->nodes_.Allocate(nodes) || !tree->ids_.Allocate(nodes * block_tokens) ||
      !tree->buckets_.Allocate(buckets) || !tree->leaf_lru_.Allocate(nodes) || !tree->snapshot_lru_.Allocate(nodes)) {
    return Status::ResourceExhausted("prefix tree: the system has no memory for " + std::to_string(nodes) +
                                     " nodes of " + std::to_string(bytes_per_node(block_tokens)) + " bytes");
  }
  return tree;
}

PrefixTree::~PrefixTree() {
  for (int64_t node = 0; node < nodes_.size() && node_count_ > 0; ++node) {
    if (nodes_[node].depth == 0) continue;
    if (nodes_[node].snapshot != kNoSnapshot) snapshots_.Release(nodes_[node].snapshot);
    blocks_.Release(static_cast<int32_t>(node));
    --node_count_;
  }
}

int64_t PrefixTree::bytes_per_node(int64_t block_tokens) {
  // Buckets are rounded up to a power of two: fewer than two a node.
  return static_cast<int64_t>(sizeof(Node)) + (block_tokens + 2) * static_cast<int64_t>(sizeof(int32_t)) +
         2 * LruIndex::kBytesPerId;
}

int64_t PrefixTree::bytes() const {
  return nodes_.bytes() + ids_.bytes() + buckets_.bytes() + nodes_.size() * 2 * LruIndex::kBytesPerId;
}

// --- Lookup ---

std::span<const int32_t> PrefixTree::IdsOf(NodeId node) const {
  return {ids_.data() + node * block_tokens_, static_cast<size_t>(block_tokens_)};
}

uint64_t PrefixTree::HashOf(int32_t parent, std::span<const int32_t> ids) const {
  return Mix(XXH3_64bits(ids.data(), ids.size_bytes()) + Mix(static_cast<uint32_t>(parent)));
}

int32_t& PrefixTree::BucketOf(uint64_t hash) const {
  return buckets_[static_cast<int64_t>(hash & static_cast<uint64_t>(buckets_.size() - 1))];
}

NodeId PrefixTree::Find(int32_t parent, uint64_t hash, std::span<const int32_t> ids) const {
  for (int32_t next = BucketOf(hash); next != 0; next = nodes_[next - 1].next) {
    const Node& node = nodes_[next - 1];
    if (node.hash == hash && node.parent == parent && std::ranges::equal(IdsOf(next - 1), ids)) return next - 1;
  }
  return kRoot;
}

PrefixMatch PrefixTree::Match(std::string_view name_space, std::span<const int32_t> ids) const {
  PrefixMatch match;
  const auto found = namespace_of_key_.find(name_space);
  if (found == namespace_of_key_.end()) return match;
  const auto tokens = static_cast<size_t>(block_tokens_);
  int32_t parent = -1 - found->second;
  for (; ids.size() >= tokens; ids = ids.subspan(tokens)) {
    const std::span<const int32_t> block_ids = ids.first(tokens);
    const NodeId node = Find(parent, HashOf(parent, block_ids), block_ids);
    if (node == kRoot) break;
    if (match.path.empty()) match.path.reserve(ids.size() / tokens);
    match.path.push_back({node, block(node), snapshot(node)});
    parent = node;
  }
  return match;
}

void PrefixTree::CountQuery(int64_t prompt_tokens, int64_t hit_tokens) {
  ++statistics_.queries;
  statistics_.query_tokens += prompt_tokens;
  statistics_.hit_tokens += hit_tokens;
}

// --- Growth ---

int32_t PrefixTree::FindOrAddNamespace(std::string_view key) {
  const auto found = namespace_of_key_.find(key);
  if (found != namespace_of_key_.end()) return found->second;
  if (unused_namespaces_.empty()) {
    unused_namespaces_.push_back(static_cast<int32_t>(namespaces_.size()));
    namespaces_.emplace_back();
  }
  const int32_t index = unused_namespaces_.back();
  unused_namespaces_.pop_back();
  namespaces_[index].key = key;
  namespace_of_key_.emplace(key, index);
  return index;
}

NodeId PrefixTree::Insert(std::string_view name_space, NodeId parent, std::span<const int32_t> ids, int32_t block) {
  assert(static_cast<int64_t>(ids.size()) == block_tokens_);
  assert(parent == kRoot || nodes_[parent].depth > 0);
  const int32_t space = FindOrAddNamespace(name_space);
  assert(parent == kRoot || nodes_[parent].name_space == space);
  const int32_t above = parent == kRoot ? -1 - space : parent;
  const uint64_t hash = HashOf(above, ids);
  if (const NodeId existing = Find(above, hash, ids); existing != kRoot) return existing;

  assert(nodes_[block].depth == 0 && blocks_.reference_count(block) > 0);
  blocks_.AddReference(block);
  int32_t& bucket = BucketOf(hash);
  nodes_[block] = {.hash = hash,
                   .last_use = ++tick_,
                   .snapshot_use = 0,
                   .parent = above,
                   .next = bucket,
                   .name_space = space,
                   .depth = static_cast<int32_t>(depth(parent)) + 1,
                   .children = 0,
                   .blocked_children = 0,
                   .pins = 0,
                   .snapshot = kNoSnapshot,
                   .snapshot_pins = 0};
  bucket = 1 + block;
  std::ranges::copy(ids, ids_.data() + block * block_tokens_);
  if (parent == kRoot) {
    ++namespaces_[space].children;
  } else {
    ++nodes_[parent].children;
    leaf_lru_.Erase(parent);
  }
  leaf_lru_.Insert(block, nodes_[block].last_use);
  ++node_count_;
  ++evictable_;
  ++statistics_.inserted_blocks;
  return block;
}

// --- Pins and use ---

void PrefixTree::PropagateBlocked(NodeId node) {
  while (true) {
    --evictable_;
    leaf_lru_.Erase(node);
    const int32_t above = nodes_[node].parent;
    if (above < 0) return;
    const bool was_blocked = Blocked(above);
    ++nodes_[above].blocked_children;
    if (was_blocked) return;
    node = above;
  }
}

void PrefixTree::PropagateUnblocked(NodeId node) {
  while (true) {
    ++evictable_;
    if (nodes_[node].children == 0) leaf_lru_.Insert(node, nodes_[node].last_use);
    const int32_t above = nodes_[node].parent;
    if (above < 0) return;
    --nodes_[above].blocked_children;
    if (Blocked(above)) return;
    node = above;
  }
}

void PrefixTree::Pin(NodeId node) {
  if (node == kRoot) return;
  assert(nodes_[node].depth > 0);
  const bool was_blocked = Blocked(node);
  ++nodes_[node].pins;
  if (!was_blocked) PropagateBlocked(node);
}

void PrefixTree::Unpin(NodeId node) {
  if (node == kRoot) return;
  assert(nodes_[node].pins > 0);
  --nodes_[node].pins;
  if (!Blocked(node)) PropagateUnblocked(node);
}

void PrefixTree::Touch(NodeId node) {
  if (node == kRoot) return;
  tick_ += static_cast<uint64_t>(nodes_[node].depth);
  for (uint64_t tick = tick_; node >= 0; node = nodes_[node].parent) {
    nodes_[node].last_use = tick--;
    if (leaf_lru_.Contains(node)) {
      leaf_lru_.Erase(node);
      leaf_lru_.Insert(node, nodes_[node].last_use);
    }
  }
}

// --- Snapshots ---

bool PrefixTree::AttachSnapshot(NodeId node, int32_t snapshot) {
  assert(nodes_[node].depth > 0);
  if (nodes_[node].snapshot != kNoSnapshot) return false;
  snapshots_.AddReference(snapshot);
  nodes_[node].snapshot = snapshot;
  nodes_[node].snapshot_use = ++tick_;
  snapshot_lru_.Insert(node, tick_);
  ++snapshot_count_;
  return true;
}

void PrefixTree::DropSnapshot(NodeId node) {
  assert(nodes_[node].snapshot_pins == 0);
  snapshot_lru_.Erase(node);
  snapshots_.Release(nodes_[node].snapshot);
  nodes_[node].snapshot = kNoSnapshot;
  --snapshot_count_;
}

void PrefixTree::DetachSnapshot(NodeId node) {
  if (nodes_[node].snapshot != kNoSnapshot) DropSnapshot(node);
}

void PrefixTree::PinSnapshot(NodeId node) {
  assert(nodes_[node].snapshot != kNoSnapshot);
  Pin(node);
  ++nodes_[node].snapshot_pins;
  nodes_[node].snapshot_use = ++tick_;
  snapshot_lru_.Erase(node);
}

void PrefixTree::UnpinSnapshot(NodeId node) {
  assert(nodes_[node].snapshot_pins > 0);
  if (--nodes_[node].snapshot_pins == 0) snapshot_lru_.Insert(node, nodes_[node].snapshot_use);
  Unpin(node);
}

// --- Eviction ---

void PrefixTree::Remove(NodeId leaf) {
  Node& node = nodes_[leaf];
  assert(node.depth > 0 && node.children == 0 && !Blocked(leaf));
  if (node.snapshot != kNoSnapshot) {
    DropSnapshot(leaf);
    ++statistics_.evicted_snapshots;
  }
  int32_t* link = &BucketOf(node.hash);
  while (*link != 1 + leaf) link = &nodes_[*link - 1].next;
  *link = node.next;
  leaf_lru_.Erase(leaf);
  --node_count_;
  --evictable_;
  ++statistics_.evicted_blocks;
  node.depth = 0;
  blocks_.Release(leaf);

  if (node.parent >= 0) {
    Node& above = nodes_[node.parent];
    if (--above.children == 0 && !Blocked(node.parent)) leaf_lru_.Insert(node.parent, above.last_use);
  } else if (Namespace& space = namespaces_[node.name_space]; --space.children == 0) {
    namespace_of_key_.erase(space.key);
    space.key = std::string();
    unused_namespaces_.push_back(node.name_space);
  }
}

int64_t PrefixTree::EvictBlocks(int64_t count) {
  const int64_t before = blocks_.free_count();
  while (blocks_.free_count() - before < count && leaf_lru_.Oldest() >= 0) Remove(leaf_lru_.Oldest());
  return blocks_.free_count() - before;
}

bool PrefixTree::EvictSnapshot() {
  const NodeId node = snapshot_lru_.Oldest();
  if (node < 0) return false;
  DropSnapshot(node);
  ++statistics_.evicted_snapshots;
  return true;
}

int64_t PrefixTree::RemoveUpwards(NodeId node) {
  int64_t removed = 0;
  while (node >= 0 && nodes_[node].depth > 0 && nodes_[node].children == 0 && !Blocked(node)) {
    const int32_t above = nodes_[node].parent;
    Remove(node);
    ++removed;
    node = above;
  }
  return removed;
}

int64_t PrefixTree::EvictNamespace(std::string_view name_space) {
  const auto found = namespace_of_key_.find(name_space);
  if (found == namespace_of_key_.end()) return 0;
  const int32_t space = found->second;
  int64_t removed = 0;
  for (int64_t node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].depth > 0 && nodes_[node].name_space == space) removed += RemoveUpwards(static_cast<NodeId>(node));
  }
  return removed;
}

int64_t PrefixTree::Clear() {
  int64_t removed = 0;
  while (leaf_lru_.Oldest() >= 0) removed += RemoveUpwards(leaf_lru_.Oldest());
  return removed;
}

}  // namespace deepinfer
