// The engine on a GPU: greedy answers are the CPU's, and a request's answer depends on the request alone there too
// (engine_property_test and engine_replay_test take the GPU by themselves where there is one).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine_fixture.h"

namespace deepinfer::test {
namespace {

std::vector<GenerationRequest> GoldenRequests(const std::string& mode) {
  std::vector<GenerationRequest> requests;
  for (const char* name : {"golden_speculation.json", "own_speculation.json"}) {
    std::ifstream file(std::filesystem::path(DEEPINFER_SOURCE_DIR) / "tests" / "data" / "engine" / name);
    for (const nlohmann::json& prompt : nlohmann::json::parse(file)) {
      if (prompt["mode"] != mode) continue;
      GenerationRequest& request = requests.emplace_back();
      request.prompt = prompt["ids"].get<std::vector<int32_t>>();
      request.sampling.temperature = 0;
      request.sampling.max_tokens = std::ssize(prompt["greedy_ids"]);
      request.sampling.ignore_eos = true;
      request.sampling.logprobs = 2;
    }
  }
  return requests;
}

class CudaEngine : public testing::TestWithParam<const char*> {};

TEST_P(CudaEngine, GreedyAnswersAreThoseOfTheCpu) {
  const std::vector<GenerationRequest> requests = GoldenRequests(GetParam());
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  EngineOptions options;
  options.max_num_seqs = 8;
  options.max_model_len = 4096;
  options.kv_memory_bytes = int64_t{64} << 20;
  options.exact_activations = std::string(GetParam()) == "f32act";
  options.replay = ReplayMode::kExact;
  options.profile_steps = false;
  options.device = "cpu";
  const std::vector<Generation> expected = RunTogether(*MakeEngine("nano", options), requests, order);
  options.device = "cuda";
  const auto engine = MakeEngine("nano", options);
  const std::vector<Generation> results = RunTogether(*engine, requests, order);
  // Sums in another order flip roundings of FP8 activations and caches, so answers may part where the CPU's best two
  // tokens are about equal, and only there.
  constexpr double kNearTie = 0.1;
  double largest = 0;
  double widest = 0;
  int parted = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto& ours = results[i].choices[0].logprobs;
    const auto& theirs = expected[i].choices[0].logprobs;
    ASSERT_EQ(ours.size(), theirs.size()) << "prompt " << i;
    for (size_t t = 0; t < ours.size(); ++t) {
      if (ours[t].chosen.id == theirs[t].chosen.id) {
        largest = std::max(largest, std::abs(ours[t].chosen.logprob - theirs[t].chosen.logprob));
        continue;
      }
      const double margin = theirs[t].top[0].logprob - theirs[t].top[1].logprob;
      EXPECT_EQ(ours[t].chosen.id, theirs[t].top[1].id) << "prompt " << i << " token " << t;
      EXPECT_LT(margin, kNearTie) << "prompt " << i << " token " << t;
      widest = std::max(widest, margin);
      ++parted;
      break;
    }
  }
  fmt::print(
      "{} prompts, {} part at a near tie (widest margin {:.2e}); until then log probabilities differ by at most "
      "{:.2e}\n",
      requests.size(), parted, widest, largest);
  EXPECT_LT(largest, 0.3);
  ExpectNothingHeld(*engine);
}

INSTANTIATE_TEST_SUITE_P(Activations, CudaEngine, testing::Values("f32act", "fp8act"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace deepinfer::test
