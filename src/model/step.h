// Step: the ragged rows of one Forward() or one draft block, and the lists that all layers of it share.
//
// Rows of an item are consecutive: row first_row + i of the step is position first_position + i of its sequence. All
// vectors are reserved once, so that preparing a step allocates nothing.
//
// Thread-safety: as the Model that owns it. Ownership: owns its lists, points to sequences.
#ifndef DEEPINFER_MODEL_STEP_H_
#define DEEPINFER_MODEL_STEP_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/tensor_view.h"
#include "checkpoint/model_config.h"
#include "model/sequence_state.h"
#include "model/workspace.h"
#include "ops/ops.h"

namespace deepinfer {

struct ForwardProbe;

struct StepItem {
  SequenceState* sequence = nullptr;
  bool encoder_only = false;  ///< no row passes the decoder
  int64_t first_position = 0;
  int32_t first_row = 0;
  int32_t row_count = 0;
  // Pairs of positions (2j, 2j+1) that this item's rows complete: j = first_pair ..; their rows in the step's lists
  // start at first_pair_row.
  int64_t first_pair = 0;
  int32_t first_pair_row = 0;
  int32_t pair_count = 0;
};

class Step {
 public:
  /// Room for steps of up to `max_rows` rows.
  void Reserve(int64_t max_rows);

  void Clear();

  /// Appends the next `ids` of a sequence at `first_position`.
  void Add(SequenceState& sequence, int64_t first_position, std::span<const int32_t> ids, bool encoder_only = false);

  /// Drops the rows that do not pass the decoder; items stay, some without rows. Returns the rows kept, ascending, or
  /// nothing when that is all of them.
  std::span<const int32_t> KeepDecoderRows();

  int64_t rows() const { return std::ssize(ids_); }
  std::span<const StepItem> items() const { return items_; }
  std::span<const int32_t> ids() const { return ids_; }
  std::span<const int64_t> positions() const { return positions_; }            // [rows]
  std::span<const int64_t> pair_positions() const { return pair_positions_; }  // [pairs], 2j

  /// 0, 1, 2, ... up to `count` (at most max_rows or the longest tail or ring asked for).
  std::span<const int64_t> Iota(int64_t count) const { return std::span(iota_).first(static_cast<size_t>(count)); }

  // Scratch lists that a mechanism fills for one op call.
  std::vector<AttentionSequence> attention;
  std::vector<IndexSequence> index;
  std::vector<int64_t> sources;
  std::vector<int64_t> destinations;
  std::vector<const float*> copy_from;
  std::vector<float*> copy_to;
  std::vector<uint8_t*> pages;  // of the rows that one op stores for all sequences
  std::vector<int32_t> row_ids;
  std::vector<const float*> first_of_pair;
  std::vector<const float*> second_of_pair;

 private:
  std::vector<StepItem> items_;
  std::vector<int32_t> ids_;
  std::vector<int64_t> positions_;
  std::vector<int64_t> pair_positions_;
  std::vector<int64_t> iota_;
  std::vector<int32_t> kept_;
};

/// What every mechanism of the model works with.
struct StepContext {
  const ModelConfig& config;
  Ops& ops;
  Workspace& workspace;
  Step& step;
  ActivationFormat activation;
  ForwardProbe* probe;  ///< null outside tests

  int64_t rows() const { return step.rows(); }
  /// The first rows() rows of a buffer.
  template <typename T>
  TensorView<T> Rows(const TensorView<T>& buffer) const {
    return buffer.RowRange(0, step.rows());
  }
  /// Rotary table of a layer's positions.
  FloatView RopeOf(int layer) const {
    return Rows(config.ratio(layer) > 0 ? workspace.step.compressed_rope : workspace.step.plain_rope);
  }
  float rms_eps() const { return static_cast<float>(config.rms_norm_eps); }
};

/// out.row(i) = from.row(rows[i]): a copy of F32 rows. An F32 embedding table is just that, on every device.
void GatherFloatRows(Ops& ops, ConstFloatView from, std::span<const int32_t> rows, FloatView out);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_STEP_H_
