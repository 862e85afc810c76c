// SchemaRules: the rules of a grammar for what schemas admit.
//
// There is one rule for each conjunction of schemas that some place of a text must satisfy; references that lead back
// to a conjunction lead back to its rule, so recursive schemas are recursive rules. Thread-safety: one thread.
// Ownership: refers to the builder, schemas and scalars. Errors: as schema_shapes.h.
#ifndef DEEPINFER_GRAMMAR_SCHEMA_RULES_H_
#define DEEPINFER_GRAMMAR_SCHEMA_RULES_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "grammar/front_end_rules.h"
#include "grammar/grammar.h"
#include "grammar/schema_scalars.h"
#include "grammar/schema_shapes.h"

namespace deepinfer {

class SchemaRules {
 public:
  SchemaRules(GrammarBuilder* builder, SchemaSet* schemas, const JsonSchemaOptions& options);

  /// The rule of the whole text, with all rules that it needs.
  Result<int32_t> Build(int root);
  /// The rule of the arguments of a call, with all rules that it needs. `root` describes the object of the arguments.
  Result<int32_t> BuildArguments(int root, const ArgumentForm& form);

 private:
  using Conjunction = std::vector<SchemaLiteral>;
  /// Which texts of the values of a conjunction.
  enum class Place {
    kWhole,       ///< as they are
    kInside,      ///< behind white space
    kNotStrings,  ///< as they are, without strings
  };
  struct Work {
    Conjunction conjunction;
    Place place;
    int32_t rule;
  };
  /// A key, or a set of keys, that a member may have, and what its value must satisfy.
  struct Member {
    RegexId key;                      // quoted
    std::optional<std::string> name;  // none for a set of keys
    Conjunction value;
    bool required = false;
    std::vector<std::pair<size_t, std::optional<SchemaLiteral>>> meets;  // demands, and what the value then satisfies
  };
  struct Members {
    std::vector<Member> named;
    std::vector<Member> others;
  };
  /// One way to write a member: a terminal, perhaps a rule and another terminal behind it.
  struct MemberWay {
    Symbol open;
    std::optional<int32_t> value;
    Symbol close;
  };

  /// Its rule, made now or known; nullopt when no value satisfies it.
  Result<std::optional<int32_t>> RuleOf(Conjunction conjunction, Place place);
  Status FillAll();
  Status Fill(const Work& work);
  /// Edges for the members between `start` and `end`, with `empty` and `some` before the end of an object without and
  /// with members. With a form, as arguments.
  Status EmitMembers(const ObjectShape& shape, const ArgumentForm* form, Symbol empty, Symbol some, int32_t start,
                     int32_t end);
  Status EmitObject(const ObjectShape& shape, bool leading_space, int32_t start, int32_t end);
  Result<std::vector<MemberWay>> WaysOf(const Member& member, Conjunction value, bool first);
  Result<std::vector<MemberWay>> ArgumentWaysOf(const Member& member, const Conjunction& value,
                                                const ArgumentForm& form);
  Status EmitArray(const ArrayShape& shape, bool leading_space, int32_t start, int32_t end);
  Result<Members> MembersOf(const ObjectShape& shape);
  Status AddOtherMembers(const ObjectShape& shape, std::vector<std::string> names, Members* members);
  bool IsNamed(int node, const std::string& name);
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
  std::unique_ptr<SchemaScalars> raw_;  // for arguments that are strings
  RegexId raw_strings_ = RegexPool::kNothing;
  std::map<std::pair<Conjunction, Place>, int32_t> rules_;
  std::deque<Work> work_;
  std::unordered_map<int, std::unordered_set<std::string>> named_by_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_SCHEMA_RULES_H_
