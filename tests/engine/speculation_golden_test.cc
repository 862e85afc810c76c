// Speculation on the golden Nano prompts accepts as many drafts as the PyTorch reference, kind by kind.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "engine_fixture.h"

namespace deepinfer::test {
namespace {

struct Rounds {
  int64_t ours = 0;
  int64_t golden = 0;
  int64_t tokens = 0;  // behind the first one, which needs no drafts
};

TEST(SpeculationGolden, AcceptsAsManyDraftsAsTheReference) {
  const auto path =
      std::filesystem::path(DEEPINFER_SOURCE_DIR) / "tests" / "data" / "engine" / "golden_speculation.json";
  std::ifstream file(path);
  const nlohmann::json prompts = nlohmann::json::parse(file);
  std::map<std::string, Rounds> kinds;
  int agreed = 0;
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
      // Where rounding decides a token otherwise, another text follows, with another acceptance.
      if (result->choices[0].ids != greedy) continue;
      ++agreed;
      Rounds& rounds = kinds[prompt["kind"].get<std::string>()];
      rounds.ours += result->drafts.steps;
      rounds.golden += std::ssize(prompt["accepted"]);
      rounds.tokens += std::ssize(greedy) - 1;
    }
  }
  EXPECT_GE(agreed, 15) << "of " << prompts.size();
  for (const auto& [kind, rounds] : kinds) {
    const double ours = static_cast<double>(rounds.tokens) / static_cast<double>(rounds.ours);
    const double golden = static_cast<double>(rounds.tokens) / static_cast<double>(rounds.golden);
    fmt::print("  {:<14} {:.2f} tokens a step, reference {:.2f}\n", kind, ours, golden);
    EXPECT_NEAR(ours, golden, 0.1 * golden) << kind;
  }
}

}  // namespace
}  // namespace deepinfer::test
