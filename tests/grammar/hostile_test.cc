// Hostile grammars end at a limit, in compilation or while they are used, whatever the machine: the test counts work
// and prints times.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstdio>

#include "grammar_fixture.h"
#include "hostile_grammars.h"

namespace deepinfer::testing {
namespace {

double Now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST(HostileTest, EndsAtALimit) {
  const int32_t end = EndToken(*NanoTrie());
  std::mt19937 random(5);
  for (const HostileGrammar& hostile : HostileGrammars()) {
    double start = Now();
    auto source = Compile(hostile);
    const double compile = Now() - start;
    double worst_mask = 0;
    double worst_accept = 0;
    std::string verdict = source.ok() ? "used to the end" : source.status().message();
    if (!source.ok()) {
      EXPECT_TRUE(source.status().code() == StatusCode::kResourceExhausted ||
                  source.status().code() == StatusCode::kUnsupported ||
                  source.status().code() == StatusCode::kInvalidArgument)
          << hostile.name << ": " << verdict;
    } else {
      const auto grammar = CompiledGrammar::Make(std::move(*source), NanoTrie());
      Matcher matcher(grammar, {end});
      std::vector<uint32_t> words(NanoTrie()->words());
      int step = 0;
      for (; step < 100; ++step) {
        start = Now();
        const Status status = matcher.FillMask(words);
        worst_mask = std::max(worst_mask, Now() - start);
        if (!status.ok()) {
          EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
          verdict = status.message();
          break;
        }
        std::vector<int32_t> tokens = TokensOf(words);
        if (tokens.size() > 1) std::erase(tokens, end);
        ASSERT_FALSE(tokens.empty()) << hostile.name;
        const int32_t token = tokens[random() % tokens.size()];
        start = Now();
        const auto accepted = matcher.Accept(token);
        worst_accept = std::max(worst_accept, Now() - start);
        if (!accepted.ok()) {
          verdict = accepted.status().message();
          break;
        }
        ASSERT_TRUE(*accepted) << hostile.name;
        if (matcher.ended()) break;
      }
      verdict += " (" + std::to_string(step) + " tokens)";
    }
    std::printf("%-40s compile %7.1f ms, mask at most %6.1f ms, accept at most %6.1f ms: %s\n", hostile.name.c_str(),
                1e3 * compile, 1e3 * worst_mask, 1e3 * worst_accept, verdict.substr(0, 100).c_str());
  }
}

}  // namespace
}  // namespace deepinfer::testing
