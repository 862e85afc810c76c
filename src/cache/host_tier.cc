#include "cache/host_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace deepinfer {
namespace {

constexpr int64_t kExpirySlots = 65536;
constexpr int64_t kMostTokens = 65535;  // of a record

}  // namespace

Result<std::unique_ptr<HostTier>> HostTier::Create(const KvNamespace& name_space, HostTierOptions options) {
  if (options.block_tokens < 1 || options.block_tokens > kMostTokens) {
    return Status::InvalidArgument(
        fmt::format("host tier: blocks of {} tokens, 1 to {} expected", options.block_tokens, kMostTokens));
  }
  // What the stagings need is known from the sizes of the records alone.
  HostLayout sizes;
  sizes.block_tokens = options.block_tokens;
  sizes.block_bytes = name_space.block_bytes;
  sizes.rings_bytes = name_space.rings_bytes;
  const int64_t reserved = kStagings * StagingBytes(sizes);
  const Result<HostLayout> layout =
      HostLayout::Make(name_space, options.block_tokens, std::max<int64_t>(0, options.budget_bytes - reserved));
  if (!layout.ok()) {
    return Status::InvalidArgument(fmt::format("{}; {} more are used by reads: raise the budget of {} bytes",
                                               layout.status().message(), reserved, options.budget_bytes));
  }
  const auto format = [&layout](uint8_t* memory) { HostTable(memory, *layout).Format(); };
  HostFileHeader header;
  header.block_tokens = static_cast<uint32_t>(options.block_tokens);
  header.fingerprint = name_space.fingerprint.bytes;
  header.file_bytes = layout->total_bytes;
  header.block_bytes = layout->block_bytes;
  header.rings_bytes = layout->rings_bytes;
  static_assert(sizeof(header) <= HostTable::kReservedBytes);
  Result<HostMapping> mapping = options.file.empty() ? HostMapping::Private(layout->total_bytes)
                                                     : HostMapping::Open(options.file, header, format);
  if (!mapping.ok()) return mapping.status();
  if (options.file.empty()) format(mapping->data());
  std::unique_ptr<HostTier> tier(new HostTier(std::move(*mapping), *layout, std::move(options)));
  for (Staging& staging : tier->stagings_) {
    if (!staging.bytes.Allocate(tier->staging_bytes())) {
      return Status::ResourceExhausted("host tier: the system has no memory for reads");
    }
  }
  return tier;
}

HostTier::HostTier(HostMapping mapping, const HostLayout& layout, HostTierOptions options)
    : options_(std::move(options)), mapping_(std::move(mapping)), table_(mapping_.data(), layout) {}

int64_t HostTier::StagingBytes(const HostLayout& layout) {
  constexpr int64_t kPage = 4096;
  const int64_t bytes = std::max(layout.body_bytes(KvRecordKind::kBlock), layout.body_bytes(KvRecordKind::kRings));
  return (bytes + kPage - 1) / kPage * kPage;
}

Result<int64_t> HostTier::Find(std::span<const KvKey> keys) {
  const int64_t now = options_.clock();
  const auto missing =
      std::ranges::find_if(keys, [&](const KvKey& key) { return !table_.Has(KvRecordKind::kBlock, key, now); });
  return missing - keys.begin();
}

Result<bool> HostTier::Has(KvRecordKind kind, const KvKey& key) { return table_.Has(kind, key, options_.clock()); }

HostTable::Outcome HostTier::ReadOne(KvRead* read, int64_t now, HostTable::Place* place) {
  // The first free staging; when all are in use, the one whose turn it is.
  std::unique_lock<std::mutex> lock;
  Staging* staging = nullptr;
  for (Staging& each : stagings_) {
    lock = std::unique_lock(each.mutex, std::try_to_lock);
    staging = &each;
    if (lock.owns_lock()) break;
  }
  if (!lock.owns_lock()) {
    staging = &stagings_[next_staging_.fetch_add(1, std::memory_order_relaxed) % kStagings];
    lock = std::unique_lock(staging->mutex);
  }
  return table_.Read(read, now, {staging->bytes.data(), static_cast<size_t>(staging->bytes.size())}, place);
}

Status HostTier::Read(std::span<KvRead> reads) {
  const int64_t now = options_.clock();
  KvTierCounts counts;
  for (KvRead& read : reads) {
    HostTable::Place place;
    const HostTable::Outcome outcome = ReadOne(&read, now, &place);
    read.found = outcome == HostTable::Outcome::kHit;
    ++(read.found ? counts.hits : counts.misses);
    if (read.found) counts.read_bytes += std::ssize(read.payload);
    if (outcome == HostTable::Outcome::kBad) {
      ++counts.corrupt;
      // Without the lock it stays, and is bad again next time.
      if (const Result<HostTable::Lock> lock = table_.Acquire(0); lock.ok()) table_.Remove(*lock, place);
    }
  }
  Count(counts);

  const uint64_t use = table_.NewUse();
  for (size_t i = reads.size(); i-- > 0;) {
    if (reads[i].found) table_.Touch(reads[i].kind, reads[i].key, use + (reads.size() - 1 - i));
  }
  uint64_t above = use + reads.size();
  for (size_t i = 0; i < reads.size(); ++i) {
    if (!reads[i].found) continue;
    if (reads[i].kind == KvRecordKind::kRings) {
      above = table_.TouchChain(reads[i].key, above);
    } else if (i == 0 || !reads[i - 1].found || reads[i - 1].key != reads[i].parent) {
      above = table_.TouchChain(reads[i].parent, above);
    }
  }
  return Status::Ok();
}

Status HostTier::Write(std::span<const KvWrite> writes) {
  const int64_t now = options_.clock();
  const uint64_t use = table_.NewUse();
  KvTierCounts counts;
  Status status;
  for (size_t i = 0; i < writes.size() && status.ok(); ++i) {
    KvWrite write = writes[i];
    if (write.expires_at <= now) continue;
    write.expires_at = std::min<int64_t>(write.expires_at, std::numeric_limits<uint32_t>::max());
    if (std::ssize(write.payload) != layout().payload_bytes(write.kind) ||
        std::ssize(write.ids) > layout().block_tokens) {
      status = Status::InvalidArgument(fmt::format("host tier: a record of {} bytes and {} ids is of another namespace",
                                                   write.payload.size(), write.ids.size()));
      break;
    }
    const uint64_t checksum = HostTable::Checksum(write);
    const Result<HostTable::Lock> lock = table_.Acquire(options_.lock_seconds);
    status = lock.status();
    if (!status.ok()) break;
    const HostTable::Inserted inserted = table_.Insert(*lock, write, checksum, use + (writes.size() - 1 - i), now);
    counts.evicted += inserted.evicted;
    counts.expired += inserted.expired;
    if (!inserted.is_new) continue;
    ++counts.written;
    counts.written_bytes += std::ssize(write.payload);
  }
  uint64_t above = use + writes.size();
  for (size_t i = 0; i < writes.size(); ++i) {
    if (writes[i].kind == KvRecordKind::kRings) {
      above = table_.TouchChain(writes[i].key, above);
    } else if (i == 0 || writes[i - 1].key != writes[i].parent) {
      above = table_.TouchChain(writes[i].parent, above);
    }
  }
  Count(counts);
  return status;
}

Status HostTier::Maintain() {
  const int64_t now = options_.clock();
  const uint32_t end = table_.first_fresh_slot();
  KvTierCounts counts;
  Status status;
  const int64_t slots = std::min<int64_t>(end, kExpirySlots);
  for (int64_t i = 0; i < slots && status.ok(); ++i) {
    if (next_expiry_ >= end) next_expiry_ = 0;
    const uint32_t slot = next_expiry_++;
    if (!table_.MayBeExpired(slot, now)) continue;
    const Result<HostTable::Lock> lock = table_.Acquire(options_.lock_seconds);
    status = lock.status();
    if (status.ok() && table_.RemoveExpired(*lock, slot, now)) ++counts.expired;
  }
  Count(counts);
  return status;
}

Status HostTier::Probe() {
  const Result<HostTable::Lock> lock = table_.Acquire(options_.lock_seconds);
  if (!lock.ok()) return lock.status();
  if (!table_.Verify(*lock).ok()) table_.Rebuild(*lock);
  return Status::Ok();
}

Status HostTier::Verify() {
  const Result<HostTable::Lock> lock = table_.Acquire(options_.lock_seconds);
  return lock.ok() ? table_.Verify(*lock) : lock.status();
}

Status HostTier::Drop(const KvScope& scope) {
  const uint32_t end = table_.first_fresh_slot();
  for (uint32_t slot = 0; slot < end; ++slot) {
    if (!table_.MayBeOfScope(slot, scope)) continue;
    const Result<HostTable::Lock> lock = table_.Acquire(options_.lock_seconds);
    if (!lock.ok()) return lock.status();
    table_.RemoveOfScope(*lock, slot, scope);
  }
  return Status::Ok();
}

KvTierCounts HostTier::counts() const {
  KvTierCounts counts;
  {
    const std::lock_guard lock(counts_mutex_);
    counts = counts_;
  }
  counts.records = table_.record_count();
  counts.bytes = layout().data_at + kStagings * staging_bytes() + table_.used_slots() * layout().slot_bytes;
  counts.budget_bytes = options_.budget_bytes;
  return counts;
}

void HostTier::Count(const KvTierCounts& more) {
  const std::lock_guard lock(counts_mutex_);
  counts_.Add(more);
}

}  // namespace deepinfer
