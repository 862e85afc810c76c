#include "engine/block_copies.h"

#include <cassert>
#include <chrono>
#include <utility>

namespace deepinfer {
namespace {

int64_t AlignUp(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

Result<std::unique_ptr<BlockCopies>> BlockCopies::Create(Ops& ops, int64_t chunk_bytes,
                                                         std::function<void(std::function<void()>)> post) {
  std::unique_ptr<BlockCopies> copies(new BlockCopies(ops, AlignUp(chunk_bytes), std::move(post)));
  DEEPINFER_ASSIGN_OR_RETURN(copies->memory_, ops.AllocateStaging((1 + kLandingBuffers) * copies->chunk_bytes_));
  copies->outgoing_ = copies->memory_.data();
  for (int i = 1; i <= kLandingBuffers; ++i) copies->free_.push_back(copies->outgoing_ + i * copies->chunk_bytes_);
  return copies;
}

void BlockCopies::Post(std::function<void()> task) {
  ++pending_;
  post_([this, task = std::move(task)] {
    task();
    const std::lock_guard lock(mutex_);
    --pending_;
    changed_.notify_all();
  });
}

bool BlockCopies::Succeeds(const Status& copied) const {
  if (!copied.ok() && on_failure) on_failure(copied);
  return copied.ok();
}

bool BlockCopies::KeepNow(OutgoingRecords& records, TierStore& store) {
  if (*records.refused) return false;
  out_.clear();
  uint8_t* to = outgoing_;
  for (const KvWrite& block : records.blocks) {
    assert(to + block.payload.size() <= outgoing_ + chunk_bytes_);
    out_.push_back({block.payload.data(), to, std::ssize(block.payload)});
    to += block.payload.size();
  }
  if (!Succeeds(ops_.CopyPiecesOut(out_))) return false;
  KvBatch batch;
  for (size_t i = 0; i < records.blocks.size(); ++i) {
    KvWrite block = records.blocks[i];
    const size_t tokens = records.ids.size() / records.blocks.size();
    block.ids = std::span(records.ids).subspan(i * tokens, tokens);
    block.payload = {static_cast<const uint8_t*>(out_[i].to), block.payload.size()};
    batch.Add(block);
  }
  batch.Append(std::move(records.batch));
  return store.Store(std::move(batch));
}

void BlockCopies::Keep(OutgoingRecords records, TierStore& store) {
  // A function can be copied, a batch cannot.
  const auto shared = std::make_shared<OutgoingRecords>(std::move(records));
  const std::lock_guard lock(mutex_);
  Post([this, shared, &store] {
    if (KeepNow(*shared, store)) return;
    *shared->refused = true;
    shared->lost();
  });
}

uint8_t* BlockCopies::Take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !free_.empty(); });
  if (closed_) return nullptr;
  uint8_t* const memory = free_.back();
  free_.pop_back();
  return memory;
}

void BlockCopies::GiveBack(uint8_t* memory) {
  if (memory == nullptr) return;
  const std::lock_guard lock(mutex_);
  free_.push_back(memory);
  changed_.notify_all();
}

void BlockCopies::Land(uint8_t* memory, std::vector<MemoryPiece> pieces, std::function<void(bool)> landed) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      return Post([this, memory, pieces = std::move(pieces), landed = std::move(landed)] {
        const bool copied = pieces.empty() || Succeeds(ops_.CopyPiecesIn(pieces));
        GiveBack(memory);
        landed(copied);
      });
    }
  }
  GiveBack(memory);
  landed(false);
}

int64_t BlockCopies::Wait(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return pending_ == 0; });
  return pending_;
}

void BlockCopies::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace deepinfer
