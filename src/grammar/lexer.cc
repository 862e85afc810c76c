#include "grammar/lexer.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace deepinfer {

Lexer::Lexer(std::span<const RegexId> terminals, RegexPool* pool)
    : terminals_(terminals), pool_(pool), classes_(pool->Classes().representative.size()) {}

int32_t Lexer::Intern(State state) {
  const uint64_t hash = XXH3_64bits_withSeed(state.live.data(), state.live.size() * sizeof(Live),
                                             XXH3_64bits(state.completed.data(), state.completed.size() * 4));
  const auto [first, last] = index_.equal_range(hash);
  for (auto known = first; known != last; ++known) {
    const State& other = states_[static_cast<size_t>(known->second)];
    if (other.live == state.live && other.completed == state.completed) return known->second;
  }
  const auto id = static_cast<int32_t>(states_.size());
  state.next.assign(classes_, kUnknown);
  memory_ += sizeof(State) + 48 + state.live.size() * sizeof(Live) + (state.completed.size() + classes_) * 4;
  states_.push_back(std::move(state));
  index_.emplace(hash, id);
  return id;
}

int32_t Lexer::StartOf(const std::vector<int32_t>& terminals) {
  State state;
  for (const int32_t terminal : terminals) {
    state.live.push_back({terminal, terminals_[static_cast<size_t>(terminal)]});
  }
  return Intern(std::move(state));
}

int32_t Lexer::Step(int32_t state, uint8_t byte_class) {
  const int32_t known = states_[static_cast<size_t>(state)].next[byte_class];
  if (known != kUnknown) return known;
  const uint8_t byte = pool_->Classes().representative[byte_class];
  State after;
  pool_->AddWork(1 + states_[static_cast<size_t>(state)].live.size());
  for (const Live& live : states_[static_cast<size_t>(state)].live) {
    const RegexId rest = pool_->Derivative(live.rest, byte);
    if (rest == RegexPool::kNothing) continue;
    if (pool_->Nullable(rest)) after.completed.push_back(live.terminal);
    if (pool_->CanContinue(rest)) after.live.push_back({live.terminal, rest});
  }
  const bool dead = after.live.empty() && after.completed.empty();
  const int32_t next = dead ? kDead : Intern(std::move(after));
  states_[static_cast<size_t>(state)].next[byte_class] = next;
  return next;
}

int32_t Lexer::WithoutHighCounts(int32_t state, int length) {
  State alike;
  bool changed = false;
  for (const Live& live : states_[static_cast<size_t>(state)].live) {
    alike.live.push_back({live.terminal, pool_->WithoutHighCounts(live.rest, length)});
    changed = changed || alike.live.back().rest != live.rest;
  }
  return changed ? Intern(std::move(alike)) : state;
}

}  // namespace deepinfer
