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
/// kInvalidArgument, naming the field, when: there is no message; effort is out of range; a call is required while
/// thinking, or without tools, or of a tool that is not there; `prefix` is set on another message than an assistant
/// turn at the end; an image sits in another message than a user or tool one.
Result<Prompt> RenderPrompt(const Conversation& conversation);

/// A prompt without turns: the model continues `text`, or with a `suffix` fills in the middle between both.
Prompt RenderCompletion(std::string_view text, const std::optional<std::string>& suffix = std::nullopt);

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_PROMPT_RENDERER_H_
