// The format of a segment, a file of records of one scope that expire on one day (docs/kv-format.md):
//
//   header, 4096 bytes | records (kv_record.h), one behind the other | footer, once the segment is sealed
//
// A footer lists the records, so that a start reads it and not them. A file without one is read record by record, and
// what is behind the first record that is not good does not count.
//
// Thread-safety: values and functions without state. Ownership: none of the bytes and files.
#ifndef DEEPINFER_CACHE_SEGMENT_FILE_H_
#define DEEPINFER_CACHE_SEGMENT_FILE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/file_system.h"
#include "cache/kv_record.h"
#include "cache/record_index.h"
#include "deepinfer/status.h"

namespace deepinfer {

inline constexpr int64_t kSegmentHeaderBytes = kRecordAlignment;
inline constexpr int64_t kSecondsPerDay = 86400;

struct SegmentHeader {
  KvKey name_space;  ///< fingerprint
  KvKey scope;       ///< root
  uint64_t writer = 0;
  uint32_t number = 0;     ///< of the writer's segments
  int64_t created = 0;     ///< seconds since 1970
  int64_t expiry_day = 0;  ///< since 1970-01-01; at its first second all records have expired

  friend bool operator==(const SegmentHeader&, const SegmentHeader&) = default;
};

enum class SegmentState : uint8_t {
  kGood,
  kEmpty,    ///< no byte was written to it
  kForeign,  ///< no segment, or of another version: not ours to delete
  kCorrupt,  ///< ours, but its bytes changed
};

/// `block`: kSegmentHeaderBytes.
void EncodeSegmentHeader(const SegmentHeader& header, std::span<uint8_t> block);
/// Fewer bytes than a header: kEmpty or kForeign.
SegmentState DecodeSegmentHeader(std::span<const uint8_t> block, SegmentHeader* header);

/// A record as a footer lists it.
struct SegmentRecord {
  RecordName name;
  KvRecordKind kind = KvRecordKind::kBlock;
  int64_t offset = 0;  ///< bytes, as `bytes` a multiple of kRecordAlignment
  int64_t bytes = 0;
  int64_t tokens = 0;
  int64_t expires_at = 0;  ///< seconds since 1970
  int64_t lifetime = 0;    ///< seconds that a use adds

  friend bool operator==(const SegmentRecord&, const SegmentRecord&) = default;
};

SegmentRecord ToSegmentRecord(const KvRecordHeader& header, int64_t offset);

/// A multiple of kRecordAlignment.
int64_t FooterBytes(int64_t record_count);
/// `offset`: the footer's in its file. Fills `footer`, FooterBytes() long.
void EncodeFooter(std::span<const SegmentRecord> records, int64_t offset, std::span<uint8_t> footer);

/// Where a footer is, from the last bytes of a file, at least 64.
struct FooterPlace {
  int64_t offset = 0;
  int64_t bytes = 0;
  int64_t record_count = 0;
  uint64_t checksum = 0;
};
/// False: no footer, or not one of a file with `file_bytes`.
bool FindFooter(std::span<const uint8_t> tail, int64_t file_bytes, FooterPlace* place);
/// The list in the bytes at `place`. False: it is not what was written, or names places outside the records.
bool DecodeFooter(std::span<const uint8_t> footer, const FooterPlace& place, std::vector<SegmentRecord>* records);

/// Appends the records of `bytes`, which begin at `offset` of the file, up to the first that is not good or not whole.
/// Bytes of those appended.
int64_t ScanRecords(const KvRecordCodec& codec, std::span<const uint8_t> bytes, int64_t offset,
                    std::vector<SegmentRecord>* records);

/// What a file holds.
struct SegmentContents {
  SegmentState state = SegmentState::kEmpty;
  SegmentHeader header;                ///< when kGood
  std::vector<SegmentRecord> records;  ///< when kGood
  int64_t end = 0;                     ///< behind the last record, bytes
  int64_t file_bytes = 0;
  bool has_footer = false;
};

/// Header and footer of a sealed segment. Without a footer that is right: no records. scratch: nothing, or the memory
/// that an earlier call left there.
Result<SegmentContents> ReadSealedSegment(FileSystem& files, const std::shared_ptr<File>& file,
                                          IoMemory* scratch = nullptr);

/// Header and all records in front of the first that is not good, each verified.
Result<SegmentContents> ScanSegment(FileSystem& files, const std::shared_ptr<File>& file, const KvRecordCodec& codec);

/// Appends the records from `*end` on by their headers alone and moves `*end` behind them: what another process has
/// published of a segment that it writes. Its records prove themselves when they are read.
Status FollowSegment(FileSystem& files, const std::shared_ptr<File>& file, const KvRecordCodec& codec, int64_t* end,
                     std::vector<SegmentRecord>* records);

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_SEGMENT_FILE_H_
