// Checks of tools that every protocol applies: names, duplicates, the choice among them. Schemas: tool_schema.h.
//
// Thread-safety: pure functions and values. Ownership: results own their texts; the JSON they read must outlive the
// call.
#ifndef DEEPINFER_API_TOOL_FIELDS_H_
#define DEEPINFER_API_TOOL_FIELDS_H_

#include <string>
#include <string_view>

#include "api/json_reader.h"
#include "text/conversation.h"

namespace deepinfer {

/// 1..128 characters of A-Z a-z 0-9 _ -.
Status CheckToolName(std::string_view name, std::string_view path);

/// Reads name, description, the schema under `parameters_key` and strict of a function.
Result<Tool> ReadFunction(const ObjectReader& function, std::string_view parameters_key);

/// The tool with this rendered name, or nullptr. Linear.
const Tool* FindTool(const Conversation& conversation, std::string_view name);

/// Fails, naming the tool, when two of the conversation's tools have one name.
Status CheckUniqueToolNames(const Conversation& conversation, std::string_view path);

/// Reads `tool_choice` when it is one of the words none, auto and required; nullptr when it was or is not given, else
/// the field, which holds something else.
Result<const JsonValue*> ReadChoiceWord(const ObjectReader& body, Conversation* conversation);

/// Requires a call: of any tool, or of the one named `name` when it is not empty. `path` is the field that asks for it.
Status RequireCall(std::string name, std::string_view path, Conversation* conversation);

}  // namespace deepinfer

#endif  // DEEPINFER_API_TOOL_FIELDS_H_
