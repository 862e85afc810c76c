// Conversation -> prompt of DeepSeek-V4.1, exact to the character and to the token.
//
// Source: docs/prompt-format.md. Pure functions, callable from any thread; the conversation is only read.
#ifndef DEEPINFER_TEXT_PROMPT_RENDERER_H_
#define DEEPINFER_TEXT_PROMPT_RENDERER_H_

#include <optional>
#include <string>
#include <string_view>

#include "deepinfer/status.h"
#include "text/conversation.h"
#include "text/prompt_segments.h"

namespace deepinfer {

/// Renders the conversation up to the point where the model's turn goes on.
///
/// kInvalidArgument, naming the field, when: there is no message; effort is out of range; a call is required
/// without tools, or of a tool that is not there; `prefix` is set on another message than an assistant
/// turn at the end; an image sits in another message than a user or tool one.
Result<Prompt> RenderPrompt(const Conversation& conversation);

/// What stands between a finished reasoning and the call that the answer must be: the opening of a block of calls, with
/// a `name` also that of a call of this tool. The output then starts inside the block.
Prompt ForcedCallSegments(std::string_view name = "");

/// A prompt without turns: the model continues `text`, or with a `suffix` fills in the middle between both.
Prompt RenderCompletion(std::string_view text, const std::optional<std::string>& suffix = std::nullopt);

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_PROMPT_RENDERER_H_
