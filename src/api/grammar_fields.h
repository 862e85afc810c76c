// Readers of the fields that ask for output of a given grammar: response_format, text.format, vLLM's aliases.
//
// Thread-safety: pure functions. Ownership: results own their texts. Errors name the field (json_reader.h). Whether a
// grammar can be enforced is known when it is compiled; RequestSettings::grammar_field then says which field to name.
// Source: OpenAI (json_schema, Responses text.format), Anthropic (output_config.format), vLLM (guided_*,
// structured_outputs), docs/http-api.md.
#ifndef DEEPINFER_API_GRAMMAR_FIELDS_H_
#define DEEPINFER_API_GRAMMAR_FIELDS_H_

#include <string_view>

#include "api/json_reader.h"
#include "api/request.h"

namespace deepinfer {

/// A `{"type": ...}` object: text, json_object, json_schema, regex, ebnf or grammar. With ignore_schemas the forms
/// behind json_object ask for nothing. `prompt_format` becomes kJsonObject where the prompt says so too.
Status ReadResponseFormat(const ObjectReader& format, const RequestOptions& options, RequestSettings* settings,
                          ResponseFormat* prompt_format);

/// structured_outputs, guided_json, guided_regex, guided_choice, guided_grammar. kInvalidArgument when more than one
/// form is asked for, response_format included.
Status ReadGuidedFields(const ObjectReader& body, const RequestOptions& options, RequestSettings* settings);

}  // namespace deepinfer

#endif  // DEEPINFER_API_GRAMMAR_FIELDS_H_
