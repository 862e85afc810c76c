// The answer encoder of Chat Completions: `chat.completion` bodies and `chat.completion.chunk` streams.
//
// Contract: answer_encoder.h. Source: docs/http-api.md (spec prompt-format.md section 7.1).
#ifndef DEEPINFER_API_CHAT_ENCODER_H_
#define DEEPINFER_API_CHAT_ENCODER_H_

#include <memory>

#include "api/answer_encoder.h"

namespace deepinfer {

std::unique_ptr<AnswerEncoder> MakeChatEncoder(AnswerHead head);

}  // namespace deepinfer

#endif  // DEEPINFER_API_CHAT_ENCODER_H_
