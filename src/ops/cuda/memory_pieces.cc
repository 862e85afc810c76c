#include "ops/cuda/memory_pieces.h"

#include <cuda_runtime_api.h>

#include <cstring>

namespace deepinfer::cuda {
namespace {

bool Continues(const MemoryPiece& piece, const MemoryPiece& next) {
  return static_cast<const uint8_t*>(piece.from) + piece.bytes == next.from &&
         static_cast<uint8_t*>(piece.to) + piece.bytes == next.to;
}

}  // namespace

Result<DeviceMemory> AllocateLocked(int64_t bytes) {
  if (bytes <= 0) return DeviceMemory();
  void* data = nullptr;
  if (cudaMallocHost(&data, static_cast<size_t>(bytes)) != cudaSuccess) {
    cudaGetLastError();  // the next launch is not to blame
    return DeviceMemory::OnHost(bytes);
  }
  std::memset(data, 0, static_cast<size_t>(bytes));
  return DeviceMemory(static_cast<uint8_t*>(data), bytes, [](uint8_t* memory) { cudaFreeHost(memory); });
}

Status CopyPieces(CommandList& commands, std::span<const MemoryPiece> pieces) {
  commands.Flush();
  for (size_t at = 0; at < pieces.size() && commands.ok();) {
    MemoryPiece whole = pieces[at++];
    for (; at < pieces.size() && Continues(whole, pieces[at]); ++at) whole.bytes += pieces[at].bytes;
    if (whole.bytes == 0) continue;
    // Which end is the GPU's shows in the addresses.
    commands.Check(
        cudaMemcpyAsync(whole.to, whole.from, static_cast<size_t>(whole.bytes), cudaMemcpyDefault, commands.stream()),
        "copy between host and GPU");
  }
  return commands.Wait();
}

}  // namespace deepinfer::cuda
