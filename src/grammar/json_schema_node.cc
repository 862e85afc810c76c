#include "grammar/json_schema_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "grammar/json_format.h"

namespace deepinfer {
namespace {

constexpr size_t kMaxNodes = 200'000;

Status WrongForm(const SchemaNode& node, std::string_view keyword, std::string_view expected, const JsonValue& found) {
  return Status::InvalidArgument(
      fmt::format("{}/{}: expected {}, found {}", node.path, keyword, expected, found.KindName()));
}

}  // namespace

JsonType TypeOf(const JsonValue& value) {
  if (value.IsNull()) return kJsonNull;
  if (value.AsBool() != nullptr) return kJsonBoolean;
  if (value.AsNumber() != nullptr) return kJsonNumber;
  if (value.AsString() != nullptr) return kJsonString;
  return value.AsArray() != nullptr ? kJsonArray : kJsonObject;
}

std::string CanonicalKey(const JsonValue& value) {
  if (const auto* number = value.AsNumber()) {
    const auto decimal = ParseDecimal(number->spelling);
    return decimal ? decimal->Spelling() : number->spelling;
  }
  std::string key;
  if (const auto* list = value.AsArray()) {
    key = "[";
    for (const JsonValue& item : *list) key += CanonicalKey(item) + ",";
    return key + "]";
  }
  if (const auto* members = value.AsObject()) {
    std::vector<std::string> parts;
    for (const JsonMember& member : *members) {
      std::string part;
      AppendPythonString(member.key, &part);
      parts.push_back(part + ":" + CanonicalKey(member.value));
    }
    std::ranges::sort(parts);
    return fmt::format("{{{}}}", fmt::join(parts, ","));
  }
  AppendPythonJson(value, &key);
  return key;
}

SchemaSet::SchemaSet(std::unique_ptr<JsonSchemaDocument> document, const JsonSchemaOptions& options)
    : document_(std::move(document)), options_(options) {}

Result<int> SchemaSet::NodeOf(const JsonValue& schema) {
  const auto [known, added] = by_value_.emplace(&schema, static_cast<int>(nodes_.size()));
  if (!added) return known->second;
  if (nodes_.size() >= kMaxNodes) {
    return Status::ResourceExhausted(fmt::format("a schema has at most {} subschemas", kMaxNodes));
  }
  SchemaNode node;
  node.path = document_->PlaceOf(schema).path;
  if (const bool* value = schema.AsBool()) {
    node.kind = *value ? SchemaNode::Kind::kTrue : SchemaNode::Kind::kFalse;
  } else if (schema.AsObject() == nullptr) {
    return Status::InvalidArgument(
        fmt::format("{}: expected a schema (an object or a boolean), found {}", node.path, schema.KindName()));
  }
  nodes_.push_back(std::move(node));
  read_.push_back(schema.AsBool() != nullptr);
  sources_.push_back(&schema);
  return known->second;
}

int SchemaSet::Constant(const JsonValue& value) {
  const auto [known, added] = constants_.emplace(&value, static_cast<int>(nodes_.size()));
  if (!added) return known->second;
  SchemaNode node;
  node.kind = SchemaNode::Kind::kConstant;
  node.constant = &value;
  node.path = "a constant";
  node.types = TypeOf(value);
  nodes_.push_back(std::move(node));
  read_.push_back(true);
  sources_.push_back(nullptr);
  return known->second;
}

Status SchemaSet::Read(int index) {
  if (read_[static_cast<size_t>(index)]) return Status::Ok();
  read_[static_cast<size_t>(index)] = true;
  const JsonValue& schema = *sources_[static_cast<size_t>(index)];
  SchemaNode node = nodes_[static_cast<size_t>(index)];
  const auto* members = schema.AsObject();
  const bool only_reference = document_->ReferenceHidesOthers() && schema.Find("$ref") != nullptr;
  for (const JsonMember& member : *members) {
    if (only_reference && member.key != "$ref") continue;
    DEEPINFER_RETURN_IF_ERROR(ReadKeyword(schema, member, &node));
  }
  if (!only_reference) DEEPINFER_RETURN_IF_ERROR(ReadItems(schema, &node));
  nodes_[static_cast<size_t>(index)] = std::move(node);
  return Status::Ok();
}

Result<int> SchemaSet::Target(int index) {
  for (int hops = 0; hops < 100; ++hops) {
    DEEPINFER_RETURN_IF_ERROR(Read(index));
    const SchemaNode& node = At(index);
    if (node.kind != SchemaNode::Kind::kKeywords || node.keyword_count != 1 || node.all_of.size() != 1) break;
    index = node.all_of[0];
  }
  return index;
}

Status SchemaSet::ReadKeyword(const JsonValue& schema, const JsonMember& member, SchemaNode* node) {
  const std::string& key = member.key;
  const JsonValue& value = member.value;
  ++node->keyword_count;
  if (key == "$ref" || key == "$dynamicRef") return ReadReference(schema, member, node);
  if (key == "$recursiveRef") {
    return Status::Unsupported(fmt::format("{}/{}: is not supported", node->path, key));
  }
  if (key == "type") return ReadTypes(value, node);
  if (key == "enum" || key == "const") {
    std::vector<const JsonValue*> values;
    if (key == "const") {
      values.push_back(&value);
    } else {
      const auto* list = value.AsArray();
      if (list == nullptr) return WrongForm(*node, key, "an array", value);
      for (const JsonValue& item : *list) values.push_back(&item);
    }
    if (node->values) {  // both are there: what is in both
      std::erase_if(values, [&](const JsonValue* one) {
        return std::ranges::none_of(*node->values,
                                    [&](const JsonValue* other) { return CanonicalKey(*one) == CanonicalKey(*other); });
      });
    }
    node->values = std::move(values);
    return Status::Ok();
  }
  if (key == "pattern" || key == "format") {
    const std::string* text = value.AsString();
    if (text == nullptr) return WrongForm(*node, key, "a string", value);
    if (key == "pattern") {
      node->pattern = *text;
    } else if (options_.format == JsonSchemaOptions::Format::kEnforce) {
      if (!IsKnownFormat(*text)) {
        return Status::Unsupported(fmt::format("{}/format: the format {} is not known", node->path, *text));
      }
      node->format = *text;
    }
    return Status::Ok();
  }
  if (key == "uniqueItems") {
    if (value.AsBool() == nullptr) return WrongForm(*node, key, "a boolean", value);
    node->unique_items = *value.AsBool();
    return Status::Ok();
  }
  if (key == "required") {
    if (value.AsBool() != nullptr) return Status::Ok();  // draft 3, where it is said of the property itself
    DEEPINFER_ASSIGN_OR_RETURN(node->required, ReadStrings(value, node->path + "/required"));
    return Status::Ok();
  }
  if (key == "dependentRequired" || key == "dependencies") return ReadDependencies(member, node);
  if (key.starts_with("unevaluated")) return ReadUnevaluated(schema, member, node);
  bool known = false;
  DEEPINFER_RETURN_IF_ERROR(ReadApplicator(member, node, &known));
  if (!known) DEEPINFER_RETURN_IF_ERROR(ReadNumberKeyword(member, node, &known));
  if (!known) DEEPINFER_RETURN_IF_ERROR(ReadCount(member, node, &known));
  if (!known) --node->keyword_count;
  return Status::Ok();
}

Status SchemaSet::ReadTypes(const JsonValue& value, SchemaNode* node) {
  static const std::unordered_map<std::string, uint8_t> kTypes = {
      {"null", kJsonNull},       {"boolean", kJsonBoolean},
      {"integer", kJsonInteger}, {"number", kJsonNumber | kJsonInteger},
      {"string", kJsonString},   {"array", kJsonArray},
      {"object", kJsonObject},   {"any", kJsonAll}};
  std::vector<std::string> names;
  if (value.AsString() != nullptr) {
    names.push_back(*value.AsString());
  } else {
    DEEPINFER_ASSIGN_OR_RETURN(names, ReadStrings(value, node->path + "/type"));
  }
  node->types = 0;
  for (const std::string& name : names) {
    const auto type = kTypes.find(name);
    if (type == kTypes.end()) {
      return Status::InvalidArgument(fmt::format("{}/type: unknown type {}", node->path, name));
    }
    node->types |= type->second;
  }
  return Status::Ok();
}

Status SchemaSet::ReadReference(const JsonValue& schema, const JsonMember& member, SchemaNode* node) {
  const std::string* reference = member.value.AsString();
  if (reference == nullptr) return WrongForm(*node, member.key, "a string", member.value);
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue* target,
                             document_->Resolve(schema, *reference, member.key == "$dynamicRef"));
  DEEPINFER_ASSIGN_OR_RETURN(const int index, NodeOf(*target));
  node->all_of.push_back(index);
  return Status::Ok();
}

Result<std::vector<int>> SchemaSet::ReadList(const JsonMember& member, const SchemaNode& node) {
  const auto* list = member.value.AsArray();
  if (list == nullptr) return WrongForm(node, member.key, "an array of schemas", member.value);
  std::vector<int> indices;
  for (const JsonValue& item : *list) {
    DEEPINFER_ASSIGN_OR_RETURN(const int index, NodeOf(item));
    indices.push_back(index);
  }
  return indices;
}

Result<std::vector<std::pair<std::string, int>>> SchemaSet::ReadMap(const JsonMember& member, const SchemaNode& node) {
  const auto* entries = member.value.AsObject();
  if (entries == nullptr) return WrongForm(node, member.key, "an object of schemas", member.value);
  std::vector<std::pair<std::string, int>> map;
  for (const JsonMember& entry : *entries) {
    DEEPINFER_ASSIGN_OR_RETURN(const int index, NodeOf(entry.value));
    map.emplace_back(entry.key, index);
  }
  return map;
}

Result<std::vector<std::string>> SchemaSet::ReadStrings(const JsonValue& value, const std::string& path) {
  std::vector<std::string> strings;
  const auto* list = value.AsArray();
  if (list == nullptr)
    return Status::InvalidArgument(fmt::format("{}: expected an array, found {}", path, value.KindName()));
  for (const JsonValue& item : *list) {
    if (item.AsString() == nullptr) {
      return Status::InvalidArgument(fmt::format("{}: expected strings, found {}", path, item.KindName()));
    }
    strings.push_back(*item.AsString());
  }
  return strings;
}

Status SchemaSet::ReadApplicator(const JsonMember& member, SchemaNode* node, bool* known) {
  *known = true;
  const std::string& key = member.key;
  if (key == "allOf" || key == "anyOf" || key == "oneOf") {
    DEEPINFER_ASSIGN_OR_RETURN(std::vector<int> list, ReadList(member, *node));
    if (list.empty()) return Status::InvalidArgument(fmt::format("{}/{}: is empty", node->path, key));
    if (key == "allOf") node->all_of.insert(node->all_of.end(), list.begin(), list.end());
    if (key == "anyOf") node->any_of = std::move(list);
    if (key == "oneOf") node->one_of = std::move(list);
    return Status::Ok();
  }
  if (key == "properties" || key == "patternProperties" || key == "dependentSchemas") {
    DEEPINFER_ASSIGN_OR_RETURN(auto map, ReadMap(member, *node));
    auto& place = key == "properties"          ? node->properties
                  : key == "patternProperties" ? node->pattern_properties
                                               : node->dependent_schemas;
    place.insert(place.end(), map.begin(), map.end());
    return Status::Ok();
  }
  using Place = std::optional<int> SchemaNode::*;
  static const std::unordered_map<std::string, Place> kPlaces = {{"additionalProperties", &SchemaNode::additional},
                                                                 {"propertyNames", &SchemaNode::property_names},
                                                                 {"contains", &SchemaNode::contains},
                                                                 {"not", &SchemaNode::negated},
                                                                 {"if", &SchemaNode::condition},
                                                                 {"then", &SchemaNode::then_schema},
                                                                 {"else", &SchemaNode::else_schema}};
  const auto place = kPlaces.find(key);
  if (place == kPlaces.end()) {
    *known = false;
    return Status::Ok();
  }
  DEEPINFER_ASSIGN_OR_RETURN(const int index, NodeOf(member.value));
  (*node).*(place->second) = index;
  return Status::Ok();
}

Status SchemaSet::ReadNumberKeyword(const JsonMember& member, SchemaNode* node, bool* known) {
  const std::string& key = member.key;
  static constexpr std::array<std::string_view, 5> kKeys = {"minimum", "maximum", "exclusiveMinimum",
                                                            "exclusiveMaximum", "multipleOf"};
  *known = std::ranges::find(kKeys, key) != kKeys.end();
  if (!*known) return Status::Ok();
  if (const bool* strict = member.value.AsBool(); strict != nullptr && key.starts_with("exclusive")) {
    (key == "exclusiveMinimum" ? node->minimum_strict : node->maximum_strict) = *strict;  // draft 4
    return Status::Ok();
  }
  const auto* number = member.value.AsNumber();
  if (number == nullptr) return WrongForm(*node, key, "a number", member.value);
  const auto value = ParseDecimal(number->spelling);
  if (!value) return Status::Unsupported(fmt::format("{}/{}: the number has too many digits", node->path, key));
  if (key == "minimum") node->minimum = *value;
  if (key == "maximum") node->maximum = *value;
  if (key == "exclusiveMinimum") node->minimum_2 = *value;
  if (key == "exclusiveMaximum") node->maximum_2 = *value;
  if (key != "multipleOf") return Status::Ok();
  node->multiple_of = ScaleToInteger(*value);
  if (!node->multiple_of) {
    return Status::Unsupported(fmt::format("{}/multipleOf: must be above zero and of at most 9 digits", node->path));
  }
  return Status::Ok();
}

Status SchemaSet::ReadCount(const JsonMember& member, SchemaNode* node, bool* known) {
  using Place = int64_t SchemaNode::*;
  static const std::unordered_map<std::string, Place> kPlaces = {
      {"minLength", &SchemaNode::min_length},         {"maxLength", &SchemaNode::max_length},
      {"minItems", &SchemaNode::min_items},           {"maxItems", &SchemaNode::max_items},
      {"minContains", &SchemaNode::min_contains},     {"maxContains", &SchemaNode::max_contains},
      {"minProperties", &SchemaNode::min_properties}, {"maxProperties", &SchemaNode::max_properties}};
  const auto place = kPlaces.find(member.key);
  *known = place != kPlaces.end();
  if (!*known) return Status::Ok();
  const auto* number = member.value.AsNumber();
  const auto value = number == nullptr ? std::nullopt : ParseDecimal(number->spelling);
  if (!value || value->negative || !value->fraction.empty()) {
    return WrongForm(*node, member.key, "a whole number from 0", member.value);
  }
  (*node).*(place->second) = value->whole.size() > 15 ? SchemaNode::kNoLimit - 1 : std::stoll(value->whole);
  return Status::Ok();
}

Status SchemaSet::ReadItems(const JsonValue& schema, SchemaNode* node) {
  const JsonValue* items = schema.Find("items");
  const JsonValue* prefix = schema.Find("prefixItems");
  const JsonValue* rest = items;
  if (items != nullptr && items->AsArray() != nullptr) {  // until draft 2019-09
    prefix = items;
    rest = schema.Find("additionalItems");
  } else if (document_->IsDraft7()) {
    prefix = nullptr;
  }
  if (prefix != nullptr || rest != nullptr) ++node->keyword_count;
  if (prefix != nullptr) {
    const JsonMember member = {"prefixItems", JsonValue()};
    const auto* list = prefix->AsArray();
    if (list == nullptr) return WrongForm(*node, member.key, "an array of schemas", *prefix);
    for (const JsonValue& item : *list) {
      DEEPINFER_ASSIGN_OR_RETURN(const int index, NodeOf(item));
      node->prefix_items.push_back(index);
    }
  }
  if (rest == nullptr) return Status::Ok();
  DEEPINFER_ASSIGN_OR_RETURN(node->items, NodeOf(*rest));
  return Status::Ok();
}

Status SchemaSet::ReadDependencies(const JsonMember& member, SchemaNode* node) {
  const auto* entries = member.value.AsObject();
  if (entries == nullptr) return WrongForm(*node, member.key, "an object", member.value);
  for (const JsonMember& entry : *entries) {
    if (entry.value.AsArray() != nullptr) {
      DEEPINFER_ASSIGN_OR_RETURN(auto names,
                                 ReadStrings(entry.value, fmt::format("{}/{}/{}", node->path, member.key, entry.key)));
      node->dependent_required.emplace_back(entry.key, std::move(names));
    } else if (entry.value.AsString() != nullptr) {
      node->dependent_required.emplace_back(entry.key, std::vector<std::string>{*entry.value.AsString()});
    } else {
      DEEPINFER_ASSIGN_OR_RETURN(const int index, NodeOf(entry.value));
      node->dependent_schemas.emplace_back(entry.key, index);
    }
  }
  return Status::Ok();
}

Status SchemaSet::ReadUnevaluated(const JsonValue& schema, const JsonMember& member, SchemaNode* node) {
  const bool* anything = member.value.AsBool();
  if (anything != nullptr && *anything) return Status::Ok();
  // Without schemas in place, what is not evaluated is what the neighbouring keywords leave over.
  static constexpr std::array<std::string_view, 10> kInPlace = {
      "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"};
  const bool alone = std::ranges::none_of(kInPlace, [&](std::string_view key) { return schema.Find(key) != nullptr; });
  const bool properties = member.key == "unevaluatedProperties";
  if (!alone || (!properties && schema.Find("contains") != nullptr)) {
    return Status::Unsupported(fmt::format("{}/{}: beside schemas that evaluate in place", node->path, member.key));
  }
  if (schema.Find(properties ? "additionalProperties" : "items") != nullptr) return Status::Ok();
  DEEPINFER_ASSIGN_OR_RETURN((properties ? node->additional : node->items), NodeOf(member.value));
  return Status::Ok();
}

}  // namespace deepinfer
