// Weight layout: which tensors a configuration asks for, each stated once. Opening, writing and counting all read it.
//
// Thread-safety: pure functions. Ownership: a slot points into the Weights it was made for. Source: spec section (b).
#ifndef DEEPINFER_CHECKPOINT_WEIGHT_LAYOUT_H_
#define DEEPINFER_CHECKPOINT_WEIGHT_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/weight_matrix.h"
#include "checkpoint/weights.h"

namespace deepinfer {

/// The part of the model that a weight belongs to.
enum class ModelPart : uint8_t {
  kEmbedding,
  kHead,
  kNorms,  ///< of sublayers and of the head
  kAttention,
  kHyperConnections,
  kRouter,
  kRoutedExperts,
  kSharedExperts,
  kEngramTables,
  kEngramProjections,
  kDraft,  ///< everything of DSpark
  kVision,
};
inline constexpr int kModelParts = 12;

/// "attention", "routed experts", ...
std::string ModelPartName(ModelPart part);

/// One weight: the tensor with its values, and for F8 and F4 formats the tensor with its scales.
struct WeightSlot {
  std::string name;  ///< of the values
  ModelPart part = ModelPart::kHead;
  int layer = CheckpointWeight::kNoLayer;  ///< as CheckpointWeight::layer
  WeightFormat format = WeightFormat::kBF16;
  bool either_float = false;       ///< BF16 and F32 are both accepted; `format` is what the release holds
  std::vector<int64_t> shape;      ///< in elements, one or two extents
  int64_t active_rows = 0;         ///< rows read for one token in plain decoding; for kDraft: for one drafted block
  WeightMatrix* matrix = nullptr;  ///< where the view goes: at most one of the two
  WeightVector* vector = nullptr;

  int64_t rows() const { return shape.size() == 1 ? 1 : shape[0]; }
  int64_t columns() const { return shape.back(); }
  /// The view that the slot describes, without addresses.
  WeightMatrix View() const {
    return {.data = nullptr, .scale = nullptr, .format = format, .rows = rows(), .columns = columns()};
  }
};

/// Sizes `weights` for the configuration and lists a slot for each of its members (and one without destination for each
/// vision tensor). Moving `weights` keeps slots of layers valid, but not those of its direct members.
std::vector<WeightSlot> LayOutWeights(const ModelConfig& config, Weights* weights);

/// What a checkpoint says of the slot's weight, `view` with its addresses.
CheckpointWeight ListedWeight(const WeightSlot& slot, const WeightMatrix& view);

/// A tensor as safetensors describes it.
struct TensorShape {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

/// The tensor that holds the slot's values.
TensorShape ValueTensor(const WeightSlot& slot);

bool HasScale(const WeightSlot& slot);

/// The tensor that holds the slot's scales; HasScale(slot).
TensorShape ScaleTensor(const WeightSlot& slot);

}  // namespace deepinfer

#endif  // DEEPINFER_CHECKPOINT_WEIGHT_LAYOUT_H_
