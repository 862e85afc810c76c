#include "grammar/recogniser.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace deepinfer {

Recogniser::Recogniser(const Grammar* grammar, const RecogniserLimits& limits) : grammar_(grammar), limits_(limits) {
  Clear();
}

void Recogniser::Clear() {
  pool_ = std::make_unique<RegexPool>(grammar_->pool.get(), limits_.max_regex_nodes);
  lexer_ = std::make_unique<Lexer>(grammar_->terminals, pool_.get());
  class_of_ = pool_->Classes().of;
  class_count_ = pool_->Classes().representative.size();
  exhausted_ = false;
  row_bytes_ = 0;
  rows_.clear();
  row_index_.clear();
  states_.clear();
  state_index_.clear();
  next_.clear();
  without_high_counts_.clear();
  const int32_t row =
      InternRow({{grammar_->rules[static_cast<size_t>(grammar_->root)].start, grammar_->root, kBottom}});
  State state;
  state.accepts = rows_[static_cast<size_t>(row)].accepts;
  if (!rows_[static_cast<size_t>(row)].scans.empty()) {
    state.threads.push_back({row, rows_[static_cast<size_t>(row)].lexer_start});
  }
  start_ = InternState(std::move(state));
}

size_t Recogniser::memory_bytes() const {
  return pool_->memory_bytes() + lexer_->memory_bytes() + row_bytes_ + next_.size() * 4 + states_.size() * 96;
}

int32_t Recogniser::Walk(int32_t state, std::string_view text) {
  for (const char c : text) {
    state = Step(state, static_cast<uint8_t>(c));
    if (state == kDead) break;
  }
  return state;
}

int32_t Recogniser::WithoutHighCounts(int32_t state, size_t length) {
  const auto known = without_high_counts_.find(state);
  if (known != without_high_counts_.end()) return known->second;
  State alike = states_[static_cast<size_t>(state)];
  for (Thread& thread : alike.threads) {
    thread.lexer = lexer_->WithoutHighCounts(thread.lexer, static_cast<int>(length));
  }
  if (pool_->exhausted()) exhausted_ = true;
  if (exhausted_) return state;
  std::ranges::sort(alike.threads);
  alike.threads.erase(std::unique(alike.threads.begin(), alike.threads.end()), alike.threads.end());
  const int32_t result = InternState(std::move(alike));
  without_high_counts_.emplace(state, result);
  return result;
}

void Recogniser::Close(const std::vector<Item>& kernel, Row* row) {
  items_.clear();
  slots_.assign(64, -1);
  const auto hash = [](const Item& item) {
    uint64_t value = static_cast<uint32_t>(item.state) * 0x9E3779B97F4A7C15ULL;
    value ^= static_cast<uint32_t>(item.completes) * 0xC2B2AE3D27D4EB4FULL;
    value ^= static_cast<uint32_t>(item.origin) * 0x165667B19E3779F9ULL;
    return value ^ value >> 29;
  };
  const auto place = [&](const Item& item) {
    const size_t mask = slots_.size() - 1;
    size_t slot = hash(item) & mask;
    while (slots_[slot] >= 0 && items_[static_cast<size_t>(slots_[slot])] != item) slot = (slot + 1) & mask;
    return slot;
  };
  const auto add = [&](const Item& item) {
    size_t slot = place(item);
    if (slots_[slot] >= 0) return;
    items_.push_back(item);
    slots_[slot] = static_cast<int32_t>(items_.size()) - 1;
    if (items_.size() * 2 <= slots_.size()) return;
    slots_.assign(slots_.size() * 4, -1);
    for (size_t i = 0; i < items_.size(); ++i) slots_[place(items_[i])] = static_cast<int32_t>(i);
  };
  for (const Item& item : kernel) add(item);
  for (size_t next = 0; next < items_.size(); ++next) {
    pool_->AddWork(3);
    if (items_.size() > limits_.max_items_per_row || pool_->exhausted()) {
      exhausted_ = true;
      return;
    }
    const Item item = items_[next];
    for (const Grammar::Edge& edge : grammar_->EdgesOf(item.state)) {
      const Item after = {edge.target, item.completes, item.origin};
      if (edge.symbol.IsNone()) {
        add(after);
      } else if (edge.symbol.IsTerminal()) {
        const int32_t terminal = edge.symbol.index();
        if (pool_->Nullable(grammar_->terminals[static_cast<size_t>(terminal)])) add(after);
        row->scans.push_back({terminal, after});
      } else {
        const int32_t index = edge.symbol.index();
        const Grammar::Rule& rule = grammar_->rules[static_cast<size_t>(index)];
        const Grammar::State& target = grammar_->states[static_cast<size_t>(edge.target)];
        if (rule.nullable) add(after);
        if (target.final && target.edge_count == 0) {
          // Nothing follows in this rule: the end of the inner rule is its end, so no row needs to wait here. This
          // keeps right recursion in rows of constant size.
          add({rule.start, item.completes, item.origin});
        } else {
          row->waits.push_back({index, after});
          add({rule.start, index, kHere});
        }
      }
    }
    if (!grammar_->states[static_cast<size_t>(item.state)].final) continue;
    if (item.origin == kBottom) {
      row->accepts = true;
    } else if (item.origin != kHere) {  // a rule that is empty here was stepped over where it was predicted
      const Row& origin = rows_[static_cast<size_t>(item.origin)];
      auto wait = std::ranges::lower_bound(origin.waits, item.completes, {}, &Pending::symbol);
      for (; wait != origin.waits.end() && wait->symbol == item.completes; ++wait) {
        pool_->AddWork(1);
        Item after = wait->item;
        if (after.origin == kHere) after.origin = item.origin;
        add(after);
      }
    }
  }
  std::ranges::sort(row->waits);
  std::ranges::sort(row->scans);
  row->waits.erase(std::unique(row->waits.begin(), row->waits.end()), row->waits.end());
  row->scans.erase(std::unique(row->scans.begin(), row->scans.end()), row->scans.end());
}

int32_t Recogniser::InternRow(std::vector<Item> kernel) {
  Row row;
  Close(kernel, &row);
  uint64_t hash = XXH3_64bits_withSeed(row.waits.data(), row.waits.size() * sizeof(Pending), row.accepts ? 1 : 0);
  hash = XXH3_64bits_withSeed(row.scans.data(), row.scans.size() * sizeof(Pending), hash);
  const auto [first, last] = row_index_.equal_range(hash);
  for (auto known = first; known != last; ++known) {
    const Row& other = rows_[static_cast<size_t>(known->second)];
    if (other.accepts == row.accepts && other.waits == row.waits && other.scans == row.scans) return known->second;
  }
  std::vector<int32_t> terminals;
  for (const Pending& scan : row.scans) {
    if (terminals.empty() || terminals.back() != scan.symbol) terminals.push_back(scan.symbol);
  }
  row.lexer_start = lexer_->StartOf(terminals);
  row_bytes_ += sizeof(Row) + 48 + (row.waits.size() + row.scans.size()) * sizeof(Pending);
  const auto id = static_cast<int32_t>(rows_.size());
  rows_.push_back(std::move(row));
  row_index_.emplace(hash, id);
  return id;
}

int32_t Recogniser::InternState(State state) {
  const uint64_t hash =
      XXH3_64bits_withSeed(state.threads.data(), state.threads.size() * sizeof(Thread), state.accepts ? 1 : 0);
  const auto [first, last] = state_index_.equal_range(hash);
  for (auto known = first; known != last; ++known) {
    const State& other = states_[static_cast<size_t>(known->second)];
    if (other.accepts == state.accepts && other.threads == state.threads) return known->second;
  }
  const auto id = static_cast<int32_t>(states_.size());
  states_.push_back(std::move(state));
  state_index_.emplace(hash, id);
  next_.resize(next_.size() + class_count_, kUnknown);
  return id;
}

int32_t Recogniser::ComputeStep(int32_t state, uint8_t byte_class) {
  if (exhausted_) return kDead;
  State after;
  std::vector<Item> kernel;
  for (const Thread& thread : states_[static_cast<size_t>(state)].threads) {
    const int32_t lexer = lexer_->Step(thread.lexer, byte_class);
    if (lexer == Lexer::kDead) continue;
    if (lexer_->CanContinue(lexer)) after.threads.push_back({thread.row, lexer});
    const Row& row = rows_[static_cast<size_t>(thread.row)];
    for (const int32_t terminal : lexer_->CompletedIn(lexer)) {
      auto scan = std::ranges::lower_bound(row.scans, terminal, {}, &Pending::symbol);
      for (; scan != row.scans.end() && scan->symbol == terminal; ++scan) {
        pool_->AddWork(1);
        Item item = scan->item;
        if (item.origin == kHere) item.origin = thread.row;
        kernel.push_back(item);
      }
    }
  }
  if (!kernel.empty()) {
    const int32_t id = InternRow(std::move(kernel));
    const Row& row = rows_[static_cast<size_t>(id)];
    after.accepts = row.accepts;
    if (!row.scans.empty()) after.threads.push_back({id, row.lexer_start});
  }
  std::ranges::sort(after.threads);
  const int32_t next = after.threads.empty() && !after.accepts ? kDead : InternState(std::move(after));
  if (pool_->exhausted() || memory_bytes() > limits_.max_bytes) exhausted_ = true;
  if (exhausted_) return kDead;
  next_[static_cast<size_t>(state) * class_count_ + byte_class] = next;
  return next;
}

}  // namespace deepinfer
