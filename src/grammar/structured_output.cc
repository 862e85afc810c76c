#include "deepinfer/structured_output.h"

#include "grammar/front_end_rules.h"
#include "grammar/front_ends.h"

namespace deepinfer {

Result<StructuredOutput> StructuredOutput::Of(std::string_view schema_type, std::string schema) {
  if (schema_type == "regex") return StructuredOutput{Kind::kRegex, std::move(schema)};
  if (schema_type == "json") return StructuredOutput{Kind::kJsonSchema, std::move(schema)};
  if (schema_type == "ebnf") return StructuredOutput{Kind::kEbnf, std::move(schema)};
  return Status::InvalidArgument("schema_type: expected regex, json or ebnf, found \"" + std::string(schema_type) +
                                 "\"");
}

Result<int32_t> AddStructuredOutput(const StructuredOutput& wanted, const JsonSchemaOptions& options,
                                    GrammarBuilder* builder) {
  switch (wanted.kind) {
    case StructuredOutput::Kind::kRegex:
      return AddRegex(wanted.source, builder);
    case StructuredOutput::Kind::kJsonSchema:
      return AddJsonSchema(wanted.source, options, builder);
    case StructuredOutput::Kind::kEbnf:
      return AddEbnf(wanted.source, builder);
    case StructuredOutput::Kind::kNone:
      break;
  }
  return Status::InvalidArgument("no kind of grammar is given");
}

Result<Grammar> CompileStructuredOutput(const StructuredOutput& wanted, const JsonSchemaOptions& options,
                                        const GrammarLimits& limits) {
  switch (wanted.kind) {
    case StructuredOutput::Kind::kRegex:
      return CompileRegex(wanted.source, limits);
    case StructuredOutput::Kind::kJsonSchema:
      return CompileJsonSchema(wanted.source, options, limits);
    case StructuredOutput::Kind::kEbnf:
      return CompileEbnf(wanted.source, limits);
    case StructuredOutput::Kind::kNone:
      break;
  }
  return Status::InvalidArgument("no kind of grammar is given");
}

}  // namespace deepinfer
