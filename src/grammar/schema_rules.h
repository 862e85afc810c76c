// SchemaRules: the rules of a grammar for what schemas admit.
//
// There is one rule for each conjunction of schemas that some place of a text must satisfy; references that lead back
// to a conjunction lead back to its rule, so recursive schemas are recursive rules. Thread-safety: one thread.
// Ownership: refers to the builder, schemas and scalars. Errors: as schema_shapes.h.
#ifndef DEEPINFER_GRAMMAR_SCHEMA_RULES_H_
#define DEEPINFER_GRAMMAR_SCHEMA_RULES_H_

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/schema_scalars.h"
#include "grammar/schema_shapes.h"

namespace deepinfer {

class SchemaRules {
 public:
  SchemaRules(GrammarBuilder* builder, SchemaSet* schemas, const JsonSchemaOptions& options);

  /// The rule of the whole text, with all rules that it needs.
  Result<int32_t> Build(int root);

 private:
  using Conjunction = std::vector<SchemaLiteral>;
  struct Work {
    Conjunction conjunction;
    bool leading_space;
    int32_t rule;
  };
  /// A key, or a set of keys, that a member may have, and what its value must satisfy.
  struct Member {
    RegexId key;  // quoted
    Conjunction value;
    bool required = false;
    std::vector<std::pair<size_t, std::optional<SchemaLiteral>>> meets;  // demands, and what the value then satisfies
  };
  struct Members {
    std::vector<Member> named;
    std::vector<Member> others;
  };

  /// Its rule, made now or known; nullopt when no value satisfies it.
  Result<std::optional<int32_t>> RuleOf(Conjunction conjunction, bool leading_space);
  Status Fill(const Work& work);
  Status EmitObject(const ObjectShape& shape, bool leading_space, int32_t start, int32_t end);
  Status EmitArray(const ArrayShape& shape, bool leading_space, int32_t start, int32_t end);
  Result<Members> MembersOf(const ObjectShape& shape);
  Status AddOtherMembers(const ObjectShape& shape, std::vector<std::string> names, Members* members);
  Result<bool> Selects(const KeySelector& keys, const std::string& name);
  Result<bool> SelectsOthers(const KeySelector& keys, const std::vector<RegexId>& patterns, unsigned inside);
  Result<std::vector<RegexId>> PatternsOf(const KeySelector& keys);
  /// The finitely many values of a conjunction, if that is plain to see.
  Result<std::optional<std::vector<const JsonValue*>>> ValuesOf(const Conjunction& conjunction);
  Result<std::vector<const JsonValue*>> UniqueValuesOf(const ArrayShape& shape, int64_t horizon);
  Conjunction ItemAt(const ArrayShape& shape, int64_t index) const;

  RegexId Space(bool leading) { return leading ? space_ : RegexPool::kEmptyText; }
  Symbol Mark(const std::string& text, bool leading_space);
  Symbol KeyTerminal(RegexId key, bool first);

  GrammarBuilder* builder_;
  SchemaSet* schemas_;
  JsonSchemaOptions options_;
  SchemaScalars scalars_;
  SchemaShapes shapes_;
  RegexId space_;
  std::map<std::pair<Conjunction, bool>, int32_t> rules_;
  std::deque<Work> work_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_SCHEMA_RULES_H_
