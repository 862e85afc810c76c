// A parsed request -> what the engine is asked and how its output is read.
//
// Thread-safety: pure functions, any thread. Errors: kInvalidArgument naming the field; for a prompt that does not fit,
// with both numbers.
#ifndef DEEPINFER_SERVER_GENERATION_PLANNER_H_
#define DEEPINFER_SERVER_GENERATION_PLANNER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "api/completions_request.h"
#include "api/request.h"
#include "deepinfer/status.h"
#include "server/generation_session.h"
#include "server/served_model.h"

namespace deepinfer {

/// Limits of an answer that says none (spec prompt-format.md section 6), cut to what the context leaves.
inline constexpr int64_t kDefaultMaxTokens = 8192;
inline constexpr int64_t kDefaultMaxTokensThinking = 65536;
/// Of legacy Completions, as OpenAI has it.
inline constexpr int64_t kDefaultMaxTokensCompletions = 16;

/// `head` comes with what the caller knows of the request: protocol, id, time.
Result<GenerationPlan> PlanConversation(const ServedModel& model, const ConversationRequest& request, AnswerHead head);
Result<GenerationPlan> PlanCompletions(const ServedModel& model, const CompletionsRequest& request, AnswerHead head);

/// The ids of the prompt of a conversation.
Result<std::vector<int32_t>> PromptOf(const ServedModel& model, const Conversation& conversation);

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_GENERATION_PLANNER_H_
