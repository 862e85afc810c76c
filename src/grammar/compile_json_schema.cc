#include "grammar/front_end_rules.h"
#include "grammar/json_schema_document.h"
#include "grammar/json_schema_node.h"
#include "grammar/schema_rules.h"

namespace deepinfer {
namespace {

/// What a schema says of the form of the text, under "x-guidance", over the caller's options.
Status ReadGuidance(const JsonValue& root, JsonSchemaOptions* options) {
  const JsonValue* guidance = root.Find("x-guidance");
  if (guidance == nullptr) return Status::Ok();
  const auto* members = guidance->AsObject();
  if (members == nullptr) return Status::InvalidArgument("#/x-guidance: expected an object");
  for (const JsonMember& member : *members) {
    const bool* flag = member.value.AsBool();
    const std::string* text = member.value.AsString();
    if (member.key == "whitespace_flexible" && flag != nullptr) {
      if (!*flag) options->max_whitespace = 0;
    } else if (member.key == "item_separator" && text != nullptr) {
      options->item_separator = *text;
    } else if (member.key == "key_separator" && text != nullptr) {
      options->key_separator = *text;
    } else if (member.key == "key_order" && text != nullptr && (*text == "any" || *text == "declared")) {
      options->key_order = *text == "any" ? JsonSchemaOptions::KeyOrder::kAny : JsonSchemaOptions::KeyOrder::kDeclared;
    } else {
      return Status::Unsupported("#/x-guidance/" + member.key + ": not an option, or not a value of it");
    }
  }
  return Status::Ok();
}

/// Separators are a mark with white space around it, or the text would not be JSON.
bool IsSeparator(std::string_view text, char mark) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == mark &&
         text.find_first_not_of(" \t\r\n", first + 1) == std::string_view::npos;
}

Result<std::unique_ptr<JsonSchemaDocument>> Read(std::string_view schema, const JsonSchemaOptions& options,
                                                 const GrammarBuilder& builder) {
  const size_t most = builder.limits().max_source_bytes;
  if (schema.size() > most) {
    return Status::ResourceExhausted("a schema has at most " + std::to_string(most) + " bytes");
  }
  return JsonSchemaDocument::Parse(schema, options);
}

}  // namespace

Result<int32_t> AddJsonSchema(std::string_view schema, const JsonSchemaOptions& options, GrammarBuilder* builder) {
  DEEPINFER_ASSIGN_OR_RETURN(std::unique_ptr<JsonSchemaDocument> document, Read(schema, options, *builder));
  JsonSchemaOptions form = options;
  DEEPINFER_RETURN_IF_ERROR(ReadGuidance(document->root(), &form));
  if (!IsSeparator(form.item_separator, ',') || !IsSeparator(form.key_separator, ':')) {
    return Status::InvalidArgument("a separator is ',' or ':' with white space around it");
  }
  SchemaSet schemas(std::move(document), form);
  DEEPINFER_ASSIGN_OR_RETURN(const int root, schemas.Root());
  return SchemaRules(builder, &schemas, form).Build(root);
}

Result<int32_t> AddArguments(std::string_view schema, const JsonSchemaOptions& options, const ArgumentForm& form,
                             GrammarBuilder* builder) {
  DEEPINFER_ASSIGN_OR_RETURN(std::unique_ptr<JsonSchemaDocument> document, Read(schema, options, *builder));
  SchemaSet schemas(std::move(document), options);
  DEEPINFER_ASSIGN_OR_RETURN(const int root, schemas.Root());
  return SchemaRules(builder, &schemas, options).BuildArguments(root, form);
}

Result<Grammar> CompileJsonSchema(std::string_view schema, const JsonSchemaOptions& options,
                                  const GrammarLimits& limits) {
  GrammarBuilder builder(limits);
  DEEPINFER_ASSIGN_OR_RETURN(const int32_t rule, AddJsonSchema(schema, options, &builder));
  return builder.Build(rule, "no JSON text satisfies the schema");
}

}  // namespace deepinfer
