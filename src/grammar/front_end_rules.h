// The front ends into a builder that others add to as well: the rule of a whole text, for grammars made of several.
//
// Thread-safety: one thread, that of the builder. Ownership: none. Errors: as front_ends.h, but a rule may turn out to
// have no text (GrammarBuilder::RulesWithText).
#ifndef DEEPINFER_GRAMMAR_FRONT_END_RULES_H_
#define DEEPINFER_GRAMMAR_FRONT_END_RULES_H_

#include <string_view>

#include "grammar/front_ends.h"
#include "grammar/grammar.h"

namespace deepinfer {

Result<int32_t> AddRegex(std::string_view pattern, GrammarBuilder* builder);
Result<int32_t> AddEbnf(std::string_view text, GrammarBuilder* builder);
Result<int32_t> AddJsonSchema(std::string_view schema, const JsonSchemaOptions& options, GrammarBuilder* builder);

/// By the kind of `wanted`, which is not kNone.
Result<int32_t> AddStructuredOutput(const StructuredOutput& wanted, const JsonSchemaOptions& options,
                                    GrammarBuilder* builder);

/// What the arguments of a call look like: for each one `open`, its name in quotes, and `string_open` with the text of
/// a string or `value_open` with JSON, then `close`; `empty` where there is none.
struct ArgumentForm {
  std::string open;
  std::string string_open;
  std::string value_open;
  std::string close;
  std::string empty;
  std::string not_in_strings;    ///< no string holds this text
  bool undeclared_names = true;  ///< names that the schema does not declare are there, where it admits them
};

/// The arguments that satisfy `schema`, in the order in which it declares them.
Result<int32_t> AddArguments(std::string_view schema, const JsonSchemaOptions& options, const ArgumentForm& form,
                             GrammarBuilder* builder);

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_FRONT_END_RULES_H_
