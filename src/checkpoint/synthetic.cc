#include "checkpoint/synthetic.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/synthetic_values.h"
#include "checkpoint/weight_layout.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;

// splitmix64 over a counter.
class RandomWords {
 public:
  explicit RandomWords(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t word = state_;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
  }

 private:
  uint64_t state_;
};

// Where the bytes of one shard go.
class ShardFile {
 public:
  Status Create(const fs::path& path) {
    path_ = path;
    file_.reset(std::fopen(path.c_str(), "wb"));
    return file_ == nullptr ? Error() : Status::Ok();
  }

  Status Write(const void* bytes, size_t count) {
    return std::fwrite(bytes, 1, count, file_.get()) == count ? Status::Ok() : Error();
  }

  Status Close() { return std::fclose(file_.release()) == 0 ? Status::Ok() : Error(); }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  Status Error() const {
    return Status::Io(fmt::format("{}: cannot write: {}", path_.string(), std::generic_category().message(errno)));
  }

  fs::path path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

// One tensor of a shard: the values or the scales of a slot.
struct Piece {
  const WeightSlot* slot;
  bool is_scale;
  TensorShape tensor;
  int64_t bytes;
};

class Writer {
 public:
  Writer(const SyntheticSpec& spec, const fs::path& directory, uint64_t seed, const SyntheticProgress& progress)
      : spec_(spec), directory_(directory), seed_(seed), progress_(progress) {}

  Status WriteAll() {
    Weights scratch;
    const std::vector<WeightSlot> slots = LayOutWeights(spec_.config, &scratch);
    std::vector<std::vector<Piece>> shards(1);
    int64_t shard_bytes = 0;
    for (const WeightSlot& slot : slots) {
      if (shard_bytes >= spec_.shard_bytes) {
        shards.emplace_back();
        shard_bytes = 0;
      }
      AddPiece(slot, false, &shards.back());
      if (HasScale(slot)) AddPiece(slot, true, &shards.back());
      shard_bytes += slot.View().total_bytes();
      total_ += slot.View().total_bytes();
    }
    DEEPINFER_RETURN_IF_ERROR(CheckSpace());

    std::string index = fmt::format("{{\n \"metadata\": {{\"total_size\": {}}},\n \"weight_map\": {{", total_);
    const char* separator = "\n";
    for (size_t number = 0; number < shards.size(); ++number) {
      const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", number + 1, shards.size());
      DEEPINFER_RETURN_IF_ERROR(WriteShard(name, &shards[number]));
      for (const Piece& piece : shards[number]) {
        index += fmt::format("{}  \"{}\": \"{}\"", separator, piece.tensor.name, name);
        separator = ",\n";
      }
    }
    index += "\n }\n}\n";
    DEEPINFER_RETURN_IF_ERROR(WriteText("model.safetensors.index.json", index));
    DEEPINFER_RETURN_IF_ERROR(WriteText("config.json", WriteModelConfig(spec_.config)));
    return CopyTokenizer();
  }

 private:
  static void AddPiece(const WeightSlot& slot, bool is_scale, std::vector<Piece>* shard) {
    Piece piece{&slot, is_scale, is_scale ? ScaleTensor(slot) : ValueTensor(slot), 0};
    piece.bytes = static_cast<int64_t>(DTypeBytes(piece.tensor.dtype));
    for (const int64_t extent : piece.tensor.shape) piece.bytes *= extent;
    shard->push_back(std::move(piece));
  }

  Status CheckSpace() const {
    std::error_code error;
    const fs::space_info space = fs::space(directory_, error);
    if (error || space.available >= static_cast<uint64_t>(total_)) return Status::Ok();
    return Status::ResourceExhausted(fmt::format("{}: expected {} bytes of free disk space, found {}",
                                                 directory_.string(), total_, space.available));
  }

  Status WriteShard(const std::string& name, std::vector<Piece>* pieces) {
    // Wide elements first, as the safetensors library writes them: every tensor is aligned to its element.
    std::ranges::stable_sort(*pieces, std::greater(), [](const Piece& p) { return DTypeBytes(p.tensor.dtype); });
    std::string header = "{";
    int64_t offset = 0;
    for (const Piece& piece : *pieces) {
      header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                            offset == 0 ? "" : ",", piece.tensor.name, DTypeName(piece.tensor.dtype),
                            ShapeText(piece.tensor.shape), offset, offset + piece.bytes);
      offset += piece.bytes;
    }
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::array<uint8_t, 8> length{};
    for (size_t i = 0; i < length.size(); ++i) length[i] = static_cast<uint8_t>(header.size() >> (8 * i));

    ShardFile file;
    DEEPINFER_RETURN_IF_ERROR(file.Create(directory_ / name));
    DEEPINFER_RETURN_IF_ERROR(file.Write(length.data(), length.size()));
    DEEPINFER_RETURN_IF_ERROR(file.Write(header.data(), header.size()));
    for (const Piece& piece : *pieces) DEEPINFER_RETURN_IF_ERROR(WritePiece(piece, &file));
    return file.Close();
  }

  Status WritePiece(const Piece& piece, ShardFile* file) {
    RandomWords random(TensorSeed(piece.tensor.name, seed_));
    const WeightSlot& slot = *piece.slot;
    const Distribution distribution = DistributionOf(slot, spec_.config);
    const bool float_values = slot.format == WeightFormat::kF32 || slot.format == WeightFormat::kBF16;
    const ByteTable table = float_values ? ByteTable{} : MakeByteTable(slot.format, distribution.deviation);
    for (int64_t at = 0; at < piece.bytes; at += kChunk) {
      const size_t count = static_cast<size_t>(std::min(kChunk, piece.bytes - at));
      if (piece.is_scale) {
        FillScales(&random, table.scale, count);
      } else if (float_values) {
        FillFloats(&random, slot, distribution, at, count);
      } else {
        FillTable(&random, table.values, count);
      }
      DEEPINFER_RETURN_IF_ERROR(file->Write(buffer_.data(), count));
      done_ += static_cast<int64_t>(count);
      if (progress_) progress_(done_, total_);
    }
    return Status::Ok();
  }

  void FillTable(RandomWords* random, const std::array<uint8_t, 256>& table, size_t count) {
    for (size_t i = 0; i < count; i += 8) {
      uint64_t word = random->Next();
      for (size_t k = 0; k < 8; ++k, word >>= 8) buffer_[i + k] = table[word & 255];
    }
  }

  void FillScales(RandomWords* random, uint8_t scale, size_t count) {
    for (size_t i = 0; i < count; i += 8) {
      uint64_t word = random->Next();
      for (size_t k = 0; k < 8; ++k, word >>= 1) buffer_[i + k] = static_cast<uint8_t>(scale - (word & 1));
    }
  }

  void FillFloats(RandomWords* random, const WeightSlot& slot, Distribution distribution, int64_t at, size_t count) {
    constexpr size_t kSlices = 4096;
    const std::array<float, kSlices>& slices = NormalSlices<kSlices>();
    const bool bf16 = slot.format == WeightFormat::kBF16;
    const bool base = slot.name.ends_with("_base");
    const size_t width = bf16 ? 2 : 4;
    const float mean = static_cast<float>(distribution.mean);
    const float deviation = static_cast<float>(distribution.deviation);
    uint64_t word = 0;
    for (size_t i = 0; i < count / width; ++i) {
      word = i % 4 == 0 ? random->Next() : word >> 16;
      float value = mean + deviation * slices[word % kSlices];
      if (base)
        value += HyperConnectionBase(at / static_cast<int64_t>(width) + static_cast<int64_t>(i), spec_.config.hc_mult);
      if (bf16) {
        const uint16_t bits = FloatToBf16(value);
        std::memcpy(&buffer_[i * width], &bits, width);
      } else {
        std::memcpy(&buffer_[i * width], &value, width);
      }
    }
  }

  Status WriteText(const std::string& name, const std::string& text) {
    ShardFile file;
    DEEPINFER_RETURN_IF_ERROR(file.Create(directory_ / name));
    DEEPINFER_RETURN_IF_ERROR(file.Write(text.data(), text.size()));
    return file.Close();
  }

  Status CopyTokenizer() const {
    if (spec_.tokenizer_directory.empty()) return Status::Ok();
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
      std::error_code error;
      const fs::path from = spec_.tokenizer_directory / name;
      fs::copy_file(from, directory_ / name, error);
      if (error) return Status::Io(fmt::format("{}: cannot copy: {}", from.string(), error.message()));
    }
    return Status::Ok();
  }

  static constexpr int64_t kChunk = 4 << 20;

  const SyntheticSpec& spec_;
  const fs::path directory_;
  const uint64_t seed_;
  const SyntheticProgress& progress_;
  int64_t done_ = 0;
  int64_t total_ = 0;
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(kChunk);
};

}  // namespace

Status WriteSyntheticCheckpoint(const SyntheticSpec& spec, const fs::path& directory, uint64_t seed,
                                const SyntheticProgress& progress) {
  std::error_code error;
  if (fs::exists(directory, error)) {
    return Status::InvalidArgument(
        fmt::format("{}: expected a folder that does not exist yet, found one", directory.string()));
  }
  fs::path temporary = directory;
  temporary += fmt::format(".tmp-{}", getpid());
  if (!fs::create_directories(temporary, error)) {
    return Status::Io(fmt::format("{}: cannot create: {}", temporary.string(), error ? error.message() : "it exists"));
  }
  Status status = Writer(spec, temporary, seed, progress).WriteAll();
  if (status.ok()) {
    fs::rename(temporary, directory, error);
    if (error) status = Status::Io(fmt::format("{}: cannot rename: {}", directory.string(), error.message()));
  }
  if (!status.ok()) fs::remove_all(temporary, error);
  return status;
}

}  // namespace deepinfer
