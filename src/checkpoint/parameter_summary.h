// ParameterSummary: how many parameters and bytes each part of a model has, and how many work on one token.
//
// Bytes are those of the released formats, scales included; parameters do not count scales. Needs no files. If a
// checkpoint holds hc_*_fn in BF16 instead of F32, its hyper-connections take half the bytes said here.
// Thread-safety: pure function, values. Source: spec section (b).
#ifndef DEEPINFER_CHECKPOINT_PARAMETER_SUMMARY_H_
#define DEEPINFER_CHECKPOINT_PARAMETER_SUMMARY_H_

#include <array>
#include <cstdint>

#include "checkpoint/model_config.h"
#include "checkpoint/weight_layout.h"

namespace deepinfer {

struct ParameterCount {
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;
  int64_t active_parameters = 0;
  int64_t active_bytes = 0;

  void Add(const ParameterCount& other);
};

struct ParameterSummary {
  std::array<ParameterCount, kModelParts> parts;  ///< indexed by ModelPart
  ParameterCount total;  ///< sums of the parts, but active_* without DSpark: what plain decoding
                         ///< of one token of one sequence reads (caches not counted)

  /// In parts[kDraft], active_* is what drafting one block reads at least (all rows of the block picking the same
  /// experts); the head, which drafting reads too, is not counted there.
  const ParameterCount& part(ModelPart which) const { return parts[static_cast<size_t>(which)]; }
};

ParameterSummary SummariseParameters(const ModelConfig& config);

}  // namespace deepinfer

#endif  // DEEPINFER_CHECKPOINT_PARAMETER_SUMMARY_H_
