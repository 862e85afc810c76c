// Page-locked host memory and copies of many pieces from and to it.
//
// Thread-safety: as CommandList: one thread. Ownership: the memory is the caller's.
#ifndef DEEPINFER_OPS_CUDA_MEMORY_PIECES_H_
#define DEEPINFER_OPS_CUDA_MEMORY_PIECES_H_

#include <cstdint>
#include <span>

#include "base/device_memory.h"
#include "deepinfer/status.h"
#include "ops/cuda/command_list.h"

namespace deepinfer::cuda {

/// Host memory, page-locked if the system allows it: copies are slower without.
Result<DeviceMemory> AllocateLocked(int64_t bytes);

/// Behind all commands so far; pieces whose both ends touch are one copy. Returns when all is copied, or the first CUDA
/// error.
Status CopyPieces(CommandList& commands, std::span<const MemoryPiece> pieces);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_MEMORY_PIECES_H_
