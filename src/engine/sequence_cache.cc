#include "engine/sequence_cache.h"

#include <algorithm>

#include "model/sequence_state.h"

namespace deepinfer {
namespace {

static_assert(kKvBlockTokens == SequenceState::kPageTokens);

int64_t BlocksFor(int64_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

}  // namespace

Result<std::unique_ptr<KvManager>> KvManager::Create(const KvManagerOptions& options, const DeviceAllocator& allocate) {
  std::unique_ptr<KvManager> manager(new KvManager(options));
  DEEPINFER_ASSIGN_OR_RETURN(manager->blocks_, KvPool::Create(options.block_bytes, options.blocks, allocate));
  DEEPINFER_ASSIGN_OR_RETURN(manager->snapshots_, BlockPool::Create(options.snapshot_bytes, options.snapshots));
  DEEPINFER_ASSIGN_OR_RETURN(manager->tree_, PrefixTree::Create(*manager->blocks_, *manager->snapshots_));
  return manager;
}

int32_t KvManager::AllocateBlock() {
  if (blocks_->free_count() == 0) tree_->EvictBlocks(1);
  return blocks_->Allocate().value_or(-1);
}

int32_t KvManager::AllocateSnapshot() {
  if (!options_.prefix_cache) return kNoSnapshot;
  if (snapshots_->free_count() == 0 && !tree_->EvictSnapshot()) return kNoSnapshot;
  return snapshots_->Allocate().value_or(kNoSnapshot);
}

bool KvManager::Admit(std::span<const int32_t> ids, int64_t prompt_tokens, bool use_hits, int64_t reserve,
                      SequenceCache* cache) {
  const int64_t known = std::ssize(ids);
  PrefixMatch match;
  if (options_.prefix_cache) match = tree_->Match(cache->name_space, ids);
  // Rows that must yield log probabilities are computed whatever is cached; their blocks are still shared.
  std::vector<MatchedBlock> path = match.path;
  if (!use_hits) {
    for (MatchedBlock& block : path) block.snapshot = kNoSnapshot;
  }
  ReplayPlan replay = PlanReplay(cache->settings, path, known, prompt_tokens);
  if (!use_hits) {
    replay.first_position = replay.resume_position = replay.encoder_start = 0;
    replay.snapshot_position = -1;
    if (!cache->settings.bounded) replay.decoder_start = 0;
  }
  const int64_t hit_blocks = replay.hit_tokens / kKvBlockTokens;
  const NodeId deepest = hit_blocks > 0 ? path[static_cast<size_t>(hit_blocks - 1)].node : kRoot;

  tree_->Pin(deepest);
  const int64_t needed = BlocksFor(known + 1) - hit_blocks;
  if (blocks_->free_count() + tree_->evictable_blocks() < needed + reserve) {
    tree_->Unpin(deepest);
    return false;
  }
  cache->replay = replay;
  cache->deepest = deepest;
  cache->published = hit_blocks;
  cache->blocks.clear();
  for (int64_t i = 0; i < hit_blocks; ++i) {
    const int32_t block = path[static_cast<size_t>(i)].block;
    blocks_->AddReference(block);
    cache->blocks.push_back(block);
  }
  if (replay.snapshot_position > 0) {
    cache->restored = path[static_cast<size_t>(replay.snapshot_position / kKvBlockTokens - 1)].node;
    tree_->PinSnapshot(cache->restored);
    cache->rings = snapshots_->data(tree_->snapshot(cache->restored));
  }
  tree_->Touch(deepest);
  tree_->CountQuery(known, replay.hit_tokens);
  const bool grown = Grow(known + 1, cache);
  (void)grown;  // the count above says that it fits
  if (options_.prefix_cache) {
    cache->boundaries = SnapshotBoundaries(cache->settings, replay, path, known, options_.snapshot_interval);
  }
  cache->next_boundary = 0;
  return true;
}

bool KvManager::Grow(int64_t tokens, SequenceCache* cache) {
  while (std::ssize(cache->blocks) < BlocksFor(tokens)) {
    const int32_t block = AllocateBlock();
    if (block < 0) return false;
    cache->blocks.push_back(block);
  }
  return true;
}

uint8_t* KvManager::SnapshotBuffer(int64_t position, SequenceCache* cache) {
  const int32_t id = AllocateSnapshot();
  if (id == kNoSnapshot) return nullptr;
  cache->saved.push_back({id, position});
  return snapshots_->data(id);
}

std::array<uint8_t*, kRollingSnapshots> KvManager::TakeRollingBuffers(SequenceCache* cache) {
  std::array<uint8_t*, kRollingSnapshots> buffers = {};
  for (size_t i = 0; i < buffers.size(); ++i) {
    const int32_t id = AllocateSnapshot();
    cache->rolling[i] = {id, -1};
    if (id != kNoSnapshot) buffers[i] = snapshots_->data(id);
  }
  return buffers;
}

void KvManager::ReleaseRestored(SequenceCache* cache) {
  if (cache->restored == kRoot) return;
  tree_->UnpinSnapshot(cache->restored);
  cache->restored = kRoot;
  cache->rings = nullptr;
}

void KvManager::AttachSaved(int64_t computed, SequenceCache* cache) {
  std::erase_if(cache->saved, [&](const SequenceCache::Snapshot& saved) {
    const int64_t depth = saved.position / kKvBlockTokens;
    if (saved.position > computed || depth > cache->published) return false;
    NodeId node = cache->deepest;
    while (tree_->depth(node) > depth) node = tree_->parent(node);
    tree_->AttachSnapshot(node, saved.id);
    snapshots_->Release(saved.id);
    return true;
  });
}

void KvManager::Publish(std::span<const int32_t> ids, int64_t computed, SequenceCache* cache) {
  if (!options_.prefix_cache) return;
  const int64_t full = std::min(computed, std::ssize(ids)) / kKvBlockTokens;
  while (cache->published < full) {
    const int64_t block = cache->published;
    const NodeId node =
        tree_->Insert(cache->name_space, cache->deepest,
                      ids.subspan(static_cast<size_t>(block * kKvBlockTokens), static_cast<size_t>(kKvBlockTokens)),
                      cache->blocks[static_cast<size_t>(block)]);
    tree_->Pin(node);
    tree_->Unpin(cache->deepest);
    cache->deepest = node;
    ++cache->published;
  }
  AttachSaved(computed, cache);
}

NodeId KvManager::Release(std::span<const int32_t> ids, int64_t computed, SequenceCache* cache) {
  ReleaseRestored(cache);
  Publish(ids, computed, cache);
  for (SequenceCache::Snapshot& rolling : cache->rolling) {
    if (rolling.id != kNoSnapshot && rolling.position > 0) cache->saved.push_back(rolling);
    if (rolling.id != kNoSnapshot && rolling.position <= 0) snapshots_->Release(rolling.id);
    rolling = {};
  }
  AttachSaved(computed, cache);
  for (const SequenceCache::Snapshot& saved : cache->saved) snapshots_->Release(saved.id);
  cache->saved.clear();
  const NodeId deepest = cache->deepest;
  if (deepest != kRoot) tree_->Touch(deepest);
  tree_->Unpin(deepest);
  cache->deepest = kRoot;
  cache->published = 0;
  for (const int32_t block : cache->blocks) blocks_->Release(block);
  cache->blocks.clear();
  cache->boundaries.clear();
  return deepest;
}

std::vector<int32_t> KvManager::TakeBlocks(int64_t count, int64_t reserve) {
  const int64_t room = blocks_->free_count() + tree_->evictable_blocks() - reserve;
  std::vector<int32_t> taken;
  while (std::ssize(taken) < std::min(count, room)) {
    const int32_t block = AllocateBlock();
    if (block < 0) break;
    taken.push_back(block);
  }
  return taken;
}

NodeId KvManager::Adopt(std::string_view name_space, NodeId parent, std::span<const int32_t> ids, int32_t block) {
  const NodeId node = tree_->Insert(name_space, parent, ids, block);
  tree_->Pin(node);
  tree_->Unpin(parent);
  blocks_->Release(block);
  return node;
}

void KvManager::AdoptSnapshot(NodeId node, int32_t snapshot) {
  tree_->AttachSnapshot(node, snapshot);
  snapshots_->Release(snapshot);
}

}  // namespace deepinfer
