// The answer encoder of Responses: `response` objects and typed events.
//
// Contract: answer_encoder.h. Source: docs/http-api.md (spec prompt-format.md section 7.2).
#ifndef DEEPINFER_API_RESPONSES_ENCODER_H_
#define DEEPINFER_API_RESPONSES_ENCODER_H_

#include <memory>

#include "api/answer_encoder.h"

namespace deepinfer {

std::unique_ptr<AnswerEncoder> MakeResponsesEncoder(AnswerHead head);

}  // namespace deepinfer

#endif  // DEEPINFER_API_RESPONSES_ENCODER_H_
