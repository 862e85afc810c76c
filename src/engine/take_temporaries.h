// TakeTemporaries: the largest steps once, before the first request, so that a device's temporaries are taken, and
// counted, at the start.
//
// Thread-safety: the thread that drives the model. Ownership: nothing.
#ifndef DEEPINFER_ENGINE_TAKE_TEMPORARIES_H_
#define DEEPINFER_ENGINE_TAKE_TEMPORARIES_H_

#include "engine/engine_plan.h"
#include "model/model.h"

namespace deepinfer {

/// One step with as many rows as a step may have, one with as many logits. kResourceExhausted: the device has no room,
/// with what to lower; any other error of a step or of the device as it is. Not measured: index scores of contexts
/// longer than a step, whose temporaries grow with the context: some 5 bytes a compressed row, for up to 64 rows at
/// once.
Status TakeTemporaries(Model& model, Ops& ops, const EnginePlan& plan);

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_TAKE_TEMPORARIES_H_
