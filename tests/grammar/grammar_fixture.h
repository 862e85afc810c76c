// What the tests of the grammar room share: matching of whole texts, the tries of the two vocabularies, and masks made
// the slow way.
#ifndef DEEPINFER_TESTS_GRAMMAR_GRAMMAR_FIXTURE_H_
#define DEEPINFER_TESTS_GRAMMAR_GRAMMAR_FIXTURE_H_

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/front_ends.h"
#include "grammar/matcher.h"

namespace deepinfer::testing {

std::shared_ptr<const TokenTrie> NanoTrie();
std::shared_ptr<const TokenTrie> ReleasedTrie();

/// Whether `text` belongs to `grammar`.
bool Accepts(const Grammar& grammar, std::string_view text);

/// The tokens whose bytes a fresh recogniser admits after `text`, one by one, without trie, parts or memory.
std::vector<int32_t> NaiveMask(const Grammar& grammar, std::string_view text, const TokenTrie& trie);

/// The tokens of a mask.
std::vector<int32_t> TokensOf(const std::vector<uint32_t>& words);

/// The id that ends a text in the tests: an added token of the vocabulary.
int32_t EndToken(const TokenTrie& trie);

/// Random tokens that the masks admit, until the end or `limit` tokens. With `hurry`, the text ends as soon as it may,
/// and shorter tokens are likelier. Empty when it did not end.
std::string RandomWalk(const std::shared_ptr<const CompiledGrammar>& grammar, std::mt19937* random, int limit,
                       bool hurry);

}  // namespace deepinfer::testing

#endif  // DEEPINFER_TESTS_GRAMMAR_GRAMMAR_FIXTURE_H_
