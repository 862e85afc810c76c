#include "checkpoint/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/memory_advice.h"
#include "checkpoint/json_reader.h"
#include "checkpoint/weight_layout.h"

namespace deepinfer {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

// Tensor name -> file name, in the order of the index; both owned here.
struct ShardIndex {
  std::vector<std::string> files;  // each once, in order of first mention
  std::unordered_map<std::string, size_t> file_of;
};

// {"metadata": anything, "weight_map": {tensor: file}}
Status ReadIndex(std::string_view json, ShardIndex* index) {
  if (!IsUtf8(json)) return Status::Corruption("expected UTF-8, found other bytes");
  JsonReader reader(json);
  std::string key, file;
  std::unordered_map<std::string, size_t> file_numbers;
  bool found = false;
  const auto read_map = [&]() -> Status {
    DEEPINFER_RETURN_IF_ERROR(reader.Expect('{'));
    bool more = !reader.Consume('}');
    while (more) {
      DEEPINFER_RETURN_IF_ERROR(reader.ReadString(&key));
      DEEPINFER_RETURN_IF_ERROR(reader.Expect(':'));
      DEEPINFER_RETURN_IF_ERROR(reader.ReadString(&file));
      // A plain name: an index cannot point outside of its folder.
      if (file.empty() || file.find('/') != std::string::npos || file == "." || file == ".." ||
          file.find('\0') != std::string::npos) {
        return Status::Corruption(fmt::format("tensor {}: expected the name of a file in this folder, found {}",
                                              PrintableName(key), PrintableName(file)));
      }
      const auto [number, is_new] = file_numbers.try_emplace(file, index->files.size());
      if (is_new) index->files.push_back(file);
      if (!index->file_of.try_emplace(key, number->second).second) {
        return Status::Corruption(fmt::format("tensor {}: expected once, found twice", PrintableName(key)));
      }
      more = reader.Consume(',');
      if (!more) DEEPINFER_RETURN_IF_ERROR(reader.Expect('}'));
    }
    return Status::Ok();
  };
  DEEPINFER_RETURN_IF_ERROR(reader.Expect('{'));
  bool more = !reader.Consume('}');
  while (more) {
    DEEPINFER_RETURN_IF_ERROR(reader.ReadString(&key));
    DEEPINFER_RETURN_IF_ERROR(reader.Expect(':'));
    if (key == "weight_map" && !found) {
      found = true;
      DEEPINFER_RETURN_IF_ERROR(read_map());
    } else {
      DEEPINFER_RETURN_IF_ERROR(reader.SkipValue());
    }
    more = reader.Consume(',');
    if (!more) DEEPINFER_RETURN_IF_ERROR(reader.Expect('}'));
  }
  DEEPINFER_RETURN_IF_ERROR(reader.ExpectEnd());
  return found ? Status::Ok() : Status::Corruption("expected the key weight_map, found none");
}

// Where a tensor lies. `used` marks those that a slot asked for.
struct Location {
  const SafetensorsFile* file;
  const TensorInfo* tensor;
  bool used = false;
};

std::string Describe(DType dtype, std::span<const int64_t> shape) {
  return fmt::format("{} {}", DTypeName(dtype), ShapeText(shape));
}

class Binder {
 public:
  Binder(const std::filesystem::path& source, const std::vector<SafetensorsFile>& files)
      : source_(source), files_(files) {}

  // Collects the tensors of all files, each name once, where the index says it is.
  Status Collect(const ShardIndex* index) {
    size_t count = 0;
    for (const SafetensorsFile& file : files_) count += file.tensors().size();
    table_.reserve(count);
    for (size_t number = 0; number < files_.size(); ++number) {
      const SafetensorsFile& file = files_[number];
      for (const TensorInfo& tensor : file.tensors()) {
        const auto [entry, is_new] = table_.try_emplace(tensor.name, Location{&file, &tensor});
        if (!is_new) {
          return Error(
              file, tensor.name,
              fmt::format("expected in one file, found in {} too", entry->second.file->path().filename().string()));
        }
        if (index == nullptr) continue;
        const auto listed = index->file_of.find(tensor.name);
        if (listed == index->file_of.end()) {
          return Error(file, tensor.name, fmt::format("expected an entry in {}, found none", kIndexName));
        }
        if (listed->second != number) {
          return Error(file, tensor.name,
                       fmt::format("expected in {}, as {} says, found here",
                                   files_[listed->second].path().filename().string(), kIndexName));
        }
      }
    }
    if (index == nullptr) return Status::Ok();
    const std::pair<const std::string, size_t>* absent = nullptr;  // the first by name, whatever the map's order
    for (const auto& entry : index->file_of) {
      if (!table_.contains(entry.first) && (absent == nullptr || entry.first < absent->first)) absent = &entry;
    }
    if (absent != nullptr) {
      return Status::Corruption(fmt::format("{}: tensor {}: expected in {}, found in no file", source_.string(),
                                            PrintableName(absent->first),
                                            files_[absent->second].path().filename().string()));
    }
    return Status::Ok();
  }

  size_t tensor_count() const { return table_.size(); }

  Status Bind(const WeightSlot& slot, Weights* weights, std::vector<CheckpointWeight>* list) {
    TensorShape expected = ValueTensor(slot);
    WeightMatrix view = slot.View();
    const Location* found = nullptr;
    DEEPINFER_RETURN_IF_ERROR(Take(expected, slot.either_float, &found));
    view.data = found->file->data(*found->tensor);
    if (slot.either_float) {
      view.format = found->tensor->dtype == DType::kF32 ? WeightFormat::kF32 : WeightFormat::kBF16;
    }
    if (HasScale(slot)) {
      const Location* scale = nullptr;
      DEEPINFER_RETURN_IF_ERROR(Take(ScaleTensor(slot), false, &scale));
      view.scale = scale->file->data(*scale->tensor);
    }
    if (slot.part != ModelPart::kVision) list->push_back(ListedWeight(slot, view));
    if (slot.matrix != nullptr) {
      *slot.matrix = view;
    } else if (slot.vector != nullptr) {
      *slot.vector = {view.data, view.format == WeightFormat::kBF16, view.rows * view.columns};
    } else {
      weights->vision.push_back({slot.name, *found->tensor, view.data});
    }
    return Status::Ok();
  }

  // Every tensor of the files has been asked for.
  Status CheckNothingLeft() const {
    for (const SafetensorsFile& file : files_) {
      for (const TensorInfo& tensor : file.tensors()) {
        if (table_.at(tensor.name).used) continue;
        return Error(file, tensor.name,
                     fmt::format("expected no such tensor with this config.json, found {}",
                                 Describe(tensor.dtype, tensor.dimensions())));
      }
    }
    return Status::Ok();
  }

  Status CheckScales(const WeightSlot& slot) const {
    const TensorShape shape = ScaleTensor(slot);
    const Location& found = table_.at(shape.name);
    const uint8_t* bytes = found.file->data(*found.tensor);
    constexpr int kNan = 255;
    const void* bad = std::memchr(bytes, kNan, found.tensor->end - found.tensor->begin);
    if (bad == nullptr) return Status::Ok();
    const int64_t at = static_cast<const uint8_t*>(bad) - bytes;
    return Error(*found.file, shape.name,
                 fmt::format("expected finite scales (bytes 0 to 254), found 255 (NaN) at [{}, {}]",
                             at / shape.shape[1], at % shape.shape[1]));
  }

 private:
  static Status Error(const SafetensorsFile& file, std::string_view tensor, std::string_view what) {
    return Status::Corruption(fmt::format("{}: tensor {}: {}", file.path().string(), PrintableName(tensor), what));
  }

  Status Take(const TensorShape& expected, bool either_float, const Location** out) {
    const std::string wanted =
        either_float ? "F32 or BF16 " + ShapeText(expected.shape) : Describe(expected.dtype, expected.shape);
    const auto entry = table_.find(expected.name);
    if (entry == table_.end()) {
      return Status::Corruption(
          fmt::format("{}: tensor {}: expected {}, found in no file", source_.string(), expected.name, wanted));
    }
    Location& found = entry->second;
    const TensorInfo& tensor = *found.tensor;
    const bool right_dtype = tensor.dtype == expected.dtype ||
                             (either_float && (tensor.dtype == DType::kF32 || tensor.dtype == DType::kBF16));
    if (!right_dtype || !std::ranges::equal(tensor.dimensions(), expected.shape)) {
      return Error(*found.file, tensor.name,
                   fmt::format("expected {}, found {}", wanted, Describe(tensor.dtype, tensor.dimensions())));
    }
    found.used = true;
    *out = &found;
    return Status::Ok();
  }

  const std::filesystem::path source_;  // for tensors that no file has
  const std::vector<SafetensorsFile>& files_;
  std::unordered_map<std::string_view, Location> table_;
};

// A configuration that asks for far more tensors than there are is refused before anything is sized by it.
Status CheckTensorBudget(const ModelConfig& config, const std::filesystem::path& source, size_t found) {
  constexpr int64_t kTensorsPerExpert = 6;
  const int64_t experts = config.num_hidden_layers * config.n_routed_experts +
                          config.num_nextn_predict_layers * config.dspark_n_routed_experts;
  if (kTensorsPerExpert * experts <= static_cast<int64_t>(found)) return Status::Ok();
  return Status::Corruption(
      fmt::format("{}: expected at least {} tensors for the {} routed experts of config.json, found {}",
                  source.string(), kTensorsPerExpert * experts, experts, found));
}

// Engram tables are read row by row, all else whole.
void AdviseAll(const std::vector<SafetensorsFile>& files, const std::vector<WeightSlot>& slots) {
  for (const SafetensorsFile& file : files) AdviseReadThrough(file.bytes());
  for (const WeightSlot& slot : slots) {
    if (slot.part != ModelPart::kEngramTables) continue;
    const WeightMatrix& table = *slot.matrix;
    AdviseRandomAccess({table.data, static_cast<size_t>(table.rows * table.row_bytes())});
    AdviseRandomAccess({table.scale, static_cast<size_t>(table.rows * table.scale_row_bytes())});
  }
}

}  // namespace

int64_t Checkpoint::tensor_count() const {
  int64_t count = 0;
  for (const SafetensorsFile& file : files_) count += static_cast<int64_t>(file.tensors().size());
  return count;
}

Result<Checkpoint> Checkpoint::Open(const std::filesystem::path& directory, const CheckpointOptions& options) {
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  {
    DEEPINFER_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(directory / "config.json"));
    Result<ModelConfig> config = ParseModelConfig(file.text());
    if (!config.ok()) {
      return Status(config.status().code(), fmt::format("{}: {}", file.path().string(), config.status().message()));
    }
    checkpoint.config_ = std::move(config).value();
  }

  std::optional<ShardIndex> index;
  std::filesystem::path source = directory / kIndexName;
  Result<MappedFile> index_file = MappedFile::Open(source);
  if (index_file.ok()) {
    const Status status = ReadIndex(index_file->text(), &index.emplace());
    if (!status.ok()) return Status(status.code(), fmt::format("{}: {}", source.string(), status.message()));
  } else if (index_file.status().code() == StatusCode::kNotFound) {
    source = directory / kSingleName;
    index_file = MappedFile();
  } else {
    return index_file.status();
  }

  const std::vector<std::string> names = index ? index->files : std::vector<std::string>{kSingleName};
  checkpoint.files_.reserve(names.size());
  for (const std::string& name : names) {
    Result<SafetensorsFile> file = SafetensorsFile::Open(directory / name);
    if (!file.ok()) {
      if (file.status().code() != StatusCode::kNotFound) return file.status();
      return Status::NotFound(
          index ? fmt::format("{}: expected the file {}, found none", source.string(), name)
                : fmt::format("{}: expected {} or {}, found neither", directory.string(), kIndexName, kSingleName));
    }
    checkpoint.files_.push_back(std::move(file).value());
  }

  Binder binder(source, checkpoint.files_);
  DEEPINFER_RETURN_IF_ERROR(binder.Collect(index ? &*index : nullptr));
  DEEPINFER_RETURN_IF_ERROR(CheckTensorBudget(checkpoint.config_, source, binder.tensor_count()));
  const std::vector<WeightSlot> slots = LayOutWeights(checkpoint.config_, &checkpoint.weights_);
  for (const WeightSlot& slot : slots) {
    DEEPINFER_RETURN_IF_ERROR(binder.Bind(slot, &checkpoint.weights_, &checkpoint.list_));
  }
  DEEPINFER_RETURN_IF_ERROR(binder.CheckNothingLeft());
  // The scan takes what is around the scales along, which is most of a file. A model that is large lets it be, and has
  // fewer large pages: none where a scale was read before.
  constexpr uint64_t kLargeBytes = uint64_t{8} << 30;
  uint64_t bytes = 0;
  for (const SafetensorsFile& file : checkpoint.files_) bytes += file.file_bytes();
  const bool small = bytes < kLargeBytes;
  if (small) AdviseAll(checkpoint.files_, slots);
  for (const WeightSlot& slot : slots) {
    if (slot.part == ModelPart::kEngramTables || !options.check_scales || !HasScale(slot)) continue;
    DEEPINFER_RETURN_IF_ERROR(binder.CheckScales(slot));
  }
  if (!small) AdviseAll(checkpoint.files_, slots);
  return checkpoint;
}

}  // namespace deepinfer
