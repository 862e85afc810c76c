// Measures what steps and drafts cost on the device at hand, before the first request (spec serving.md 3.2).
//
// Thread-safety: the thread that drives the model. Ownership: nothing.
#ifndef DEEPINFER_ENGINE_MEASURE_PROFILE_H_
#define DEEPINFER_ENGINE_MEASURE_PROFILE_H_

#include "engine/engine_plan.h"
#include "engine/step_profile.h"
#include "model/model.h"

namespace deepinfer {

/// Steps of up to max_num_seqs * (1 + draft_length) rows, drafts for up to max_num_seqs sequences.
Result<StepProfile> MeasureProfile(Model& model, Ops& ops, const EnginePlan& plan);

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_MEASURE_PROFILE_H_
