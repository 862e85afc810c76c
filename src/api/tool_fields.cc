#include "api/tool_fields.h"

#include <algorithm>
#include <set>

#include "api/tool_schema.h"

namespace deepinfer {
namespace {

constexpr size_t kMaxToolNameBytes = 128;

bool IsToolNameCharacter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

}  // namespace

Status CheckToolName(std::string_view name, std::string_view path) {
  if (!name.empty() && name.size() <= kMaxToolNameBytes && std::all_of(name.begin(), name.end(), IsToolNameCharacter)) {
    return Status::Ok();
  }
  return FieldError(path, "expected 1 to " + std::to_string(kMaxToolNameBytes) +
                              " characters of A-Z, a-z, 0-9, _ and -, found " + Quoted(name));
}

Result<Tool> ReadFunction(const ObjectReader& function, std::string_view parameters_key) {
  Tool tool;
  DEEPINFER_ASSIGN_OR_RETURN(tool.name, function.String("name"));
  DEEPINFER_RETURN_IF_ERROR(CheckToolName(tool.name, function.PathOf("name")));
  tool.local_name = tool.name;
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<std::string> description, function.OptionalString("description"));
  tool.description = description.value_or("");
  if (const JsonValue* parameters = function.Find(parameters_key)) {
    DEEPINFER_RETURN_IF_ERROR(CheckToolParameters(*parameters, function.PathOf(parameters_key)));
    tool.parameters = *parameters;
  }
  DEEPINFER_ASSIGN_OR_RETURN(tool.strict, function.Bool("strict", false));
  return tool;
}

const Tool* FindTool(const Conversation& conversation, std::string_view name) {
  for (const Tool& tool : conversation.tools) {
    if (tool.name == name) return &tool;
  }
  return nullptr;
}

Status CheckUniqueToolNames(const Conversation& conversation, std::string_view path) {
  std::set<std::string_view> names;
  for (const Tool& tool : conversation.tools) {
    if (!names.insert(tool.name).second) {
      return FieldError(path, "two tools are named " + Quoted(tool.name) + "; names must be unique");
    }
  }
  return Status::Ok();
}

Result<const JsonValue*> ReadChoiceWord(const ObjectReader& body, Conversation* conversation) {
  const JsonValue* choice = body.Find("tool_choice");
  if (choice == nullptr || choice->AsObject() != nullptr) return choice;
  DEEPINFER_ASSIGN_OR_RETURN(const std::string word, body.OneOf("tool_choice", {"none", "auto", "required"}));
  if (word == "none") conversation->tool_choice = ToolChoice::kNone;
  if (word == "required") DEEPINFER_RETURN_IF_ERROR(RequireCall("", "tool_choice", conversation));
  return static_cast<const JsonValue*>(nullptr);
}

Status RequireCall(std::string name, std::string_view path, Conversation* conversation) {
  if (name.empty() && conversation->tools.empty()) {
    return FieldError(path, "a tool call is required but tools is empty");
  }
  if (!name.empty() && FindTool(*conversation, name) == nullptr) {
    return FieldError(path, "tools has no tool named " + Quoted(name));
  }
  conversation->tool_choice = ToolChoice::kRequired;
  conversation->named_tool = std::move(name);
  return Status::Ok();
}

}  // namespace deepinfer
