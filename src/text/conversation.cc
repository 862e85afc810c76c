#include "text/conversation.h"

namespace deepinfer {
namespace {

Message TextMessage(Role role, std::string text) {
  Message message;
  message.role = role;
  message.content.push_back({std::move(text), std::nullopt});
  return message;
}

}  // namespace

std::optional<int> EffortByName(std::string_view name) {
  if (name == "minimal" || name == "low") return 50;
  if (name == "medium" || name == "high" || name == "xhigh") return kDefaultEffort;
  if (name == "max" || name == "ultra") return kMaxEffort;
  return std::nullopt;
}

std::string TextOf(const Message& message) {
  std::string text;
  bool first = true;
  for (const ContentPart& part : message.content) {
    if (part.image.has_value()) continue;
    if (!first) text += "\n\n";
    text += part.text;
    first = false;
  }
  return text;
}

Conversation NewChat(std::string system, bool thinking, int effort) {
  Conversation conversation;
  conversation.thinking = thinking;
  conversation.effort = effort;
  if (!system.empty()) conversation.messages.push_back(TextMessage(Role::kSystem, std::move(system)));
  return conversation;
}

void AppendUserTurn(std::string text, Conversation* conversation) {
  conversation->messages.push_back(TextMessage(Role::kUser, std::move(text)));
}

void AppendAssistantTurn(std::string answer, std::string reasoning, Conversation* conversation) {
  Message message = TextMessage(Role::kAssistant, std::move(answer));
  message.reasoning = std::move(reasoning);
  conversation->messages.push_back(std::move(message));
}

}  // namespace deepinfer
