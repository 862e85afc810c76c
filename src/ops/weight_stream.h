// WeightStream: bytes from mapped files through two buffers to a device, as fast as the slower of disk and bus.
//
// A thread reads into one buffer, ahead of which the system reads from the disk, while the other is on its way. Loads
// are taken in the order they are given, so those of a file should be ascending. Thread-safety: Run() is called by one
// thread, and calls carrier and progress on it. Ownership: views only. Errors: the carrier's first one ends the run.
#ifndef DEEPINFER_OPS_WEIGHT_STREAM_H_
#define DEEPINFER_OPS_WEIGHT_STREAM_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "deepinfer/status.h"
#include "ops/weight_list.h"

namespace deepinfer {

/// Bytes that go from host memory to a place.
struct WeightLoad {
  const uint8_t* from = nullptr;
  uint8_t* to = nullptr;
  int64_t bytes = 0;
  bool to_host = false;  ///< `to` is host memory: the reading thread writes there, no buffer is needed
  WeightBytes kind = WeightBytes::kPlain;
};

/// A part of a load, of which `offset` bytes stand in the buffer before it.
struct WeightPiece {
  WeightLoad load;
  int64_t offset = 0;
};
/// What one buffer holds.
using WeightBatch = std::vector<WeightPiece>;

/// Cuts loads where a buffer is full, of which a multiple of 64 bytes is used; pieces start at multiples of 64 bytes,
/// of the buffer and of their load.
std::vector<WeightBatch> CutIntoBatches(std::span<const WeightLoad> loads, int64_t buffer_bytes);

/// Takes filled buffers on.
class WeightCarrier {
 public:
  virtual ~WeightCarrier() = default;
  /// Begins to copy the pieces of a buffer to their places; those that go to host memory are there already.
  virtual Status Send(int buffer, std::span<const WeightPiece> pieces) = 0;
  /// Waits until the buffer may be written again.
  virtual Status Wait(int buffer) = 0;
};

class WeightStream {
 public:
  static constexpr int kBuffers = 2;

  /// Buffers of `buffer_bytes` each, at least 64. `threads`: that copy from the mapped files, whose pages they fault
  /// in.
  WeightStream(std::array<uint8_t*, kBuffers> buffers, int64_t buffer_bytes, int threads)
      : buffers_(buffers), buffer_bytes_(buffer_bytes), threads_(threads) {}

  /// Returns when everything has arrived. `progress` may be empty.
  Status Run(std::span<const WeightLoad> loads, WeightCarrier& carrier, const LoadProgress& progress);

 private:
  std::array<uint8_t*, kBuffers> buffers_;
  int64_t buffer_bytes_;
  int threads_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_OPS_WEIGHT_STREAM_H_
