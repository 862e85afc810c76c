// The engine on a GPU: greedy answers are the CPU's, and a request's answer depends on the request alone there too
// (engine_property_test and engine_replay_test take the GPU by themselves where there is one).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "../app/temporary_folder.h"
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

/// Engines on the disk tier of a folder; an empty name: without one.
class CudaTiers : public testing::Test {
 protected:
  std::unique_ptr<EngineCore> Start(const std::string& device, const std::filesystem::path& folder) const {
    EngineOptions options;
    options.device = device;
    options.max_num_seqs = 4;
    options.max_model_len = 8192;
    options.replay_grid = 512;
    options.draft_length = 3;
    options.profile_steps = false;
    options.kv_disk = folder.string();
    options.kv_memory_bytes = int64_t{64} << 20;
    return MakeEngine("nano", options);
  }
  static GenerationRequest Ask(const EngineCore& engine, int64_t tokens, ReplayMode mode) {
    GenerationRequest request;
    request.prompt = ProseIds(engine, tokens);
    request.sampling = SeededSampling(24, 20);
    request.replay = mode;
    return request;
  }

  TemporaryFolder folder_;
};

TEST_F(CudaTiers, ARestartFindsItsPrefixOnDiskAndAnswersWithTheBitsOfAColdRun) {
  for (const ReplayMode mode : {ReplayMode::kExact, ReplayMode::kBounded}) {
    for (const int64_t tokens : {700, 5000}) {
      const std::string name = std::to_string(tokens) + (mode == ReplayMode::kExact ? "exact" : "bounded");
      auto engine = Start("cuda", {});
      const GenerationRequest request = Ask(*engine, tokens, mode);
      const Generation cold = Answer(*engine, request);
      engine = Start("cuda", folder_.path() / name);
      EXPECT_EQ(Difference(cold, Answer(*engine, request)), "") << name;
      ASSERT_TRUE(engine->FlushTiers(60).ok());
      engine = Start("cuda", folder_.path() / name);
      const Generation warm = Answer(*engine, request);
      EXPECT_EQ(Difference(cold, warm), "") << name;
      EXPECT_EQ(warm.cached_tokens, (tokens - 1) / 64 * 64) << name;
      EXPECT_EQ(engine->statistics().kv_tiers[0].corrupt, 0);
      ExpectNothingHeld(*engine);
    }
  }
}

TEST_F(CudaTiers, WhatTheCpuLeftIsNotFound) {
  auto engine = Start("cpu", folder_.path());
  const GenerationRequest request = Ask(*engine, 700, ReplayMode::kExact);
  Answer(*engine, request);
  ASSERT_TRUE(engine->FlushTiers(60).ok());
  engine = Start("cuda", folder_.path());
  EXPECT_EQ(Answer(*engine, request).cached_tokens, 0);
  ASSERT_TRUE(engine->FlushTiers(60).ok());
  for (const char* const device : {"cpu", "cuda"}) {
    EXPECT_EQ(Answer(*Start(device, folder_.path()), request).cached_tokens, 640) << device;
  }
}

/// The bytes of a line of the plan; -1: there is none.
int64_t Planned(const EngineCore& engine, const std::string& key) {
  for (const PlannedMemory& line : engine.memory_plan()) {
    if (line.key == key) return line.bytes;
  }
  return -1;
}

// Where weights and tables lie changes no bit, and the plan says where that is.
TEST(CudaEnginePlacement, WeightsThatPassGiveTheSameAnswers) {
  EngineOptions options;
  options.device = "cuda";
  options.max_num_seqs = 8;
  options.max_model_len = 2048;
  options.kv_memory_bytes = int64_t{64} << 20;
  options.profile_steps = false;
  const auto resident = MakeEngine("nano", options);
  Random random(RunSeed("placement"));
  // Prompts of hundreds of tokens take the wide products, answers those for few rows.
  const std::vector<GenerationRequest> requests =
      RandomRequests(*resident, 24, {.longest_prompt = 900, .most_tokens = 24}, random);
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const std::vector<Generation> expected = RunTogether(*resident, requests, order);
  const int64_t all = Planned(*resident, "weights");
  EXPECT_GT(all, 0);
  EXPECT_GT(Planned(*resident, "temporaries"), 0);
  EXPECT_EQ(Planned(*resident, "weights_passing"), -1);

  const int64_t layers = resident->files().checkpoint->config().num_hidden_layers;
  struct Case {
    int64_t gpu_layers;
    EngramPlace engram;
  };
  for (const Case& one : {Case{0, EngramPlace::kDisk}, Case{layers / 2, EngramPlace::kHost},
                          Case{layers - 1, EngramPlace::kDevice}, Case{layers, EngramPlace::kDevice}}) {
    SCOPED_TRACE(fmt::format("{} layers, engram {}", one.gpu_layers, EngramPlaceName(one.engram)));
    options.gpu_layers = one.gpu_layers;
    options.engram = one.engram;
    const auto engine = MakeEngine("nano", options);
    const std::vector<Generation> results = RunTogether(*engine, requests, order);
    for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(Difference(results[i], expected[i]), "") << "request " << i;
    const int64_t passing = Planned(*engine, "weights_passing");
    EXPECT_EQ(passing > 0, one.gpu_layers < layers);
    const int64_t tables =
        one.engram == EngramPlace::kDevice ? Planned(*engine, "weights") + std::max<int64_t>(passing, 0) - all : 0;
    EXPECT_EQ(tables > 0, one.engram == EngramPlace::kDevice);
    if (one.engram != EngramPlace::kDevice) {
      EXPECT_EQ(Planned(*engine, "weights") + passing, all);
    }
    EXPECT_EQ(Planned(*engine, "weights_window") > 0, one.gpu_layers < layers);
    ExpectNothingHeld(*engine);
  }
}

// What a plan alone is asked for moves no weights.
TEST(CudaEnginePlacement, APlanBringsNoWeights) {
  EngineOptions options;
  options.device = "cuda";
  options.load_weights = options.profile_steps = false;
  const auto engine = MakeEngine("nano", options);
  EXPECT_GT(Planned(*engine, "weights"), 0);
  // Room for index scores of the longest context; what a step takes besides is not known without one.
  EXPECT_GT(Planned(*engine, "temporaries"), 0);
  EXPECT_LE(Planned(*engine, "temporaries"), int64_t{64} << 20);
}

INSTANTIATE_TEST_SUITE_P(Activations, CudaEngine, testing::Values("f32act", "fp8act"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace deepinfer::test
