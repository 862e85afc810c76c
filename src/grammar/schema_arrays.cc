// The part of SchemaRules about arrays: items by index, their number, how many satisfy something, uniqueness.
#include <fmt/format.h>

#include <algorithm>

#include "grammar/schema_rules.h"

namespace deepinfer {
namespace {

constexpr int64_t kMaxHorizon = 50'000;
constexpr size_t kMaxStates = 100'000;
constexpr size_t kMaxCounts = 4;
constexpr size_t kMaxUniqueValues = 10;

}  // namespace

SchemaRules::Conjunction SchemaRules::ItemAt(const ArrayShape& shape, int64_t index) const {
  Conjunction item;
  for (const ItemRule& rule : shape.rules) {
    if (rule.from <= index && index < rule.to) item.push_back(rule.value);
  }
  return item;
}

Result<std::optional<std::vector<const JsonValue*>>> SchemaRules::ValuesOf(const Conjunction& conjunction) {
  static const JsonValue kNull;
  static const JsonValue kTrue(true);
  static const JsonValue kFalse(false);
  std::vector<int> work;
  for (const SchemaLiteral literal : conjunction) {
    if (!IsNegated(literal)) work.push_back(NodeOfLiteral(literal));
  }
  uint8_t types = kJsonAll;
  std::vector<int> seen;
  while (!work.empty()) {
    const int index = work.back();
    work.pop_back();
    if (std::ranges::find(seen, index) != seen.end()) continue;
    seen.push_back(index);
    DEEPINFER_RETURN_IF_ERROR(schemas_->Read(index));
    const SchemaNode& node = schemas_->At(index);
    if (node.kind == SchemaNode::Kind::kFalse) return std::optional(std::vector<const JsonValue*>());
    if (node.kind == SchemaNode::Kind::kConstant) return std::optional(std::vector<const JsonValue*>{node.constant});
    if (node.values) return std::optional(*node.values);
    types &= node.types;
    work.insert(work.end(), node.all_of.begin(), node.all_of.end());
  }
  if ((types & ~(kJsonNull | kJsonBoolean)) != 0) return std::optional<std::vector<const JsonValue*>>();
  std::vector<const JsonValue*> values;
  if ((types & kJsonNull) != 0) values.push_back(&kNull);
  if ((types & kJsonBoolean) != 0) values.insert(values.end(), {&kTrue, &kFalse});
  return std::optional(std::move(values));
}

Result<std::vector<const JsonValue*>> SchemaRules::UniqueValuesOf(const ArrayShape& shape, int64_t horizon) {
  std::map<std::string, const JsonValue*> values;
  const int64_t last = shape.most == SchemaNode::kNoLimit ? horizon : std::min(horizon, shape.most - 1);
  for (int64_t i = 0; i <= last; ++i) {
    DEEPINFER_ASSIGN_OR_RETURN(const auto finite, ValuesOf(ItemAt(shape, i)));
    if (!finite) return Status::Unsupported(shape.unique_path + "/uniqueItems: the items are not from a short list");
    for (const JsonValue* value : *finite) values.emplace(CanonicalKey(*value), value);
  }
  if (values.size() > kMaxUniqueValues) {
    return Status::Unsupported(
        fmt::format("{}/uniqueItems: more than {} values for the items", shape.unique_path, kMaxUniqueValues));
  }
  std::vector<const JsonValue*> list;
  for (const auto& [key, value] : values) list.push_back(value);
  return list;
}

Status SchemaRules::EmitArray(const ArrayShape& shape, bool leading_space, int32_t start, int32_t end) {
  // From the horizon on all items are alike.
  int64_t horizon = shape.least;
  if (shape.most != SchemaNode::kNoLimit) horizon = std::max(horizon, shape.most);
  for (const ItemRule& rule : shape.rules) {
    horizon = std::max({horizon, rule.from, rule.to == SchemaNode::kNoLimit ? 0 : rule.to});
  }
  for (const ItemCount& count : shape.counts) horizon = std::max(horizon, count.from);
  if (horizon > kMaxHorizon) {
    return Status::Unsupported(fmt::format("minItems, maxItems: a number above {} is not supported", kMaxHorizon));
  }
  if (shape.counts.size() > kMaxCounts) {
    return Status::Unsupported(fmt::format("contains: more than {} counts in one array", kMaxCounts));
  }
  const bool unique = !shape.unique_path.empty() && shape.most > 1;
  std::vector<const JsonValue*> values;
  if (unique) {
    DEEPINFER_ASSIGN_OR_RETURN(values, UniqueValuesOf(shape, horizon));
  }

  // Where an array can stand before an item or its end: the index, how many satisfied each count, which values were.
  struct Stand {
    int64_t index;
    std::vector<int64_t> counts;
    unsigned used;
    bool first;
    auto operator<=>(const Stand&) const = default;
  };
  std::map<Stand, int32_t> states;
  std::vector<Stand> work;
  const auto state_of = [&](const Stand& place) {
    const auto [known, added] = states.emplace(place, 0);
    if (added) {
      known->second = builder_->AddState();
      work.push_back(place);
    }
    return known->second;
  };
  const Symbol comma = Mark(options_.item_separator, true);
  const auto add_item = [&](const Stand& from, int32_t before, const Conjunction& item, unsigned used) -> Status {
    for (unsigned choice = 0; choice < 1u << shape.counts.size(); ++choice) {
      Conjunction value = item;
      Stand to = {std::min(from.index + 1, horizon), from.counts, used, false};
      bool sensible = true;
      for (size_t i = 0; i < shape.counts.size(); ++i) {
        const ItemCount& count = shape.counts[i];
        const bool counted = (choice >> i & 1) != 0;
        const bool bounded = count.most != SchemaNode::kNoLimit;
        if (from.index < count.from || (!bounded && from.counts[i] >= count.least)) {
          sensible = sensible && !counted;
        } else if (counted) {
          sensible = sensible && (!bounded || from.counts[i] < count.most);
          value.push_back(count.value);
          ++to.counts[i];
        } else if (bounded) {
          value.push_back(Opposite(count.value));
        }
      }
      if (!sensible) continue;
      DEEPINFER_ASSIGN_OR_RETURN(const std::optional<int32_t> rule, RuleOf(std::move(value), Place::kInside));
      if (rule) builder_->AddEdge(before, Symbol::Rule(*rule), state_of(to));
    }
    return Status::Ok();
  };
  const Stand empty = {0, std::vector<int64_t>(shape.counts.size()), 0, true};
  builder_->AddEdge(start, Mark("[", leading_space), state_of(empty));
  while (!work.empty()) {
    const Stand place = work.back();
    work.pop_back();
    if (states.size() > kMaxStates) {
      return Status::ResourceExhausted("minItems, maxItems, contains: an array needs too many states");
    }
    const int32_t state = states.at(place);
    bool complete = place.index >= shape.least;
    for (size_t i = 0; i < shape.counts.size(); ++i) complete = complete && place.counts[i] >= shape.counts[i].least;
    if (complete) builder_->AddEdge(state, Mark("]", true), end);
    if (shape.most != SchemaNode::kNoLimit && place.index >= shape.most) continue;
    int32_t before = state;
    if (!place.first) {
      before = builder_->AddState();
      builder_->AddEdge(state, comma, before);
    }
    const Conjunction item = ItemAt(shape, place.index);
    if (!unique) {
      DEEPINFER_RETURN_IF_ERROR(add_item(place, before, item, 0));
      continue;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if ((place.used >> i & 1) != 0) continue;
      Conjunction value = item;
      value.push_back(Positive(schemas_->Constant(*values[i])));
      DEEPINFER_RETURN_IF_ERROR(add_item(place, before, value, place.used | 1u << i));
    }
  }
  return Status::Ok();
}

}  // namespace deepinfer
