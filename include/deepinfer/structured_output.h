// StructuredOutput: the language that the text of an answer must belong to (docs/grammar.md).
//
// Thread-safety: a value. What a front end cannot enforce exactly it refuses when the request is submitted, with the
// place in `source`; nothing is ever let through unconstrained.
#ifndef DEEPINFER_STRUCTURED_OUTPUT_H_
#define DEEPINFER_STRUCTURED_OUTPUT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "deepinfer/status.h"

namespace deepinfer {

struct StructuredOutput {
  enum class Kind : uint8_t { kNone, kRegex, kJsonSchema, kEbnf };

  Kind kind = Kind::kNone;
  std::string source;  ///< the pattern, the JSON Schema or the grammar (rule `root`), UTF-8

  bool wanted() const { return kind != Kind::kNone; }

  /// Names as in DeepSeek's `so_args`: regex, json, ebnf. kInvalidArgument naming schema_type.
  static Result<StructuredOutput> Of(std::string_view schema_type, std::string schema);
  /// Any JSON object, as response_format json_object asks for.
  static StructuredOutput AnyObject() { return {Kind::kJsonSchema, R"({"type": "object"})"}; }
};

}  // namespace deepinfer

#endif  // DEEPINFER_STRUCTURED_OUTPUT_H_
