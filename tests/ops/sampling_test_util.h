// What the suites of the two sampling ops share.
//
// Thread-safety: none needed. Ownership: classes own what they hold.
#ifndef DEEPINFER_TESTS_OPS_SAMPLING_TEST_UTIL_H_
#define DEEPINFER_TESTS_OPS_SAMPLING_TEST_UTIL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ops/ops.h"
#include "ops_test_util.h"

namespace deepinfer::test {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// 99.99 % points of the chi-square distribution with 5 and 35 degrees of freedom.
inline constexpr double kLimit5 = 25.7;
inline constexpr double kLimit35 = 76.4;

class SamplingOpsTest : public OpsTest {
 protected:
  void SetUp() override {
    OpsTest::SetUp();
    const ScratchLimits limits{.vocabulary = 10000};
    ASSERT_TRUE(ops().Reserve(limits).ok());
    ASSERT_TRUE(peer().Reserve(limits).ok());
  }
};

inline TokenRule At(double temperature, uint64_t seed, int64_t position) {
  TokenRule rule;
  rule.temperature = temperature;
  rule.seed = seed;
  rule.position = position;
  return rule;
}

inline Tensor Repeated(const std::vector<float>& row, int64_t rows) {
  Tensor logits(rows, static_cast<int64_t>(row.size()));
  for (int64_t t = 0; t < rows; ++t) std::copy(row.begin(), row.end(), logits.row(t));
  return logits;
}

struct Choices {
  std::vector<TokenChoice> choices;
  std::vector<std::vector<TokenLogprob>> top;
};

inline Choices Choose(Ops& ops, ConstFloatView logits, const std::vector<TokenRule>& rules) {
  Choices result;
  result.choices.resize(rules.size());
  for (const TokenRule& rule : rules) {
    result.top.emplace_back(static_cast<size_t>(std::max(rule.top_logprobs, 0)));
    result.choices[result.top.size() - 1].top = result.top.back();
  }
  ops.ChooseTokens(logits, rules, result.choices);
  return result;
}

inline int32_t One(Ops& ops, const std::vector<float>& logits, const TokenRule& rule) {
  return Choose(ops, Repeated(logits, 1), {rule}).choices[0].id;
}

inline std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> law;
  double total = 0;
  for (const float logit : logits) total += law.emplace_back(std::exp(logit / temperature));
  for (double& each : law) each /= total;
  return law;
}

/// Infinite when something came up that cannot.
inline double ChiSquare(const std::vector<int>& counts, const std::vector<double>& law) {
  double total = 0, sum = 0;
  for (const int count : counts) total += count;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = total * law[i];
    if (expected > 0) {
      sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    } else if (counts[i] > 0) {
      return kInfinity;
    }
  }
  return sum;
}

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_OPS_SAMPLING_TEST_UTIL_H_
