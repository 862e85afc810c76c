// AcceptDrafts: rejection sampling leaves the target's law as it is, whatever is drafted.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "ops_test_util.h"
#include "sampling_test_util.h"

namespace deepinfer::test {
namespace {

class SamplingDraftsTest : public SamplingOpsTest {};

using Row = std::vector<float>;

// A toy model of six tokens: the logits of a position depend on the token before it.
constexpr int kIds = 6;
Row ToyRow(int model, int previous) {
  Row row(kIds);
  for (int id = 0; id < kIds; ++id) {
    row[static_cast<size_t>(id)] = 2 * std::sin(static_cast<float>(1 + 13 * model + 7 * id + 5 * previous * (id + 1)));
  }
  return row;
}

struct Setting {
  TokenRule target;
  TokenRule draft;
  int drafts = 1;
  int verified = 1;      ///< fewer than drafted: truncation
  bool uniform = false;  ///< drafts are proposed by other means: each is token (position % 6)
};

// Draws `draws` pairs of first and second token by drafting, checking, and, where the check ended after one token, by
// another round from there, and counts them.
std::vector<int> CountPairs(Ops& ops, const Setting& setting, int draws, int* accepted = nullptr) {
  std::vector<int> pairs(kIds * kIds);
  for (int draw = 0; draw < draws; ++draw) {
    std::vector<int32_t> text = {0};
    while (text.size() < 3) {
      std::vector<int32_t> drafts;
      std::vector<TokenRule> target_rules, draft_rules;
      Tensor draft_logits(setting.drafts, kIds), target_logits(setting.verified + 1, kIds);
      for (int k = 0; k <= setting.drafts; ++k) {
        const int previous = k == 0 ? text.back() : drafts.back();
        const uint64_t seed = static_cast<uint64_t>(draw);
        const int64_t position = static_cast<int64_t>(text.size()) + k;
        if (k <= setting.verified) {
          const Row row = ToyRow(0, previous);
          std::copy(row.begin(), row.end(), target_logits.row(k));
          target_rules.push_back(setting.target);
          target_rules.back().seed = seed;
          target_rules.back().position = position;
        }
        if (k == setting.drafts) break;
        const Row row = ToyRow(1, previous);
        std::copy(row.begin(), row.end(), draft_logits.row(k));
        draft_rules.push_back(setting.draft);
        draft_rules.back().seed = seed;
        draft_rules.back().position = position;
        draft_rules.back().purpose = RandomPurpose::kDraft;
        drafts.push_back(setting.uniform ? static_cast<int32_t>(position % kIds) : One(ops, row, draft_rules.back()));
      }
      const DraftCheck check{target_logits.view(), target_rules,
                             setting.uniform ? ConstFloatView() : draft_logits.view().RowRange(0, setting.verified),
                             std::span(draft_rules).first(static_cast<size_t>(setting.verified)),
                             std::span(drafts).first(static_cast<size_t>(setting.verified))};
      DraftVerdict verdict;
      ops.AcceptDrafts({&check, 1}, {&verdict, 1});
      EXPECT_GE(verdict.accepted, 0);
      EXPECT_LE(verdict.accepted, setting.verified);
      if (accepted != nullptr) *accepted += verdict.accepted;
      text.insert(text.end(), drafts.begin(), drafts.begin() + verdict.accepted);
      text.push_back(verdict.token);
    }
    ++pairs[static_cast<size_t>(text[1] * kIds + text[2])];
  }
  return pairs;
}

// The law of one token under T and top-k of `rule`, by definition.
std::vector<double> Law(Row row, const TokenRule& rule) {
  if (rule.temperature == 0) {
    std::vector<double> law(kIds);
    law[static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin())] = 1;
    return law;
  }
  if (rule.top_k > 0) {
    Row sorted = row;
    std::sort(sorted.rbegin(), sorted.rend());
    for (float& logit : row) {
      if (logit < sorted[static_cast<size_t>(rule.top_k - 1)]) logit = -kInfinity;
    }
  }
  return Softmax(row, rule.temperature);
}

std::vector<double> PairLaw(const TokenRule& rule) {
  std::vector<double> law;
  const std::vector<double> first = Law(ToyRow(0, 0), rule);
  for (int a = 0; a < kIds; ++a) {
    for (const double second : Law(ToyRow(0, a), rule)) law.push_back(first[static_cast<size_t>(a)] * second);
  }
  return law;
}

TEST_P(SamplingDraftsTest, TheLawIsTheTargets) {
  std::vector<Setting> settings;
  const TokenRule plain = At(1, 0, 0), hot = At(1.7, 0, 0), greedy = At(0, 0, 0);
  TokenRule top3 = At(0.8, 0, 0);
  top3.top_k = 3;
  settings.push_back({plain, plain, 1, 1});
  settings.push_back({plain, plain, 3, 3});
  settings.push_back({plain, plain, 3, 1});  // truncation: the token at the cut is drawn from p itself
  settings.push_back({plain, plain, 2, 0});
  settings.push_back({plain, greedy, 2, 2});  // greedy drafts
  settings.push_back({plain, hot, 2, 2});
  settings.push_back({top3, top3, 2, 2});
  settings.push_back({top3, plain, 3, 2});
  settings.push_back({plain, top3, 2, 2});
  settings.push_back({plain, greedy, 2, 2, true});
  for (size_t i = 0; i < settings.size(); ++i) {
    int accepted = 0;
    const std::vector<int> pairs = CountPairs(ops(), settings[i], 6000, &accepted);
    EXPECT_LT(ChiSquare(pairs, PairLaw(settings[i].target)), kLimit35) << i;
    if (settings[i].verified > 0) {
      EXPECT_GT(accepted, 300) << i;  // the draws went through both branches
    }
  }
}

TEST_P(SamplingDraftsTest, ZeroTemperatureIsGreedy) {
  const TokenRule plain = At(1, 0, 0), greedy = At(0, 0, 0);
  for (const TokenRule& draft : {plain, greedy}) {
    EXPECT_EQ(ChiSquare(CountPairs(ops(), {greedy, draft, 3, 3}, 200), PairLaw(greedy)), 0);
  }
}

// One check of one draft; draft T as given.
DraftVerdict CheckOne(Ops& ops, const Row& p, const Row& bonus, const Row& q, int32_t draft, double draft_temperature,
                      int64_t position = 5, double temperature = 1) {
  Tensor target(2, static_cast<int64_t>(p.size()));
  std::copy(p.begin(), p.end(), target.row(0));
  std::copy(bonus.begin(), bonus.end(), target.row(1));
  const Tensor drafted = Repeated(q, 1);
  const std::vector<TokenRule> rules = {At(temperature, 9, position), At(temperature, 9, position + 1)};
  const TokenRule draft_rule = At(draft_temperature, 9, position);
  const DraftCheck check{target.view(), rules, drafted.view(), {&draft_rule, 1}, {&draft, 1}};
  DraftVerdict verdict;
  ops.AcceptDrafts({&check, 1}, {&verdict, 1});
  return verdict;
}

TEST_P(SamplingDraftsTest, EqualLawsAcceptEveryDraft) {
  Random random(1);
  for (int64_t position = 0; position < 200; ++position) {
    Row row(70);
    for (float& logit : row) logit = 3 * random.Normal();
    TokenRule rule = At(1, 9, position);
    rule.purpose = RandomPurpose::kDraft;
    const int32_t draft = One(ops(), row, rule);
    const DraftVerdict verdict = CheckOne(ops(), row, row, row, draft, 1, position);
    EXPECT_EQ(verdict.accepted, 1);
    EXPECT_EQ(verdict.token, One(ops(), row, At(1, 9, position + 1)));  // the bonus is the token of ChooseTokens
  }
}

TEST_P(SamplingDraftsTest, WhatTheTargetBarsIsNeverAccepted) {
  const Row p = {-kInfinity, 1, 2, 3};
  for (const double temperature : {0.0, 1.0}) {
    for (int64_t position = 0; position < 50; ++position) {
      const DraftVerdict verdict = CheckOne(ops(), p, p, {9, 0, 0, 0}, 0, temperature, position);
      EXPECT_EQ(verdict.accepted, 0);
      EXPECT_NE(verdict.token, 0);
    }
  }
  // A draft that its own law excludes, and the target too.
  EXPECT_EQ(CheckOne(ops(), p, p, p, 0, 1).accepted, 0);
}

TEST_P(SamplingDraftsTest, BrokenRowsAreAnError) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Row good = {1, 2, 3}, bad = {1, nan, 3};
  EXPECT_EQ(CheckOne(ops(), bad, good, good, 2, 1).token, -1);
  EXPECT_EQ(CheckOne(ops(), good, good, bad, 2, 1).token, -1);
  EXPECT_GE(CheckOne(ops(), good, good, bad, 2, 0).token, 0);  // not read
  const DraftVerdict last = CheckOne(ops(), {0, 0, 90}, bad, good, 2, 0);
  EXPECT_EQ(last.accepted, 1);
  EXPECT_EQ(last.token, -1);
}

TEST_P(SamplingDraftsTest, LikeReferenceToTheBit) {
  Random random(2);
  for (const int64_t vocabulary : {1, 2, 15, 16, 33, 100, 5000}) {
    constexpr int kSequences = 24;
    std::vector<Tensor> target, draft;
    std::vector<std::vector<TokenRule>> target_rules(kSequences), draft_rules(kSequences);
    std::vector<std::vector<int32_t>> drafts(kSequences);
    std::vector<DraftCheck> checks;
    const std::vector<LogitBias> bias = {{0, 3}};
    for (size_t i = 0; i < kSequences; ++i) {
      const int64_t count = random.Below(5);
      draft.push_back(RandomTensor(count, vocabulary, random));
      Tensor rows(count + 1, vocabulary);
      for (int64_t t = 0; t <= count; ++t) {
        for (int64_t id = 0; id < vocabulary; ++id) {
          rows.row(t)[id] = (t < count ? draft.back().row(t)[id] : 0) + random.Normal();
        }
        TokenRule rule = At(std::array{0.0, 0.7, 1.0}[random.Below(3)], i, 10 + t);
        rule.top_k = std::array{0, 5, 40}[random.Below(3)];
        rule.top_p = std::array{1.0, 0.9}[random.Below(2)];
        rule.min_p = std::array{0.0, 0.05}[random.Below(2)];
        if (random.Below(2) == 0) rule.bias = bias;
        target_rules[i].push_back(rule);
        if (t == count) break;
        rule.temperature = std::array{0.0, rule.temperature, 1.0}[random.Below(3)];
        rule.purpose = RandomPurpose::kDraft;
        draft_rules[i].push_back(rule);
        drafts[i].push_back(Choose(reference(), draft.back().view().RowRange(t, t + 1), {rule}).choices[0].id);
      }
      target.push_back(std::move(rows));
    }
    for (size_t i = 0; i < kSequences; ++i) {
      checks.push_back({target[i].view(), target_rules[i], draft[i].view(), draft_rules[i], drafts[i]});
    }
    std::vector<DraftVerdict> expected(kSequences), actual(kSequences);
    reference().AcceptDrafts(checks, expected);
    ops().AcceptDrafts(checks, actual);
    for (size_t i = 0; i < kSequences; ++i) {
      EXPECT_EQ(actual[i].accepted, expected[i].accepted) << vocabulary << " " << i;
      EXPECT_EQ(actual[i].token, expected[i].token) << vocabulary << " " << i;
    }
  }
}

DEEPINFER_INSTANTIATE_BACKENDS(SamplingDraftsTest);

}  // namespace
}  // namespace deepinfer::test
