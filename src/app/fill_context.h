// ContextFiller: gives a sequence a context that nobody has computed, for benchmarks of decode behind long contexts.
//
// The rows of the caches are random, of the size that normalised latents have, in their formats; so a step behind them
// reads, scores and attends as much as behind a computed context. What it says means nothing.
// Thread-safety: the thread that drives the Ops. Ownership: owns its rows; the Ops outlive it.
#ifndef DEEPINFER_APP_FILL_CONTEXT_H_
#define DEEPINFER_APP_FILL_CONTEXT_H_

#include <cstdint>
#include <span>

#include "base/device_memory.h"
#include "deepinfer/status.h"
#include "model/sequence_state.h"
#include "ops/ops.h"

namespace deepinfer {

class ContextFiller {
 public:
  /// `width`: channels of the widest cached row.
  static Result<ContextFiller> Create(int64_t width, Ops& ops);

  /// Makes an empty sequence that owns its memory stand behind `ids`, an even number of them.
  void Fill(std::span<const int32_t> ids, SequenceState* sequence) const;

 private:
  ContextFiller(DeviceMemory memory, int64_t width, Ops& ops) : memory_(std::move(memory)), width_(width), ops_(&ops) {}

  void Store(const PackedRows& rows, int64_t count) const;

  DeviceMemory memory_;  // [kRows, width_] F32
  int64_t width_;
  Ops* ops_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_FILL_CONTEXT_H_
