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

/// What a memory has done between two places.
class WorkOf {
 public:
  explicit WorkOf(const Recogniser& recogniser) : recogniser_(recogniser), before_(recogniser.work()), start_(Now()) {}
  uint64_t work() const { return recogniser_.work() - before_; }
  double seconds() const { return Now() - start_; }

 private:
  const Recogniser& recogniser_;
  uint64_t before_;
  double start_;
};

struct Worst {
  uint64_t work = 0;
  double seconds = 0;
  void Add(const WorkOf& question) {
    work = std::max(work, question.work());
    seconds = std::max(seconds, question.seconds());
  }
};

TEST(HostileTest, EndsAtALimit) {
  // What is under way when a limit is met is brought to its end.
  const double slack = 1.1;
  const GrammarLimits grammar_limits;
  const MatcherLimits matcher_limits;
  const auto trie = ReleasedTrie();
  std::mt19937 random(5);
  for (const HostileGrammar& hostile : HostileGrammars()) {
    const double start = Now();
    auto source = CompileStructuredOutput(hostile.form);
    const double compile = Now() - start;
    Worst mask;
    Worst accept;
    uint64_t compile_work = 0;
    std::string verdict = source.ok() ? "used to the end" : source.status().message();
    if (!source.ok()) {
      EXPECT_TRUE(source.status().code() == StatusCode::kResourceExhausted ||
                  source.status().code() == StatusCode::kUnsupported ||
                  source.status().code() == StatusCode::kInvalidArgument)
          << hostile.name << ": " << verdict;
    } else {
      compile_work = source->pool->work();
      EXPECT_LE(compile_work, grammar_limits.max_work) << hostile.name;
      const auto grammar = CompiledGrammar::Make(std::move(*source), trie);
      const auto memory = grammar->Borrow();
      Recogniser& recogniser = memory->recogniser;
      int32_t state = recogniser.start();
      int step = 0;
      for (; step < 40; ++step) {
        std::vector<uint32_t> words(trie->words());
        recogniser.BeginWork();
        const WorkOf masking(recogniser);
        memory->masks.MaskOf(state).CopyTo(words);
        mask.Add(masking);
        if (recogniser.exhausted()) break;
        const std::vector<int32_t> tokens = TokensOf(words);
        ASSERT_FALSE(tokens.empty() && !recogniser.Accepts(state)) << hostile.name;
        if (tokens.empty()) break;
        recogniser.BeginWork();
        const WorkOf accepting(recogniser);
        state = recogniser.Walk(state, trie->BytesOf(tokens[random() % tokens.size()]));
        accept.Add(accepting);
        if (recogniser.exhausted()) break;
        ASSERT_NE(state, Recogniser::kDead) << hostile.name;
      }
      const auto most = static_cast<uint64_t>(slack * static_cast<double>(matcher_limits.recogniser.max_work));
      EXPECT_LE(mask.work, most) << hostile.name;
      EXPECT_LE(accept.work, most) << hostile.name;
      EXPECT_LE(recogniser.memory_bytes(), slack * static_cast<double>(matcher_limits.recogniser.max_bytes));
      if (recogniser.over_work())
        verdict = "too much work for one token";
      else if (recogniser.exhausted())
        verdict = "too much memory";
      verdict += " (" + std::to_string(step) + " tokens)";
    }
    std::printf("%-38s compile %6.1f ms %5.2f M, mask %6.1f ms %7llu, accept %6.1f ms %7llu: %s\n",
                hostile.name.c_str(), 1e3 * compile, 1e-6 * static_cast<double>(compile_work), 1e3 * mask.seconds,
                static_cast<unsigned long long>(mask.work), 1e3 * accept.seconds,
                static_cast<unsigned long long>(accept.work), verdict.substr(0, 90).c_str());
  }
}

}  // namespace
}  // namespace deepinfer::testing
