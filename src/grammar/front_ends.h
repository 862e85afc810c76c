// CompileRegex, CompileEbnf, CompileJsonSchema: texts of grammars into grammars.
//
// docs/grammar.md says what each accepts. What cannot be enforced exactly is refused, never left out.
// Thread-safety: pure functions. Ownership: values. Errors: kInvalidArgument (malformed, or no text at all satisfies
// it), kUnsupported (cannot be enforced), kResourceExhausted (past the limits). Messages are one line and say where:
// the character of a regular expression, line and column of EBNF, the JSON pointer of a schema's keyword.
#ifndef DEEPINFER_GRAMMAR_FRONT_ENDS_H_
#define DEEPINFER_GRAMMAR_FRONT_ENDS_H_

#include <string>
#include <string_view>

#include "deepinfer/status.h"
#include "deepinfer/structured_output.h"
#include "grammar/grammar.h"

namespace deepinfer {

/// The texts that `pattern` matches as a whole.
Result<Grammar> CompileRegex(std::string_view pattern, const GrammarLimits& limits = {});

/// The texts of the rule `root` of a grammar in the EBNF of llama.cpp (GBNF) and XGrammar.
Result<Grammar> CompileEbnf(std::string_view text, const GrammarLimits& limits = {});

struct JsonSchemaOptions {
  enum class KeyOrder {
    kDeclared,  ///< properties in the order of the schema, then the others
    kAny,       ///< any order where an object has at most max_any_order properties, else as declared
  };
  /// Which edition's rules hold where a schema's $schema does not say: they differ in what stands beside $ref.
  enum class Draft { kDraft7, k2020 };
  enum class Format {
    kEnforce,    ///< `format` is enforced; an unknown one is refused
    kAnnotation  ///< `format` says nothing about texts
  };

  KeyOrder key_order = KeyOrder::kDeclared;
  int max_any_order = 6;
  Draft draft = Draft::k2020;
  Format format = Format::kEnforce;
  enum class Strings {
    kAnySpelling,  ///< strings without demands may use any escapes
    kPython        ///< every string is spelt as json.dumps(ensure_ascii=False) spells it
  };
  Strings strings = Strings::kAnySpelling;
  /// Where all numbers of a place are whole, they are written -?(0|[1-9][0-9]*): for generation. Otherwise their other
  /// spellings (4.0, and 4e0 where nothing else is demanded) are JSON texts of the schema too.
  bool plain_integers = false;
  /// Space characters allowed between two parts of the text; 0 for compact text.
  int max_whitespace = 20;
  /// What stands between members and items, and between a key and its value, besides white space.
  std::string item_separator = ",";
  std::string key_separator = ":";
};

/// By the kind of `wanted`, which is not kNone.
Result<Grammar> CompileStructuredOutput(const StructuredOutput& wanted, const JsonSchemaOptions& options = {},
                                        const GrammarLimits& limits = {});

/// The JSON texts that `schema` (draft 2020-12 or 7, and what of draft 4 differs only in spelling) admits.
Result<Grammar> CompileJsonSchema(std::string_view schema, const JsonSchemaOptions& options = {},
                                  const GrammarLimits& limits = {});

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_FRONT_ENDS_H_
