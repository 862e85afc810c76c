// SchemaShapes: what schemas demand of objects and arrays, as alternatives of plain demands.
//
// A conjunction of schemas and negated schemas is multiplied out into alternatives; in each, allOf, anyOf, oneOf, not,
// if and $ref are gone and what is left are demands on keys, values, items and numbers of them. An instance satisfies
// the conjunction when it satisfies one alternative. Thread-safety: one thread. Ownership: refers to the schemas and
// scalars. Errors: kUnsupported with the path of the keyword, kResourceExhausted when there are too many alternatives.
#ifndef DEEPINFER_GRAMMAR_SCHEMA_SHAPES_H_
#define DEEPINFER_GRAMMAR_SCHEMA_SHAPES_H_

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "grammar/schema_scalars.h"

namespace deepinfer {

/// Names in the order in which they came, each once.
class NameList {
 public:
  void Add(const std::string& name);
  bool Has(const std::string& name) const;
  size_t size() const { return names_.size(); }
  auto begin() const { return names_.begin(); }
  auto end() const { return names_.end(); }

 private:
  static constexpr size_t kFew = 16;
  std::vector<std::string> names_;
  std::unordered_set<std::string> set_;  // when they are more than a few
};

/// A set of keys.
struct KeySelector {
  enum class Kind {
    kName,         ///< the key `name`
    kMatching,     ///< keys whose quoted text is in `texts`
    kNotMatching,  ///< keys whose quoted text is not
    kOthers,       ///< keys that neither a property nor a pattern of the schema `node` names
  };
  Kind kind = Kind::kName;
  std::string name;
  RegexId texts = RegexPool::kNothing;
  int node = 0;
};

/// Values under the selected keys satisfy `value`; `impossible` forbids the keys.
struct KeyRule {
  KeySelector keys;
  SchemaLiteral value = 0;
  bool impossible = false;
};

/// Some selected key has a value that satisfies `value`, or any value.
struct KeyDemand {
  KeySelector keys;
  SchemaLiteral value = 0;
  bool any_value = false;
};

struct ObjectShape {
  std::vector<KeyRule> rules;
  NameList required;
  std::vector<KeyDemand> demands;
  int64_t least = 0;
  int64_t most = SchemaNode::kNoLimit;
};

/// Items with index in [from, to) satisfy `value`.
struct ItemRule {
  int64_t from = 0;
  int64_t to = SchemaNode::kNoLimit;
  SchemaLiteral value = 0;
};

/// The number of items from index `from` on that satisfy `value` lies in [least, most].
struct ItemCount {
  int64_t from = 0;
  SchemaLiteral value = 0;
  int64_t least = 0;
  int64_t most = SchemaNode::kNoLimit;
};

struct ArrayShape {
  std::vector<ItemRule> rules;
  std::vector<ItemCount> counts;
  int64_t least = 0;
  int64_t most = SchemaNode::kNoLimit;
  std::string unique_path;  ///< of the schema with uniqueItems; empty without
};

struct Shape {
  ObjectShape object;
  ArrayShape array;
};

class SchemaShapes {
 public:
  SchemaShapes(SchemaSet* schemas, SchemaScalars* scalars) : schemas_(schemas), scalars_(scalars) {}

  /// The alternatives for arrays (kJsonArray) or objects (kJsonObject).
  Result<std::vector<Shape>> Expand(const std::vector<SchemaLiteral>& literals, JsonType type);

 private:
  struct Branch {
    std::vector<SchemaLiteral> pending;
    std::set<SchemaLiteral> seen;
    Shape shape;
    int depth = 0;
  };

  Status Work(Branch branch, JsonType type, std::vector<Shape>* out);
  /// Counts the work of a copy; kResourceExhausted when it is too much.
  Status AddWork(const Branch& branch, const std::string& path);
  /// Continues with each alternative added to `branch`.
  Status Split(const Branch& branch, const std::vector<Branch>& ways, JsonType type, const std::string& path,
               std::vector<Shape>* out);
  Status AddObject(int node, Branch* branch);
  Status AddArray(int node, Branch* branch);
  Status AddConstant(const JsonValue& value, Branch* branch);
  /// The ways in which an instance of the type can fail to satisfy `node`.
  Status AddFailures(int node, JsonType type, std::vector<Branch>* ways);
  Status AddObjectFailures(int node, std::vector<Branch>* ways);
  Status AddArrayFailures(int node, std::vector<Branch>* ways);
  Status AddConstantFailures(const JsonValue& value, std::vector<Branch>* ways);
  /// Ways for oneOf: each alone, without the negations that hold anyway.
  Status AddOneOf(const SchemaNode& node, JsonType type, std::vector<Branch>* ways);

  /// Whether an instance of the type can satisfy it; true when that is not plain to see.
  Result<bool> CanBe(int node, JsonType type);
  /// Whether no instance of the type can satisfy both; false when that is not plain to see.
  Result<bool> Disjoint(int first, int second, JsonType type);
  Result<bool> FindNoValue(const std::vector<SchemaLiteral>& literals);
  Result<bool> FindDisjoint(int first, int second, JsonType type);
  Status CollectInPlace(int node, std::set<int>* nodes);
  Result<bool> HasNoValue(std::vector<SchemaLiteral> literals);
  /// Whether a key that the shape requires can have no value; false when that is not plain to see.
  Result<bool> IsContradictory(const ObjectShape& shape);

  SchemaSet* schemas_;
  SchemaScalars* scalars_;
  size_t branches_ = 0;
  std::map<std::tuple<int, int, JsonType>, bool> disjoint_;
  std::map<std::vector<SchemaLiteral>, bool> has_no_value_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_SCHEMA_SHAPES_H_
