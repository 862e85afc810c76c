// JsonSchemaDocument: the JSON text of a schema, the base URIs of its parts and what its references mean.
//
// Thread-safety: one thread. Ownership: owns the parsed text; pointers into it stay valid. Errors: kInvalidArgument for
// malformed JSON, kUnsupported for references out of the document, both with the JSON pointer of the place.
#ifndef DEEPINFER_GRAMMAR_JSON_SCHEMA_DOCUMENT_H_
#define DEEPINFER_GRAMMAR_JSON_SCHEMA_DOCUMENT_H_

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "deepinfer/status.h"
#include "grammar/front_ends.h"
#include "text/json_text.h"

namespace deepinfer {

class JsonSchemaDocument {
 public:
  struct Place {
    std::string path;  ///< JSON pointer from the root, "#/properties/a"
    std::string base;  ///< URI against which references in it are resolved
  };

  static Result<std::unique_ptr<JsonSchemaDocument>> Parse(std::string_view text, const JsonSchemaOptions& options);

  const JsonValue& root() const { return root_; }
  /// Whether the keywords of draft 7 and before hold.
  bool IsDraft7() const { return draft7_; }
  /// Whether what stands beside $ref does not count. By the letter that is so before draft 2019-09, but many
  /// validators and authors think otherwise; so only when the caller asks for draft 7. A text that satisfies both the
  /// reference and its neighbours is right for everyone.
  bool ReferenceHidesOthers() const { return reference_hides_others_; }
  const Place& PlaceOf(const JsonValue& schema) const { return places_.at(&schema); }
  /// The schema that the $ref or $dynamicRef `reference` in `from` stands for.
  Result<const JsonValue*> Resolve(const JsonValue& from, std::string_view reference, bool dynamic);

 private:
  JsonSchemaDocument() = default;
  Status ReadDraft(const JsonSchemaOptions& options);
  /// Notes the places, identifiers and anchors of a schema and all below it.
  void Register(const JsonValue& schema, const std::string& path, const std::string& base);
  void RegisterBelow(const JsonValue& schema, const std::string& path, const std::string& base);
  /// A member of an object, soon also when there are many.
  const JsonValue* MemberOf(const JsonValue& object, const std::string& key);
  const JsonValue* FollowPointer(const JsonValue& from, std::string_view pointer);

  JsonValue root_;
  bool draft7_ = false;
  bool draft4_ = false;
  bool reference_hides_others_ = false;
  std::unordered_map<const JsonValue*, Place> places_;
  std::unordered_map<const JsonValue*, std::unordered_map<std::string_view, const JsonValue*>> wide_;
  std::unordered_map<std::string, const JsonValue*> by_uri_;
  std::unordered_map<std::string, int> dynamic_anchors_;
  std::unordered_map<std::string, bool> is_dynamic_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_JSON_SCHEMA_DOCUMENT_H_
