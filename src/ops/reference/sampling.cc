#include "ops/reference/sampling.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/sampling_order.h"

namespace deepinfer::reference {
namespace {

constexpr float kBarred = -std::numeric_limits<float>::infinity();

// Numbers below +infinity; -infinity bars a token.
bool AreNumbers(std::span<const float> logits) {
  return std::all_of(logits.begin(), logits.end(),
                     [](float logit) { return logit < std::numeric_limits<float>::infinity(); });
}

// The ids, most likely first, equal ones by ascending id.
std::vector<int32_t> Ranked(std::span<const float> logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  return ids;
}

// The sum of one term per id, 0 for those that have none.
double LaneSum(std::span<const double> terms) {
  double lanes[sampling::kWeightLanes] = {};
  for (size_t id = 0; id < terms.size(); ++id) lanes[id % sampling::kWeightLanes] += terms[id];
  return sampling::FoldLanes(lanes);
}

// A row after steps 1 to 3.
struct ChangedRow {
  ChangedRow(std::span<const float> row, const TokenRule& rule) : logits(row.begin(), row.end()) {
    if (!AreNumbers(row)) return;
    for (size_t id = 0; rule.allowed != nullptr && id < row.size(); ++id) {
      if ((rule.allowed[id / 32] >> (id % 32) & 1) == 0) logits[id] = kBarred;
    }
    sampling::ApplyRule(rule, logits.data(), std::ssize(logits));
    for (size_t id = 0; id < row.size(); ++id) {
      if (logits[id] > (likeliest < 0 ? kBarred : logits[likeliest])) likeliest = static_cast<int32_t>(id);
    }
  }

  std::vector<float> logits;
  int32_t likeliest = -1;  // -1: nothing to choose from
};

// The distribution that the token is drawn from: steps 4 and 5.
class Distribution {
 public:
  // T > 0.
  Distribution(const ChangedRow& row, const TokenRule& rule)
      : row_(row), rule_(rule), kept_(row.logits.size()), weights_(row.logits.size()) {
    std::vector<int32_t> ranked = Ranked(row.logits);
    if (rule.top_k > 0 && rule.top_k < std::ssize(ranked)) ranked.resize(rule.top_k);
    Keep(ranked);
    if (rule.top_p < 1) {
      const double enough = rule.top_p * LaneSum(weights_);
      double reached = weights_[ranked[0]];
      size_t count = 1;
      while (count < ranked.size() && reached < enough) reached += weights_[ranked[count++]];
      ranked.resize(count);
    }
    if (rule.min_p > 0) {
      const double least = std::log(rule.min_p);
      std::erase_if(ranked, [&](int32_t id) { return Score(id) < least; });
    }
    Keep(ranked);
  }

  bool IsKept(int32_t id) const { return kept_[id]; }
  double Score(int32_t id) const { return (double{row_.logits[id]} - row_.logits[row_.likeliest]) / rule_.temperature; }
  std::vector<double> Probabilities() const {
    std::vector<double> probabilities = weights_;
    const double total = LaneSum(weights_);
    for (double& probability : probabilities) probability /= total;
    return probabilities;
  }

 private:
  // Leaves weights to these ids only.
  void Keep(const std::vector<int32_t>& ids) {
    std::fill(kept_.begin(), kept_.end(), false);
    std::fill(weights_.begin(), weights_.end(), 0.0);
    for (const int32_t id : ids) {
      kept_[id] = row_.logits[id] != kBarred;
      weights_[id] = sampling::ExpNonPositive(Score(id));
    }
  }

  const ChangedRow& row_;
  const TokenRule& rule_;
  std::vector<bool> kept_;       // [V]
  std::vector<double> weights_;  // [V]
};

// Step 6. -1: nothing to choose from.
int32_t Draw(std::span<const float> logits, const TokenRule& rule) {
  const ChangedRow row(logits, rule);
  if (row.likeliest < 0 || rule.temperature == 0) return row.likeliest;
  const Distribution distribution(row, rule);
  double best = -std::numeric_limits<double>::infinity();
  int32_t choice = row.likeliest;
  for (int32_t id = 0; id < std::ssize(logits); ++id) {
    if (!distribution.IsKept(id)) continue;
    const double noisy = distribution.Score(id) + Gumbel(CounterBits(rule.seed, rule.position, id, rule.purpose));
    if (noisy > best) {
      best = noisy;
      choice = id;
    }
  }
  return choice;
}

void AddLogprobs(std::span<const float> logits, const TokenRule& rule, TokenChoice& choice) {
  const std::vector<int32_t> ranked = Ranked(logits);
  const float largest = logits[ranked[0]];
  std::vector<double> weights(logits.size());
  for (size_t id = 0; id < logits.size(); ++id) weights[id] = sampling::ExpNonPositive(double{logits[id]} - largest);
  const double log_total = std::log(LaneSum(weights)) + largest;
  choice.logprob = logits[choice.id] - log_total;
  choice.top_count = static_cast<int32_t>(std::min<int64_t>(rule.top_logprobs, std::ssize(logits)));
  for (int32_t i = 0; i < choice.top_count; ++i) choice.top[i] = {ranked[i], logits[ranked[i]] - log_total};
}

// Empty: nothing to choose from.
std::vector<double> Probabilities(std::span<const float> logits, const TokenRule& rule) {
  const ChangedRow row(logits, rule);
  if (row.likeliest < 0) return {};
  if (rule.temperature > 0) return Distribution(row, rule).Probabilities();
  std::vector<double> one_hot(logits.size());
  one_hot[row.likeliest] = 1;
  return one_hot;
}

// Draws from the residual max(p - q, 0); -1 when there is none.
int32_t DrawResidual(std::span<const double> p, std::span<const double> q, const TokenRule& rule) {
  std::vector<double> residual(p.size());
  for (size_t id = 0; id < p.size(); ++id) residual[id] = std::max(p[id] - q[id], 0.0);
  const double total = LaneSum(residual);
  if (!(total > sampling::kLeastResidual)) return -1;
  const double target = total * OpenUnit(CounterBits(rule.seed, rule.position, 0, RandomPurpose::kResidual));
  int32_t choice = -1;
  double reached = 0;
  for (size_t id = 0; id < p.size() && reached < target; ++id) {
    if (residual[id] > 0) choice = static_cast<int32_t>(id);
    reached += residual[id];
  }
  return choice;
}

DraftVerdict Check(const DraftCheck& check) {
  const int64_t vocabulary = check.target_logits.columns;
  const auto row = [&](ConstFloatView logits, int64_t t) { return std::span(logits.row(t), vocabulary); };
  DraftVerdict verdict;
  for (; verdict.accepted < std::ssize(check.drafts); ++verdict.accepted) {
    const int32_t k = verdict.accepted;
    const int32_t draft = check.drafts[k];
    const TokenRule& rule = check.target_rules[k];
    const std::vector<double> p = Probabilities(row(check.target_logits, k), rule);
    if (p.empty()) return verdict;
    std::vector<double> q(vocabulary);
    if (check.draft_rules[k].temperature == 0) {
      q[draft] = 1;
    } else {
      q = Probabilities(row(check.draft_logits, k), check.draft_rules[k]);
      if (q.empty()) return verdict;
    }
    const double u = OpenUnit(CounterBits(rule.seed, rule.position, 0, RandomPurpose::kAccept));
    if (p[draft] > 0 && u * q[draft] <= p[draft]) continue;
    verdict.token = DrawResidual(p, q, rule);
    if (verdict.token < 0) verdict.token = Draw(row(check.target_logits, k), rule);
    return verdict;
  }
  verdict.token = Draw(row(check.target_logits, verdict.accepted), check.target_rules[verdict.accepted]);
  return verdict;
}

}  // namespace

void ChooseTokens(ConstFloatView logits, std::span<const TokenRule> rules, std::span<TokenChoice> choices) {
  assert(logits.rows == std::ssize(rules) && logits.rows == std::ssize(choices));
  for (int64_t t = 0; t < logits.rows; ++t) {
    const std::span<const float> row(logits.row(t), logits.columns);
    const TokenRule& rule = rules[t];
    TokenChoice& choice = choices[t];
    choice = {.top = choice.top};
    if (rule.known_id < 0) {
      choice.id = Draw(row, rule);
    } else if (ChangedRow(row, {}).likeliest >= 0) {
      choice.id = rule.known_id;
    }
    if (choice.id >= 0 && rule.top_logprobs >= 0) AddLogprobs(row, rule, choice);
  }
}

void AcceptDrafts(std::span<const DraftCheck> checks, std::span<DraftVerdict> verdicts) {
  assert(checks.size() == verdicts.size());
  std::transform(checks.begin(), checks.end(), verdicts.begin(), Check);
}

}  // namespace deepinfer::reference
