#include "grammar/json_schema_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "grammar/uri_reference.h"

namespace deepinfer {
namespace {

constexpr std::array<std::string_view, 6> kMaps = {"properties",  "patternProperties", "$defs",
                                                   "definitions", "dependentSchemas",  "dependencies"};
constexpr std::array<std::string_view, 17> kSchemas = {"items",
                                                       "additionalItems",
                                                       "additionalProperties",
                                                       "propertyNames",
                                                       "contains",
                                                       "not",
                                                       "if",
                                                       "then",
                                                       "else",
                                                       "allOf",
                                                       "anyOf",
                                                       "oneOf",
                                                       "prefixItems",
                                                       "unevaluatedItems",
                                                       "unevaluatedProperties",
                                                       "contentSchema",
                                                       "extends"};

std::string EscapePointer(std::string_view key) {
  std::string escaped;
  for (const char c : key) {
    if (c == '~') {
      escaped += "~0";
    } else if (c == '/') {
      escaped += "~1";
    } else {
      escaped.push_back(c);
    }
  }
  return escaped;
}

std::string UnescapePointer(std::string_view key) {
  std::string plain;
  for (size_t i = 0; i < key.size(); ++i) {
    if (key[i] == '~' && i + 1 < key.size() && (key[i + 1] == '0' || key[i + 1] == '1')) {
      plain.push_back(key[++i] == '0' ? '~' : '/');
    } else {
      plain.push_back(key[i]);
    }
  }
  return plain;
}

const std::string* StringIn(const JsonValue& schema, std::string_view key) {
  const JsonValue* value = schema.Find(key);
  return value == nullptr ? nullptr : value->AsString();
}

}  // namespace

Result<std::unique_ptr<JsonSchemaDocument>> JsonSchemaDocument::Parse(std::string_view text,
                                                                      const JsonSchemaOptions& options) {
  std::unique_ptr<JsonSchemaDocument> document(new JsonSchemaDocument());
  DEEPINFER_ASSIGN_OR_RETURN(document->root_, ParseJson(text));
  DEEPINFER_RETURN_IF_ERROR(document->ReadDraft(options));
  document->by_uri_.emplace("", &document->root_);
  document->Register(document->root_, "#", "");
  return document;
}

Status JsonSchemaDocument::ReadDraft(const JsonSchemaOptions& options) {
  draft7_ = options.draft == JsonSchemaOptions::Draft::kDraft7;
  reference_hides_others_ = draft7_;
  const std::string* name = StringIn(root_, "$schema");
  if (name == nullptr) return Status::Ok();
  if (name->find("json-schema.org/") == std::string::npos) {
    return Status::Unsupported(fmt::format("#/$schema: the rules of {} are not known", *name));
  }
  draft4_ = name->find("draft-04") != std::string::npos || name->find("draft-03") != std::string::npos;
  draft7_ = draft4_ || name->find("draft-05") != std::string::npos || name->find("draft-06") != std::string::npos ||
            name->find("draft-07") != std::string::npos;
  return Status::Ok();
}

void JsonSchemaDocument::Register(const JsonValue& schema, const std::string& path, const std::string& outer_base) {
  std::string base = outer_base;
  const bool only_reference = reference_hides_others_ && schema.Find("$ref") != nullptr;
  if (const std::string* id = StringIn(schema, draft4_ ? "id" : "$id"); id != nullptr && !only_reference) {
    const std::string uri = ResolveUri(base, *id);
    const size_t mark = std::min(uri.find('#'), uri.size());
    if (mark + 1 < uri.size()) {
      by_uri_.emplace(uri, &schema);  // "$id": "#name", an anchor of draft 7
    } else {
      base = uri.substr(0, mark);
      by_uri_.emplace(base, &schema);
    }
  }
  if (!places_.emplace(&schema, Place{path, base}).second) return;
  if (const std::string* anchor = StringIn(schema, "$anchor"))
    by_uri_.emplace(fmt::format("{}#{}", base, *anchor), &schema);
  if (const std::string* anchor = StringIn(schema, "$dynamicAnchor")) {
    by_uri_.emplace(fmt::format("{}#{}", base, *anchor), &schema);
    is_dynamic_[fmt::format("{}#{}", base, *anchor)] = true;
    ++dynamic_anchors_[*anchor];
  }
  RegisterBelow(schema, path, base);
}

void JsonSchemaDocument::RegisterBelow(const JsonValue& schema, const std::string& path, const std::string& base) {
  const auto* members = schema.AsObject();
  if (members == nullptr) return;
  for (const JsonMember& member : *members) {
    const std::string below = fmt::format("{}/{}", path, EscapePointer(member.key));
    if (std::ranges::find(kMaps, member.key) != kMaps.end()) {
      const auto* entries = member.value.AsObject();
      if (entries == nullptr) continue;
      for (const JsonMember& entry : *entries)
        Register(entry.value, fmt::format("{}/{}", below, EscapePointer(entry.key)), base);
    } else if (std::ranges::find(kSchemas, member.key) != kSchemas.end()) {
      if (const auto* list = member.value.AsArray()) {
        for (size_t i = 0; i < list->size(); ++i) Register((*list)[i], fmt::format("{}/{}", below, i), base);
      } else {
        Register(member.value, below, base);
      }
    }
  }
}

const JsonValue* JsonSchemaDocument::MemberOf(const JsonValue& object, const std::string& key) {
  constexpr size_t kFew = 16;
  const auto* members = object.AsObject();
  if (members == nullptr || members->size() <= kFew) return object.Find(key);
  const auto [known, added] = wide_.emplace(&object, std::unordered_map<std::string_view, const JsonValue*>());
  if (added) {
    for (const JsonMember& member : *members) known->second.emplace(member.key, &member.value);
  }
  const auto found = known->second.find(key);
  return found == known->second.end() ? nullptr : found->second;
}

const JsonValue* JsonSchemaDocument::FollowPointer(const JsonValue& from, std::string_view pointer) {
  const JsonValue* at = &from;
  std::string path = PlaceOf(from).path;
  std::string base = PlaceOf(from).base;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const size_t end = std::min(pointer.find('/'), pointer.size());
    const std::string key = UnescapePointer(DecodePercent(pointer.substr(0, end)));
    pointer.remove_prefix(end);
    if (const auto* list = at->AsArray()) {
      size_t index = 0;
      const auto [stop, error] = std::from_chars(key.data(), key.data() + key.size(), index);
      if (error != std::errc() || stop != key.data() + key.size() || index >= list->size()) return nullptr;
      at = &(*list)[index];
    } else {
      at = MemberOf(*at, key);
      if (at == nullptr) return nullptr;
    }
    path.append(1, '/').append(EscapePointer(key));
    if (const auto place = places_.find(at); place != places_.end()) base = place->second.base;
  }
  if (places_.find(at) == places_.end()) Register(*at, path, base);
  return at;
}

Result<const JsonValue*> JsonSchemaDocument::Resolve(const JsonValue& from, std::string_view reference, bool dynamic) {
  const Place& place = PlaceOf(from);
  const std::string_view keyword = dynamic ? "$dynamicRef" : "$ref";
  const std::string uri = ResolveUri(place.base, reference);
  const size_t mark = std::min(uri.find('#'), uri.size());
  const std::string fragment = mark < uri.size() ? uri.substr(mark + 1) : std::string();
  const JsonValue* target = nullptr;
  if (fragment.empty() || fragment[0] == '/') {
    const auto document = by_uri_.find(uri.substr(0, mark));
    if (document == by_uri_.end()) {
      return Status::Unsupported(
          fmt::format("{}/{}: refers to {}, which is not in the schema", place.path, keyword, uri));
    }
    target = FollowPointer(*document->second, fragment);
  } else if (const auto anchor = by_uri_.find(uri); anchor != by_uri_.end()) {
    target = anchor->second;
    if (dynamic && is_dynamic_.contains(uri) && dynamic_anchors_[fragment] > 1) {
      return Status::Unsupported(
          fmt::format("{}/$dynamicRef: several schemas have the $dynamicAnchor {}", place.path, fragment));
    }
  }
  if (target == nullptr) {
    const std::string message =
        fmt::format("{}/{}: refers to {}, which is not in the schema", place.path, keyword, uri);
    return by_uri_.contains(uri.substr(0, mark)) ? Status::InvalidArgument(message) : Status::Unsupported(message);
  }
  return target;
}

}  // namespace deepinfer
