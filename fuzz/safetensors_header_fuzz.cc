// Any bytes as a safetensors header: an error or a list of tensors that covers the data area exactly.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/safetensors.h"

// The first four bytes are the size of the data area, the rest is the JSON.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const uint64_t data_bytes = data[0] | data[1] << 8 | data[2] << 16 | static_cast<uint64_t>(data[3]) << 24;
  const std::string_view json(reinterpret_cast<const char*>(data) + 4, size - 4);
  const auto tensors = deepinfer::ParseSafetensorsHeader(json, data_bytes);
  if (!tensors.ok()) {
    const std::string message = tensors.status().message();
    if (message.empty() || message.size() > 2000 || message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  uint64_t covered = 0;
  for (const deepinfer::TensorInfo& tensor : *tensors) {
    uint64_t bytes = deepinfer::DTypeBytes(tensor.dtype);
    for (const int64_t extent : tensor.dimensions()) bytes *= static_cast<uint64_t>(extent);
    if (tensor.begin > tensor.end || tensor.end > data_bytes || tensor.end - tensor.begin != bytes) std::abort();
    covered += bytes;
  }
  if (covered != data_bytes) std::abort();
  return 0;
}
