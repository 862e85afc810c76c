#include "memory_tier.h"

#include <algorithm>

namespace deepinfer::test {
namespace {

auto PlaceOf(KvRecordKind kind, const KvKey& key) { return std::pair(static_cast<int>(kind), ToHex(key)); }

}  // namespace

int64_t MemoryRecords::Count(KvRecordKind kind) {
  const std::lock_guard lock(mutex);
  return std::ranges::count_if(records, [&](const auto& at) { return at.first.first == static_cast<int>(kind); });
}

Result<int64_t> MemoryTier::Find(std::span<const KvKey> keys) {
  const std::lock_guard lock(records_->mutex);
  if (records_->fail_finds) return Status::Io("the test says no");
  int64_t count = 0;
  for (const KvKey& key : keys) {
    if (!records_->records.contains(PlaceOf(KvRecordKind::kBlock, key))) break;
    ++count;
  }
  return count;
}

Result<bool> MemoryTier::Has(KvRecordKind kind, const KvKey& key) {
  const std::lock_guard lock(records_->mutex);
  return records_->records.contains(PlaceOf(kind, key));
}

Status MemoryTier::Read(std::span<KvRead> reads) {
  std::unique_lock lock(records_->mutex);
  ++records_->reads;
  records_->changed.notify_all();
  records_->changed.wait(lock, [&] { return !records_->hold_reads; });
  if (records_->fail_reads) return Status::Io("the test says no");
  for (KvRead& read : reads) {
    const auto found = records_->records.find(PlaceOf(read.kind, read.key));
    if (found == records_->records.end()) {
      ++counts_.misses;
    } else if (codec_.Decode(found->second, &read) == KvRecordState::kGood) {
      ++counts_.hits;
    } else {
      records_->records.erase(found);
      ++counts_.corrupt;
    }
  }
  return Status::Ok();
}

Status MemoryTier::Write(std::span<const KvWrite> writes) {
  std::unique_lock lock(records_->mutex);
  ++records_->writes;
  records_->changed.notify_all();
  records_->changed.wait(lock, [&] { return !records_->hold_writes; });
  if (records_->fail_writes) return Status::ResourceExhausted("the test is full");
  for (const KvWrite& write : writes) {
    std::vector<uint8_t> record(
        static_cast<size_t>(KvRecordCodec::RecordBytes(std::ssize(write.ids), std::ssize(write.payload))));
    const Status encoded = codec_.Encode(write, record);
    if (!encoded.ok()) return encoded;
    counts_.written += records_->records.insert_or_assign(PlaceOf(write.kind, write.key), record).second ? 1 : 0;
  }
  return Status::Ok();
}

Status MemoryTier::Probe() {
  const std::lock_guard lock(records_->mutex);
  ++records_->probes;
  records_->changed.notify_all();
  const bool works = !records_->fail_reads && !records_->fail_writes && !records_->fail_finds;
  return works ? Status::Ok() : Status::Io("the test still says no");
}

Status MemoryTier::Drop(const KvScope&) {
  const std::lock_guard lock(records_->mutex);
  records_->records.clear();
  return Status::Ok();
}

KvTierCounts MemoryTier::counts() const {
  const std::lock_guard lock(records_->mutex);
  KvTierCounts counts = counts_;
  counts.records = std::ssize(records_->records);
  return counts;
}

}  // namespace deepinfer::test
