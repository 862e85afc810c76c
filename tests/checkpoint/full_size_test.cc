// The release's 96 085 tensors as sparse files: opening them takes little memory, and no weight is touched.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "checkpoint/weight_layout.h"
#include "checkpoint/weights.h"
#include "test_files.h"

namespace deepinfer {
namespace {

using testing_files::TemporaryFolder;

// Appends a tensor to a header; returns its bytes.
uint64_t AddToHeader(const TensorShape& tensor, uint64_t offset, std::string* header) {
  uint64_t bytes = DTypeBytes(tensor.dtype);
  for (const int64_t extent : tensor.shape) bytes *= static_cast<uint64_t>(extent);
  *header += header->empty() ? "{" : ",";
  *header += "\"" + tensor.name + "\":{\"dtype\":\"" + std::string(DTypeName(tensor.dtype)) +
             "\",\"shape\":" + ShapeText(tensor.shape) + ",\"data_offsets\":[" + std::to_string(offset) + "," +
             std::to_string(offset + bytes) + "]}";
  return bytes;
}

// Writes the release as `shards` sparse files of about as many tensors each.
void WriteRelease(const std::filesystem::path& directory, size_t shards) {
  const std::string config_text = testing_files::ReadText(testing_files::kReleaseConfig);
  testing_files::WriteText(directory / "config.json", config_text);
  Weights scratch;
  const std::vector<WeightSlot> slots = LayOutWeights(ParseModelConfig(config_text).value(), &scratch);
  std::string index = "{\"metadata\": {}, \"weight_map\": {";
  const char* separator = "";
  for (size_t shard = 0; shard < shards; ++shard) {
    const std::string file = shards == 1 ? "model.safetensors" : "model-" + std::to_string(shard) + ".safetensors";
    std::string header;
    uint64_t bytes = 0;
    for (size_t i = slots.size() * shard / shards; i < slots.size() * (shard + 1) / shards; ++i) {
      std::vector<TensorShape> tensors = {ValueTensor(slots[i])};
      if (HasScale(slots[i])) tensors.push_back(ScaleTensor(slots[i]));
      for (const TensorShape& tensor : tensors) {
        bytes += AddToHeader(tensor, bytes, &header);
        index += separator + ("\"" + tensor.name) + "\": \"" + file + "\"";
        separator = ",\n";
      }
    }
    testing_files::WriteSparseSafetensors(directory / file, header + "}", bytes);
  }
  if (shards > 1) testing_files::WriteText(directory / "model.safetensors.index.json", index + "}}");
}

struct Usage {
  double peak_bytes;
  double cpu_seconds;
};

Usage CurrentUsage() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {static_cast<double>(usage.ru_maxrss) * 1024, seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

// Opens in a child process of its own, so that the peak is that of opening alone; its exit code says what was wrong.
enum Outcome { kGood = 0, kNotOpened, kWrongCount, kTooMuchMemory };

int OpenInChild(const std::filesystem::path& directory, const char* what) {
  const pid_t child = fork();
  if (child == 0) {
    const Usage before = CurrentUsage();
    // The scan of the scales would read 17 GB of holes.
    const Result<Checkpoint> checkpoint = Checkpoint::Open(directory, {.check_scales = false});
    if (!checkpoint.ok()) {
      std::fprintf(stderr, "%s\n", checkpoint.status().message().c_str());
      _exit(kNotOpened);
    }
    const Usage after = CurrentUsage();
    std::fprintf(stderr,
                 "%s: %lld tensors opened in %.3f s of CPU, %.1f MB resident at the peak, %.1f MB of them by opening\n",
                 what, static_cast<long long>(checkpoint->tensor_count()), after.cpu_seconds - before.cpu_seconds,
                 after.peak_bytes / 1e6, (after.peak_bytes - before.peak_bytes) / 1e6);
    if (checkpoint->tensor_count() != 96085) _exit(kWrongCount);
    // The child starts with the parent's pages, which are not opening's; sanitizers add their own to both.
    _exit(after.peak_bytes - before.peak_bytes < 300e6 ? kGood : kTooMuchMemory);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST(FullSize, ShardsOfTheReleaseOpenInLittleMemory) {
  const TemporaryFolder folder;
  WriteRelease(folder.path(), 48);
  EXPECT_EQ(OpenInChild(folder.path(), "48 files"), kGood);
}

TEST(FullSize, OneFileOfTheReleaseOpensInLittleMemory) {
  const TemporaryFolder folder;
  WriteRelease(folder.path(), 1);
  EXPECT_EQ(OpenInChild(folder.path(), "one file"), kGood);
}

}  // namespace
}  // namespace deepinfer
