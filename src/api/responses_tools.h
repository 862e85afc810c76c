// The tools of a Responses request: functions, namespaces of functions, and the one custom tool that is supported.
//
// Thread-safety: pure functions and values. Ownership: results own their texts; the JSON they read must outlive the
// call.
#ifndef DEEPINFER_API_RESPONSES_TOOLS_H_
#define DEEPINFER_API_RESPONSES_TOOLS_H_

#include <map>
#include <string>
#include <utility>

#include "api/json_reader.h"
#include "api/request.h"

namespace deepinfer {

/// Reads `tools` and `tool_choice` into a conversation and knows under which name each tool is shown to the model.
class ResponsesTools {
 public:
  Status Read(const ObjectReader& body, const RequestOptions& options, Conversation* conversation);

  /// The name that the prompt uses for a call of `name` in `tool_namespace` (empty: none), also of tools that are not
  /// there.
  std::string RenderedName(const std::string& tool_namespace, const std::string& name) const;

 private:
  Status ReadTool(const ObjectReader& reader, const RequestOptions& options, Conversation* conversation);
  Status ReadNamespace(const ObjectReader& reader);
  Status ReadChoice(const ObjectReader& body, Conversation* conversation) const;
  void AppendNamespaced(Conversation* conversation);

  std::vector<Tool> namespaced_;
  std::map<std::pair<std::string, std::string>, std::string>
      rendered_names_;  // (namespace, name) -> name in the prompt
};

}  // namespace deepinfer

#endif  // DEEPINFER_API_RESPONSES_TOOLS_H_
