#include "cache/disk_tier.h"

#include <fmt/format.h>
#include <openssl/rand.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace deepinfer {
namespace {

constexpr int64_t kBatchBytes = int64_t{8} << 20;   // of records that are written together
constexpr int64_t kChunkBytes = int64_t{64} << 20;  // of space taken at a time
constexpr int64_t kLargePage = int64_t{2} << 20;
constexpr int64_t kSmallestSegments = 4;  // a budget holds so many of the smallest segments
constexpr int kReaders = 2;               // calls of Read at a time, more wait
constexpr double kProbeLockSeconds = 20;

int64_t RoundUp(int64_t bytes) { return (bytes + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment; }

/// The largest record that the namespace can have.
int64_t LargestRecord(const KvNamespace& name_space) {
  constexpr int64_t kIds = 1024;  // of a block; more make a record that is refused, not one that is wrong
  return KvRecordCodec::RecordBytes(kIds, std::max(name_space.block_bytes, name_space.rings_bytes));
}

uint64_t RandomWriter(const std::string& host) {
  uint32_t random = 0;
  static_cast<void>(RAND_bytes(reinterpret_cast<uint8_t*>(&random), sizeof(random)));
  return (XXH3_64bits(host.data(), host.size()) << 32) | random;
}

}  // namespace

struct DiskTier::Batch {
  KvScope scope;
  int64_t expiry_day = 0;
  int64_t bytes = 0;
  std::vector<const KvWrite*> writes;
};

Result<std::unique_ptr<DiskTier>> DiskTier::Create(DiskTierOptions options, const KvRecordCodec& codec,
                                                   FileSystem* files) {
  if (options.folder.empty() || !options.clock) return Status::InvalidArgument("disk tier: no folder or no clock");
  const int64_t largest = LargestRecord(codec.name_space());
  const int64_t smallest_segment = kSegmentHeaderBytes + 2 * largest + FooterBytes(2);
  if (options.budget_bytes < kSmallestSegments * smallest_segment) {
    return Status::InvalidArgument(fmt::format("disk tier: a budget of {} bytes, at least {} expected",
                                               options.budget_bytes, kSmallestSegments * smallest_segment));
  }
  DiskWriterLimits limits;
  limits.writer = RandomWriter(options.host);
  limits.segment_bytes =
      RoundUp(std::max(smallest_segment, std::min(options.segment_bytes, options.budget_bytes / 16)));
  limits.chunk_bytes = RoundUp(std::min({kChunkBytes, options.budget_bytes / 256, limits.segment_bytes}));
  limits.direct = options.direct;
  std::unique_ptr<DiskTier> tier(new DiskTier(std::move(options), codec, files, limits));
  const auto buffer = [&](int64_t bytes) {
    const int64_t needed = RoundUp(std::max(std::min(bytes, limits.segment_bytes / 4), largest));
    // The kernel lays mappings of whole large pages on their boundaries, and no others (docs/kv-format.md).
    return needed < kLargePage ? needed : (needed + kLargePage - 1) / kLargePage * kLargePage;
  };
  const int64_t record_bytes = KvRecordCodec::RecordBytes(0, codec.name_space().block_bytes);
  // Two batches fill a small segment.
  const int64_t filled = limits.segment_bytes - kSegmentHeaderBytes - FooterBytes(limits.segment_bytes / record_bytes);
  tier->write_part_bytes_ = buffer(kBatchBytes);
  tier->batch_bytes_ = std::min(tier->write_part_bytes_, std::max(largest, filled / 2));
  tier->capacity_ = std::min<int64_t>(tier->options_.budget_bytes / record_bytes, int64_t{1} << 31);
  if (!Allocate(&tier->write_staging_, tier->write_part_bytes_) ||
      !tier->staging_.Allocate(kReaders, buffer(kWindowBytes)) || !tier->table_.Allocate(tier->capacity_)) {
    return Status::ResourceExhausted(fmt::format("disk tier: no memory for an index of {} records", tier->capacity_));
  }
  return tier;
}

DiskTier::DiskTier(DiskTierOptions options, const KvRecordCodec& codec, FileSystem* files,
                   const DiskWriterLimits& limits)
    : options_(std::move(options)),
      codec_(codec),
      files_(files),
      directory_(files, options_.folder, codec.name_space(), limits.writer),
      space_(files, &directory_, &table_, &counters_, options_.budget_bytes),
      writer_(files, &directory_, &table_, &space_, &counters_, codec.name_space().fingerprint, limits),
      discovery_(files, &directory_, &table_, &space_, &writer_, &counters_, &codec_, options_.direct),
      copy_forward_(files, &directory_, &table_, &writer_, &counters_, &codec_) {}

DiskTier::~DiskTier() {
  const std::lock_guard lock(work_mutex_);
  // What cannot be sealed now is taken over by the next process.
  static_cast<void>(writer_.SealAll());
}

Result<int64_t> DiskTier::Find(std::span<const KvKey> keys) { return table_.CountPrefix(keys, Now() / kSecondsPerDay); }

Result<bool> DiskTier::Has(KvRecordKind kind, const KvKey& key) {
  return table_.Has(RecordName::Of(kind, key), Now() / kSecondsPerDay);
}

std::vector<DiskTier::Batch> DiskTier::Plan(std::span<const KvWrite> writes, int64_t now) {
  // A record that is here is written again when it is to live for a class longer; otherwise that someone has it again
  // is a use, which extends its life.
  constexpr int64_t kClassDays = 2;
  std::map<std::pair<std::array<uint8_t, 32>, int64_t>, size_t> last;  // batch of a scope and day
  // While the first batch is encoded the disk has nothing to do, so it is small; those behind it grow.
  constexpr int64_t kFirstBytes = int64_t{1} << 20;
  const auto limit_of = [&](size_t batch) {
    return batch < 8 ? std::min(batch_bytes_, kFirstBytes << batch) : batch_bytes_;
  };
  std::set<RecordName> planned;
  std::vector<Batch> batches;
  for (const KvWrite& write : writes) {
    const int64_t day = ExpiryDay(write.expires_at);
    const RecordName name = RecordName::Of(write.kind, write.key);
    if (write.expires_at <= now || !planned.insert(name).second) continue;
    const std::optional<RecordLocation> known = table_.Locate(name, now / kSecondsPerDay);
    if (known.has_value() && day < known->segment.id.expiry_day + kClassDays) {
      table_.Use(name, known->place, now);
      continue;
    }
    const int64_t bytes = KvRecordCodec::RecordBytes(std::ssize(write.ids), std::ssize(write.payload));
    const auto [found, is_new] = last.try_emplace({write.scope.root.bytes, day}, batches.size());
    if (is_new || batches[found->second].bytes + bytes > limit_of(found->second)) {
      found->second = batches.size();
      batches.push_back({.scope = write.scope, .expiry_day = day, .bytes = 0, .writes = {}});
    }
    Batch& batch = batches[found->second];
    batch.bytes += bytes;
    batch.writes.push_back(&write);
  }
  return batches;
}

Status DiskTier::Encode(const Batch& batch, int64_t now, const IoMemory& memory, StagedRecords* staged) const {
  staged->memory = memory;
  staged->records.clear();
  staged->bytes = 0;
  if (batch.bytes > memory->size()) {
    return Status::InvalidArgument(fmt::format("disk tier: a record of {} bytes", batch.bytes));
  }
  for (const KvWrite* each : batch.writes) {
    KvWrite write = *each;
    if (write.lifetime == 0) write.lifetime = write.expires_at - now;
    const int64_t bytes = KvRecordCodec::RecordBytes(std::ssize(write.ids), std::ssize(write.payload));
    DEEPINFER_RETURN_IF_ERROR(codec_.Encode(write, {memory->data() + staged->bytes, static_cast<size_t>(bytes)}));
    staged->records.push_back({.name = RecordName::Of(write.kind, write.key),
                               .kind = write.kind,
                               .offset = staged->bytes,
                               .bytes = bytes,
                               .tokens = std::ssize(write.ids),
                               .expires_at = write.expires_at,
                               .lifetime = write.lifetime});
    staged->bytes += bytes;
  }
  return Status::Ok();
}

Status DiskTier::Write(std::span<const KvWrite> writes) {
  const std::lock_guard lock(work_mutex_);
  const int64_t now = Now();
  const std::vector<Batch> batches = Plan(writes, now);
  if (batches.empty()) return Status::Ok();
  StagedRecords staged;
  for (size_t i = 0; i < batches.size(); ++i) {
    // Of the three buffers two are under way.
    Status encoded = Encode(batches[i], now, write_staging_[i % write_staging_.size()], &staged);
    if (!encoded.ok()) {
      static_cast<void>(writer_.Flush());
      return ReplaceLostBuffers(std::move(encoded));
    }
    const Result<bool> kept = writer_.Append(batches[i].scope, batches[i].expiry_day, staged, now);
    staged.memory = nullptr;
    if (!kept.ok()) return ReplaceLostBuffers(kept.status());
    if (!*kept) counters_.evicted += std::ssize(batches[i].writes);
  }
  return ReplaceLostBuffers(writer_.Flush());
}

// A disk that does not answer may yet use the buffers: then they are its own.
Status DiskTier::ReplaceLostBuffers(Status status) {
  for (IoMemory& memory : write_staging_) {
    if (memory.use_count() > 1) memory = MakeIoMemory(memory->size());
    if (memory == nullptr) memory = std::make_shared<AlignedBuffer<uint8_t>>();
  }
  return status;
}

Status DiskTier::Maintain() {
  const std::lock_guard lock(work_mutex_);
  return MaintainLocked();
}

Status DiskTier::MaintainLocked() {
  const int64_t now = Now();
  const int64_t today = now / kSecondsPerDay;
  DEEPINFER_RETURN_IF_ERROR(directory_.Prepare());
  writer_.ForgetRemoved();
  DEEPINFER_RETURN_IF_ERROR(writer_.SealIdle(now));
  DEEPINFER_ASSIGN_OR_RETURN(const DiskDirectory::Contents contents, directory_.List());
  counters_.used_bytes = contents.bytes;
  counters_.foreign +=
      std::ranges::count_if(contents.unreadable, [&](const std::string& path) { return !unreadable_.contains(path); });
  unreadable_ = contents.unreadable;
  DEEPINFER_RETURN_IF_ERROR(discovery_.Update(contents, now));
  DEEPINFER_RETURN_IF_ERROR(space_.RemoveExpired(contents, today));
  DEEPINFER_RETURN_IF_ERROR(discovery_.TakeOver(contents, now));
  // Another process may be writing its first segment there: then it is not empty any more, and stays.
  for (const std::string& folder : contents.empty_scopes) static_cast<void>(files_->RemoveFolder(folder));
  for (const SegmentView& segment : table_.TakeTouched(now)) {
    // Only a hint for whoever makes room, and the file may be gone.
    if (segment.file != nullptr) static_cast<void>(files_->SetAccessed(*segment.file, now));
  }
  Status copied = copy_forward_.Run(now, write_staging_[0], std::min(batch_bytes_, write_staging_[0]->size()));
  if (!copied.ok()) return ReplaceLostBuffers(std::move(copied));
  if (contents.bytes <= options_.budget_bytes) return Status::Ok();
  // The budget was larger once.
  const Result<bool> taken = space_.Take(0, now, [] { return Status::Ok(); });
  return taken.ok() ? Status::Ok() : taken.status();
}

void DiskTier::CloseRemoved() {
  writer_.ForgetRemoved();
  for (const SegmentView& segment : table_.All()) {
    if (segment.file == nullptr || segment.role == SegmentRole::kOwn) continue;
    const Result<FileInfo> info = files_->Info(*segment.file);
    if (info.ok() && info->links == 0) table_.Remove(segment.slot);
  }
}

Status DiskTier::Probe() {
  const std::lock_guard lock(work_mutex_);
  DEEPINFER_RETURN_IF_ERROR(directory_.Prepare());
  // A file that others have removed takes room as long as it is open here, maybe all that there is.
  CloseRemoved();
  const std::string path = fmt::format("{}/probe-{:016x}", options_.folder, writer_.limits().writer);
  static_cast<void>(files_->Unlink(path));
  {
    DEEPINFER_ASSIGN_OR_RETURN(const std::shared_ptr<File> file,
                               files_->Open(path, OpenMode::kCreate, options_.direct));
    IoMemory memory = MakeIoMemory(2 * kIoAlignment);
    if (memory == nullptr) return Status::ResourceExhausted("no memory to probe the disk");
    std::fill_n(memory->data(), kIoAlignment, uint8_t{0x5A});
    FileOperation write{.kind = IoKind::kWrite, .file = file, .memory = memory, .bytes = kIoAlignment};
    FileOperation read{.file = file, .memory = memory, .memory_offset = kIoAlignment, .bytes = kIoAlignment};
    Status status = files_->RunOne(&write);
    if (status.ok()) status = files_->Sync(*file);
    if (status.ok()) status = files_->RunOne(&read);
    if (status.ok() && !std::ranges::equal(write.data(), read.data())) {
      status = Status::Io(path + ": reads other bytes than were written");
    }
    // The next batch needs as much; one process at a time, so that the budget holds.
    if (status.ok()) status = directory_.Lock(kProbeLockSeconds);
    const bool locked = status.ok();
    if (locked) status = files_->Preallocate(*file, writer_.limits().chunk_bytes);
    const Status unlinked = files_->Unlink(path);
    if (locked) directory_.Unlock();
    DEEPINFER_RETURN_IF_ERROR(status);
    DEEPINFER_RETURN_IF_ERROR(unlinked);
  }
  return MaintainLocked();
}

Status DiskTier::Drop(const KvScope& scope) {
  const std::lock_guard lock(work_mutex_);
  const std::string folder = DiskDirectory::FolderOf(scope.root);
  writer_.DropScope(folder);
  for (const SegmentView& segment : table_.All()) {
    if (segment.id.scope == folder) table_.Remove(segment.slot);
  }
  const std::string path = directory_.ScopePath(folder);
  const Result<std::vector<FolderEntry>> entries = files_->List(path);
  if (!entries.ok()) return entries.status().code() == StatusCode::kNotFound ? Status::Ok() : entries.status();
  for (const FolderEntry& entry : *entries) {
    if (entry.is_folder) continue;
    const Status status = files_->Unlink(path + "/" + entry.name);
    if (!status.ok() && status.code() != StatusCode::kNotFound) return status;
  }
  // Another process may write to the scope again.
  static_cast<void>(files_->RemoveFolder(path));
  return Status::Ok();
}

int64_t DiskTier::memory_bytes() const {
  const DiskWriterLimits& limits = writer_.limits();
  // A segment that is written keeps the list of its footer.
  const int64_t footer = limits.segment_bytes / KvRecordCodec::RecordBytes(0, codec_.name_space().block_bytes) *
                         static_cast<int64_t>(sizeof(SegmentRecord));
  constexpr auto kSetParts = static_cast<int64_t>(std::tuple_size_v<StagingSet>);
  constexpr int64_t kSegmentBytes = 512;  // of a row of the table, its name and a file
  return RecordIndex::BytesFor(capacity_) + kSetParts * (kReaders * staging_.part_bytes() + write_part_bytes_) +
         (limits.open_segments + 1) * footer + options_.budget_bytes / limits.segment_bytes * kSegmentBytes;
}

KvTierCounts DiskTier::counts() const {
  return {.records = table_.record_count(),
          .bytes = counters_.used_bytes,
          .budget_bytes = options_.budget_bytes,
          .hits = counters_.hits,
          .misses = counters_.misses,
          .corrupt = counters_.corrupt,
          .foreign = counters_.foreign,
          .read_bytes = counters_.read_bytes,
          .written = counters_.written,
          .written_bytes = counters_.written_bytes,
          .evicted = counters_.evicted,
          .expired = counters_.expired,
          .copied_forward = counters_.copied_forward};
}

}  // namespace deepinfer
