// The part of SchemaRules about objects: which members they may have, and in which order and number.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "grammar/schema_rules.h"

namespace deepinfer {
namespace {

constexpr size_t kMaxPatterns = 6;
constexpr size_t kMaxDemands = 8;
constexpr size_t kMaxStates = 100'000;

}  // namespace

Result<std::vector<RegexId>> SchemaRules::PatternsOf(const KeySelector& keys) {
  std::vector<RegexId> patterns;
  if (keys.kind == KeySelector::Kind::kMatching || keys.kind == KeySelector::Kind::kNotMatching) {
    patterns.push_back(keys.texts);
  } else if (keys.kind == KeySelector::Kind::kOthers) {
    const SchemaNode& node = schemas_->At(keys.node);
    for (const auto& [pattern, schema] : node.pattern_properties) {
      DEEPINFER_ASSIGN_OR_RETURN(const RegexId texts, scalars_.Matching(pattern, node.path + "/patternProperties"));
      patterns.push_back(texts);
    }
  }
  return patterns;
}

bool SchemaRules::IsNamed(int node, const std::string& name) {
  const auto [known, added] = named_by_.emplace(node, std::unordered_set<std::string>());
  if (added) {
    for (const auto& [property, schema] : schemas_->At(node).properties) known->second.insert(property);
  }
  return known->second.contains(name);
}

Result<bool> SchemaRules::Selects(const KeySelector& keys, const std::string& name) {
  if (keys.kind == KeySelector::Kind::kName) return keys.name == name;
  if (keys.kind == KeySelector::Kind::kOthers && IsNamed(keys.node, name)) return false;
  DEEPINFER_ASSIGN_OR_RETURN(const std::vector<RegexId> patterns, PatternsOf(keys));
  const std::string quoted = scalars_.Quoted(name);
  const bool matches =
      std::ranges::any_of(patterns, [&](RegexId pattern) { return builder_->pool().Matches(pattern, quoted); });
  return matches == (keys.kind == KeySelector::Kind::kMatching);
}

/// The same for keys that no one names: `inside` has a bit for each of `patterns` that the key matches.
Result<bool> SchemaRules::SelectsOthers(const KeySelector& keys, const std::vector<RegexId>& patterns,
                                        unsigned inside) {
  if (keys.kind == KeySelector::Kind::kName) return false;
  DEEPINFER_ASSIGN_OR_RETURN(const std::vector<RegexId> own, PatternsOf(keys));
  bool matches = false;
  for (size_t i = 0; i < patterns.size(); ++i) {
    matches = matches || ((inside >> i & 1) != 0 && std::ranges::find(own, patterns[i]) != own.end());
  }
  return matches == (keys.kind == KeySelector::Kind::kMatching);
}

Result<SchemaRules::Members> SchemaRules::MembersOf(const ObjectShape& shape) {
  std::vector<std::string> names;
  std::unordered_set<std::string> known;
  const auto note = [&](const std::string& name) {
    if (known.insert(name).second) names.push_back(name);
  };
  std::vector<const KeySelector*> selectors;
  for (const KeyRule& rule : shape.rules) selectors.push_back(&rule.keys);
  for (const KeyDemand& demand : shape.demands) selectors.push_back(&demand.keys);
  for (const KeySelector* keys : selectors) {
    if (keys->kind == KeySelector::Kind::kName) note(keys->name);
    if (keys->kind != KeySelector::Kind::kOthers) continue;
    for (const auto& [name, schema] : schemas_->At(keys->node).properties) note(name);
  }
  for (const std::string& name : shape.required) note(name);

  std::unordered_map<std::string, std::vector<const KeyRule*>> by_name;
  std::vector<const KeyRule*> wide;
  for (const KeyRule& rule : shape.rules) {
    if (rule.keys.kind == KeySelector::Kind::kName) {
      by_name[rule.keys.name].push_back(&rule);
    } else {
      wide.push_back(&rule);
    }
  }
  Members members;
  for (const std::string& name : names) {
    std::vector<const KeyRule*> rules = by_name[name];
    for (const KeyRule* rule : wide) {
      DEEPINFER_ASSIGN_OR_RETURN(const bool selects, Selects(rule->keys, name));
      if (selects) rules.push_back(rule);
    }
    Member member;
    member.name = name;
    member.key = builder_->pool().Text(scalars_.Quoted(name));
    member.required = shape.required.Has(name);
    bool impossible = false;
    for (const KeyRule* rule : rules) {
      impossible = impossible || rule->impossible;
      if (!rule->impossible) member.value.push_back(rule->value);
    }
    if (impossible && !member.required) continue;
    if (impossible) member.key = RegexPool::kNothing;
    for (size_t i = 0; i < shape.demands.size(); ++i) {
      DEEPINFER_ASSIGN_OR_RETURN(const bool selects, Selects(shape.demands[i].keys, name));
      if (!selects) continue;
      member.meets.emplace_back(i, shape.demands[i].any_value ? std::nullopt : std::optional(shape.demands[i].value));
    }
    members.named.push_back(std::move(member));
  }
  DEEPINFER_RETURN_IF_ERROR(AddOtherMembers(shape, std::move(names), &members));
  return members;
}

Status SchemaRules::AddOtherMembers(const ObjectShape& shape, std::vector<std::string> names, Members* members) {
  std::vector<RegexId> patterns;
  std::vector<const KeySelector*> selectors;
  for (const KeyRule& rule : shape.rules) selectors.push_back(&rule.keys);
  for (const KeyDemand& demand : shape.demands) selectors.push_back(&demand.keys);
  for (const KeySelector* keys : selectors) {
    DEEPINFER_ASSIGN_OR_RETURN(const std::vector<RegexId> own, PatternsOf(*keys));
    for (const RegexId pattern : own) {
      if (std::ranges::find(patterns, pattern) == patterns.end()) patterns.push_back(pattern);
    }
  }
  if (patterns.size() > kMaxPatterns) {
    return Status::Unsupported(
        fmt::format("patternProperties: more than {} patterns for the keys of one object", kMaxPatterns));
  }
  RegexPool& pool = builder_->pool();
  const bool free = names.empty() && patterns.empty();
  const RegexId unnamed = free ? scalars_.FreeString()
                               : pool.And({scalars_.EveryString(), pool.Not(scalars_.AnyOfStrings(std::move(names)))});
  for (unsigned inside = 0; inside < 1u << patterns.size(); ++inside) {
    Member member;
    bool impossible = false;
    for (const KeyRule& rule : shape.rules) {
      DEEPINFER_ASSIGN_OR_RETURN(const bool selects, SelectsOthers(rule.keys, patterns, inside));
      if (!selects) continue;
      impossible = impossible || rule.impossible;
      if (!rule.impossible) member.value.push_back(rule.value);
    }
    if (impossible) continue;
    std::vector<RegexId> key = {unnamed};
    for (size_t i = 0; i < patterns.size(); ++i) {
      key.push_back((inside >> i & 1) != 0 ? patterns[i] : pool.Not(patterns[i]));
    }
    member.key = pool.And(std::move(key));
    if (!patterns.empty() && pool.IsEmpty(member.key)) continue;
    for (size_t i = 0; i < shape.demands.size(); ++i) {
      DEEPINFER_ASSIGN_OR_RETURN(const bool selects, SelectsOthers(shape.demands[i].keys, patterns, inside));
      if (!selects) continue;
      member.meets.emplace_back(i, shape.demands[i].any_value ? std::nullopt : std::optional(shape.demands[i].value));
    }
    members->others.push_back(std::move(member));
  }
  return Status::Ok();
}

Result<std::vector<SchemaRules::MemberWay>> SchemaRules::WaysOf(const Member& member, Conjunction value, bool first) {
  std::vector<MemberWay> ways;
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<int32_t> rule, RuleOf(std::move(value), Place::kInside));
  if (rule) ways.push_back({KeyTerminal(member.key, first), rule, Symbol()});
  return ways;
}

Status SchemaRules::EmitObject(const ObjectShape& shape, bool leading_space, int32_t start, int32_t end) {
  const int32_t inside = builder_->AddState();
  builder_->AddEdge(start, Mark("{", leading_space), inside);
  const Symbol close = Mark("}", true);
  return EmitMembers(shape, nullptr, close, close, inside, end);
}

Status SchemaRules::EmitMembers(const ObjectShape& shape, const ArgumentForm* form, Symbol empty, Symbol some,
                                int32_t start, int32_t end) {
  if (shape.demands.size() > kMaxDemands) {
    return Status::Unsupported(fmt::format("not: more than {} demands on the keys of one object", kMaxDemands));
  }
  DEEPINFER_ASSIGN_OR_RETURN(Members members, MembersOf(shape));
  if (form != nullptr && !form->undeclared_names) members.others.clear();
  const size_t named = members.named.size();
  const bool any_order =
      options_.key_order == JsonSchemaOptions::KeyOrder::kAny && named <= static_cast<size_t>(options_.max_any_order);
  // Numbers of members are counted only as far as they matter.
  const bool bounded =
      shape.most != SchemaNode::kNoLimit && (!members.others.empty() || shape.most < static_cast<int64_t>(named));
  const int64_t least = shape.least > static_cast<int64_t>(shape.required.size()) ? shape.least : 0;
  const int64_t ceiling = std::max<int64_t>({least, bounded ? shape.most : 0, 1});
  const unsigned all_met = (1u << shape.demands.size()) - 1;

  // Where an object can stand between two members: which named members were (any order) or how far they went (declared
  // order), how many there were, which demands are met.
  struct Stand {
    uint64_t passed;
    int64_t count;
    unsigned met;
    auto operator<=>(const Stand&) const = default;
  };
  std::map<Stand, int32_t> states = {{{0, 0, 0}, start}};
  std::vector<Stand> work = {{0, 0, 0}};
  const auto state_of = [&](const Stand& stand) {
    const auto [known, added] = states.emplace(stand, 0);
    if (added) {
      known->second = builder_->AddState();
      work.push_back(stand);
    }
    return known->second;
  };
  const auto add_member = [&](const Stand& from, const Member& member, uint64_t passed) -> Status {
    if (member.key == RegexPool::kNothing || (bounded && from.count >= shape.most)) return Status::Ok();
    // Each set of demands that this member may meet: the value then satisfies them too.
    for (unsigned choice = 0; choice < 1u << member.meets.size(); ++choice) {
      Conjunction value = member.value;
      unsigned met = from.met;
      for (size_t i = 0; i < member.meets.size(); ++i) {
        if ((choice >> i & 1) == 0) continue;
        met |= 1u << member.meets[i].first;
        if (member.meets[i].second) value.push_back(*member.meets[i].second);
      }
      if (choice != 0 && met == from.met) continue;
      DEEPINFER_ASSIGN_OR_RETURN(const std::vector<MemberWay> ways, form == nullptr
                                                                        ? WaysOf(member, value, from.count == 0)
                                                                        : ArgumentWaysOf(member, value, *form));
      for (const MemberWay& way : ways) {
        const int32_t to = state_of({passed, std::min(from.count + 1, ceiling), met});
        int32_t at = states.at(from);
        const int32_t behind_open = way.value ? builder_->AddState() : to;
        builder_->AddEdge(at, way.open, behind_open);
        if (!way.value) continue;
        at = way.close.IsNone() ? to : builder_->AddState();
        builder_->AddEdge(behind_open, Symbol::Rule(*way.value), at);
        if (!way.close.IsNone()) builder_->AddEdge(at, way.close, to);
      }
    }
    return Status::Ok();
  };
  while (!work.empty()) {
    const Stand stand = work.back();
    work.pop_back();
    if (states.size() > kMaxStates) {
      return Status::ResourceExhausted("minProperties, maxProperties: an object needs too many states");
    }
    bool complete = any_order || stand.passed == named;
    for (size_t i = 0; i < named; ++i) {
      const Member& member = members.named[i];
      if (any_order) {
        if ((stand.passed >> i & 1) != 0) continue;
        complete = complete && !member.required;
        DEEPINFER_RETURN_IF_ERROR(add_member(stand, member, stand.passed | uint64_t{1} << i));
      } else if (i == stand.passed) {
        if (!member.required) builder_->AddJump(states.at(stand), state_of({i + 1, stand.count, stand.met}));
        DEEPINFER_RETURN_IF_ERROR(add_member(stand, member, i + 1));
      }
    }
    if (any_order || stand.passed == named) {
      for (const Member& member : members.others) DEEPINFER_RETURN_IF_ERROR(add_member(stand, member, stand.passed));
    }
    if (complete && stand.count >= least && stand.met == all_met) {
      builder_->AddEdge(states.at(stand), stand.count == 0 ? empty : some, end);
    }
  }
  return Status::Ok();
}

}  // namespace deepinfer
