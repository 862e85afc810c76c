#include <optional>
#include <set>

#include "grammar/ebnf_parser.h"
#include "grammar/front_end_rules.h"

namespace deepinfer {
namespace {

/// Turns the tree into rules. A part that leads back to no rule is one terminal, whatever rules it is made of.
class Compiler {
 public:
  Compiler(const EbnfGrammar& source, GrammarBuilder* builder)
      : source_(source), builder_(builder), regular_(source.nodes.size()), of_rule_(source.bodies.size()) {}

  Result<int32_t> Compile() {
    FindRegularRules();
    DEEPINFER_RETURN_IF_ERROR(builder_->CheckLimits());
    for (size_t i = 0; i < source_.bodies.size(); ++i) rules_.push_back(builder_->AddRule());
    for (size_t i = 0; i < source_.bodies.size(); ++i) {
      const int32_t end = builder_->AddState();
      builder_->SetFinal(end);
      Emit(source_.bodies[i], builder_->StartOf(rules_[i]), end);
      DEEPINFER_RETURN_IF_ERROR(builder_->CheckLimits());
    }
    return rules_[static_cast<size_t>(source_.root)];
  }

 private:
  using Node = EbnfGrammar::Node;

  const Node& At(int node) const { return source_.nodes[static_cast<size_t>(node)]; }

  /// Rules become regular once all that they name are.
  void FindRegularRules() {
    const size_t count = source_.bodies.size();
    std::vector<std::vector<size_t>> users(count);
    std::vector<size_t> unknown(count);
    std::vector<size_t> ready;
    for (size_t rule = 0; rule < count; ++rule) {
      std::set<int> named;
      CollectRules(source_.bodies[rule], &named);
      unknown[rule] = named.size();
      for (const int other : named) users[static_cast<size_t>(other)].push_back(rule);
      if (named.empty()) ready.push_back(rule);
    }
    while (!ready.empty() && builder_->CheckLimits().ok()) {
      const size_t rule = ready.back();
      ready.pop_back();
      of_rule_[rule] = RegexOf(source_.bodies[rule]);
      for (const size_t user : users[rule]) {
        if (--unknown[user] == 0) ready.push_back(user);
      }
    }
  }

  void CollectRules(int index, std::set<int>* named) const {
    const Node& node = At(index);
    if (node.kind == Node::Kind::kRule) named->insert(node.rule);
    for (const int part : node.parts) CollectRules(part, named);
  }

  /// The node as one expression; nullopt while a rule in it is not regular.
  std::optional<RegexId> RegexOf(int index) {
    std::optional<RegexId>& known = regular_[static_cast<size_t>(index)];
    if (known) return known;
    const Node& node = At(index);
    RegexPool& pool = builder_->pool();
    if (node.kind == Node::Kind::kText) return known = node.text;
    if (node.kind == Node::Kind::kRule) return known = of_rule_[static_cast<size_t>(node.rule)];
    std::vector<RegexId> parts;
    for (const int part : node.parts) {
      const std::optional<RegexId> regex = RegexOf(part);
      if (!regex) return std::nullopt;
      parts.push_back(*regex);
    }
    if (node.kind == Node::Kind::kRepeat) return known = pool.Repeat(parts[0], node.least, node.most);
    if (node.kind == Node::Kind::kEither) return known = pool.Either(std::move(parts));
    RegexId concat = RegexPool::kEmptyText;
    for (size_t i = parts.size(); i > 0; --i) concat = pool.Concat(parts[i - 1], concat);
    return known = concat;
  }

  /// Edges so that the node leads from `from` to `to`.
  void Emit(int index, int32_t from, int32_t to) {
    if (!builder_->CheckLimits().ok()) return;
    const Node& node = At(index);
    if (const std::optional<RegexId> regex = RegexOf(index)) {
      builder_->AddEdge(from, builder_->AddTerminal(*regex), to);
    } else if (node.kind == Node::Kind::kRule) {
      builder_->AddEdge(from, Symbol::Rule(rules_[static_cast<size_t>(node.rule)]), to);
    } else if (node.kind == Node::Kind::kEither) {
      for (const int part : node.parts) Emit(part, from, to);
    } else if (node.kind == Node::Kind::kConcat) {
      int32_t at = from;
      for (size_t i = 0; i < node.parts.size(); ++i) {
        const int32_t next = i + 1 == node.parts.size() ? to : builder_->AddState();
        Emit(node.parts[i], at, next);
        at = next;
      }
    } else {
      EmitRepeat(node, from, to);
    }
  }

  void EmitRepeat(const Node& node, int32_t from, int32_t to) {
    int32_t at = builder_->AddState();
    builder_->AddJump(from, at);
    const bool unbounded = node.most == RegexPool::kUnbounded;
    for (int i = 0; i < (unbounded ? node.least : node.most) && builder_->CheckLimits().ok(); ++i) {
      if (i >= node.least) builder_->AddJump(at, to);
      const int32_t next = builder_->AddState();
      Emit(node.parts[0], at, next);
      at = next;
    }
    if (unbounded) {
      const int32_t loop = builder_->AddState();
      builder_->AddJump(at, loop);
      Emit(node.parts[0], loop, loop);
      at = loop;
    }
    builder_->AddJump(at, to);
  }

  const EbnfGrammar& source_;
  GrammarBuilder* builder_;
  std::vector<std::optional<RegexId>> regular_;  // by node
  std::vector<std::optional<RegexId>> of_rule_;
  std::vector<int32_t> rules_;  // of the builder
};

}  // namespace

Result<int32_t> AddEbnf(std::string_view text, GrammarBuilder* builder) {
  const size_t most = builder->limits().max_source_bytes;
  if (text.size() > most) {
    return Status::ResourceExhausted("a grammar has at most " + std::to_string(most) + " bytes");
  }
  Alphabet alphabet(&builder->pool(), Alphabet::Spelling::kUtf8);
  DEEPINFER_ASSIGN_OR_RETURN(const EbnfGrammar source, ParseEbnf(text, &alphabet));
  return Compiler(source, builder).Compile();
}

Result<Grammar> CompileEbnf(std::string_view text, const GrammarLimits& limits) {
  GrammarBuilder builder(limits);
  DEEPINFER_ASSIGN_OR_RETURN(const int32_t root, AddEbnf(text, &builder));
  return builder.Build(root, "no text satisfies the grammar");
}

}  // namespace deepinfer
