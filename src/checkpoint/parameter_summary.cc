#include "checkpoint/parameter_summary.h"

namespace deepinfer {

void ParameterCount::Add(const ParameterCount& other) {
  tensors += other.tensors;
  parameters += other.parameters;
  bytes += other.bytes;
  active_parameters += other.active_parameters;
  active_bytes += other.active_bytes;
}

ParameterSummary SummariseParameters(const ModelConfig& config) {
  Weights scratch;
  ParameterSummary summary;
  for (const WeightSlot& slot : LayOutWeights(config, &scratch)) {
    const WeightMatrix view = slot.View();
    WeightMatrix active = view;
    active.rows = slot.active_rows;
    ParameterCount count{.tensors = HasScale(slot) ? 2 : 1,
                         .parameters = view.rows * view.columns,
                         .bytes = view.total_bytes(),
                         .active_parameters = active.rows * active.columns,
                         .active_bytes = active.total_bytes()};
    summary.parts[static_cast<size_t>(slot.part)].Add(count);
    if (slot.part == ModelPart::kDraft) count.active_parameters = count.active_bytes = 0;
    summary.total.Add(count);
  }
  return summary;
}

}  // namespace deepinfer
