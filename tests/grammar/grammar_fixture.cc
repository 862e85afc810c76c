#include "grammar_fixture.h"

#include <cstdlib>
#include <iostream>

#include "tokenizer_fixture.h"

namespace deepinfer::testing {
namespace {

std::shared_ptr<const TokenTrie> TrieOf(const Tokenizer& tokenizer) {
  auto trie = TokenTrie::Build(tokenizer, (tokenizer.vocab_size() + 127) / 128 * 128);
  if (!trie.ok()) {
    std::cerr << trie.status().message() << std::endl;
    std::abort();
  }
  return *trie;
}

}  // namespace

std::shared_ptr<const TokenTrie> NanoTrie() {
  static const auto trie = TrieOf(NanoTokenizer());
  return trie;
}

std::shared_ptr<const TokenTrie> ReleasedTrie() {
  static const auto trie = TrieOf(ReleasedTokenizer());
  return trie;
}

bool Accepts(const Grammar& grammar, std::string_view text) {
  Recogniser recogniser(&grammar, {});
  const int32_t state = recogniser.Walk(recogniser.start(), text);
  return state != Recogniser::kDead && recogniser.Accepts(state) && !recogniser.exhausted();
}

std::vector<int32_t> NaiveMask(const Grammar& grammar, std::string_view text, const TokenTrie& trie) {
  Recogniser recogniser(&grammar, {});
  const int32_t state = recogniser.Walk(recogniser.start(), text);
  std::vector<int32_t> tokens;
  for (int32_t token = 0; token < trie.width(); ++token) {
    const std::string_view bytes = trie.BytesOf(token);
    if (!bytes.empty() && recogniser.Walk(state, bytes) != Recogniser::kDead) tokens.push_back(token);
  }
  return tokens;
}

std::vector<int32_t> TokensOf(const std::vector<uint32_t>& words) {
  std::vector<int32_t> tokens;
  for (size_t word = 0; word < words.size(); ++word) {
    for (uint32_t bits = words[word]; bits != 0; bits &= bits - 1) {
      tokens.push_back(static_cast<int32_t>(word * 32) + __builtin_ctz(bits));
    }
  }
  return tokens;
}

int32_t EndToken(const TokenTrie& trie) {
  for (int32_t token = 0; token < trie.width(); ++token) {
    if (trie.BytesOf(token).empty()) return token;
  }
  std::abort();
}

std::string RandomWalk(const std::shared_ptr<const CompiledGrammar>& grammar, std::mt19937* random, int limit,
                       bool hurry) {
  const int32_t end = EndToken(grammar->trie());
  Matcher matcher(grammar, {end});
  std::string text;
  std::vector<uint32_t> words(grammar->trie().words());
  for (int step = 0; step < limit; ++step) {
    if (hurry && matcher.MayEnd()) return text;
    if (!matcher.FillMask(words).ok()) return "";
    const std::vector<int32_t> tokens = TokensOf(words);
    if (tokens.empty()) return "";
    int32_t token = tokens[(*random)() % tokens.size()];
    for (int i = 0; hurry && i < 3; ++i) {
      const int32_t other = tokens[(*random)() % tokens.size()];
      if (grammar->trie().BytesOf(other).size() < grammar->trie().BytesOf(token).size()) token = other;
    }
    const auto accepted = matcher.Accept(token);
    if (!accepted.ok() || !*accepted) return "";
    if (token == end) return text;
    text += grammar->trie().BytesOf(token);
  }
  return "";
}

}  // namespace deepinfer::testing
