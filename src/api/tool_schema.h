// The check of a tool's parameters: is this a JSON Schema for an object?
//
// Structural: keywords have the types that the standard gives them (draft 4 to 2020-12) and local references lead
// somewhere. Whether the schema can be enforced is the business of whoever compiles it. Linear in the schema, whatever
// it holds. Thread-safety: pure function.
#ifndef DEEPINFER_API_TOOL_SCHEMA_H_
#define DEEPINFER_API_TOOL_SCHEMA_H_

#include <string_view>

#include "deepinfer/status.h"
#include "text/json_text.h"

namespace deepinfer {

/// kInvalidArgument, naming the place below `path`, unless `parameters` is a JSON Schema whose type is "object".
Status CheckToolParameters(const JsonValue& parameters, std::string_view path);

}  // namespace deepinfer

#endif  // DEEPINFER_API_TOOL_SCHEMA_H_
