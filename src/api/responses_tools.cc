#include "api/responses_tools.h"

#include <set>

#include "api/tool_fields.h"

namespace deepinfer {
namespace {

// The only custom tool that the model knows how to use, as a function with one string.
constexpr std::string_view kApplyPatch = "apply_patch";
constexpr std::string_view kApplyPatchParameters =
    R"({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]})";

std::string Qualified(const std::string& tool_namespace, const std::string& name) {
  return tool_namespace.empty() ? name : tool_namespace + "::" + name;
}

Result<Tool> ReadCustomTool(const ObjectReader& reader) {
  Tool tool;
  DEEPINFER_ASSIGN_OR_RETURN(tool.name, reader.String("name"));
  if (tool.name != kApplyPatch) {
    return FieldError(reader.PathOf("name"), "the only custom tool available is " + std::string(kApplyPatch) +
                                                 ", found " + Quoted(tool.name) + "; use a function instead");
  }
  tool.local_name = tool.name;
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<std::string> description, reader.OptionalString("description"));
  tool.description = description.value_or("");
  DEEPINFER_ASSIGN_OR_RETURN(tool.parameters, ParseJson(kApplyPatchParameters));
  tool.custom = true;
  return tool;
}

}  // namespace

Status ResponsesTools::Read(const ObjectReader& body, const RequestOptions& options, Conversation* conversation) {
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue::Array* tools, body.OptionalArray("tools"));
  if (tools != nullptr) {
    for (size_t i = 0; i < tools->size(); ++i) {
      DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader reader, ObjectReader::Of((*tools)[i], ItemPath("tools", i)));
      DEEPINFER_RETURN_IF_ERROR(ReadTool(reader, options, conversation));
    }
  }
  DEEPINFER_RETURN_IF_ERROR(CheckUniqueToolNames(*conversation, "tools"));
  AppendNamespaced(conversation);
  for (const Tool& tool : conversation->tools) rendered_names_[{tool.tool_namespace, tool.local_name}] = tool.name;
  return ReadChoice(body, conversation);
}

std::string ResponsesTools::RenderedName(const std::string& tool_namespace, const std::string& name) const {
  const auto found = rendered_names_.find({tool_namespace, name});
  return found != rendered_names_.end() ? found->second : Qualified(tool_namespace, name);
}

Status ResponsesTools::ReadTool(const ObjectReader& reader, const RequestOptions& options, Conversation* conversation) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::string type, reader.String("type"));
  if (type == "function") {
    DEEPINFER_ASSIGN_OR_RETURN(Tool tool, ReadFunction(reader, "parameters"));
    conversation->tools.push_back(std::move(tool));
  } else if (type == "custom") {
    DEEPINFER_ASSIGN_OR_RETURN(Tool tool, ReadCustomTool(reader));
    conversation->tools.push_back(std::move(tool));
  } else if (type == "namespace") {
    return ReadNamespace(reader);
  } else if (type.starts_with("web_search") && options.responses_web_search == WebSearchTools::kReject) {
    return FieldError(reader.PathOf("type"), "server tools are not available, found " + Quoted(type));
  }
  return Status::Ok();  // other types are ignored
}

Status ResponsesTools::ReadNamespace(const ObjectReader& reader) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::string name, reader.String("name"));
  DEEPINFER_RETURN_IF_ERROR(CheckToolName(name, reader.PathOf("name")));
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<std::string> description, reader.OptionalString("description"));
  DEEPINFER_RETURN_IF_ERROR(reader.Require("tools").status());
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue::Array* tools, reader.OptionalArray("tools"));
  std::set<std::string> names;
  for (size_t i = 0; i < tools->size(); ++i) {
    DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader inner,
                               ObjectReader::Of((*tools)[i], ItemPath(reader.PathOf("tools"), i)));
    DEEPINFER_RETURN_IF_ERROR(inner.OneOf("type", {"function"}).status());
    DEEPINFER_ASSIGN_OR_RETURN(Tool tool, ReadFunction(inner, "parameters"));
    if (!names.insert(tool.name).second) {
      return FieldError(inner.PathOf("name"), "two tools are named " + Quoted(tool.name) + "; names must be unique");
    }
    tool.tool_namespace = name;
    tool.name = Qualified(name, tool.local_name);
    if (description.has_value() && !description->empty()) tool.description = *description + "\n" + tool.description;
    namespaced_.push_back(std::move(tool));
  }
  return Status::Ok();
}

// Top-level tools keep their names; a namespaced one whose name is taken gets _1, _2, ...
void ResponsesTools::AppendNamespaced(Conversation* conversation) {
  std::set<std::string> taken;
  std::map<std::string, int> last_suffix;
  for (const Tool& tool : conversation->tools) taken.insert(tool.name);
  for (Tool& tool : namespaced_) {
    const std::string wanted = tool.name;
    while (!taken.insert(tool.name).second) tool.name = wanted + "_" + std::to_string(++last_suffix[wanted]);
    conversation->tools.push_back(std::move(tool));
  }
  namespaced_.clear();
}

Status ResponsesTools::ReadChoice(const ObjectReader& body, Conversation* conversation) const {
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue* choice, ReadChoiceWord(body, conversation));
  if (choice == nullptr) return Status::Ok();
  DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader named, body.Object("tool_choice"));
  DEEPINFER_ASSIGN_OR_RETURN(const std::string type, named.String("type"));
  if (type.starts_with("web_search")) return Status::Ok();
  DEEPINFER_RETURN_IF_ERROR(named.OneOf("type", {"function", "custom"}).status());
  DEEPINFER_ASSIGN_OR_RETURN(const std::string name, named.String("name"));
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<std::string> tool_namespace, named.OptionalString("namespace"));
  return RequireCall(RenderedName(tool_namespace.value_or(""), name), named.PathOf("name"), conversation);
}

}  // namespace deepinfer
