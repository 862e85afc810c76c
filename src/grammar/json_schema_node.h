// SchemaNode and SchemaSet: the schemas of a document as plain structures, read when they are first needed.
//
// Keywords that say nothing about validity (title, default, unknown words) are left out; a keyword that cannot be
// enforced is an error, but only in schemas that are reached.
// Thread-safety: one thread. Ownership: a set shares the document and owns its nodes; node numbers stay valid.
// Errors: kInvalidArgument for keywords of the wrong form, kUnsupported; with the JSON pointer of the keyword.
#ifndef DEEPINFER_GRAMMAR_JSON_SCHEMA_NODE_H_
#define DEEPINFER_GRAMMAR_JSON_SCHEMA_NODE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/json_decimal.h"
#include "grammar/json_schema_document.h"

namespace deepinfer {

enum JsonType : uint8_t {
  kJsonNull = 1,
  kJsonBoolean = 2,
  kJsonInteger = 4,
  kJsonNumber = 8,
  kJsonString = 16,
  kJsonArray = 32,
  kJsonObject = 64,
  kJsonAll = 127,
};

struct SchemaNode {
  static constexpr int64_t kNoLimit = INT64_MAX;

  enum class Kind { kTrue, kFalse, kConstant, kKeywords };
  Kind kind = Kind::kKeywords;
  std::string path;
  const JsonValue* constant = nullptr;
  int keyword_count = 0;  ///< keywords that demand something

  uint8_t types = kJsonAll;
  std::optional<std::vector<const JsonValue*>> values;  // enum and const
  std::vector<int> all_of;                              // $ref too
  std::vector<int> any_of;
  std::vector<int> one_of;
  std::optional<int> negated;  // not
  std::optional<int> condition, then_schema, else_schema;

  std::optional<Decimal> minimum, maximum;
  bool minimum_strict = false, maximum_strict = false;
  std::optional<Decimal> minimum_2, maximum_2;  // exclusiveMinimum beside minimum, strict
  std::optional<ScaledInteger> multiple_of;

  int64_t min_length = 0, max_length = kNoLimit;
  std::optional<std::string> pattern;
  std::optional<std::string> format;

  std::vector<int> prefix_items;
  std::optional<int> items;
  int64_t min_items = 0, max_items = kNoLimit;
  std::optional<int> contains;
  int64_t min_contains = 1, max_contains = kNoLimit;
  bool unique_items = false;

  std::vector<std::pair<std::string, int>> properties;
  std::vector<std::pair<std::string, int>> pattern_properties;
  std::optional<int> additional;
  std::optional<int> property_names;
  std::vector<std::string> required;
  int64_t min_properties = 0, max_properties = kNoLimit;
  std::vector<std::pair<std::string, std::vector<std::string>>> dependent_required;
  std::vector<std::pair<std::string, int>> dependent_schemas;
};

class SchemaSet {
 public:
  SchemaSet(std::unique_ptr<JsonSchemaDocument> document, const JsonSchemaOptions& options);

  Result<int> Root() { return NodeOf(document_->root()); }
  const SchemaNode& At(int node) const { return nodes_[static_cast<size_t>(node)]; }
  /// Reads the keywords of `node`, if that has not been done; before At is used on it.
  Status Read(int node);
  /// The schema that only `value` satisfies.
  int Constant(const JsonValue& value);
  /// `node`, or what it stands for when it is nothing but a reference; read.
  Result<int> Target(int node);

 private:
  Result<int> NodeOf(const JsonValue& schema);
  Status ReadKeyword(const JsonValue& schema, const JsonMember& member, SchemaNode* node);
  Status ReadApplicator(const JsonMember& member, SchemaNode* node, bool* known);
  Status ReadNumberKeyword(const JsonMember& member, SchemaNode* node, bool* known);
  Status ReadCount(const JsonMember& member, SchemaNode* node, bool* known);
  Status ReadTypes(const JsonValue& value, SchemaNode* node);
  Status ReadReference(const JsonValue& schema, const JsonMember& member, SchemaNode* node);
  Status ReadItems(const JsonValue& schema, SchemaNode* node);
  Status ReadDependencies(const JsonMember& member, SchemaNode* node);
  Status ReadUnevaluated(const JsonValue& schema, const JsonMember& member, SchemaNode* node);
  Result<std::vector<int>> ReadList(const JsonMember& member, const SchemaNode& node);
  Result<std::vector<std::pair<std::string, int>>> ReadMap(const JsonMember& member, const SchemaNode& node);
  Result<std::vector<std::string>> ReadStrings(const JsonValue& value, const std::string& path);

  std::unique_ptr<JsonSchemaDocument> document_;
  JsonSchemaOptions options_;
  std::deque<SchemaNode> nodes_;
  std::deque<bool> read_;
  std::deque<const JsonValue*> sources_;
  std::unordered_map<const JsonValue*, int> by_value_;
  std::unordered_map<const JsonValue*, int> constants_;
};

/// The type of a value; numbers are kJsonNumber.
JsonType TypeOf(const JsonValue& value);

/// Equal for values that are equal in JSON Schema's sense, different for others.
std::string CanonicalKey(const JsonValue& value);

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_JSON_SCHEMA_NODE_H_
