#include "cache/kv_fetch.h"

#include <algorithm>

#include "cache/tier_store.h"

namespace deepinfer {
namespace {

/// Blocks, from the deepest, that a tier behind a network is asked about for rings.
constexpr int64_t kRemoteProbes = 32;

}  // namespace

bool KvFetch::located() const {
  const std::lock_guard lock(mutex_);
  return located_;
}

int64_t KvFetch::arrived_blocks() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(arrivals_);
}

std::vector<KvFetch::Arrival> KvFetch::arrivals() const {
  const std::lock_guard lock(mutex_);
  return arrivals_;
}

bool KvFetch::arrived_rings() const {
  const std::lock_guard lock(mutex_);
  return arrived_rings_;
}

bool KvFetch::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

bool KvFetch::Stop() {
  const std::lock_guard lock(mutex_);
  stop_ = true;
  return !reading_;
}

void KvFetch::Arrive(std::span<const Arrival> blocks) {
  {
    const std::lock_guard lock(mutex_);
    arrivals_.insert(arrivals_.end(), blocks.begin(), blocks.end());
  }
  if (on_news_) on_news_();
}

void KvFetch::Finish() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  if (on_news_) on_news_();
}

void TierStore::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(fetch_mutex_);
    fetches_.push_back(std::move(task));
  }
  fetch_changed_.notify_one();
}

void TierStore::RunFetches() {
  std::unique_lock lock(fetch_mutex_);
  while (true) {
    fetch_changed_.wait(lock, [&] { return stop_fetches_ || !fetches_.empty(); });
    if (fetches_.empty()) return;
    const std::function<void()> task = std::move(fetches_.front());
    fetches_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

std::shared_ptr<KvFetch> TierStore::Locate(const KvScope& scope, std::vector<KvKey> keys, int64_t first_rings,
                                           int64_t last_rings, std::function<void()> on_news) {
  const auto fetch = std::make_shared<KvFetch>();
  fetch->scope_ = scope;
  fetch->keys_ = std::move(keys);
  fetch->first_rings_ = first_rings;
  fetch->last_rings_ = last_rings;
  fetch->on_news_ = std::move(on_news);
  Post([this, fetch] { LocateNow(*fetch); });
  return fetch;
}

void TierStore::Read(const std::shared_ptr<KvFetch>& fetch, std::vector<KvRead> blocks, std::vector<KvRead> rings) {
  fetch->reads_ = std::move(blocks);
  fetch->rings_ = std::move(rings);
  Post([this, fetch] { ReadNow(fetch); });
}

void TierStore::Abandon(const std::shared_ptr<KvFetch>& fetch) { fetch->Finish(); }

void TierStore::LocateNow(KvFetch& fetch) {
  KvFetch::Located answer;
  answer.by_tier.resize(lanes_.size());
  const std::span<const KvKey> keys = fetch.keys_;
  double seconds = 0;
  // A prefix may begin in one tier and go on in another.
  for (bool further = true; further && answer.blocks < std::ssize(keys);) {
    further = false;
    for (size_t i = 0; i < lanes_.size() && answer.blocks < std::ssize(keys); ++i) {
      Lane& lane = *lanes_[i];
      if (!Up(lane)) continue;
      const Result<int64_t> found = lane.tier->Find(keys.subspan(static_cast<size_t>(answer.blocks)));
      if (!found.ok()) {
        TakeDown(lane, found.status());
        continue;
      }
      answer.by_tier[i] += *found;
      answer.blocks += *found;
      further |= *found > 0;
    }
  }
  // Rings without the blocks before them are of no use.
  const int64_t last = std::min(fetch.last_rings_, answer.blocks - 1);
  for (int64_t at = last; at >= fetch.first_rings_ && answer.rings < 0; --at) {
    for (const auto& lane : lanes_) {
      if (!Up(*lane) || (!lane->tier->knows_its_records() && last - at >= kRemoteProbes)) continue;
      const Result<bool> has = lane->tier->Has(KvRecordKind::kRings, keys[static_cast<size_t>(at)]);
      if (!has.ok()) TakeDown(*lane, has.status());
      if (has.ok() && *has) answer.rings = at;
    }
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const std::lock_guard lock(lanes_[i]->mutex);
    const double rate = lanes_[i]->bytes_per_second;
    if (rate > 0) seconds += static_cast<double>(answer.by_tier[i] * options_.block_bytes) / rate;
  }
  answer.seconds = seconds;
  fetch.answer_ = std::move(answer);
  {
    const std::lock_guard lock(fetch.mutex_);
    fetch.located_ = true;
  }
  if (fetch.on_news_) fetch.on_news_();
}

void TierStore::ReadChunk(std::span<KvRead> reads, std::span<uint8_t> from) {
  std::vector<KvRead> wanted;
  std::vector<size_t> places;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    wanted.clear();
    places.clear();
    for (size_t at = 0; at < reads.size(); ++at) {
      if (reads[at].found) continue;
      wanted.push_back(reads[at]);
      places.push_back(at);
    }
    Lane& lane = *lanes_[i];
    if (wanted.empty()) return;
    if (!Up(lane)) continue;
    const double begin = options_.stopwatch();
    const Status status = lane.tier->Read(wanted);
    const double seconds = options_.stopwatch() - begin;
    int64_t bytes = 0;
    for (size_t k = 0; k < wanted.size(); ++k) {
      if (!wanted[k].found) continue;
      reads[places[k]] = wanted[k];
      from[places[k]] = static_cast<uint8_t>(i);
      bytes += std::ssize(wanted[k].payload);
    }
    {
      const std::lock_guard lock(lane.mutex);
      lane.read_seconds += seconds;
      if (bytes > 0 && seconds > 0) {
        const double rate = static_cast<double>(bytes) / seconds;
        lane.bytes_per_second =
            lane.bytes_per_second == 0 ? rate : lane.bytes_per_second + 0.2 * (rate - lane.bytes_per_second);
      }
    }
    if (!status.ok()) TakeDown(lane, status);
  }
}

void TierStore::CopyToHost(const KvScope& scope, std::span<const KvRead> reads, std::span<const uint8_t> from) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i]->tier->name() != "host" || !Up(*lanes_[i])) continue;
    std::vector<KvWrite> writes;
    for (size_t at = 0; at < reads.size(); ++at) {
      const KvRead& read = reads[at];
      if (!read.found || from[at] <= i) continue;
      writes.push_back(
          {read.kind, scope, read.key, read.parent, read.first_token, read.ids, read.payload, read.expires_at});
    }
    if (writes.empty()) continue;
    const Status status = lanes_[i]->tier->Write(writes);
    if (!status.ok()) TakeDown(*lanes_[i], status);
  }
}

void TierStore::ReadNow(const std::shared_ptr<KvFetch>& shared) {
  KvFetch& fetch = *shared;
  const auto stopped = [&] {
    const std::lock_guard lock(fetch.mutex_);
    fetch.reading_ |= !fetch.stop_;
    return fetch.stop_;
  };
  if (stopped()) return fetch.Finish();
  KvLanding* const landing = options_.landing;
  const std::span<KvRead> reads = fetch.reads_;
  std::vector<uint8_t> from(reads.size() + 1);
  bool whole = true;
  for (size_t at = 0; at < reads.size() && whole && !stopped();) {
    size_t end = at;
    for (int64_t bytes = 0; end < reads.size() && bytes < options_.chunk_bytes; ++end)
      bytes += std::ssize(reads[end].payload);
    const std::span<KvRead> chunk = reads.subspan(at, end - at);
    const std::span<uint8_t> chunk_from = std::span(from).subspan(at, end - at);
    uint8_t* const memory = landing == nullptr ? nullptr : landing->Take();
    if (landing != nullptr && memory == nullptr) break;
    std::vector<MemoryPiece> pieces;
    if (memory != nullptr) {
      uint8_t* next = memory;
      for (KvRead& read : chunk) {
        pieces.push_back({next, read.payload.data(), std::ssize(read.payload)});
        read.payload = {next, read.payload.size()};
        next += read.payload.size();
      }
    }
    ReadChunk(chunk, chunk_from);
    CopyToHost(fetch.scope_, chunk, chunk_from);
    const auto missing = std::ranges::find(chunk, false, &KvRead::found);
    const auto good = static_cast<size_t>(missing - chunk.begin());
    whole = good == chunk.size();
    std::vector<KvFetch::Arrival> arrivals;
    for (size_t i = 0; i < good; ++i) arrivals.push_back({chunk_from[i], chunk[i].expires_at});
    if (landing == nullptr) {
      fetch.Arrive(arrivals);
    } else {
      pieces.resize(good);
      landing->Land(memory, std::move(pieces), [shared, arrivals = std::move(arrivals)](bool landed) {
        if (landed) shared->Arrive(arrivals);
      });
    }
    at = end;
  }
  if (!fetch.rings_.empty() && !stopped()) {
    ReadChunk(fetch.rings_, std::span(from).last(1));
    CopyToHost(fetch.scope_, fetch.rings_, std::span(from).last(1));
    const std::lock_guard lock(fetch.mutex_);
    fetch.arrived_rings_ = fetch.rings_.front().found;
  }
  if (landing == nullptr) return fetch.Finish();
  landing->Land(nullptr, {}, [shared](bool) { shared->Finish(); });
}

}  // namespace deepinfer
