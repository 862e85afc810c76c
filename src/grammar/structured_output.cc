#include "deepinfer/structured_output.h"

namespace deepinfer {

Result<StructuredOutput> StructuredOutput::Of(std::string_view schema_type, std::string schema) {
  if (schema_type == "regex") return StructuredOutput{Kind::kRegex, std::move(schema)};
  if (schema_type == "json") return StructuredOutput{Kind::kJsonSchema, std::move(schema)};
  if (schema_type == "ebnf") return StructuredOutput{Kind::kEbnf, std::move(schema)};
  return Status::InvalidArgument("schema_type: expected regex, json or ebnf, found \"" + std::string(schema_type) +
                                 "\"");
}

}  // namespace deepinfer
