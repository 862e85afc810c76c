// Waiting for the engine on the main thread while Ctrl-C works (app/interrupt.h).
//
// Thread-safety: the main thread, with a live Interrupt. Ownership: the engine outlives the calls.
#ifndef DEEPINFER_APP_READ_ANSWERS_H_
#define DEEPINFER_APP_READ_ANSWERS_H_

#include <functional>
#include <vector>

#include "app/progress_bar.h"
#include "deepinfer/engine.h"

namespace deepinfer {

/// Submits one request and hands what is new to `sink` as it comes. Ctrl-C, or an error of the sink, cancels the
/// request; the first is told by the finish reason, the second returned. Errors of the engine name the flags.
Result<Generation> ReadAnswers(Engine& engine, GenerationRequest request,
                               const std::function<Status(const GenerationDelta& delta)>& sink);

/// Submits all at once and waits for every one; results in the order of the requests. `bar`, may be null, counts those
/// that are done. Ctrl-C cancels all: kCancelled. An error of a request is the error of the run.
Result<std::vector<Generation>> RunRequests(Engine& engine, std::vector<GenerationRequest> requests, ProgressBar* bar);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_READ_ANSWERS_H_
