// SchemaScalars: the null, boolean, number and string texts that schemas admit, as regular expressions.
//
// For scalars every keyword is a regular language within a universe of spellings, so allOf, anyOf, oneOf, not and if
// are exact as set operations. Thread-safety: one thread. Ownership: refers to the set and the pool. Errors:
// kUnsupported with the keyword's path.
#ifndef DEEPINFER_GRAMMAR_SCHEMA_SCALARS_H_
#define DEEPINFER_GRAMMAR_SCHEMA_SCALARS_H_

#include <map>
#include <string>
#include <vector>

#include "deepinfer/status.h"
#include "grammar/alphabet.h"
#include "grammar/json_schema_node.h"

namespace deepinfer {

/// A schema, or its negation: node * 2 + negated.
using SchemaLiteral = int;
inline SchemaLiteral Positive(int node) { return node * 2; }
inline SchemaLiteral Negation(int node) { return node * 2 + 1; }
inline SchemaLiteral Opposite(SchemaLiteral literal) { return literal ^ 1; }
inline int NodeOfLiteral(SchemaLiteral literal) { return literal / 2; }
inline bool IsNegated(SchemaLiteral literal) { return (literal & 1) != 0; }

class SchemaScalars {
 public:
  /// How strings are spelt: in JSON, with any escapes where nothing is demanded of them; in JSON as json.dumps does;
  /// or as they are, without quotes.
  enum class Spelling { kJson, kPythonJson, kRaw };

  /// `plain_integers`: JsonSchemaOptions has it.
  SchemaScalars(SchemaSet* schemas, RegexPool* pool, Spelling spelling, bool plain_integers);

  /// All null, boolean, number and string texts that satisfy every one of `literals`.
  Result<RegexId> TextsOf(const std::vector<SchemaLiteral>& literals);
  /// Of these only the strings, or all but the strings.
  Result<RegexId> StringsOf(const std::vector<SchemaLiteral>& literals);
  Result<RegexId> NonStringsOf(const std::vector<SchemaLiteral>& literals);
  /// The strings, quoted, that `node` admits.
  Result<RegexId> StringsOf(int node) { return Of(node, Kind::kString); }
  bool IsEmpty(RegexId texts) { return pool_->IsEmpty(texts); }
  RegexPool& pool() { return *pool_; }
  /// `pattern` anywhere in a string, quoted.
  Result<RegexId> Matching(const std::string& pattern, const std::string& path);
  /// Exactly these strings, quoted.
  RegexId AnyOfStrings(std::vector<std::string> strings);
  std::string Quoted(std::string_view text) const;
  /// Every string in its one spelling, and in all spellings.
  RegexId EveryString() const { return universe_[static_cast<size_t>(Kind::kString)]; }
  RegexId FreeString() const { return free_string_; }

 private:
  enum class Kind { kNull, kTrue, kFalse, kNumber, kString };
  static constexpr size_t kKinds = 5;
  static constexpr Kind kNonStrings[] = {Kind::kNull, Kind::kTrue, Kind::kFalse, Kind::kNumber};

  Result<RegexId> Of(int node, Kind kind);
  Result<RegexId> Compute(const SchemaNode& node, Kind kind);
  Status AddKeywords(const SchemaNode& node, Kind kind, std::vector<RegexId>* parts);
  Result<RegexId> ValuesText(const std::vector<const JsonValue*>& list, Kind kind, const std::string& path);
  /// The texts of exactly one of `ways`.
  Result<RegexId> OneOf(const std::vector<int>& ways, Kind kind);
  Status AddInPlace(const SchemaNode& node, Kind kind, std::vector<RegexId>* parts);
  Status AddNumber(const SchemaNode& node, std::vector<RegexId>* parts);
  Status AddString(const SchemaNode& node, std::vector<RegexId>* parts);
  Result<RegexId> ConstantText(const JsonValue& value, Kind kind, const std::string& path);
  /// How the numbers of a place, given with all plain spellings, are written there.
  RegexId NumberForm(RegexId texts);
  RegexId Within(std::vector<RegexId> parts, Kind kind);
  RegexId Except(RegexId texts, Kind kind);
  Result<RegexId> TextsOf(const std::vector<SchemaLiteral>& literals, Kind kind);
  RegexId InQuotes(RegexId text) {
    return spelling_ == Spelling::kRaw ? text : pool_->Sequence({pool_->Text("\""), text, pool_->Text("\"")});
  }

  SchemaSet* schemas_;
  RegexPool* pool_;
  Spelling spelling_;
  Alphabet alphabet_;
  RegexId universe_[kKinds];
  RegexId free_string_;
  RegexId free_number_;
  RegexId whole_number_;
  RegexId free_whole_number_;
  RegexId integer_;  ///< the one form of whole numbers where all are whole; kNothing: as they are
  std::map<std::pair<int, Kind>, RegexId> known_;
  std::map<std::string, RegexId> patterns_;
  std::map<std::string, RegexId> formats_;
  int depth_ = 0;  // of Of
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_SCHEMA_SCALARS_H_
