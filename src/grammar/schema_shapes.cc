#include "grammar/schema_shapes.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {
namespace {

constexpr size_t kMaxBranches = 20'000;
constexpr size_t kMaxShapes = 1'000;

KeySelector Named(const std::string& name) {
  KeySelector keys;
  keys.name = name;
  return keys;
}

/// Whether the shape demands a key that it forbids.
bool IsImpossible(const ObjectShape& shape) {
  if (shape.least > shape.most || static_cast<int64_t>(shape.required.size()) > shape.most) return true;
  return std::ranges::any_of(shape.rules, [&](const KeyRule& rule) {
    return rule.impossible && rule.keys.kind == KeySelector::Kind::kName &&
           std::ranges::find(shape.required, rule.keys.name) != shape.required.end();
  });
}

void Require(const std::string& name, ObjectShape* shape) {
  if (std::ranges::find(shape->required, name) == shape->required.end()) shape->required.push_back(name);
}

void Forbid(const std::string& name, ObjectShape* shape) {
  KeyRule rule;
  rule.keys = Named(name);
  rule.impossible = true;
  shape->rules.push_back(rule);
}

void Merge(const Shape& from, Shape* into) {
  ObjectShape& object = into->object;
  object.rules.insert(object.rules.end(), from.object.rules.begin(), from.object.rules.end());
  object.demands.insert(object.demands.end(), from.object.demands.begin(), from.object.demands.end());
  for (const std::string& name : from.object.required) Require(name, &object);
  object.least = std::max(object.least, from.object.least);
  object.most = std::min(object.most, from.object.most);
  ArrayShape& array = into->array;
  array.rules.insert(array.rules.end(), from.array.rules.begin(), from.array.rules.end());
  array.counts.insert(array.counts.end(), from.array.counts.begin(), from.array.counts.end());
  array.least = std::max(array.least, from.array.least);
  array.most = std::min(array.most, from.array.most);
  if (!from.array.unique_path.empty()) array.unique_path = from.array.unique_path;
}

}  // namespace

Result<std::vector<Shape>> SchemaShapes::Expand(const std::vector<SchemaLiteral>& literals, JsonType type) {
  std::vector<Shape> shapes;
  Branch branch;
  branch.pending = literals;
  // The first literal first: it decides the order of properties.
  std::ranges::reverse(branch.pending);
  branches_ = 0;
  DEEPINFER_RETURN_IF_ERROR(Work(std::move(branch), type, &shapes));
  return shapes;
}

Status SchemaShapes::Split(const Branch& branch, const std::vector<Branch>& ways, JsonType type,
                           const std::string& path, std::vector<Shape>* out) {
  branches_ += ways.size();
  if (branches_ > kMaxBranches || out->size() > kMaxShapes) {
    return Status::Unsupported(fmt::format("{}: too many combinations of alternatives", path));
  }
  for (const Branch& way : ways) {
    Branch next = branch;
    next.pending.insert(next.pending.end(), way.pending.rbegin(), way.pending.rend());
    Merge(way.shape, &next.shape);
    DEEPINFER_RETURN_IF_ERROR(Work(std::move(next), type, out));
  }
  return Status::Ok();
}

Status SchemaShapes::Work(Branch branch, JsonType type, std::vector<Shape>* out) {
  while (!branch.pending.empty()) {
    const SchemaLiteral literal = branch.pending.back();
    branch.pending.pop_back();
    if (branch.seen.contains(Opposite(literal))) return Status::Ok();
    if (!branch.seen.insert(literal).second) continue;
    const int index = NodeOfLiteral(literal);
    DEEPINFER_RETURN_IF_ERROR(schemas_->Read(index));
    const SchemaNode& node = schemas_->At(index);
    if (IsNegated(literal)) {
      std::vector<Branch> ways;
      if ((node.types & type) == 0 || node.kind == SchemaNode::Kind::kFalse) continue;
      DEEPINFER_RETURN_IF_ERROR(AddFailures(index, type, &ways));
      if (ways.size() != 1) return Split(branch, ways, type, node.path, out);
      branch.pending.insert(branch.pending.end(), ways[0].pending.rbegin(), ways[0].pending.rend());
      Merge(ways[0].shape, &branch.shape);
      continue;
    }
    if (node.kind == SchemaNode::Kind::kTrue) continue;
    if (node.kind == SchemaNode::Kind::kFalse || (node.types & type) == 0) return Status::Ok();
    if (node.kind == SchemaNode::Kind::kConstant) {
      DEEPINFER_RETURN_IF_ERROR(AddConstant(*node.constant, &branch));
      continue;
    }
    DEEPINFER_RETURN_IF_ERROR(type == kJsonObject ? AddObject(index, &branch) : AddArray(index, &branch));
    if (IsImpossible(branch.shape.object)) return Status::Ok();
    branch.pending.insert(branch.pending.end(), node.all_of.rbegin(), node.all_of.rend());
    const auto first_new = branch.pending.end() - static_cast<ptrdiff_t>(node.all_of.size());
    for (auto part = first_new; part != branch.pending.end(); ++part) *part = Positive(*part);
    if (node.negated) branch.pending.push_back(Negation(*node.negated));

    // What has alternatives: one keyword now, the others in the branches that follow, through a schema of their own.
    std::vector<std::vector<Branch>> choices;
    if (node.values) {
      std::vector<Branch>& ways = choices.emplace_back();
      for (const JsonValue* value : *node.values) {
        if (TypeOf(*value) == type) ways.emplace_back().pending = {Positive(schemas_->Constant(*value))};
      }
    }
    if (!node.any_of.empty()) {
      std::vector<Branch>& ways = choices.emplace_back();
      for (const int way : node.any_of) ways.emplace_back().pending = {Positive(way)};
    }
    if (!node.one_of.empty()) DEEPINFER_RETURN_IF_ERROR(AddOneOf(node, type, &choices.emplace_back()));
    if (node.condition && (node.then_schema || node.else_schema)) {
      std::vector<Branch>& ways = choices.emplace_back();
      ways.resize(2);
      ways[0].pending = {Positive(*node.condition)};
      if (node.then_schema) ways[0].pending.push_back(Positive(*node.then_schema));
      ways[1].pending = {Negation(*node.condition)};
      if (node.else_schema) ways[1].pending.push_back(Positive(*node.else_schema));
    }
    if (type == kJsonObject) {
      for (const auto& [name, names] : node.dependent_required) {
        std::vector<Branch>& ways = choices.emplace_back(2);
        Forbid(name, &ways[0].shape.object);
        Require(name, &ways[1].shape.object);
        for (const std::string& other : names) Require(other, &ways[1].shape.object);
      }
      for (const auto& [name, schema] : node.dependent_schemas) {
        std::vector<Branch>& ways = choices.emplace_back(2);
        Forbid(name, &ways[0].shape.object);
        Require(name, &ways[1].shape.object);
        ways[1].pending = {Positive(schema)};
      }
    }
    if (choices.empty()) continue;
    // The product of the choices, without the combinations that are impossible already.
    std::vector<Branch> ways(1);
    for (const std::vector<Branch>& choice : choices) {
      std::vector<Branch> product;
      for (const Branch& one : ways) {
        for (const Branch& other : choice) {
          Branch both = one;
          both.pending.insert(both.pending.end(), other.pending.begin(), other.pending.end());
          Merge(other.shape, &both.shape);
          if (!IsImpossible(both.shape.object)) product.push_back(std::move(both));
        }
      }
      if (product.size() > kMaxShapes) {
        return Status::Unsupported(fmt::format("{}: too many combinations of alternatives", node.path));
      }
      ways = std::move(product);
    }
    return Split(branch, ways, type, node.path, out);
  }
  if (IsImpossible(branch.shape.object) || branch.shape.array.least > branch.shape.array.most) return Status::Ok();
  out->push_back(std::move(branch.shape));
  return Status::Ok();
}

Status SchemaShapes::AddObject(int index, Branch* branch) {
  const SchemaNode& node = schemas_->At(index);
  ObjectShape& shape = branch->shape.object;
  for (const auto& [name, schema] : node.properties) {
    KeyRule rule;
    rule.keys = Named(name);
    rule.value = Positive(schema);
    DEEPINFER_RETURN_IF_ERROR(schemas_->Read(schema));
    rule.impossible = schemas_->At(schema).kind == SchemaNode::Kind::kFalse;
    shape.rules.push_back(std::move(rule));
  }
  for (const auto& [pattern, schema] : node.pattern_properties) {
    KeyRule rule;
    rule.keys.kind = KeySelector::Kind::kMatching;
    DEEPINFER_ASSIGN_OR_RETURN(rule.keys.texts,
                               scalars_->Matching(pattern, fmt::format("{}/patternProperties/{}", node.path, pattern)));
    rule.value = Positive(schema);
    shape.rules.push_back(std::move(rule));
  }
  if (node.additional) {
    DEEPINFER_RETURN_IF_ERROR(schemas_->Read(*node.additional));
    if (schemas_->At(*node.additional).kind != SchemaNode::Kind::kTrue) {
      KeyRule rule;
      rule.keys.kind = KeySelector::Kind::kOthers;
      rule.keys.node = index;
      rule.value = Positive(*node.additional);
      rule.impossible = schemas_->At(*node.additional).kind == SchemaNode::Kind::kFalse;
      shape.rules.push_back(std::move(rule));
    }
  }
  if (node.property_names) {
    DEEPINFER_ASSIGN_OR_RETURN(const RegexId texts, scalars_->StringsOf(*node.property_names));
    if (texts != scalars_->EveryString()) {
      KeyRule rule;
      rule.keys.kind = KeySelector::Kind::kNotMatching;
      rule.keys.texts = texts;
      rule.impossible = true;
      shape.rules.push_back(std::move(rule));
    }
  }
  for (const std::string& name : node.required) Require(name, &shape);
  shape.least = std::max(shape.least, node.min_properties);
  shape.most = std::min(shape.most, node.max_properties);
  return Status::Ok();
}

Status SchemaShapes::AddArray(int index, Branch* branch) {
  const SchemaNode& node = schemas_->At(index);
  ArrayShape& shape = branch->shape.array;
  const auto prefix = static_cast<int64_t>(node.prefix_items.size());
  for (int64_t i = 0; i < prefix; ++i) {
    shape.rules.push_back({i, i + 1, Positive(node.prefix_items[static_cast<size_t>(i)])});
  }
  if (node.items) shape.rules.push_back({prefix, SchemaNode::kNoLimit, Positive(*node.items)});
  if (node.contains && (node.min_contains > 0 || node.max_contains != SchemaNode::kNoLimit)) {
    shape.counts.push_back({0, Positive(*node.contains), node.min_contains, node.max_contains});
  }
  if (node.unique_items) shape.unique_path = node.path;
  shape.least = std::max(shape.least, node.min_items);
  shape.most = std::min(shape.most, node.max_items);
  return Status::Ok();
}

Status SchemaShapes::AddConstant(const JsonValue& value, Branch* branch) {
  if (const auto* members = value.AsObject()) {
    ObjectShape& shape = branch->shape.object;
    for (const JsonMember& member : *members) {
      KeyRule rule;
      rule.keys = Named(member.key);
      rule.value = Positive(schemas_->Constant(member.value));
      shape.rules.push_back(std::move(rule));
      Require(member.key, &shape);
    }
    const auto count = static_cast<int64_t>(members->size());
    shape.least = std::max(shape.least, count);
    shape.most = std::min(shape.most, count);
  }
  if (const auto* list = value.AsArray()) {
    ArrayShape& shape = branch->shape.array;
    const auto count = static_cast<int64_t>(list->size());
    for (int64_t i = 0; i < count; ++i) {
      shape.rules.push_back({i, i + 1, Positive(schemas_->Constant((*list)[static_cast<size_t>(i)]))});
    }
    shape.least = std::max(shape.least, count);
    shape.most = std::min(shape.most, count);
  }
  return Status::Ok();
}

Status SchemaShapes::AddOneOf(const SchemaNode& node, JsonType type, std::vector<Branch>* ways) {
  for (const int way : node.one_of) {
    Branch& branch = ways->emplace_back();
    branch.pending = {Positive(way)};
    bool itself = true;
    for (const int other : node.one_of) {
      if (other == way && itself) {
        itself = false;
        continue;
      }
      DEEPINFER_ASSIGN_OR_RETURN(const bool disjoint, Disjoint(way, other, type));
      if (!disjoint) branch.pending.push_back(Negation(other));
    }
  }
  return Status::Ok();
}

}  // namespace deepinfer
