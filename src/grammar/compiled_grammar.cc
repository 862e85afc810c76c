#include "grammar/compiled_grammar.h"

namespace deepinfer {
namespace {

// Memories kept for later requests; with more requests at once, further ones start from nothing.
constexpr size_t kMaxIdle = 4;

}  // namespace

CompiledGrammar::Memory::Memory(const Grammar* grammar, std::shared_ptr<const TokenTrie> trie,
                                const MatcherLimits& limits)
    : recogniser(grammar, limits.recogniser), masks(std::move(trie), &recogniser, limits.max_mask_bytes) {}

CompiledGrammar::CompiledGrammar(Grammar grammar, std::shared_ptr<const TokenTrie> trie, const MatcherLimits& limits)
    : grammar_(std::move(grammar)), trie_(std::move(trie)), limits_(limits) {}

std::shared_ptr<const CompiledGrammar> CompiledGrammar::Make(Grammar grammar, std::shared_ptr<const TokenTrie> trie,
                                                             const MatcherLimits& limits) {
  return std::shared_ptr<const CompiledGrammar>(new CompiledGrammar(std::move(grammar), std::move(trie), limits));
}

size_t CompiledGrammar::memory_bytes() const {
  size_t bytes = grammar_.memory_bytes();
  const std::lock_guard lock(mutex_);
  for (const auto& memory : idle_) bytes += memory->recogniser.memory_bytes() + memory->masks.memory_bytes();
  return bytes;
}

std::unique_ptr<CompiledGrammar::Memory> CompiledGrammar::Borrow() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Memory> memory = std::move(idle_.back());
      idle_.pop_back();
      return memory;
    }
  }
  return std::make_unique<Memory>(&grammar_, trie_, limits_);
}

void CompiledGrammar::GiveBack(std::unique_ptr<Memory> memory) const {
  if (memory->recogniser.exhausted() || memory->recogniser.memory_bytes() > limits_.recogniser.max_bytes / 2) return;
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMaxIdle) idle_.push_back(std::move(memory));
}

}  // namespace deepinfer
