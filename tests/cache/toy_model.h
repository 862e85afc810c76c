// ToyModel: what of a V4.1 forward pass matters for replay, with hashes in place of numbers. A row of a layer is the
// hash of its input, of the window keys it may see and of the global rows up to it; so two runs agree on a row exactly
// if they agree on everything that the row depends on. Encoder layers publish global rows (from the first layer's input
// and the encoder's output); every layer reads them; decoder layers come last.
//
// Thread-safety: one thread. Ownership: the caller lends the global rows, the rings belong to the run.
#ifndef DEEPINFER_TESTS_CACHE_TOY_MODEL_H_
#define DEEPINFER_TESTS_CACHE_TOY_MODEL_H_

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cache/replay_plan.h"

namespace deepinfer::test {

inline constexpr int64_t kToyBlock = 4;   // tokens of a block
inline constexpr int64_t kToyWindow = 8;  // positions, more than a block
inline constexpr int kToyEncoder = 2;     // layers
inline constexpr int kToyLayers = 4;

/// Window keys of all layers; position p in slot p % kToyWindow.
using ToyRings = std::array<std::array<uint64_t, kToyWindow>, kToyLayers>;
/// The global rows of a block: [tokens][source].
using ToyBlock = std::array<std::array<uint64_t, 2>, kToyBlock>;

class ToyRun {
 public:
  /// `ids` are all tokens of the sequence, `blocks` a block per kToyBlock of them, those below plan.hit_tokens filled.
  ToyRun(const ReplaySettings& settings, const ReplayPlan& plan, std::vector<int32_t> ids,
         std::vector<ToyBlock*> blocks);

  /// Before Compute, when plan.snapshot_position >= 0.
  void Restore(const ToyRings& rings) { rings_ = rings; }

  /// Computes all rows. `at_boundary(b)` is called when the rows below block boundary b are computed for the first
  /// time.
  void Compute(const std::function<void(int64_t)>& at_boundary);

  const ToyRings& rings() const { return rings_; }
  /// The last layer's row of each position, 0: did not pass the decoder.
  const std::vector<uint64_t>& outputs() const { return outputs_; }
  /// Rows that went through the encoder.
  int64_t computed_rows() const { return computed_rows_; }
  /// Rows at or behind the resume position whose cached global rows differ from the computed ones.
  int64_t contradictions() const { return contradictions_; }

 private:
  enum class Rows { kReplayed, kFirstTime };

  void ComputeRow(int64_t position, Rows rows);
  uint64_t Layer(int layer, int64_t position, uint64_t input, int64_t start);
  void Publish(int64_t position, int source, uint64_t row, Rows rows);

  const ReplaySettings settings_;
  const ReplayPlan plan_;
  const std::vector<int32_t> ids_;
  const std::vector<ToyBlock*> blocks_;
  int64_t encoder_start_ = 0;
  int64_t computed_rows_ = 0;
  int64_t contradictions_ = 0;
  ToyRings rings_{};
  std::vector<uint64_t> outputs_;
};

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_CACHE_TOY_MODEL_H_
