#include "cache/tier_store.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <new>

#include "base/clock.h"

namespace deepinfer {
namespace {

/// Payload that a lane gives to its tier in one Write.
constexpr int64_t kWriteBytes = int64_t{8} << 20;

std::chrono::duration<double> Seconds(double seconds) {
  return std::chrono::duration<double>(std::clamp(seconds, 0.0, 3600.0));
}

constexpr size_t kLine = 64;

struct KeptSlabs {
  std::mutex mutex;
  std::vector<AlignedBuffer<uint8_t>> slabs;
};

// Never destroyed: batches may live as long as the program.
KeptSlabs& Kept() {
  static KeptSlabs& kept = *new KeptSlabs;
  return kept;
}

}  // namespace

KvSlab::KvSlab(size_t bytes) {
  if (bytes <= kBytes) {
    KeptSlabs& kept = Kept();
    const std::lock_guard lock(kept.mutex);
    if (!kept.slabs.empty()) {
      bytes_ = std::move(kept.slabs.back());
      kept.slabs.pop_back();
    }
  }
  if (bytes_.data() == nullptr && !bytes_.Allocate(static_cast<int64_t>(std::max(bytes, kBytes))))
    throw std::bad_alloc();
}

KvSlab::~KvSlab() {
  if (bytes_.size() != static_cast<int64_t>(kBytes)) return;
  KeptSlabs& kept = Kept();
  const std::lock_guard lock(kept.mutex);
  if (std::ssize(kept.slabs) < kKept) kept.slabs.push_back(std::move(bytes_));
}

uint8_t* KvSlab::Take(size_t bytes) {
  const auto size = static_cast<size_t>(bytes_.size());
  if (bytes > size - used_) return nullptr;
  uint8_t* const taken = bytes_.data() + used_;
  used_ = std::min(size, used_ + (bytes + kLine - 1) / kLine * kLine);
  return taken;
}

void KvBatch::Add(const KvWrite& write) {
  KvWrite own = write;
  const size_t ids_bytes = (write.ids.size_bytes() + kLine - 1) / kLine * kLine;
  const size_t bytes = ids_bytes + write.payload.size();
  uint8_t* to = slabs.empty() ? nullptr : slabs.back().Take(bytes);
  if (to == nullptr) to = slabs.emplace_back(bytes).Take(bytes);
  std::memcpy(to, write.ids.data(), write.ids.size_bytes());
  own.ids = {reinterpret_cast<const int32_t*>(to), write.ids.size()};
  std::ranges::copy(write.payload, to + ids_bytes);
  own.payload = {to + ids_bytes, write.payload.size()};
  writes.push_back(own);
}

void KvBatch::Append(KvBatch batch) {
  writes.insert(writes.end(), batch.writes.begin(), batch.writes.end());
  for (KvSlab& slab : batch.slabs) slabs.push_back(std::move(slab));
}

int64_t KvBatch::payload_bytes() const {
  int64_t bytes = 0;
  for (const KvWrite& write : writes) bytes += std::ssize(write.payload);
  return bytes;
}

TierStore::TierStore(std::vector<std::unique_ptr<KvTier>> tiers, const TierStoreOptions& options) : options_(options) {
  if (!options_.stopwatch) options_.stopwatch = NowSeconds;
  for (std::unique_ptr<KvTier>& tier : tiers) {
    lanes_.push_back(std::make_unique<Lane>());
    lanes_.back()->tier = std::move(tier);
    lanes_.back()->probe_interval = options_.first_probe_seconds;
  }
  for (const auto& lane : lanes_) lane->thread = std::thread([this, &lane = *lane] { RunLane(lane); });
  if (lanes_.empty()) return;
  const auto deadline = std::chrono::steady_clock::now() + Seconds(options_.opening_seconds);
  for (const auto& lane : lanes_) {
    std::unique_lock lock(lane->mutex);
    lane->changed.wait_until(lock, deadline, [&] { return lane->opened; });
  }
  for (int i = 0; i < options_.fetch_threads; ++i) fetch_threads_.emplace_back([this] { RunFetches(); });
}

TierStore::~TierStore() {
  {
    const std::lock_guard lock(fetch_mutex_);
    stop_fetches_ = true;
  }
  fetch_changed_.notify_all();
  for (std::thread& thread : fetch_threads_) thread.join();
  WriteRest(options_.closing_seconds);
  for (const auto& lane : lanes_) {
    std::vector<std::shared_ptr<Shared>> dropped;
    {
      const std::lock_guard lock(lane->mutex);
      lane->stop = true;
      DropQueue(*lane, &dropped);
    }
    for (const auto& shared : dropped) LetGo(shared);
    lane->changed.notify_all();
  }
  for (const auto& lane : lanes_) lane->thread.join();
}

void TierStore::LetGo(const std::shared_ptr<Shared>& shared) {
  if (shared->holders.fetch_sub(1) == 1 && shared->batch.done) shared->batch.done();
}

void TierStore::DropQueue(Lane& lane, std::vector<std::shared_ptr<Shared>>* dropped) {
  for (std::shared_ptr<Shared>& shared : lane.queue) {
    lane.dropped += std::ssize(shared->batch.writes);
    dropped->push_back(std::move(shared));
  }
  lane.queue.clear();
  lane.queued_bytes = 0;
}

bool TierStore::Store(KvBatch batch) {
  const auto shared = std::make_shared<Shared>();
  shared->batch = std::move(batch);
  const int64_t bytes = shared->batch.payload_bytes();
  bool everywhere = true;
  for (const auto& lane : lanes_) {
    {
      const std::lock_guard lock(lane->mutex);
      if (!lane->up || lane->stop || lane->queued_bytes + bytes > options_.queue_bytes) {
        lane->dropped += std::ssize(shared->batch.writes);
        everywhere = everywhere && !lane->up;
        continue;
      }
      shared->holders.fetch_add(1);
      lane->queue.push_back(shared);
      lane->queued_bytes += bytes;
    }
    lane->changed.notify_all();
  }
  LetGo(shared);
  return everywhere;
}

void TierStore::SetComputing(bool computing) {
  if (computing_.exchange(computing) == computing || computing) return;
  for (const auto& lane : lanes_) {
    // Whoever has read the old value sleeps by now.
    { const std::lock_guard lock(lane->mutex); }
    lane->changed.notify_all();
  }
}

double TierStore::NextWrite(const Lane& lane) const {
  if (!lane.up || lane.queue.empty() || lane.closing) return std::numeric_limits<double>::max();
  const bool paced = computing_ && lane.flushing == 0 && lane.queued_bytes <= options_.queue_bytes / 2;
  return paced ? lane.next_write : 0;
}

bool TierStore::Up(const Lane& lane) const {
  const std::lock_guard lock(lane.mutex);
  return lane.up;
}

void TierStore::TakeDown(Lane& lane, const Status& why) {
  std::vector<std::shared_ptr<Shared>> dropped;
  {
    const std::lock_guard lock(lane.mutex);
    if (!lane.up) return;
    lane.up = false;
    lane.reason = why.message();
    ++lane.failures;
    lane.probe_interval = options_.first_probe_seconds;
    lane.next_probe = NowSeconds() + lane.probe_interval;
    DropQueue(lane, &dropped);
  }
  lane.changed.notify_all();
  for (const auto& shared : dropped) LetGo(shared);
}

void TierStore::WriteNext(Lane& lane, std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Shared> shared = std::move(lane.queue.front());
  lane.queue.pop_front();
  ++lane.busy;
  lock.unlock();
  const std::span<const KvWrite> writes = shared->batch.writes;
  Status status;
  size_t kept = 0;
  const double begin = NowSeconds();
  while (kept < writes.size()) {
    size_t end = kept;
    for (int64_t bytes = 0; end < writes.size() && bytes < kWriteBytes; ++end) bytes += std::ssize(writes[end].payload);
    status = lane.tier->Write(writes.subspan(kept, end - kept));
    if (!status.ok()) break;
    kept = end;
  }
  const double seconds = NowSeconds() - begin;
  if (!status.ok()) TakeDown(lane, status);
  const int64_t bytes = shared->batch.payload_bytes();
  const int64_t lost = std::ssize(writes) - static_cast<int64_t>(kept);
  LetGo(shared);
  lock.lock();
  lane.dropped += lost;
  lane.write_seconds += seconds;
  lane.next_write = begin + static_cast<double>(bytes) / options_.computing_bytes_per_second;
  // A tier that was taken down has forgotten its queue.
  lane.queued_bytes = std::max<int64_t>(0, lane.queued_bytes - bytes);
  --lane.busy;
  lane.changed.notify_all();
}

void TierStore::WriteRest(double seconds) {
  const double end = NowSeconds() + seconds;
  const auto deadline = std::chrono::steady_clock::now() + Seconds(seconds);
  for (const auto& lane : lanes_) {
    std::unique_lock lock(lane->mutex);
    lane->closing = true;
    const auto idle = [&] { return lane->busy == 0; };
    while (lane->changed.wait_until(lock, deadline, idle) && lane->up && !lane->queue.empty() && NowSeconds() < end) {
      WriteNext(*lane, lock);
    }
  }
}

void TierStore::RunLane(Lane& lane) {
  // Of this thread only. Nobody waits for it, and a step of the model waits for every thread that computes.
  static_cast<void>(nice(19));
  std::unique_lock lock(lane.mutex);
  while (!lane.stop) {
    const double now = NowSeconds();
    const double due = lane.up ? lane.next_upkeep : lane.next_probe;
    const double next_write = NextWrite(lane);
    if (next_write <= now && now < due) {
      WriteNext(lane, lock);
      continue;
    }
    if (now < due) {
      lane.changed.wait_for(lock, Seconds(std::min(due, next_write) - now));
      continue;
    }
    const bool up = lane.up;
    lane.busy += up ? 1 : 0;
    lock.unlock();
    const Status status = up ? lane.tier->Maintain() : lane.tier->Probe();
    if (up && !status.ok()) TakeDown(lane, status);
    lock.lock();
    lane.busy -= up ? 1 : 0;
    if (!lane.opened && !status.ok()) {
      ++lane.failures;
    }
    lane.opened = true;
    if (up) {
      lane.next_upkeep = NowSeconds() + options_.upkeep_seconds;
    } else if (status.ok()) {
      lane.up = true;
      lane.reason.clear();
    } else {
      lane.reason = status.message();
      lane.probe_interval = std::min(2 * lane.probe_interval, options_.most_probe_seconds);
      lane.next_probe = NowSeconds() + lane.probe_interval;
    }
    lane.changed.notify_all();
  }
}

bool TierStore::Flush(double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + Seconds(seconds);
  for (const auto& lane : lanes_) {
    const std::lock_guard lock(lane->mutex);
    ++lane->flushing;
    lane->changed.notify_all();
  }
  bool empty = true;
  for (const auto& lane : lanes_) {
    std::unique_lock lock(lane->mutex);
    const auto done = [&] { return lane->queue.empty() && lane->busy == 0; };
    empty = empty && lane->changed.wait_until(lock, deadline, done);
    --lane->flushing;
  }
  return empty;
}

bool TierStore::WaitUntilUp(double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + Seconds(seconds);
  for (const auto& lane : lanes_) {
    std::unique_lock lock(lane->mutex);
    if (!lane->changed.wait_until(lock, deadline, [&] { return lane->up; })) return false;
  }
  return true;
}

int64_t TierStore::memory_bytes() const {
  int64_t bytes = std::ssize(lanes_) * options_.queue_bytes + KvSlab::kKept * static_cast<int64_t>(KvSlab::kBytes);
  for (const auto& lane : lanes_) bytes += lane->tier->memory_bytes();
  return bytes;
}

std::vector<TierReport> TierStore::report() const {
  std::vector<TierReport> all;
  for (const auto& lane : lanes_) {
    TierReport one;
    one.name = lane->tier->name();
    one.counts = lane->tier->counts();
    one.warning = lane->tier->warning();
    const std::lock_guard lock(lane->mutex);
    one.up = lane->up;
    one.reason = lane->reason;
    one.failures = lane->failures;
    one.queued_bytes = lane->queued_bytes;
    one.dropped = lane->dropped;
    one.read_seconds = lane->read_seconds;
    one.write_seconds = lane->write_seconds;
    one.bytes_per_second = lane->bytes_per_second;
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace deepinfer
