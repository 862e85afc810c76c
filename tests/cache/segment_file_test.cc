// Segments: what is written reads back, and whatever happens to a file, only its good front counts.
#include "cache/segment_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "disk_fixture.h"
#include "tests/app/temporary_folder.h"

namespace deepinfer::test {
namespace {

class SegmentFileTest : public testing::Test {
 protected:
  SegmentFileTest() {
    header_ = {.name_space = name_space_.fingerprint,
               .scope = chain_.scope().root,
               .writer = 0x123456789ABCDEF0,
               .number = 7,
               .created = kStart,
               .expiry_day = kStart / kDay + 3};
    bytes_.resize(kSegmentHeaderBytes);
    EncodeSegmentHeader(header_, bytes_);
    for (int64_t block = 0; block < chain_.size(); ++block) {
      Append(chain_.Write(block, kStart + 2 * kDay));
      if (block % 2 == 0) Append(chain_.Write(block, kStart + 2 * kDay, KvRecordKind::kRings));
    }
    end_ = std::ssize(bytes_);
  }

  void Append(const KvWrite& write) {
    const auto offset = bytes_.size();
    const int64_t size = KvRecordCodec::RecordBytes(std::ssize(write.ids), std::ssize(write.payload));
    bytes_.resize(offset + static_cast<size_t>(size));
    ASSERT_TRUE(codec_.Encode(write, std::span(bytes_).subspan(offset)).ok());
    records_.push_back(
        ToSegmentRecord(*codec_.ReadHeader(std::span(bytes_).subspan(offset)), static_cast<int64_t>(offset)));
  }

  void Seal() {
    bytes_.resize(static_cast<size_t>(end_ + FooterBytes(std::ssize(records_))));
    EncodeFooter(records_, end_, std::span(bytes_).subspan(static_cast<size_t>(end_)));
  }

  std::shared_ptr<File> OnDisk(std::span<const uint8_t> bytes) {
    WriteFile(path_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return files_.Open(path_, OpenMode::kRead, false).value();
  }

  TemporaryFolder folder_;
  std::string path_ = (folder_.path() / "segment").string();
  FaultyFileSystem files_;
  KvNamespace name_space_ = SmallNamespace();
  KvRecordCodec codec_{name_space_, std::nullopt};
  Chain chain_{name_space_, "tenant", 1, 5};
  SegmentHeader header_;
  std::vector<uint8_t> bytes_;
  std::vector<SegmentRecord> records_;
  int64_t end_ = 0;
};

TEST_F(SegmentFileTest, SealedSegmentsReadBack) {
  Seal();
  const SegmentContents contents = ReadSealedSegment(files_, OnDisk(bytes_)).value();
  EXPECT_EQ(contents.state, SegmentState::kGood);
  EXPECT_EQ(contents.header, header_);
  EXPECT_TRUE(contents.has_footer);
  EXPECT_EQ(contents.records, records_);
  EXPECT_EQ(contents.end, end_);
}

TEST_F(SegmentFileTest, FootersOfManyRecordsReadBack) {
  records_.clear();
  std::mt19937_64 random(1);
  for (int64_t i = 0; i < 5000; ++i) {
    records_.push_back({.name = {random(), random()},
                        .kind = i % 9 == 0 ? KvRecordKind::kRings : KvRecordKind::kBlock,
                        .offset = kSegmentHeaderBytes + i * 4096,
                        .bytes = 4096,
                        .tokens = i % 300,
                        .expires_at = kStart + i,
                        .lifetime = i});
  }
  bytes_.resize(kSegmentHeaderBytes);
  end_ = kSegmentHeaderBytes + 5000 * 4096;
  Seal();
  const SegmentContents contents = ReadSealedSegment(files_, OnDisk(bytes_)).value();
  EXPECT_TRUE(contents.has_footer);
  EXPECT_EQ(contents.records, records_);
}

TEST_F(SegmentFileTest, AFooterThatChangedListsNothing) {
  Seal();
  const std::vector<uint8_t> sealed = bytes_;
  const size_t entries = records_.size() * 36;
  for (size_t i = 0; i < sealed.size() - static_cast<size_t>(end_); ++i) {
    // Between the list and the trailer are zeros that nobody reads.
    if (i >= entries && i < sealed.size() - static_cast<size_t>(end_) - 64) continue;
    bytes_ = sealed;
    bytes_[static_cast<size_t>(end_) + i] ^= 0x10;
    const SegmentContents contents = ReadSealedSegment(files_, OnDisk(bytes_)).value();
    ASSERT_FALSE(contents.has_footer) << i;
    ASSERT_TRUE(contents.records.empty());
    ASSERT_EQ(contents.state, SegmentState::kGood);
  }
}

TEST_F(SegmentFileTest, AFooterIsNotTakenForThatOfALongerOrShorterFile) {
  Seal();
  std::vector<uint8_t> longer = bytes_;
  longer.insert(longer.begin() + kSegmentHeaderBytes, 4096, 0);
  EXPECT_FALSE(ReadSealedSegment(files_, OnDisk(longer))->has_footer);
  std::vector<uint8_t> shorter = bytes_;
  shorter.erase(shorter.begin() + kSegmentHeaderBytes, shorter.begin() + kSegmentHeaderBytes + 4096);
  EXPECT_FALSE(ReadSealedSegment(files_, OnDisk(shorter))->has_footer);
  EXPECT_FALSE(ReadSealedSegment(files_, OnDisk(std::span(bytes_).first(bytes_.size() - 1)))->has_footer);
}

TEST_F(SegmentFileTest, EveryByteOfAHeaderCounts) {
  for (size_t i = 0; i < kSegmentHeaderBytes; ++i) {
    std::vector<uint8_t> block(bytes_.begin(), bytes_.begin() + kSegmentHeaderBytes);
    block[i] ^= 1;
    SegmentHeader header;
    const SegmentState state = DecodeSegmentHeader(block, &header);
    // Another magic or version is not ours to judge.
    ASSERT_EQ(state, i < 12 ? SegmentState::kForeign : SegmentState::kCorrupt) << i;
  }
  SegmentHeader header;
  EXPECT_EQ(DecodeSegmentHeader({}, &header), SegmentState::kEmpty);
  EXPECT_EQ(DecodeSegmentHeader(std::vector<uint8_t>(4096), &header), SegmentState::kEmpty);
  EXPECT_EQ(DecodeSegmentHeader(std::span(bytes_).first(4095), &header), SegmentState::kForeign);
}

TEST_F(SegmentFileTest, AScanFindsAllAndStopsAtZeros) {
  std::vector<uint8_t> preallocated = bytes_;
  preallocated.resize(bytes_.size() + 100000);
  for (const auto& bytes : {bytes_, preallocated}) {
    const SegmentContents contents = ScanSegment(files_, OnDisk(bytes), codec_).value();
    EXPECT_EQ(contents.state, SegmentState::kGood);
    EXPECT_EQ(contents.header, header_);
    EXPECT_EQ(contents.records, records_);
    EXPECT_EQ(contents.end, end_);
  }
}

TEST_F(SegmentFileTest, AScanStopsAtAFooter) {
  Seal();
  EXPECT_EQ(ScanSegment(files_, OnDisk(bytes_), codec_)->end, end_);
}

// The last record is a block of one page; the torn byte count runs over all of it and what is in front of it.
TEST_F(SegmentFileTest, ATailTornAtAnyByteIsCutBehindTheLastGoodRecord) {
  const SegmentRecord& last = records_.back();
  std::vector<uint8_t> whole = bytes_;
  whole.resize(bytes_.size() + 8192);
  for (int64_t torn = last.offset - 4; torn <= end_; ++torn) {
    const std::span<const uint8_t> front = std::span(bytes_).first(static_cast<size_t>(torn));
    std::vector<SegmentRecord> found;
    const int64_t scanned = ScanRecords(codec_, front.subspan(kSegmentHeaderBytes), kSegmentHeaderBytes, &found);
    // The padding must be there too, or the next record would not begin on a block.
    const size_t expected = records_.size() - (torn == end_ ? 0 : torn < last.offset ? 2 : 1);
    ASSERT_EQ(found.size(), expected) << torn;
    ASSERT_EQ(kSegmentHeaderBytes + scanned, found.back().offset + found.back().bytes);
    // Zeros instead of what was not written, as in a preallocated file.
    std::vector<uint8_t> zeros(front.begin(), front.end());
    zeros.resize(whole.size());
    found.clear();
    ScanRecords(codec_, std::span(zeros).subspan(kSegmentHeaderBytes), kSegmentHeaderBytes, &found);
    const auto same = std::ranges::mismatch(zeros, whole).in1 - zeros.begin();
    const auto good = [&](const SegmentRecord& record) { return record.offset + record.bytes <= same; };
    ASSERT_EQ(std::ssize(found), std::ranges::count_if(records_, good)) << torn;
  }
}

TEST_F(SegmentFileTest, FilesTornAtSomeBytesScanAsTheirBytesDo) {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const int64_t torn = i == 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint32_t>(end_ + 1));
    const SegmentContents contents =
        ScanSegment(files_, OnDisk(std::span(bytes_).first(static_cast<size_t>(torn))), codec_).value();
    ASSERT_EQ(contents.state == SegmentState::kGood, torn >= kSegmentHeaderBytes) << torn;
    size_t expected = 0;
    while (expected < records_.size() && records_[expected].offset + records_[expected].bytes <= torn) ++expected;
    ASSERT_EQ(contents.records.size(), expected) << torn;
    if (expected > 0) {
      ASSERT_EQ(contents.end, records_[expected - 1].offset + records_[expected - 1].bytes);
    }
  }
}

TEST_F(SegmentFileTest, AScanEndsInFrontOfARecordThatIsNotGood) {
  bytes_[static_cast<size_t>(records_[3].offset) + 300] ^= 1;
  const SegmentContents contents = ScanSegment(files_, OnDisk(bytes_), codec_).value();
  EXPECT_EQ(contents.records.size(), 3u);
  EXPECT_EQ(contents.end, records_[3].offset);
}

TEST_F(SegmentFileTest, AFollowerReadsOnWhereItWas) {
  const std::shared_ptr<File> file = OnDisk(bytes_);
  std::vector<SegmentRecord> found;
  int64_t end = kSegmentHeaderBytes;
  ASSERT_TRUE(FollowSegment(files_, file, codec_, &end, &found).ok());
  EXPECT_EQ(found, records_);
  EXPECT_EQ(end, end_);
  Chain more(name_space_, "tenant", 2, 70);
  for (int64_t block = 0; block < more.size(); ++block) Append(more.Write(block, kStart + 2 * kDay));
  const std::shared_ptr<File> grown = OnDisk(bytes_);
  ASSERT_TRUE(FollowSegment(files_, grown, codec_, &end, &found).ok());
  EXPECT_EQ(found, records_);
  EXPECT_EQ(end, std::ssize(bytes_));
}

TEST_F(SegmentFileTest, ErrorsOfTheDiskAreNoContents) {
  Seal();
  const std::shared_ptr<File> file = OnDisk(bytes_);
  files_.read_errors = true;
  EXPECT_EQ(ReadSealedSegment(files_, file).status().code(), StatusCode::kIo);
  EXPECT_EQ(ScanSegment(files_, file, codec_).status().code(), StatusCode::kIo);
  files_.read_errors = false;
  for (int64_t reads = 1; reads <= 3; ++reads) {
    files_.short_reads = reads;
    const Result<SegmentContents> contents = ReadSealedSegment(files_, file);
    ASSERT_TRUE(contents.ok());
    EXPECT_TRUE(contents->records.empty());
    files_.short_reads = 0;
  }
}

}  // namespace
}  // namespace deepinfer::test
