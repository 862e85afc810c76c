#include "grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {

size_t Grammar::memory_bytes() const {
  return pool->memory_bytes() + terminals.size() * sizeof(RegexId) + rules.size() * sizeof(Rule) +
         states.size() * sizeof(State) + edges.size() * sizeof(Edge);
}

GrammarBuilder::GrammarBuilder(const GrammarLimits& limits)
    : limits_(limits), pool_(std::make_unique<RegexPool>(limits.max_regex_nodes)) {
  pool_->LimitWork(limits.max_work);
}

Symbol GrammarBuilder::AddTerminal(RegexId regex) {
  const auto [known, added] = terminal_of_.emplace(regex, static_cast<int32_t>(terminals_.size()));
  if (added) terminals_.push_back(regex);
  return Symbol::Terminal(known->second);
}

int32_t GrammarBuilder::AddRule() {
  starts_.push_back(AddState());
  return static_cast<int32_t>(starts_.size()) - 1;
}

int32_t GrammarBuilder::AddState() {
  final_.push_back(false);
  return static_cast<int32_t>(final_.size()) - 1;
}

void GrammarBuilder::AddEdge(int32_t from, Symbol symbol, int32_t to) {
  if (edges_.size() <= limits_.max_edges) edges_.push_back({from, symbol, to});
}

Status GrammarBuilder::CheckLimits() const {
  if (pool_->exhausted()) {
    return Status::ResourceExhausted("the grammar needs too many regular-expression nodes, or too much work");
  }
  if (final_.size() > limits_.max_states) {
    return Status::ResourceExhausted(fmt::format("the grammar needs more than {} states", limits_.max_states));
  }
  if (edges_.size() > limits_.max_edges) {
    return Status::ResourceExhausted(fmt::format("the grammar needs more than {} edges", limits_.max_edges));
  }
  return Status::Ok();
}

std::vector<bool> GrammarBuilder::Reaching(const std::vector<bool>& usable_terminals) const {
  // Backwards from the final states; a rule becomes usable when its start is reached, which releases its edges.
  std::vector<std::vector<int32_t>> into(final_.size());
  std::vector<std::vector<int32_t>> waiting(starts_.size());  // edges that carry a rule
  std::vector<int32_t> rule_of_start(final_.size(), -1);
  for (size_t rule = 0; rule < starts_.size(); ++rule) {
    rule_of_start[static_cast<size_t>(starts_[rule])] = static_cast<int32_t>(rule);
  }
  for (size_t i = 0; i < edges_.size(); ++i) {
    into[static_cast<size_t>(edges_[i].to)].push_back(static_cast<int32_t>(i));
    if (edges_[i].symbol.IsRule())
      waiting[static_cast<size_t>(edges_[i].symbol.index())].push_back(static_cast<int32_t>(i));
  }
  std::vector<bool> reached(final_.size());
  std::vector<bool> usable_rules(starts_.size());
  std::vector<int32_t> work;
  const auto reach = [&](int32_t state) {
    if (reached[static_cast<size_t>(state)]) return;
    reached[static_cast<size_t>(state)] = true;
    work.push_back(state);
  };
  for (size_t state = 0; state < final_.size(); ++state) {
    if (final_[state]) reach(static_cast<int32_t>(state));
  }
  while (!work.empty()) {
    const int32_t state = work.back();
    work.pop_back();
    for (const int32_t edge : into[static_cast<size_t>(state)]) {
      const Symbol symbol = edges_[static_cast<size_t>(edge)].symbol;
      const bool usable =
          symbol.IsNone() || (symbol.IsTerminal() ? usable_terminals[static_cast<size_t>(symbol.index())]
                                                  : usable_rules[static_cast<size_t>(symbol.index())]);
      if (usable) reach(edges_[static_cast<size_t>(edge)].from);
    }
    const int32_t rule = rule_of_start[static_cast<size_t>(state)];
    if (rule < 0) continue;
    usable_rules[static_cast<size_t>(rule)] = true;
    for (const int32_t edge : waiting[static_cast<size_t>(rule)]) {
      if (reached[static_cast<size_t>(edges_[static_cast<size_t>(edge)].to)]) {
        reach(edges_[static_cast<size_t>(edge)].from);
      }
    }
  }
  return reached;
}

Result<std::vector<bool>> GrammarBuilder::RulesWithText() {
  std::vector<bool> has_text(terminals_.size());
  for (size_t i = 0; i < terminals_.size(); ++i) has_text[i] = !pool_->IsEmpty(terminals_[i]);
  DEEPINFER_RETURN_IF_ERROR(CheckLimits());
  const std::vector<bool> productive = Reaching(has_text);
  std::vector<bool> rules;
  for (const int32_t start : starts_) rules.push_back(productive[static_cast<size_t>(start)]);
  return rules;
}

Result<Grammar> GrammarBuilder::Build(int32_t root, const std::string& empty_message) {
  std::vector<bool> has_text(terminals_.size());
  std::vector<bool> nullable(terminals_.size());
  for (size_t i = 0; i < terminals_.size(); ++i) {
    has_text[i] = !pool_->IsEmpty(terminals_[i]);
    nullable[i] = pool_->Nullable(terminals_[i]);
  }
  DEEPINFER_RETURN_IF_ERROR(CheckLimits());
  const std::vector<bool> productive = Reaching(has_text);
  if (!productive[static_cast<size_t>(StartOf(root))]) return Status::InvalidArgument(empty_message);
  const std::vector<bool> skippable = Reaching(nullable);

  Grammar grammar;
  grammar.root = root;
  grammar.rules.resize(starts_.size());
  for (size_t rule = 0; rule < starts_.size(); ++rule) {
    grammar.rules[rule] = {starts_[rule], skippable[static_cast<size_t>(starts_[rule])]};
  }
  std::erase_if(edges_, [&](const BuilderEdge& edge) {
    if (!productive[static_cast<size_t>(edge.to)]) return true;
    if (edge.symbol.IsTerminal()) return !has_text[static_cast<size_t>(edge.symbol.index())];
    return edge.symbol.IsRule() && !productive[static_cast<size_t>(StartOf(edge.symbol.index()))];
  });
  std::ranges::stable_sort(edges_, {}, &BuilderEdge::from);
  grammar.states.resize(final_.size());
  for (size_t state = 0; state < final_.size(); ++state) grammar.states[state].final = final_[state];
  grammar.edges.reserve(edges_.size());
  for (const BuilderEdge& edge : edges_) {
    Grammar::State& state = grammar.states[static_cast<size_t>(edge.from)];
    if (state.edge_count++ == 0) state.first_edge = static_cast<int32_t>(grammar.edges.size());
    grammar.edges.push_back({edge.symbol, edge.to});
  }
  (void)pool_->Classes();
  grammar.pool = std::move(pool_);
  grammar.terminals = std::move(terminals_);
  return grammar;
}

}  // namespace deepinfer
