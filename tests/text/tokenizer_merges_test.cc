// The three ways to apply merges against the definition: merge the leftmost pair of the lowest rank until none is left.
#include "text/tokenizer_merges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tokenizer_fixture.h"

namespace deepinfer {
namespace {

using Method = TokenizerMerges::Method;
using Ids = std::vector<int32_t>;

struct Model {
  TokenizerDefinition definition;
  TokenizerVocabulary vocabulary;
  TokenizerMerges merges;
};

Model Build(const std::string& json) {
  Model model;
  auto definition = ParseTokenizerJson(json, "test");
  EXPECT_TRUE(definition.ok()) << definition.status().message();
  model.definition = std::move(definition).value();
  auto vocabulary = TokenizerVocabulary::Build(model.definition, "test");
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.status().message();
  model.vocabulary = std::move(vocabulary).value();
  auto merges = TokenizerMerges::Build(model.definition, model.vocabulary, "test");
  EXPECT_TRUE(merges.ok()) << merges.status().message();
  model.merges = std::move(merges).value();
  return model;
}

// The definition, word for word, on spellings (ASCII only).
class ByDefinition {
 public:
  explicit ByDefinition(const Model& model) : model_(model) {
    for (size_t rank = 0; rank < model.definition.merges.size(); ++rank) rank_[model.definition.merges[rank]] = rank;
  }

  Ids Apply(const std::string& piece) const {
    std::vector<std::string> symbols;
    for (const char c : piece) symbols.emplace_back(1, c);
    while (true) {
      size_t best = symbols.size();
      size_t best_rank = SIZE_MAX;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = rank_.find({symbols[i], symbols[i + 1]});
        if (found == rank_.end() || found->second >= best_rank) continue;
        best = i;
        best_rank = found->second;
      }
      if (best == symbols.size()) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
    Ids ids;
    for (const std::string& symbol : symbols) ids.push_back(model_.vocabulary.Find(symbol));
    return ids;
  }

 private:
  const Model& model_;
  std::map<std::pair<std::string, std::string>, size_t> rank_;
};

Ids Apply(const Model& model, std::string_view piece, Method method) {
  TokenizerMerges::Scratch scratch;
  Ids ids;
  model.merges.Apply(piece, &scratch, &ids, method);
  return ids;
}

// Random rules over a small alphabet; `ascending` as training makes them, or in any order.
std::vector<std::string> RandomMerges(std::mt19937* random, bool ascending) {
  std::vector<std::string> tokens = {"a", "b", "c"};
  std::vector<std::string> merges;
  std::map<std::string, bool> seen;
  for (int i = 0; i < 40; ++i) {
    const std::string left = tokens[(*random)() % tokens.size()];
    const std::string right = tokens[(*random)() % tokens.size()];
    std::string rule = left;
    rule.append(" ").append(right);
    std::string token = left;
    token.append(right);
    if (token.size() > 12 || seen[rule]) continue;
    // One rule a token in ascending tables; several ways to one token are part of the other kind.
    if (ascending && seen[token]) continue;
    seen[rule] = seen[token] = true;
    merges.push_back(rule);
    tokens.push_back(token);
  }
  if (!ascending) std::shuffle(merges.begin(), merges.end(), *random);
  return merges;
}

void ExpectAllMethodsAgree(bool ascending) {
  std::mt19937 random(ascending ? 1 : 2);
  for (int table = 0; table < 60; ++table) {
    const Model model = Build(testing::SmallTokenizerJson(RandomMerges(&random, ascending)).dump());
    const ByDefinition definition(model);
    for (int i = 0; i < 30; ++i) {
      std::string piece;
      const size_t length = 1 + random() % (i % 3 == 0 ? 100 : 20);
      const uint32_t letters = 1 + random() % 3;
      while (piece.size() < length) piece.push_back(static_cast<char>('a' + random() % letters));
      const Ids expected = definition.Apply(piece);
      for (const Method method : {Method::kFastest, Method::kScan, Method::kHeap, Method::kBuckets}) {
        ASSERT_EQ(Apply(model, piece, method), expected) << piece << " method " << static_cast<int>(method);
      }
    }
  }
}

TEST(TokenizerMerges, AllMethodsFollowTheDefinitionOnTrainedTables) { ExpectAllMethodsAgree(/*ascending=*/true); }

TEST(TokenizerMerges, AllMethodsFollowTheDefinitionOnTablesInAnyOrder) { ExpectAllMethodsAgree(/*ascending=*/false); }

TEST(TokenizerMerges, MethodsAgreeOnLongPiecesOfTheReleasedTable) {
  const Model model = Build(testing::ReleasedTokenizerJson());
  std::mt19937 random(5);
  const std::vector<std::string> units = {"a", " ", "\n", "!", "的", "ab", "\xFF", "-=", "我们今天去公园散步"};
  for (const std::string& unit : units) {
    std::string piece;
    while (piece.size() < 20000) piece += unit;
    ASSERT_EQ(Apply(model, piece, Method::kBuckets), Apply(model, piece, Method::kHeap)) << unit;
  }
  for (int i = 0; i < 20; ++i) {
    std::string piece;
    const size_t length = i % 2 == 0 ? 24 : 3000;
    const uint32_t letters = 2 + random() % 200;
    while (piece.size() < length)
      piece.push_back(static_cast<char>(i % 4 < 2 ? 'a' + random() % 26 : random() % letters));
    const Ids expected = Apply(model, piece, Method::kHeap);
    ASSERT_EQ(Apply(model, piece, Method::kBuckets), expected);
    ASSERT_EQ(Apply(model, piece, Method::kScan), expected);
  }
}

TEST(TokenizerMerges, EmptyPieceGivesNothing) {
  const Model model = Build(testing::SmallTokenizerJson({}).dump());
  for (const Method method : {Method::kFastest, Method::kScan, Method::kHeap, Method::kBuckets}) {
    EXPECT_TRUE(Apply(model, "", method).empty());
  }
}

}  // namespace
}  // namespace deepinfer
