// Speculation accepts as many drafts as the PyTorch reference, kind by kind: on the golden Nano prompts and on fifty
// prompts of our own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "engine_fixture.h"

namespace deepinfer::test {
namespace {

struct Rounds {
  int prompts = 0;
  int agreed = 0;      // the whole answer is the reference's
  int64_t tokens = 0;  // behind the first one, which needs no drafts
  int64_t ours = 0;
  int64_t golden = 0;
  // Those that agreed, alone: the same text.
  int64_t agreed_tokens = 0;
  int64_t agreed_ours = 0;
  int64_t agreed_golden = 0;
};

nlohmann::json ReadPrompts(const std::string& name) {
  std::ifstream file(std::filesystem::path(DEEPINFER_SOURCE_DIR) / "tests" / "data" / "engine" / name);
  return nlohmann::json::parse(file);
}

/// The kinds of the acceptance: prose, chat, json, tool, code.
std::string KindOf(const nlohmann::json& prompt) {
  const auto kind = prompt["kind"].get<std::string>();
  const std::string first = kind.substr(0, kind.find(' '));
  return first == "story" ? "prose" : first == "fim" ? "code" : first;
}

double PerStep(int64_t tokens, int64_t steps) { return static_cast<double>(tokens) / static_cast<double>(steps); }

TEST(SpeculationGolden, AcceptsAsManyDraftsAsTheReference) {
  nlohmann::json prompts = ReadPrompts("golden_speculation.json");
  for (const nlohmann::json& own : ReadPrompts("own_speculation.json")) prompts.push_back(own);
  std::map<std::string, Rounds> kinds;
  for (const std::string mode : {"f32act", "fp8act"}) {
    EngineOptions options;
    options.max_num_seqs = 1;
    options.max_model_len = 4096;
    options.variable_drafts = false;
    options.exact_activations = mode == "f32act";
    options.replay = ReplayMode::kExact;
    const auto engine = MakeEngine("nano", options);
    for (const nlohmann::json& prompt : prompts) {
      if (prompt["mode"] != mode) continue;
      GenerationRequest request;
      request.prompt = prompt["ids"].get<std::vector<int32_t>>();
      const auto greedy = prompt["greedy_ids"].get<std::vector<int32_t>>();
      request.sampling.temperature = 0;
      request.sampling.max_tokens = std::ssize(greedy);
      request.sampling.ignore_eos = true;
      const Result<Generation> result = engine->Generate(request);
      ASSERT_TRUE(result.ok()) << result.status().message();
      const int64_t golden = std::ssize(prompt["accepted"]);
      const int64_t tokens = std::ssize(greedy) - 1;
      Rounds& rounds = kinds[KindOf(prompt)];
      ++rounds.prompts;
      rounds.tokens += tokens;
      rounds.ours += result->drafts.steps;
      rounds.golden += golden;
      if (result->choices[0].ids != greedy) {
        const auto& ids = result->choices[0].ids;
        const auto [at, unused] = std::mismatch(greedy.begin(), greedy.end(), ids.begin(), ids.end());
        fmt::print("  {} {}: another text from token {} on; {} steps, reference {}\n",
                   prompt["name"].get<std::string>(), mode, at - greedy.begin(), result->drafts.steps, golden);
        continue;
      }
      ++rounds.agreed;
      rounds.agreed_tokens += tokens;
      rounds.agreed_ours += result->drafts.steps;
      rounds.agreed_golden += golden;
      // The same text: a step more or less where rounding decides a draft otherwise.
      if (result->drafts.steps != golden) {
        fmt::print("  {} {}: the same text in {} steps, reference {}\n", prompt["name"].get<std::string>(), mode,
                   result->drafts.steps, golden);
      }
      EXPECT_LE(std::abs(result->drafts.steps - golden), 3) << prompt["name"];
    }
  }

  fmt::print("  kind    prompts  same text  tokens a step: all, reference   same text, reference\n");
  for (const std::string kind : {"prose", "chat", "json", "tool", "code"}) {
    ASSERT_TRUE(kinds.contains(kind)) << kind;
    const Rounds& rounds = kinds[kind];
    const int needed = kind == "code" ? 4 : 13;
    EXPECT_GE(rounds.prompts, needed) << kind;
    // Where rounding decides a token otherwise, another text follows; most prompts meet no such token.
    EXPECT_GE(2 * rounds.agreed, rounds.prompts) << kind;
    ASSERT_GT(rounds.agreed, 0) << kind;
    const double golden = PerStep(rounds.tokens, rounds.golden);
    const double same = PerStep(rounds.agreed_tokens, rounds.agreed_golden);
    fmt::print("  {:<8} {:6} {:10} {:20.3f} {:10.3f} {:11.3f} {:10.3f}\n", kind, rounds.prompts, rounds.agreed,
               PerStep(rounds.tokens, rounds.ours), golden, PerStep(rounds.agreed_tokens, rounds.agreed_ours), same);
    EXPECT_NEAR(PerStep(rounds.tokens, rounds.ours), golden, 0.1 * golden) << kind;
    EXPECT_NEAR(PerStep(rounds.agreed_tokens, rounds.agreed_ours), same, 0.1 * same) << kind;
  }
}

}  // namespace
}  // namespace deepinfer::test
