#include "api/answer_encoder.h"

#include "api/chat_encoder.h"
#include "api/completions_encoder.h"
#include "api/messages_encoder.h"
#include "api/responses_encoder.h"

namespace deepinfer {

std::unique_ptr<AnswerEncoder> MakeAnswerEncoder(AnswerHead head) {
  switch (head.protocol) {
    case Protocol::kChat:
      return MakeChatEncoder(std::move(head));
    case Protocol::kCompletions:
      return MakeCompletionsEncoder(std::move(head));
    case Protocol::kResponses:
      return MakeResponsesEncoder(std::move(head));
    case Protocol::kMessages:
      break;
  }
  return MakeMessagesEncoder(std::move(head));
}

}  // namespace deepinfer
