#include "cache/segment_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace deepinfer {
namespace {

constexpr uint64_t kHeaderMagic = 0x474553564B494400;   // "\0DIKVSEG"
constexpr uint64_t kTrailerMagic = 0x544F4F464B494400;  // "\0DIKFOOT"
constexpr int64_t kScanBytes = int64_t{8} << 20;        // a window of the scanner, if no record is larger
constexpr int64_t kTailBytes = int64_t{64} << 10;       // holds the whole footer of 2000 records

struct __attribute__((packed)) Header {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t checksum;  // XXH3-64 of all 4096 bytes with zero here
  std::array<uint8_t, 32> name_space;
  std::array<uint8_t, 32> scope;
  uint64_t writer;
  uint64_t number;
  int64_t created;
  int64_t expiry_day;
};
static_assert(sizeof(Header) == 120);

struct __attribute__((packed)) FooterEntry {
  std::array<uint64_t, 2> name;
  uint32_t block;       // offset / 4096
  uint32_t expires_at;  // seconds since 1970
  uint32_t lifetime;    // seconds
  uint32_t blocks;      // bytes / 4096
  uint16_t tokens;
  uint8_t kind;
  uint8_t zero;
};
static_assert(sizeof(FooterEntry) == 36);

struct __attribute__((packed)) Trailer {
  uint64_t magic;
  uint32_t version;
  uint32_t entry_bytes;
  uint64_t record_count;
  uint64_t footer_offset;
  uint64_t footer_bytes;
  uint64_t entries_checksum;  // XXH3-64
  uint64_t zero;
  uint64_t checksum;  // XXH3-64 of the 56 bytes before
};
static_assert(sizeof(Trailer) == 64);

uint64_t HeaderChecksum(std::span<const uint8_t> block) {
  std::array<uint8_t, kSegmentHeaderBytes> copy;
  std::copy_n(block.begin(), copy.size(), copy.begin());
  std::fill_n(copy.begin() + offsetof(Header, checksum), sizeof(Header::checksum), uint8_t{0});
  return XXH3_64bits(copy.data(), copy.size());
}

/// Reads what is there of [offset, offset + bytes) into the front of `memory`; bytes read.
Result<int64_t> ReadAt(FileSystem& files, const std::shared_ptr<File>& file, int64_t offset, int64_t bytes,
                       const IoMemory& memory) {
  FileOperation read{.file = file, .offset = offset, .memory = memory, .bytes = bytes};
  DEEPINFER_RETURN_IF_ERROR(files.RunOne(&read));
  return read.done;
}

std::span<const uint8_t> Front(const IoMemory& memory, int64_t bytes) {
  return {memory->data(), static_cast<size_t>(bytes)};
}

Status NoMemory(const File& file) { return Status::ResourceExhausted(file.path() + ": no memory to read it"); }

}  // namespace

void EncodeSegmentHeader(const SegmentHeader& header, std::span<uint8_t> block) {
  std::ranges::fill(block, uint8_t{0});
  Header bytes = {};
  bytes.magic = kHeaderMagic;
  bytes.version = kKvFormatVersion;
  bytes.header_bytes = kSegmentHeaderBytes;
  bytes.name_space = header.name_space.bytes;
  bytes.scope = header.scope.bytes;
  bytes.writer = header.writer;
  bytes.number = header.number;
  bytes.created = header.created;
  bytes.expiry_day = header.expiry_day;
  std::memcpy(block.data(), &bytes, sizeof(bytes));
  bytes.checksum = HeaderChecksum(block);
  std::memcpy(block.data(), &bytes, sizeof(bytes));
}

SegmentState DecodeSegmentHeader(std::span<const uint8_t> block, SegmentHeader* header) {
  if (std::ranges::all_of(block.first(std::min<size_t>(block.size(), kSegmentHeaderBytes)),
                          [](uint8_t byte) { return byte == 0; })) {
    return SegmentState::kEmpty;
  }
  if (std::ssize(block) < kSegmentHeaderBytes) return SegmentState::kForeign;
  block = block.first(kSegmentHeaderBytes);
  Header bytes;
  std::memcpy(&bytes, block.data(), sizeof(bytes));
  if (bytes.magic != kHeaderMagic || bytes.version != kKvFormatVersion) return SegmentState::kForeign;
  if (bytes.checksum != HeaderChecksum(block)) return SegmentState::kCorrupt;
  header->name_space.bytes = bytes.name_space;
  header->scope.bytes = bytes.scope;
  header->writer = bytes.writer;
  header->number = static_cast<uint32_t>(bytes.number);
  header->created = bytes.created;
  header->expiry_day = bytes.expiry_day;
  return SegmentState::kGood;
}

SegmentRecord ToSegmentRecord(const KvRecordHeader& header, int64_t offset) {
  return {.name = RecordName::Of(header.kind, header.key),
          .kind = header.kind,
          .offset = offset,
          .bytes = header.record_bytes(),
          .tokens = header.token_count,
          .expires_at = header.expires_at,
          .lifetime = header.lifetime};
}

int64_t FooterBytes(int64_t record_count) {
  const int64_t bytes =
      record_count * static_cast<int64_t>(sizeof(FooterEntry)) + static_cast<int64_t>(sizeof(Trailer));
  return (bytes + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment;
}

void EncodeFooter(std::span<const SegmentRecord> records, int64_t offset, std::span<uint8_t> footer) {
  std::ranges::fill(footer, uint8_t{0});
  uint8_t* at = footer.data();
  for (const SegmentRecord& record : records) {
    FooterEntry entry = {};
    entry.name = {record.name.low, record.name.high};
    entry.block = static_cast<uint32_t>(record.offset / kRecordAlignment);
    entry.expires_at = static_cast<uint32_t>(record.expires_at);
    entry.lifetime = static_cast<uint32_t>(record.lifetime);
    entry.blocks = static_cast<uint32_t>(record.bytes / kRecordAlignment);
    entry.tokens = static_cast<uint16_t>(record.tokens);
    entry.kind = static_cast<uint8_t>(record.kind);
    std::memcpy(at, &entry, sizeof(entry));
    at += sizeof(entry);
  }
  Trailer trailer = {};
  trailer.magic = kTrailerMagic;
  trailer.version = kKvFormatVersion;
  trailer.entry_bytes = sizeof(FooterEntry);
  trailer.record_count = records.size();
  trailer.footer_offset = static_cast<uint64_t>(offset);
  trailer.footer_bytes = footer.size();
  trailer.entries_checksum = XXH3_64bits(footer.data(), records.size() * sizeof(FooterEntry));
  trailer.checksum = XXH3_64bits(&trailer, offsetof(Trailer, checksum));
  std::memcpy(footer.data() + footer.size() - sizeof(trailer), &trailer, sizeof(trailer));
}

bool FindFooter(std::span<const uint8_t> tail, int64_t file_bytes, FooterPlace* place) {
  Trailer trailer;
  if (tail.size() < sizeof(trailer)) return false;
  std::memcpy(&trailer, tail.data() + tail.size() - sizeof(trailer), sizeof(trailer));
  if (trailer.magic != kTrailerMagic || trailer.version != kKvFormatVersion ||
      trailer.checksum != XXH3_64bits(&trailer, offsetof(Trailer, checksum)) ||
      trailer.entry_bytes != sizeof(FooterEntry)) {
    return false;
  }
  // A record has kRecordAlignment bytes at least, so the count has a bound before anything is multiplied.
  if (trailer.record_count > static_cast<uint64_t>(file_bytes / kRecordAlignment)) return false;
  place->record_count = static_cast<int64_t>(trailer.record_count);
  place->offset = static_cast<int64_t>(trailer.footer_offset);
  place->bytes = static_cast<int64_t>(trailer.footer_bytes);
  place->checksum = trailer.entries_checksum;
  return place->bytes == FooterBytes(place->record_count) && place->offset == file_bytes - place->bytes &&
         place->offset >= kSegmentHeaderBytes && place->offset % kRecordAlignment == 0;
}

bool DecodeFooter(std::span<const uint8_t> footer, const FooterPlace& place, std::vector<SegmentRecord>* records) {
  const size_t entries_bytes = static_cast<size_t>(place.record_count) * sizeof(FooterEntry);
  if (footer.size() < entries_bytes || XXH3_64bits(footer.data(), entries_bytes) != place.checksum) return false;
  records->clear();
  records->reserve(static_cast<size_t>(place.record_count));
  int64_t end = kSegmentHeaderBytes;
  for (size_t at = 0; at < entries_bytes; at += sizeof(FooterEntry)) {
    FooterEntry entry;
    std::memcpy(&entry, footer.data() + at, sizeof(entry));
    const SegmentRecord record{.name = {entry.name[0], entry.name[1]},
                               .kind = static_cast<KvRecordKind>(entry.kind),
                               .offset = int64_t{entry.block} * kRecordAlignment,
                               .bytes = int64_t{entry.blocks} * kRecordAlignment,
                               .tokens = entry.tokens,
                               .expires_at = entry.expires_at,
                               .lifetime = entry.lifetime};
    if (entry.kind > 1 || entry.blocks == 0 || record.offset < end || record.offset + record.bytes > place.offset) {
      records->clear();
      return false;
    }
    end = record.offset + record.bytes;
    records->push_back(record);
  }
  return true;
}

int64_t ScanRecords(const KvRecordCodec& codec, std::span<const uint8_t> bytes, int64_t offset,
                    std::vector<SegmentRecord>* records) {
  int64_t at = 0;
  while (at + kRecordHeaderBytes <= std::ssize(bytes)) {
    const std::span<const uint8_t> rest = bytes.subspan(static_cast<size_t>(at));
    const std::optional<KvRecordHeader> header = codec.ReadHeader(rest);
    if (!header.has_value() || header->payload_bytes != codec.payload_bytes(header->kind)) break;
    const int64_t record_bytes = header->record_bytes();
    if (record_bytes > std::ssize(rest)) break;
    if (codec.Verify(rest.first(static_cast<size_t>(record_bytes))) != KvRecordState::kGood) break;
    records->push_back(ToSegmentRecord(*header, offset + at));
    at += record_bytes;
  }
  return at;
}

Result<SegmentContents> ReadSealedSegment(FileSystem& files, const std::shared_ptr<File>& file, IoMemory* scratch) {
  IoMemory own;
  IoMemory& memory = scratch != nullptr ? *scratch : own;
  DEEPINFER_ASSIGN_OR_RETURN(const FileInfo info, files.Info(*file));
  SegmentContents contents;
  contents.file_bytes = info.bytes;
  const int64_t tail_bytes = std::min(kTailBytes, info.bytes / kIoAlignment * kIoAlignment);
  // Memory that a disk has not given back is not ours to write to.
  const auto make = [&](int64_t bytes) {
    if (memory == nullptr || memory.use_count() > 1 || memory->size() < bytes) memory = MakeIoMemory(bytes);
    return memory != nullptr;
  };
  if (!make(kSegmentHeaderBytes + kTailBytes)) return NoMemory(*file);
  FileOperation reads[2] = {{.file = file, .memory = memory, .bytes = kSegmentHeaderBytes},
                            {.file = file,
                             .offset = info.bytes / kIoAlignment * kIoAlignment - tail_bytes,
                             .memory = memory,
                             .memory_offset = kSegmentHeaderBytes,
                             .bytes = tail_bytes}};
  files.Run(reads);
  for (const FileOperation& read : reads) DEEPINFER_RETURN_IF_ERROR(read.status);
  contents.state = DecodeSegmentHeader(reads[0].data().first(static_cast<size_t>(reads[0].done)), &contents.header);
  if (contents.state != SegmentState::kGood) return contents;
  contents.end = kSegmentHeaderBytes;
  FooterPlace place;
  std::span<const uint8_t> tail = reads[1].data().first(static_cast<size_t>(reads[1].done));
  if (info.bytes % kIoAlignment != 0 || !FindFooter(tail, info.bytes, &place)) return contents;
  if (place.bytes > tail_bytes) {
    for (FileOperation& read : reads) read.memory = nullptr;
    if (!make(place.bytes)) return NoMemory(*file);
    DEEPINFER_ASSIGN_OR_RETURN(const int64_t done, ReadAt(files, file, place.offset, place.bytes, memory));
    tail = Front(memory, done);
  } else {
    tail = tail.last(static_cast<size_t>(place.bytes));
  }
  contents.has_footer = DecodeFooter(tail, place, &contents.records);
  if (contents.has_footer) contents.end = place.offset;
  return contents;
}

Result<SegmentContents> ScanSegment(FileSystem& files, const std::shared_ptr<File>& file, const KvRecordCodec& codec) {
  DEEPINFER_ASSIGN_OR_RETURN(const FileInfo info, files.Info(*file));
  SegmentContents contents;
  contents.file_bytes = info.bytes;
  constexpr int64_t kMostTokens = 65535;
  const int64_t largest =
      std::max(codec.payload_bytes(KvRecordKind::kBlock), codec.payload_bytes(KvRecordKind::kRings));
  const int64_t window = std::max(kScanBytes, KvRecordCodec::RecordBytes(kMostTokens, largest));
  const IoMemory memory = MakeIoMemory(window);
  if (memory == nullptr) return NoMemory(*file);
  DEEPINFER_ASSIGN_OR_RETURN(const int64_t header_bytes, ReadAt(files, file, 0, kSegmentHeaderBytes, memory));
  contents.state = DecodeSegmentHeader(Front(memory, header_bytes), &contents.header);
  if (contents.state != SegmentState::kGood) return contents;
  contents.end = kSegmentHeaderBytes;
  // A record that a window cuts begins the next one; nothing good at a window's begin is the end.
  while (contents.end < info.bytes) {
    const int64_t wanted =
        std::min(window, (info.bytes - contents.end + kIoAlignment - 1) / kIoAlignment * kIoAlignment);
    DEEPINFER_ASSIGN_OR_RETURN(const int64_t done, ReadAt(files, file, contents.end, wanted, memory));
    const int64_t good = ScanRecords(codec, Front(memory, done), contents.end, &contents.records);
    if (good == 0) break;
    contents.end += good;
  }
  return contents;
}

Status FollowSegment(FileSystem& files, const std::shared_ptr<File>& file, const KvRecordCodec& codec, int64_t* end,
                     std::vector<SegmentRecord>* records) {
  constexpr int64_t kAtOnce = 32;  // headers; records of a kind have one size, so the next places can be guessed
  const IoMemory memory = MakeIoMemory(kAtOnce * kIoAlignment);
  if (memory == nullptr) return NoMemory(*file);
  int64_t stride = 0;
  while (true) {
    std::vector<FileOperation> reads;
    for (int64_t i = 0; i < (stride == 0 ? 1 : kAtOnce); ++i) {
      reads.push_back({.file = file,
                       .offset = *end + i * stride,
                       .memory = memory,
                       .memory_offset = i * kIoAlignment,
                       .bytes = kIoAlignment});
    }
    files.Run(reads);
    for (const FileOperation& read : reads) {
      DEEPINFER_RETURN_IF_ERROR(read.status);
      const std::optional<KvRecordHeader> header = codec.ReadHeader(read.data().first(static_cast<size_t>(read.done)));
      if (!header.has_value() || header->payload_bytes != codec.payload_bytes(header->kind)) return Status::Ok();
      records->push_back(ToSegmentRecord(*header, read.offset));
      const int64_t bytes = records->back().bytes;
      *end += bytes;
      if (bytes != stride) {
        stride = bytes;
        break;
      }
    }
  }
}

}  // namespace deepinfer
