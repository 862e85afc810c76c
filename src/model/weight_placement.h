// WeightPlacement: which weights of a checkpoint go where on a device, as the list that its Ops takes.
//
// Thread-safety: values and pure functions. Ownership: a list points into the checkpoint.
#ifndef DEEPINFER_MODEL_WEIGHT_PLACEMENT_H_
#define DEEPINFER_MODEL_WEIGHT_PLACEMENT_H_

#include <cstdint>

#include "checkpoint/weights.h"
#include "deepinfer/status.h"
#include "ops/ops.h"
#include "ops/weight_list.h"

namespace deepinfer {

struct WeightPlacement {
  static constexpr int64_t kAllLayers = -1;

  /// The first so many layers stay on the device. Of the others the FP8 and FP4 matrices pass; what is small stays.
  int64_t resident_layers = kAllLayers;
  bool engram_on_device = false;  ///< Engram tables, too; else they are not listed
  bool engram_in_memory = false;  ///< Engram tables are read from the disk at the start, not when rows are asked for
};

/// Every weight that a device should have before the first step.
WeightList ListWeights(const Checkpoint& checkpoint, const WeightPlacement& placement);

/// Brings every weight to its place; returns when it is there. kResourceExhausted: no room, with the numbers.
Status PlaceWeights(const Checkpoint& checkpoint, const WeightPlacement& placement, Ops& ops,
                    const LoadProgress& progress);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_WEIGHT_PLACEMENT_H_
