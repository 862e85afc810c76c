// Any bytes as a segment file: what the scanner and the footer list lies inside the file, one behind the other, and
// each record that was scanned verifies and decodes to itself.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cache/segment_file.h"

namespace deepinfer {
namespace {

constexpr int64_t kBlockBytes = 100;
constexpr int64_t kRingsBytes = 5000;

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckOrder(const std::vector<SegmentRecord>& records, int64_t end) {
  int64_t at = kSegmentHeaderBytes;
  for (const SegmentRecord& record : records) {
    Require(record.offset >= at && record.bytes > 0 && record.offset % kRecordAlignment == 0);
    at = record.offset + record.bytes;
  }
  Require(at <= end);
}

}  // namespace
}  // namespace deepinfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  static const KvNamespace name_space = KvNamespace::Make("fuzz", kBlockBytes, kRingsBytes);
  static const KvRecordCodec codec(name_space, std::nullopt);
  const std::span<const uint8_t> file(data, size);
  const auto file_bytes = static_cast<int64_t>(size);

  SegmentHeader header;
  const SegmentState state = DecodeSegmentHeader(file, &header);
  if (state == SegmentState::kGood) {
    std::vector<uint8_t> again(kSegmentHeaderBytes);
    EncodeSegmentHeader(header, again);
    SegmentHeader same;
    Require(DecodeSegmentHeader(again, &same) == SegmentState::kGood && same == header);
  }

  FooterPlace place;
  std::vector<SegmentRecord> listed;
  if (FindFooter(file, file_bytes, &place)) {
    Require(place.offset >= kSegmentHeaderBytes && place.offset + place.bytes == file_bytes);
    if (DecodeFooter(file.subspan(static_cast<size_t>(place.offset)), place, &listed)) {
      CheckOrder(listed, place.offset);
    } else {
      Require(listed.empty());
    }
  }

  if (file_bytes <= kSegmentHeaderBytes) return 0;
  const std::span<const uint8_t> body = file.subspan(kSegmentHeaderBytes);
  std::vector<SegmentRecord> records;
  const int64_t scanned = ScanRecords(codec, body, kSegmentHeaderBytes, &records);
  CheckOrder(records, kSegmentHeaderBytes + scanned);
  std::vector<uint8_t> payload(kRingsBytes);
  for (const SegmentRecord& record : records) {
    const std::span<const uint8_t> bytes =
        file.subspan(static_cast<size_t>(record.offset), static_cast<size_t>(record.bytes));
    const std::optional<KvRecordHeader> found = codec.ReadHeader(bytes);
    Require(found.has_value() && found->record_bytes() == record.bytes);
    std::vector<int32_t> ids(static_cast<size_t>(found->token_count));
    std::memcpy(ids.data(), bytes.data() + kRecordHeaderBytes, ids.size() * sizeof(int32_t));
    KvRead read{.kind = found->kind,
                .key = found->key,
                .parent = found->parent,
                .first_token = found->first_token,
                .ids = ids,
                .payload = std::span(payload).first(static_cast<size_t>(codec.payload_bytes(found->kind)))};
    // A record whose flags say that it is encrypted is good only for one who has the key.
    Require(codec.Decode(bytes, &read) == (found->encrypted ? KvRecordState::kForeign : KvRecordState::kGood));
    std::vector<uint8_t> renewed(bytes.begin(), bytes.end());
    const KvRecordState state_of_copy = codec.Renew(renewed, 1);
    Require(found->encrypted || (state_of_copy == KvRecordState::kGood && codec.ReadHeader(renewed)->expires_at == 1));
  }
  return 0;
}
