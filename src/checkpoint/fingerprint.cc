#include "checkpoint/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace deepinfer {
namespace {

/// Tensors of a file whose first bytes are read, evenly spread: each may cost a page of a cold disk.
constexpr size_t kSampledTensors = 64;
constexpr uint64_t kSampleBytes = 256;
/// Files up to this size are hashed whole.
constexpr uint64_t kWholeFileBytes = uint64_t{64} << 20;
/// Of a larger one so many pieces of a page, evenly spread.
constexpr uint64_t kPieces = 64;
constexpr uint64_t kPieceBytes = 4096;

}  // namespace

std::string Fingerprint(const Checkpoint& checkpoint) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  std::ifstream file(checkpoint.directory() / "config.json", std::ios::binary);
  std::string config((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (checkpoint.files().empty()) config = WriteModelConfig(checkpoint.config());
  XXH3_64bits_update(&state, config.data(), config.size());
  for (const SafetensorsFile& shard : checkpoint.files()) {
    const std::vector<TensorInfo>& tensors = shard.tensors();
    const size_t step = std::max<size_t>(1, tensors.size() / kSampledTensors);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorInfo& tensor = tensors[i];
      XXH3_64bits_update(&state, tensor.name.data(), tensor.name.size());
      XXH3_64bits_update(&state, &tensor.dtype, sizeof(tensor.dtype));
      XXH3_64bits_update(&state, tensor.shape.data(), sizeof(tensor.shape));
      XXH3_64bits_update(&state, &tensor.begin, sizeof(tensor.begin));
      if (i % step == 0) {
        XXH3_64bits_update(&state, shard.data(tensor), std::min(kSampleBytes, tensor.end - tensor.begin));
      }
    }
  }
  return fmt::format("{:016x}", XXH3_64bits_digest(&state));
}

std::string ContentFingerprint(const Checkpoint& checkpoint) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const SafetensorsFile& shard : checkpoint.files()) {
    uint64_t bytes = 0;
    const uint8_t* begin = nullptr;
    for (const TensorInfo& tensor : shard.tensors()) {
      const uint8_t* const data = shard.data(tensor);
      if (begin == nullptr || data < begin) begin = data;
      bytes = std::max(bytes, static_cast<uint64_t>(tensor.end));
    }
    XXH3_64bits_update(&state, &bytes, sizeof(bytes));
    if (bytes <= kWholeFileBytes) {
      XXH3_64bits_update(&state, begin, bytes);
      continue;
    }
    for (uint64_t piece = 0; piece < kPieces; ++piece) {
      XXH3_64bits_update(&state, begin + (bytes - kPieceBytes) / (kPieces - 1) * piece, kPieceBytes);
    }
  }
  return fmt::format("{:016x}", XXH3_64bits_digest(&state));
}

}  // namespace deepinfer
