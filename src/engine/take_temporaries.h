// TakeTemporaries: the largest steps once, before the first request, so that a device's temporaries are taken, and
// counted, at the start.
//
// Thread-safety: the thread that drives the model. Ownership: nothing.
#ifndef DEEPINFER_ENGINE_TAKE_TEMPORARIES_H_
#define DEEPINFER_ENGINE_TAKE_TEMPORARIES_H_

#include "engine/engine_plan.h"
#include "model/model.h"

namespace deepinfer {

/// One step with as many rows as a step may have, one with as many logits. kResourceExhausted: the device has no room.
/// What index scores of long contexts take beside that is small: a few MB.
Status TakeTemporaries(Model& model, Ops& ops, const EnginePlan& plan);

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_TAKE_TEMPORARIES_H_
