#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "checkpoint/json_reader.h"

namespace deepinfer {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF8E4M3, DType::kE8M0, DType::kI8};

std::optional<DType> DTypeOf(std::string_view name) {
  for (const DType dtype : kDTypes) {
    if (DTypeName(dtype) == name) return dtype;
  }
  return std::nullopt;
}

Status TensorError(const TensorInfo& tensor, std::string_view what) {
  return Status::Corruption(fmt::format("tensor {}: {}", PrintableName(tensor.name), what));
}

// An array of integers that are not negative, at most `limit` of them.
Status ReadArray(JsonReader* reader, const TensorInfo& tensor, std::string_view field, size_t limit,
                 std::vector<int64_t>* out) {
  out->clear();
  DEEPINFER_RETURN_IF_ERROR(reader->Expect('['));
  if (reader->Consume(']')) return Status::Ok();
  do {
    int64_t value = 0;
    if (const Status status = reader->ReadInteger(&value); !status.ok()) {
      return TensorError(tensor, fmt::format("{}: {}", field, status.message()));
    }
    if (value < 0) return TensorError(tensor, fmt::format("{}: expected no negative number, found {}", field, value));
    if (out->size() == limit) {
      return TensorError(tensor, fmt::format("{}: expected at most {} entries, found more", field, limit));
    }
    out->push_back(value);
  } while (reader->Consume(','));
  return reader->Expect(']');
}

// The object after a tensor's name. `scratch` is reused so that a header of many tensors allocates little.
struct EntryScratch {
  std::string key, text;
  std::vector<int64_t> numbers;
};

Status ReadEntry(JsonReader* reader, EntryScratch* scratch, TensorInfo* tensor) {
  bool has_dtype = false, has_shape = false, has_offsets = false;
  const auto once = [&](bool* seen) {
    if (*seen) return TensorError(*tensor, fmt::format("the field {} appears twice", scratch->key));
    *seen = true;
    return Status::Ok();
  };
  DEEPINFER_RETURN_IF_ERROR(reader->Expect('{'));
  bool more = !reader->Consume('}');
  while (more) {
    DEEPINFER_RETURN_IF_ERROR(reader->ReadString(&scratch->key));
    DEEPINFER_RETURN_IF_ERROR(reader->Expect(':'));
    if (scratch->key == "dtype") {
      DEEPINFER_RETURN_IF_ERROR(once(&has_dtype));
      DEEPINFER_RETURN_IF_ERROR(reader->ReadString(&scratch->text));
      const std::optional<DType> dtype = DTypeOf(scratch->text);
      if (!dtype.has_value()) {
        return TensorError(*tensor, fmt::format("dtype: expected F32, BF16, F8_E4M3, F8_E8M0 or I8, found {}",
                                                PrintableName(scratch->text)));
      }
      tensor->dtype = *dtype;
    } else if (scratch->key == "shape") {
      DEEPINFER_RETURN_IF_ERROR(once(&has_shape));
      DEEPINFER_RETURN_IF_ERROR(ReadArray(reader, *tensor, "shape", TensorInfo::kMaxRank, &scratch->numbers));
      tensor->rank = static_cast<int>(scratch->numbers.size());
      std::ranges::copy(scratch->numbers, tensor->shape.begin());
    } else if (scratch->key == "data_offsets") {
      DEEPINFER_RETURN_IF_ERROR(once(&has_offsets));
      DEEPINFER_RETURN_IF_ERROR(ReadArray(reader, *tensor, "data_offsets", 2, &scratch->numbers));
      if (scratch->numbers.size() != 2) {
        return TensorError(*tensor, fmt::format("data_offsets: expected 2 entries, found {}", scratch->numbers.size()));
      }
      tensor->begin = static_cast<uint64_t>(scratch->numbers[0]);
      tensor->end = static_cast<uint64_t>(scratch->numbers[1]);
    } else {
      DEEPINFER_RETURN_IF_ERROR(reader->SkipValue());
    }
    more = reader->Consume(',');
    if (!more) DEEPINFER_RETURN_IF_ERROR(reader->Expect('}'));
  }
  if (!has_dtype) return TensorError(*tensor, "the field dtype is missing");
  if (!has_shape) return TensorError(*tensor, "the field shape is missing");
  if (!has_offsets) return TensorError(*tensor, "the field data_offsets is missing");
  return Status::Ok();
}

// Offsets in order, inside the data area, and as many bytes as dtype and shape ask for.
Status CheckExtent(const TensorInfo& tensor, uint64_t data_bytes) {
  if (tensor.begin > tensor.end) {
    return TensorError(tensor,
                       fmt::format("data_offsets: expected begin <= end, found [{}, {}]", tensor.begin, tensor.end));
  }
  if (tensor.end > data_bytes) {
    return TensorError(
        tensor, fmt::format("data_offsets: expected an end of at most {}, the bytes in the file, found {}", data_bytes,
                            tensor.end));
  }
  uint64_t bytes = DTypeBytes(tensor.dtype);
  // An extent of 0 must not hide an overflow of the others, whatever their order.
  bool empty = false;
  for (const int64_t extent : tensor.dimensions()) {
    if (extent == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) {
      return TensorError(
          tensor, fmt::format("shape: expected a size that fits 64 bits, found {}", ShapeText(tensor.dimensions())));
    }
  }
  if (empty) bytes = 0;
  if (tensor.end - tensor.begin != bytes) {
    return TensorError(
        tensor, fmt::format("data_offsets: expected {} bytes for {} {}, found {}", bytes, DTypeName(tensor.dtype),
                            ShapeText(tensor.dimensions()), tensor.end - tensor.begin));
  }
  return Status::Ok();
}

// The tensors cover 0 .. data_bytes exactly once.
Status CheckCoverage(const std::vector<TensorInfo>& tensors, uint64_t data_bytes) {
  std::vector<uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](uint32_t i) { return std::pair(tensors[i].begin, tensors[i].end); });
  uint64_t covered = 0;
  const TensorInfo* previous = nullptr;
  for (const uint32_t index : order) {
    const TensorInfo& tensor = tensors[index];
    if (tensor.begin < covered) {
      return TensorError(tensor,
                         fmt::format("data_offsets: expected to begin at byte {}, where tensor {} ends, found {} "
                                     "(they overlap)",
                                     covered, PrintableName(previous->name), tensor.begin));
    }
    if (tensor.begin > covered) {
      return TensorError(
          tensor, fmt::format("data_offsets: expected to begin at byte {}, found {} (a hole)", covered, tensor.begin));
    }
    covered = tensor.end;
    previous = &tensor;
  }
  if (covered == data_bytes) return Status::Ok();
  return Status::Corruption(fmt::format("expected {} bytes of tensors after it, found {}", covered, data_bytes));
}

}  // namespace

Result<std::vector<TensorInfo>> ParseSafetensorsHeader(std::string_view json, uint64_t data_bytes) {
  if (!IsUtf8(json)) return Status::Corruption("header: expected UTF-8, found other bytes");
  JsonReader reader(json);
  EntryScratch scratch;
  std::vector<TensorInfo> tensors;
  const auto read_all = [&]() -> Status {
    DEEPINFER_RETURN_IF_ERROR(reader.Expect('{'));
    bool more = !reader.Consume('}');
    while (more) {
      TensorInfo tensor;
      DEEPINFER_RETURN_IF_ERROR(reader.ReadString(&tensor.name));
      DEEPINFER_RETURN_IF_ERROR(reader.Expect(':'));
      if (tensor.name == "__metadata__") {
        DEEPINFER_RETURN_IF_ERROR(reader.SkipValue());
      } else {
        DEEPINFER_RETURN_IF_ERROR(ReadEntry(&reader, &scratch, &tensor));
        DEEPINFER_RETURN_IF_ERROR(CheckExtent(tensor, data_bytes));
        tensors.push_back(std::move(tensor));
      }
      more = reader.Consume(',');
      if (!more) DEEPINFER_RETURN_IF_ERROR(reader.Expect('}'));
    }
    DEEPINFER_RETURN_IF_ERROR(reader.ExpectEnd());
    std::unordered_set<std::string_view> names;
    names.reserve(tensors.size());
    for (const TensorInfo& tensor : tensors) {
      if (!names.insert(tensor.name).second) return TensorError(tensor, "expected once, found twice");
    }
    return CheckCoverage(tensors, data_bytes);
  };
  if (const Status status = read_all(); !status.ok()) return Status::Corruption("header: " + status.message());
  return tensors;
}

Result<SafetensorsFile> SafetensorsFile::Open(const std::filesystem::path& path) {
  SafetensorsFile result;
  DEEPINFER_ASSIGN_OR_RETURN(result.file_, MappedFile::Open(path));
  const std::string_view text = result.file_.text();
  const auto corrupt = [&path](std::string_view what) {
    return Status::Corruption(fmt::format("{}: {}", path.string(), what));
  };
  constexpr uint64_t kLengthBytes = 8;
  if (text.size() < kLengthBytes) {
    return corrupt(fmt::format("expected at least {} bytes, found {}", kLengthBytes, text.size()));
  }
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(text[static_cast<size_t>(i)]);
  if (length > kMaxSafetensorsHeader) {
    return corrupt(fmt::format("expected a header of at most {} bytes, found {}", kMaxSafetensorsHeader, length));
  }
  if (length > text.size() - kLengthBytes) {
    return corrupt(
        fmt::format("expected a header of {} bytes, found {} (a truncated file)", length, text.size() - kLengthBytes));
  }
  result.data_start_ = kLengthBytes + length;
  Result<std::vector<TensorInfo>> tensors =
      ParseSafetensorsHeader(text.substr(kLengthBytes, length), text.size() - result.data_start_);
  if (!tensors.ok()) return corrupt(tensors.status().message());
  result.tensors_ = std::move(tensors).value();
  return result;
}

std::string ShapeText(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string PrintableName(std::string_view name) {
  size_t length = std::min<size_t>(name.size(), 120);
  // Cut between characters, not inside one.
  while (length < name.size() && length > 0 && (static_cast<uint8_t>(name[length]) & 0xc0) == 0x80) --length;
  std::string out;
  for (const char c : name.substr(0, length)) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (byte < ' ' || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out.push_back(c);
    }
  }
  if (length < name.size()) out += "...";
  return out.empty() ? "''" : out;
}

}  // namespace deepinfer
