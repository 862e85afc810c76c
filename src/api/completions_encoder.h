// The answer encoder of Completions: `text_completion` bodies and streams.
//
// Contract: answer_encoder.h. Source: docs/http-api.md (spec prompt-format.md section 7.4).
#ifndef DEEPINFER_API_COMPLETIONS_ENCODER_H_
#define DEEPINFER_API_COMPLETIONS_ENCODER_H_

#include <memory>

#include "api/answer_encoder.h"

namespace deepinfer {

std::unique_ptr<AnswerEncoder> MakeCompletionsEncoder(AnswerHead head);

}  // namespace deepinfer

#endif  // DEEPINFER_API_COMPLETIONS_ENCODER_H_
