// Frequencies of the rotary pairs (spec c.4).
//
// Thread-safety: a pure function.
#ifndef DEEPINFER_MODEL_ROPE_FREQUENCIES_H_
#define DEEPINFER_MODEL_ROPE_FREQUENCIES_H_

#include <vector>

#include "checkpoint/model_config.h"

namespace deepinfer {

/// [R / 2], radians per position. `compressed`: layers with ratio 1 or 2, which have their own base and YaRN; the other
/// layers (and the DSpark stages) use the plain base.
std::vector<float> RopeFrequencies(const ModelConfig& config, bool compressed);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_ROPE_FREQUENCIES_H_
