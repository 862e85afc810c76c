// The disk tier of the KV cache against the disk itself, in one run on one folder:
//   write and read bandwidth of DiskTier with records of the released model (56 960 bytes of payload), as a share of a
//   plain loop of 4 MiB writes and reads past the page cache;
//   time until a tier has indexed --records records from the footers of sealed segments (files with holes, footers
//   real), and bytes of index for each.
//
// Usage: kv_disk_bench [--folder=DIR] [--mib=N] [--records=N] [--rounds=N]
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cache/disk_tier.h"

namespace deepinfer {
namespace {

constexpr int64_t kBlockTokens = 64;
constexpr int64_t kBlockBytes = 56960;
constexpr int64_t kRingsBytes = 3269440;
constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int64_t kCallRecords = 812;  // a call: what four prompts of 13 000 tokens leave to write, 47 MB
constexpr double kGiga = 1e9;

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

int64_t Now() { return static_cast<int64_t>(std::time(nullptr)); }

/// Bytes a second of a plain loop over a file.
double PlainLoop(FileSystem& files, const std::string& path, IoKind kind, int64_t bytes) {
  const OpenMode mode = kind == IoKind::kWrite ? OpenMode::kCreate : OpenMode::kRead;
  const std::shared_ptr<File> file = files.Open(path, mode, true).value();
  const IoMemory memory = MakeIoMemory(kPieceBytes);
  // As hard to compress, for a disk that tries, as what the tier writes.
  std::mt19937 random(1);
  for (int64_t i = 0; i < kPieceBytes; ++i) (*memory)[i] = static_cast<uint8_t>(random());
  const double start = NowSeconds();
  for (int64_t at = 0; at < bytes; at += kPieceBytes) {
    FileOperation operation{.kind = kind, .file = file, .offset = at, .memory = memory, .bytes = kPieceBytes};
    Check(files.RunOne(&operation));
  }
  return static_cast<double>(bytes) / (NowSeconds() - start);
}

struct Prompt {
  KvScope scope;
  std::vector<int32_t> ids;
  std::vector<KvKey> keys;
};

Prompt MakePrompt(const KvNamespace& name_space, uint32_t seed) {
  Prompt prompt;
  prompt.scope = KvScope::Make(name_space, "exact", "bench");
  std::mt19937 random(seed);
  for (int64_t i = 0; i < kCallRecords * kBlockTokens; ++i)
    prompt.ids.push_back(static_cast<int32_t>(random() % 129280));
  ExtendKeys(prompt.scope.root, prompt.ids, kBlockTokens, &prompt.keys);
  return prompt;
}

struct Bandwidth {
  double write = 0;  // bytes a second
  double read = 0;
};

/// Bytes a second of a tier whose buffers are resident, as they are in a process that has written and read once.
Bandwidth TierLoop(FileSystem& files, const std::string& folder, const KvNamespace& name_space,
                   const std::vector<Prompt>& prompts) {
  DiskTierOptions options;
  options.folder = folder;
  options.budget_bytes = int64_t{64} << 30;
  options.clock = Now;
  const auto tier = DiskTier::Create(options, KvRecordCodec(name_space, std::nullopt), &files).value();
  Check(tier->Probe());
  std::vector<uint8_t> payload(kCallRecords * kBlockBytes);
  std::mt19937 random(1);
  for (uint8_t& byte : payload) byte = static_cast<uint8_t>(random());
  const auto bytes_of = [&](int64_t block) {
    return std::span(payload).subspan(static_cast<size_t>(block * kBlockBytes), kBlockBytes);
  };
  const auto ids_of = [](const Prompt& prompt, int64_t block) {
    return std::span(prompt.ids).subspan(static_cast<size_t>(block * kBlockTokens), kBlockTokens);
  };
  const auto parent_of = [](const Prompt& prompt, int64_t block) {
    return block == 0 ? prompt.scope.root : prompt.keys[static_cast<size_t>(block - 1)];
  };
  const auto bytes = static_cast<double>(KvRecordCodec::RecordBytes(kBlockTokens, kBlockBytes)) *
                     static_cast<double>(kCallRecords * std::ssize(prompts));
  Bandwidth bandwidth;
  const auto write = [&](const Prompt& prompt) {
    std::vector<KvWrite> writes;
    for (int64_t block = 0; block < kCallRecords; ++block) {
      writes.push_back({.scope = prompt.scope,
                        .key = prompt.keys[static_cast<size_t>(block)],
                        .parent = parent_of(prompt, block),
                        .first_token = block * kBlockTokens,
                        .ids = ids_of(prompt, block),
                        .payload = bytes_of(block),
                        .expires_at = Now() + 3 * kSecondsPerDay});
    }
    Check(tier->Write(writes));
  };
  const auto read = [&](const Prompt& prompt) {
    std::vector<KvRead> reads;
    for (int64_t block = 0; block < kCallRecords; ++block) {
      reads.push_back({.key = prompt.keys[static_cast<size_t>(block)],
                       .parent = parent_of(prompt, block),
                       .first_token = block * kBlockTokens,
                       .ids = ids_of(prompt, block),
                       .payload = bytes_of(block)});
    }
    Check(tier->Read(reads));
    if (!std::ranges::all_of(reads, &KvRead::found)) Check(Status::Internal("a record was not found"));
  };
  const Prompt first = MakePrompt(name_space, 1u << 31);
  write(first);
  read(first);
  double start = NowSeconds();
  for (const Prompt& prompt : prompts) write(prompt);
  bandwidth.write = bytes / (NowSeconds() - start);
  start = NowSeconds();
  for (const Prompt& prompt : prompts) read(prompt);
  bandwidth.read = bytes / (NowSeconds() - start);
  Check(tier->Drop(prompts[0].scope));
  return bandwidth;
}

void MeasureBandwidth(FileSystem& files, const std::string& folder, int64_t bytes, int rounds) {
  const KvNamespace name_space = KvNamespace::Make("bench", kBlockBytes, kRingsBytes);
  const int64_t call_bytes = kCallRecords * KvRecordCodec::RecordBytes(kBlockTokens, kBlockBytes);
  std::vector<Prompt> prompts;
  for (int64_t i = 0; i < std::max<int64_t>(1, bytes / call_bytes); ++i) {
    prompts.push_back(MakePrompt(name_space, static_cast<uint32_t>(i)));
  }
  std::printf("%-8s %12s %12s %8s %12s %12s %8s\n", "GB/s", "plain write", "tier write", "share", "plain read",
              "tier read", "share");
  // Others use the machine too, so that only neighbours in time can be compared: the median of the rounds' shares.
  std::vector<double> write_shares, read_shares;
  for (int round = 0; round < rounds; ++round) {
    const std::string path = folder + "/plain";
    Bandwidth plain;
    plain.write = PlainLoop(files, path, IoKind::kWrite, bytes);
    plain.read = PlainLoop(files, path, IoKind::kRead, bytes);
    Check(files.Unlink(path));
    const Bandwidth tier = TierLoop(files, folder + "/bandwidth", name_space, prompts);
    write_shares.push_back(100 * tier.write / plain.write);
    read_shares.push_back(100 * tier.read / plain.read);
    std::printf("%-8d %12.2f %12.2f %7.0f%% %12.2f %12.2f %7.0f%%\n", round, plain.write / kGiga, tier.write / kGiga,
                write_shares.back(), plain.read / kGiga, tier.read / kGiga, read_shares.back());
  }
  std::ranges::sort(write_shares);
  std::ranges::sort(read_shares);
  const size_t middle = write_shares.size() / 2;
  std::printf("%-8s %12s %12s %7.0f%% %12s %12s %7.0f%%\n", "median", "", "", write_shares[middle], "", "",
              read_shares[middle]);
}

/// Sealed segments with `count` records in all; how many.
int64_t MakeSegments(FileSystem& files, const std::string& folder, const KvNamespace& name_space, int64_t count) {
  const int64_t record_bytes = KvRecordCodec::RecordBytes(kBlockTokens, kBlockBytes);
  const int64_t most = (int64_t{256} << 20) / record_bytes - 4;
  const KvScope scope = KvScope::Make(name_space, "exact", "bench");
  DiskDirectory directory(&files, folder, name_space, 1);
  Check(directory.Prepare());
  const std::string scope_folder = DiskDirectory::FolderOf(scope.root);
  Check(files.MakeFolder(directory.ScopePath(scope_folder)));
  std::mt19937_64 random(1);
  uint32_t segments = 0;
  for (int64_t made = 0; made < count; ++segments) {
    const int64_t records_here = std::min(most, count - made);
    const SegmentHeader header{.name_space = name_space.fingerprint,
                               .scope = scope.root,
                               .writer = 1,
                               .number = segments,
                               .created = Now(),
                               .expiry_day = Now() / kSecondsPerDay + 3};
    const SegmentId id{.scope = scope_folder, .expiry_day = header.expiry_day, .writer = 1, .number = segments};
    std::vector<SegmentRecord> records;
    for (int64_t i = 0; i < records_here; ++i) {
      records.push_back({.name = {random(), random()},
                         .offset = kSegmentHeaderBytes + i * record_bytes,
                         .bytes = record_bytes,
                         .tokens = kBlockTokens,
                         .expires_at = Now() + 2 * kSecondsPerDay});
    }
    const int64_t end = kSegmentHeaderBytes + records_here * record_bytes;
    const std::shared_ptr<File> file = files.Open(directory.Path(id, true), OpenMode::kCreate, true).value();
    FileOperation front{.kind = IoKind::kWrite,
                        .file = file,
                        .memory = MakeIoMemory(kSegmentHeaderBytes),
                        .bytes = kSegmentHeaderBytes};
    EncodeSegmentHeader(header, front.data());
    const int64_t footer_bytes = FooterBytes(records_here);
    FileOperation footer{.kind = IoKind::kWrite,
                         .file = file,
                         .offset = end,
                         .memory = MakeIoMemory(footer_bytes),
                         .bytes = footer_bytes};
    EncodeFooter(records, end, footer.data());
    Check(files.RunOne(&front));
    Check(files.RunOne(&footer));
    made += records_here;
  }
  return segments;
}

void MeasureStart(FileSystem& files, const std::string& folder, int64_t count) {
  const KvNamespace name_space = KvNamespace::Make("bench", kBlockBytes, kRingsBytes);
  const int64_t segments = MakeSegments(files, folder, name_space, count);
  DiskTierOptions options;
  options.folder = folder;
  options.budget_bytes = count * kBlockBytes / 4 * 5 + (int64_t{1} << 30);
  options.clock = Now;
  const auto tier = DiskTier::Create(options, KvRecordCodec(name_space, std::nullopt), &files).value();
  const double start = NowSeconds();
  Check(tier->Probe());
  const double seconds = NowSeconds() - start;
  const auto records = static_cast<double>(tier->counts().records);
  const double again = NowSeconds();
  Check(tier->Maintain());
  std::printf(
      "%.0f records of %lld segments indexed in %.2f s (%.0f ns each), %.1f bytes of index each; next upkeep %.1f ms\n",
      records, static_cast<long long>(segments), seconds, 1e9 * seconds / records,
      static_cast<double>(tier->index_bytes()) / records, 1e3 * (NowSeconds() - again));
}

int Main(int argc, char** argv) {
  std::string parent = std::filesystem::temp_directory_path();
  int64_t mebibytes = 256;
  int64_t records = 10000000;
  int rounds = 9;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (name == "--folder") {
      parent = value;
    } else if (name == "--mib") {
      mebibytes = std::atoll(value.c_str());
    } else if (name == "--records") {
      records = std::atoll(value.c_str());
    } else if (name == "--rounds") {
      rounds = std::atoi(value.c_str());
    } else {
      std::fprintf(stderr, "usage: kv_disk_bench [--folder=DIR] [--mib=N] [--records=N] [--rounds=N]\n");
      return 2;
    }
  }
  std::string folder = parent + "/kv-disk-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::fprintf(stderr, "%s: no folder can be made there\n", parent.c_str());
    return 1;
  }
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  if (rounds > 0) MeasureBandwidth(*files, folder, mebibytes << 20, rounds);
  if (records > 0) MeasureStart(*files, folder + "/start", records);
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) { return deepinfer::Main(argc, argv); }
