#include "grammar/schema_shapes.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {
namespace {

constexpr size_t kMaxBranches = 20'000;
constexpr size_t kMaxShapes = 1'000;
constexpr int kMaxDepth = 500;

KeySelector Named(const std::string& name) {
  KeySelector keys;
  keys.name = name;
  return keys;
}

/// Whether the shape demands a key that it forbids.
bool IsImpossible(const ObjectShape& shape) {
  if (shape.least > shape.most || static_cast<int64_t>(shape.required.size()) > shape.most) return true;
  return std::ranges::any_of(shape.rules, [&](const KeyRule& rule) {
    return rule.impossible && rule.keys.kind == KeySelector::Kind::kName && shape.required.Has(rule.keys.name);
  });
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
  for (const std::string& name : from.object.required) object.required.Add(name);
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

void NameList::Add(const std::string& name) {
  if (Has(name)) return;
  names_.push_back(name);
  if (names_.size() == kFew) set_.insert(names_.begin(), names_.end());
  if (names_.size() > kFew) set_.insert(name);
}

bool NameList::Has(const std::string& name) const {
  if (names_.size() >= kFew) return set_.contains(name);
  return std::ranges::find(names_, name) != names_.end();
}

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
  if (branch.depth >= kMaxDepth) {
    return Status::ResourceExhausted(fmt::format("{}: schemas in place are nested too deep", path));
  }
  if (branches_ > kMaxBranches || out->size() > kMaxShapes) {
    return Status::Unsupported(fmt::format("{}: too many combinations of alternatives", path));
  }
  for (const Branch& way : ways) {
    DEEPINFER_RETURN_IF_ERROR(AddWork(branch, path));
    Branch next = branch;
    ++next.depth;
    next.pending.insert(next.pending.end(), way.pending.rbegin(), way.pending.rend());
    Merge(way.shape, &next.shape);
    DEEPINFER_RETURN_IF_ERROR(Work(std::move(next), type, out));
  }
  return Status::Ok();
}

Status SchemaShapes::AddWork(const Branch& branch, const std::string& path) {
  const Shape& shape = branch.shape;
  scalars_->pool().AddWork(1 + branch.pending.size() + branch.seen.size() + shape.object.rules.size() +
                           shape.object.required.size() + shape.object.demands.size() + shape.array.rules.size());
  if (!scalars_->pool().exhausted()) return Status::Ok();
  return Status::ResourceExhausted(fmt::format("{}: the schema needs too much work", path));
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
      if (ways.size() != 1) {
        if (type == kJsonObject) {
          DEEPINFER_ASSIGN_OR_RETURN(const bool contradictory, IsContradictory(branch.shape.object));
          if (contradictory) return Status::Ok();
        }
        return Split(branch, ways, type, node.path, out);
      }
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
        ways[1].shape.object.required.Add(name);
        for (const std::string& other : names) ways[1].shape.object.required.Add(other);
      }
      for (const auto& [name, schema] : node.dependent_schemas) {
        std::vector<Branch>& ways = choices.emplace_back(2);
        Forbid(name, &ways[0].shape.object);
        ways[1].shape.object.required.Add(name);
        ways[1].pending = {Positive(schema)};
      }
    }
    if (choices.empty()) continue;
    if (type == kJsonObject) {
      DEEPINFER_ASSIGN_OR_RETURN(const bool contradictory, IsContradictory(branch.shape.object));
      if (contradictory) return Status::Ok();
    }
    // The product of the choices, without the combinations that are impossible already.
    std::vector<Branch> ways(1);
    for (const std::vector<Branch>& choice : choices) {
      std::vector<Branch> product;
      for (const Branch& one : ways) {
        for (const Branch& other : choice) {
          DEEPINFER_RETURN_IF_ERROR(AddWork(one, node.path));
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
  if (type == kJsonObject && branch.depth > 0) {
    DEEPINFER_ASSIGN_OR_RETURN(const bool contradictory, IsContradictory(branch.shape.object));
    if (contradictory) return Status::Ok();
  }
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
  for (const std::string& name : node.required) shape.required.Add(name);
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
      shape.required.Add(member.key);
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
  std::vector<int> possible;
  for (const int way : node.one_of) {
    DEEPINFER_ASSIGN_OR_RETURN(const bool can_be, CanBe(way, type));
    if (can_be) possible.push_back(way);
  }
  for (size_t i = 0; i < possible.size(); ++i) {
    Branch& branch = ways->emplace_back();
    branch.pending = {Positive(possible[i])};
    for (size_t j = 0; j < possible.size(); ++j) {
      if (i == j) continue;
      DEEPINFER_ASSIGN_OR_RETURN(const bool disjoint, Disjoint(possible[i], possible[j], type));
      if (!disjoint) branch.pending.push_back(Negation(possible[j]));
    }
    DEEPINFER_RETURN_IF_ERROR(AddWork(branch, node.path));
  }
  return Status::Ok();
}

}  // namespace deepinfer
