// The part of SchemaShapes about what a schema refuses: the ways to fail it, and whether two exclude one another.
#include <fmt/format.h>

#include <algorithm>

#include "grammar/schema_shapes.h"

namespace deepinfer {
namespace {

KeySelector Named(const std::string& name) {
  KeySelector keys;
  keys.name = name;
  return keys;
}

}  // namespace

Status SchemaShapes::AddFailures(int index, JsonType type, std::vector<Branch>* ways) {
  const SchemaNode& node = schemas_->At(index);
  if (node.kind == SchemaNode::Kind::kTrue) return Status::Ok();
  if (node.kind == SchemaNode::Kind::kConstant) return AddConstantFailures(*node.constant, ways);
  for (const int part : node.all_of) ways->emplace_back().pending = {Negation(part)};
  if (!node.any_of.empty()) {
    Branch& none = ways->emplace_back();
    for (const int way : node.any_of) none.pending.push_back(Negation(way));
  }
  if (!node.one_of.empty()) {
    Branch none;
    for (const int way : node.one_of) none.pending.push_back(Negation(way));
    ways->push_back(std::move(none));
    for (size_t i = 0; i < node.one_of.size(); ++i) {
      for (size_t j = i + 1; j < node.one_of.size(); ++j) {
        DEEPINFER_ASSIGN_OR_RETURN(const bool disjoint, Disjoint(node.one_of[i], node.one_of[j], type));
        if (!disjoint) ways->emplace_back().pending = {Positive(node.one_of[i]), Positive(node.one_of[j])};
      }
    }
  }
  if (node.negated) ways->emplace_back().pending = {Positive(*node.negated)};
  if (node.condition && node.then_schema) {
    ways->emplace_back().pending = {Positive(*node.condition), Negation(*node.then_schema)};
  }
  if (node.condition && node.else_schema) {
    ways->emplace_back().pending = {Negation(*node.condition), Negation(*node.else_schema)};
  }
  if (node.values) {
    Branch& none = ways->emplace_back();
    for (const JsonValue* value : *node.values) {
      if (TypeOf(*value) == type) none.pending.push_back(Negation(schemas_->Constant(*value)));
    }
  }
  return type == kJsonObject ? AddObjectFailures(index, ways) : AddArrayFailures(index, ways);
}

Status SchemaShapes::AddObjectFailures(int index, std::vector<Branch>* ways) {
  const SchemaNode& node = schemas_->At(index);
  const auto way = [ways]() -> ObjectShape& { return ways->emplace_back().shape.object; };
  const auto forbid = [](const std::string& name, ObjectShape* shape) {
    KeyRule rule;
    rule.keys = Named(name);
    rule.impossible = true;
    shape->rules.push_back(std::move(rule));
  };
  for (const auto& [name, schema] : node.properties) {
    DEEPINFER_RETURN_IF_ERROR(schemas_->Read(schema));
    if (schemas_->At(schema).kind == SchemaNode::Kind::kTrue) continue;
    ObjectShape& shape = way();
    KeyRule rule;
    rule.keys = Named(name);
    rule.value = Negation(schema);
    shape.rules.push_back(std::move(rule));
    shape.required.Add(name);
  }
  for (const auto& [pattern, schema] : node.pattern_properties) {
    KeyDemand demand;
    demand.keys.kind = KeySelector::Kind::kMatching;
    DEEPINFER_ASSIGN_OR_RETURN(demand.keys.texts,
                               scalars_->Matching(pattern, fmt::format("{}/patternProperties/{}", node.path, pattern)));
    demand.value = Negation(schema);
    way().demands.push_back(std::move(demand));
  }
  if (node.additional) {
    DEEPINFER_RETURN_IF_ERROR(schemas_->Read(*node.additional));
    if (schemas_->At(*node.additional).kind != SchemaNode::Kind::kTrue) {
      KeyDemand demand;
      demand.keys.kind = KeySelector::Kind::kOthers;
      demand.keys.node = index;
      demand.value = Negation(*node.additional);
      demand.any_value = schemas_->At(*node.additional).kind == SchemaNode::Kind::kFalse;
      way().demands.push_back(std::move(demand));
    }
  }
  if (node.property_names) {
    KeyDemand demand;
    demand.keys.kind = KeySelector::Kind::kNotMatching;
    DEEPINFER_ASSIGN_OR_RETURN(demand.keys.texts, scalars_->StringsOf(*node.property_names));
    demand.any_value = true;
    way().demands.push_back(std::move(demand));
  }
  for (const std::string& name : node.required) forbid(name, &way());
  if (node.min_properties > 0) way().most = node.min_properties - 1;
  if (node.max_properties != SchemaNode::kNoLimit) way().least = node.max_properties + 1;
  for (const auto& [name, names] : node.dependent_required) {
    for (const std::string& other : names) {
      ObjectShape& shape = way();
      shape.required.Add(name);
      forbid(other, &shape);
    }
  }
  for (const auto& [name, schema] : node.dependent_schemas) {
    Branch& branch = ways->emplace_back();
    branch.shape.object.required.Add(name);
    branch.pending = {Negation(schema)};
  }
  return Status::Ok();
}

Status SchemaShapes::AddArrayFailures(int index, std::vector<Branch>* ways) {
  const SchemaNode& node = schemas_->At(index);
  const auto way = [ways]() -> ArrayShape& { return ways->emplace_back().shape.array; };
  const auto prefix = static_cast<int64_t>(node.prefix_items.size());
  for (int64_t i = 0; i < prefix; ++i) {
    ArrayShape& shape = way();
    shape.rules.push_back({i, i + 1, Negation(node.prefix_items[static_cast<size_t>(i)])});
    shape.least = i + 1;
  }
  if (node.items) way().counts.push_back({prefix, Negation(*node.items), 1, SchemaNode::kNoLimit});
  if (node.contains) {
    if (node.min_contains > 0) way().counts.push_back({0, Positive(*node.contains), 0, node.min_contains - 1});
    if (node.max_contains != SchemaNode::kNoLimit) {
      way().counts.push_back({0, Positive(*node.contains), node.max_contains + 1, SchemaNode::kNoLimit});
    }
  }
  if (node.unique_items) {
    return Status::Unsupported(fmt::format("{}/uniqueItems: cannot be negated", node.path));
  }
  if (node.min_items > 0) way().most = node.min_items - 1;
  if (node.max_items != SchemaNode::kNoLimit) way().least = node.max_items + 1;
  return Status::Ok();
}

Status SchemaShapes::AddConstantFailures(const JsonValue& value, std::vector<Branch>* ways) {
  if (const auto* members = value.AsObject()) {
    for (const JsonMember& member : *members) {
      ObjectShape& missing = ways->emplace_back().shape.object;
      KeyRule forbidden;
      forbidden.keys = Named(member.key);
      forbidden.impossible = true;
      missing.rules.push_back(std::move(forbidden));
      ObjectShape& different = ways->emplace_back().shape.object;
      KeyRule rule;
      rule.keys = Named(member.key);
      rule.value = Negation(schemas_->Constant(member.value));
      different.rules.push_back(std::move(rule));
      different.required.Add(member.key);
    }
    ways->emplace_back().shape.object.least = static_cast<int64_t>(members->size()) + 1;
  }
  if (const auto* list = value.AsArray()) {
    const auto count = static_cast<int64_t>(list->size());
    for (int64_t i = 0; i < count; ++i) {
      ArrayShape& shape = ways->emplace_back().shape.array;
      shape.rules.push_back({i, i + 1, Negation(schemas_->Constant((*list)[static_cast<size_t>(i)]))});
      shape.least = i + 1;
    }
    if (count > 0) ways->emplace_back().shape.array.most = count - 1;
    ways->emplace_back().shape.array.least = count + 1;
  }
  return Status::Ok();
}

Status SchemaShapes::CollectInPlace(int index, std::set<int>* nodes) {
  std::vector<int> work = {index};
  while (!work.empty()) {
    const int at = work.back();
    work.pop_back();
    if (!nodes->insert(at).second) continue;
    DEEPINFER_RETURN_IF_ERROR(schemas_->Read(at));
    for (const int part : schemas_->At(at).all_of) work.push_back(part);
  }
  return Status::Ok();
}

Result<bool> SchemaShapes::IsContradictory(const ObjectShape& shape) {
  std::map<std::string_view, std::vector<SchemaLiteral>> values;
  for (const KeyRule& rule : shape.rules) {
    if (rule.keys.kind == KeySelector::Kind::kName && !rule.impossible && shape.required.Has(rule.keys.name)) {
      values[rule.keys.name].push_back(rule.value);
    }
  }
  for (auto& [name, literals] : values) {
    if (literals.size() < 2) continue;
    DEEPINFER_ASSIGN_OR_RETURN(const bool nothing, HasNoValue(std::move(literals)));
    if (nothing) return true;
  }
  return false;
}

Result<bool> SchemaShapes::HasNoValue(std::vector<SchemaLiteral> literals) {
  std::ranges::sort(literals);
  literals.erase(std::unique(literals.begin(), literals.end()), literals.end());
  const auto known = has_no_value_.find(literals);
  if (known != has_no_value_.end()) return known->second;
  DEEPINFER_ASSIGN_OR_RETURN(const bool nothing, FindNoValue(literals));
  has_no_value_.emplace(std::move(literals), nothing);
  return nothing;
}

Result<bool> SchemaShapes::FindNoValue(const std::vector<SchemaLiteral>& literals) {
  uint8_t containers = kJsonArray | kJsonObject;
  for (const SchemaLiteral literal : literals) {
    if (IsNegated(literal)) continue;
    std::set<int> nodes;
    DEEPINFER_RETURN_IF_ERROR(CollectInPlace(NodeOfLiteral(literal), &nodes));
    for (const int index : nodes) {
      const SchemaNode& node = schemas_->At(index);
      if (node.kind == SchemaNode::Kind::kFalse) return true;
      containers &= node.types;
      if (node.values) {
        uint8_t types = 0;
        for (const JsonValue* value : *node.values) types |= TypeOf(*value);
        containers &= types;
      }
    }
  }
  if (containers != 0) return false;
  DEEPINFER_ASSIGN_OR_RETURN(const RegexId texts, scalars_->TextsOf(literals));
  return scalars_->IsEmpty(texts);
}

Result<bool> SchemaShapes::CanBe(int index, JsonType type) {
  std::set<int> nodes;
  DEEPINFER_RETURN_IF_ERROR(CollectInPlace(index, &nodes));
  for (const int at : nodes) {
    const SchemaNode& node = schemas_->At(at);
    if (node.kind == SchemaNode::Kind::kFalse || (node.types & type) == 0) return false;
    const auto is_of_type = [type](const JsonValue* value) { return TypeOf(*value) == type; };
    if (node.values && std::ranges::none_of(*node.values, is_of_type)) return false;
  }
  return true;
}

Result<bool> SchemaShapes::Disjoint(int first, int second, JsonType type) {
  const std::tuple key(std::min(first, second), std::max(first, second), type);
  const auto known = disjoint_.find(key);
  if (known != disjoint_.end()) return known->second;
  DEEPINFER_ASSIGN_OR_RETURN(const bool disjoint, FindDisjoint(first, second, type));
  disjoint_.emplace(key, disjoint);
  return disjoint;
}

Result<bool> SchemaShapes::FindDisjoint(int first, int second, JsonType type) {
  DEEPINFER_ASSIGN_OR_RETURN(const bool first_can_be, CanBe(first, type));
  DEEPINFER_ASSIGN_OR_RETURN(const bool second_can_be, CanBe(second, type));
  if (!first_can_be || !second_can_be) return true;
  std::set<int> nodes;
  DEEPINFER_RETURN_IF_ERROR(CollectInPlace(first, &nodes));
  DEEPINFER_RETURN_IF_ERROR(CollectInPlace(second, &nodes));
  std::set<std::string> required;
  for (const int index : nodes) {
    const SchemaNode& node = schemas_->At(index);
    scalars_->pool().AddWork(1 + node.required.size() + node.properties.size());
    required.insert(node.required.begin(), node.required.end());
  }
  if (type != kJsonObject) return false;
  for (const std::string& name : required) {
    std::vector<SchemaLiteral> literals;
    for (const int index : nodes) {
      const SchemaNode& node = schemas_->At(index);
      bool named = false;
      for (const auto& [property, schema] : node.properties) {
        if (property != name) continue;
        literals.push_back(Positive(schema));
        named = true;
      }
      if (!named && node.additional && node.pattern_properties.empty()) literals.push_back(Positive(*node.additional));
    }
    if (literals.empty()) continue;
    DEEPINFER_ASSIGN_OR_RETURN(const bool nothing, HasNoValue(std::move(literals)));
    if (nothing) return true;
  }
  return false;
}

}  // namespace deepinfer
