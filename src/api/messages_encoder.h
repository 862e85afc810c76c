// The answer encoder of Messages: Anthropic's `message` objects and block events.
//
// Contract: answer_encoder.h. Source: docs/http-api.md (spec prompt-format.md section 7.3).
#ifndef DEEPINFER_API_MESSAGES_ENCODER_H_
#define DEEPINFER_API_MESSAGES_ENCODER_H_

#include <memory>

#include "api/answer_encoder.h"

namespace deepinfer {

std::unique_ptr<AnswerEncoder> MakeMessagesEncoder(AnswerHead head);

}  // namespace deepinfer

#endif  // DEEPINFER_API_MESSAGES_ENCODER_H_
