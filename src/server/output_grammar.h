// ConstrainAnswer: the grammar that the answer to a request must follow, from its response format and its tools.
//
// Reasoning is free. Behind it comes text under the response format, or calls, or both by choice. Calls are constrained
// when one is required or a tool is strict; other tools are the model's own matter and the output parser's.
// Thread-safety: any thread; waits for the grammar to be compiled. Ownership: the grammar is shared.
// Errors: kInvalidArgument and kUnsupported naming the field and the place in the schema; kResourceExhausted past
// limits.
#ifndef DEEPINFER_SERVER_OUTPUT_GRAMMAR_H_
#define DEEPINFER_SERVER_OUTPUT_GRAMMAR_H_

#include <cstdint>

#include "api/answer_encoder.h"
#include "api/request.h"
#include "deepinfer/status.h"
#include "server/served_model.h"
#include "text/prompt_segments.h"

namespace deepinfer {

/// `constrained_tokens`: the last ones of the prompt, which begin the answer: a prefix, or the block of calls.
Status ConstrainAnswer(const ServedModel& model, const ConversationRequest& request, Protocol protocol,
                       const Prompt& prompt, int64_t constrained_tokens, GenerationRequest* generation);

/// The same for plain text (Completions).
Status ConstrainText(const ServedModel& model, const RequestSettings& settings, GenerationRequest* generation);

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_OUTPUT_GRAMMAR_H_
