// Times ChooseTokens and AcceptDrafts of the CPU backend on the released vocabulary: microseconds a row, on one thread
// and one row, and on all threads and 64 rows. Logits are normal; "steep" ones have a standard deviation of 4 (the
// likeliest token stands out, as in text), "flat" ones of 0.5 (thousands of tokens share the mass).
//
// Usage: sampling_bench [--threads=N]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ops/ops.h"

namespace deepinfer {
namespace {

constexpr int64_t kVocabulary = 129280;
constexpr int64_t kManyRows = 64;

// The least time of a call in microseconds; a stolen core only adds.
double LeastMicroseconds(const std::function<void(int)>& call) {
  double least = 1e30;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20 || std::chrono::steady_clock::now() - start < std::chrono::milliseconds(200); ++i) {
    const auto before = std::chrono::steady_clock::now();
    call(i);
    const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - before;
    least = std::min(least, elapsed.count());
  }
  return least;
}

std::vector<float> NormalRows(int64_t rows, float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(static_cast<size_t>(rows * kVocabulary));
  for (float& logit : logits) logit = normal(random);
  return logits;
}

struct Case {
  std::string name;
  TokenRule rule;
};

std::vector<Case> Cases() {
  static std::vector<uint32_t> allowed(kVocabulary / 32, 0x10);
  static std::vector<SeenToken> seen;
  for (int32_t id = 0; id < 4000; ++id) seen.push_back({id * 31, id % 3, true});
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, double temperature, const std::function<void(TokenRule&)>& change) {
    cases.push_back({name, {}});
    cases.back().rule.temperature = temperature;
    change(cases.back().rule);
  };
  add("T=0", 0, [](TokenRule&) {});
  add("T=1", 1, [](TokenRule&) {});
  add("T=0.6", 0.6, [](TokenRule&) {});
  add("T=1 top-k 50", 1, [](TokenRule& rule) { rule.top_k = 50; });
  add("T=1 top-p 0.95", 1, [](TokenRule& rule) { rule.top_p = 0.95; });
  add("T=1 top-k 50 top-p 0.95", 1, [](TokenRule& rule) {
    rule.top_k = 50;
    rule.top_p = 0.95;
  });
  add("T=1 min-p 0.05", 1, [](TokenRule& rule) { rule.min_p = 0.05; });
  add("T=0 logprobs 0", 0, [](TokenRule& rule) { rule.top_logprobs = 0; });
  add("T=0 logprobs 20", 0, [](TokenRule& rule) { rule.top_logprobs = 20; });
  add("T=1 grammar mask", 1, [](TokenRule& rule) { rule.allowed = allowed.data(); });
  add("T=1 penalties on 4000", 1, [](TokenRule& rule) {
    rule.seen = seen;
    rule.repetition_penalty = 1.1;
    rule.presence_penalty = 0.1;
  });
  return cases;
}

double ChooseMicroseconds(Ops& ops, const std::vector<float>& logits, int64_t rows, const TokenRule& rule) {
  std::vector<TokenRule> rules(static_cast<size_t>(rows), rule);
  std::vector<TokenChoice> choices(static_cast<size_t>(rows));
  std::vector<TokenLogprob> top(static_cast<size_t>(20 * rows));
  for (size_t t = 0; t < choices.size(); ++t) choices[t].top = std::span(top).subspan(20 * t, 20);
  return LeastMicroseconds([&](int call) {
           for (size_t t = 0; t < rules.size(); ++t) rules[t].position = call + static_cast<int64_t>(1000 * t);
           ops.ChooseTokens({logits.data(), rows, kVocabulary}, rules, choices);
           for (const TokenChoice& choice : choices) {
             if (choice.id < 0) std::abort();
           }
         }) /
         static_cast<double>(rows);
}

// One draft, accepted or refused.
double AcceptMicroseconds(Ops& ops, const std::vector<float>& logits, bool accepted) {
  const ConstFloatView draft_row(logits.data(), 1, kVocabulary);
  const int64_t likeliest = std::max_element(logits.begin(), logits.begin() + kVocabulary) - logits.begin();
  const std::vector<int32_t> drafts = {static_cast<int32_t>(likeliest)};
  std::vector<float> target(logits.begin(), logits.begin() + 2 * kVocabulary);
  if (!accepted) target[static_cast<size_t>(likeliest)] = -1000;
  std::vector<TokenRule> rules(2), draft_rules(1);
  rules[1].temperature = 0;  // the token after the draft costs little
  const DraftCheck check{{target.data(), 2, kVocabulary}, rules, draft_row, draft_rules, drafts};
  DraftVerdict verdict;
  return LeastMicroseconds([&](int call) {
    rules[0].position = call;
    ops.AcceptDrafts({&check, 1}, {&verdict, 1});
    if ((verdict.accepted == 1) != accepted) std::abort();
  });
}

int Main(int argc, char** argv) {
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--threads=", 10) != 0) {
      std::fprintf(stderr, "usage: sampling_bench [--threads=N]\n");
      return 2;
    }
    threads = std::atoi(argv[i] + 10);
  }
  const auto one = MakeCpuOps(1);
  const auto many = MakeCpuOps(threads);
  const ScratchLimits limits{.vocabulary = kVocabulary};
  if (!one->Reserve(limits).ok() || !many->Reserve(limits).ok()) {
    std::fprintf(stderr, "no memory\n");
    return 1;
  }
  std::printf("%s, vocabulary %lld, microseconds a row\n", std::string(one->name()).c_str(),
              static_cast<long long>(kVocabulary));
  for (const float deviation : {4.0f, 0.5f}) {
    const std::vector<float> logits = NormalRows(kManyRows, deviation);
    std::printf("\n%-28s %12s %9d threads\n", deviation > 1 ? "steep" : "flat", "1 thread", threads);
    for (const Case& each : Cases()) {
      std::printf("%-28s %12.1f %9.1f\n", each.name.c_str(), ChooseMicroseconds(*one, logits, 1, each.rule),
                  ChooseMicroseconds(*many, logits, kManyRows, each.rule));
    }
    std::printf("%-28s %12.1f\n", "T=1 draft accepted", AcceptMicroseconds(*one, logits, true));
    std::printf("%-28s %12.1f\n", "T=1 draft refused", AcceptMicroseconds(*one, logits, false));
  }
  return 0;
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) { return deepinfer::Main(argc, argv); }
