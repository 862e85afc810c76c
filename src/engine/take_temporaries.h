// TakeTemporaries: the largest steps once, before the first request, so that a device's temporaries are taken, and
// counted, at the start.
//
// Thread-safety: the thread that drives the model. Ownership: nothing.
#ifndef DEEPINFER_ENGINE_TAKE_TEMPORARIES_H_
#define DEEPINFER_ENGINE_TAKE_TEMPORARIES_H_

#include "engine/engine_plan.h"
#include "model/model.h"

namespace deepinfer {

/// One step with as many rows as a step may have, one with as many logits, one of few rows. kResourceExhausted: the
/// device has no room, with what to lower; any other error of a step or of the device as it is. What grows with the
/// context, Ops::Reserve() takes.
Status TakeTemporaries(Model& model, Ops& ops, const EnginePlan& plan);

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_TAKE_TEMPORARIES_H_
