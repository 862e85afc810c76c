// Promises 1 to 3: what a request gets depends on the request alone. Random mixes, fresh ones each run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine_fixture.h"

namespace deepinfer::test {
namespace {

struct Setting {
  const char* model;
  ReplayMode replay;
};

class EngineProperty : public testing::TestWithParam<Setting> {
 protected:
  EngineOptions Base() const {
    EngineOptions options;
    options.replay = GetParam().replay;
    options.replay_grid = std::string_view(GetParam().model) == "nano" ? 192 : 64;
    options.max_model_len = 512;
    return options;
  }

  /// Alone, one step at a time, without speculation and cache.
  std::vector<Generation> Expected(const std::vector<GenerationRequest>& requests) const {
    EngineOptions options = Base();
    options.max_num_seqs = 1;
    options.threads = 1;
    options.draft_length = 0;
    options.prefix_cache = false;
    options.asynchronous = false;
    return RunAlone(*MakeEngine(GetParam().model, options), requests);
  }
};

std::string Describe(const EngineOptions& options) {
  return fmt::format("seqs {}, batched {}, threads {}, kv {}, draft {}, varlen {}, async {}, cache {}, profile {}",
                     options.max_num_seqs, options.max_num_batched_tokens, options.threads, options.kv_memory_bytes,
                     options.draft_length, options.variable_drafts, options.asynchronous, options.prefix_cache,
                     options.profile_steps);
}

EngineOptions RandomOptions(const EngineOptions& base, Random& random) {
  EngineOptions options = base;
  options.max_num_seqs = random.Between(1, 8);
  options.max_num_batched_tokens = random.Of(std::vector<int64_t>{1, 70, 100, 300});
  options.threads = static_cast<int>(random.Between(1, 3));
  options.draft_length = static_cast<int>(random.Between(0, 5));
  options.variable_drafts = random.OneIn(2);
  options.profile_steps = random.OneIn(2);
  options.asynchronous = !random.OneIn(3);
  options.prefix_cache = !random.OneIn(4);
  options.tpot_target_ms = random.OneIn(3) ? 0.01 : 0;
  return options;
}

TEST_P(EngineProperty, ResultsDependOnTheRequestAlone) {
  const uint64_t seed = RunSeed("ResultsDependOnTheRequestAlone");
  Random random(seed);
  EngineOptions first = RandomOptions(Base(), random);
  const auto probe = MakeEngine(GetParam().model, first);
  RequestRange range;
  range.longest_prompt = 260;
  const std::vector<GenerationRequest> requests = RandomRequests(*probe, 12, range, random);
  const std::vector<Generation> expected = Expected(requests);

  for (int round = 0; round < 4; ++round) {
    const EngineOptions options = RandomOptions(Base(), random);
    SCOPED_TRACE(fmt::format("round {}: {}", round, Describe(options)));
    const auto engine = MakeEngine(GetParam().model, options);
    // Twice, so that the second time finds the cache full of the first.
    for (int pass = 0; pass < 2; ++pass) {
      std::vector<size_t> order(requests.size());
      std::iota(order.begin(), order.end(), size_t{0});
      for (size_t i = order.size() - 1; i > 0; --i) {
        std::swap(order[i], order[static_cast<size_t>(random.Between(0, static_cast<int64_t>(i)))]);
      }
      const std::vector<Generation> results = RunTogether(*engine, requests, order);
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(Difference(results[i], expected[i]), "")
            << "request " << i << " of " << requests[i].prompt.size() << " tokens, pass " << pass;
      }
    }
    if (options.prefix_cache) {
      EXPECT_GT(engine->statistics().cached_tokens, 0) << "the second pass finds the first one's prefixes";
    }
    ExpectNothingHeld(*engine);
  }
}

TEST_P(EngineProperty, PreemptionsAndCancellationsChangeNothing) {
  const uint64_t seed = RunSeed("PreemptionsAndCancellationsChangeNothing");
  Random random(seed);
  EngineOptions options = RandomOptions(Base(), random);
  options.max_num_seqs = 6;
  options.max_num_batched_tokens = 300;
  options.prefix_cache = true;
  const auto probe = MakeEngine(GetParam().model, options);
  RequestRange range;
  range.longest_prompt = 70;
  std::vector<GenerationRequest> requests = RandomRequests(*probe, 8, range, random);
  for (GenerationRequest& request : requests) {
    request.sampling.ignore_eos = true;
    request.sampling.stops.clear();
    request.sampling.stop_token_ids.clear();
    request.sampling.max_tokens = 150;
    // A grammar that ends no answer early, or nobody would need blocks.
    StructuredOutput& form = request.sampling.structured_output;
    if (form.wanted()) form = {StructuredOutput::Kind::kRegex, "([a-z]{3,9}( and|,) ){600,}"};
  }
  requests.front().sampling.prompt_logprobs = 2;
  const std::vector<Generation> expected = Expected(requests);

  // Six sequences of up to four blocks each want to run in eight blocks.
  const int64_t block_bytes = probe->options().kv_memory_bytes / probe->statistics().kv_blocks;
  options.kv_memory_bytes = 8 * block_bytes;
  SCOPED_TRACE(Describe(options));
  const auto engine = MakeEngine(GetParam().model, options);
  std::vector<std::unique_ptr<GenerationStream>> streams;
  std::vector<std::unique_ptr<GenerationStream>> victims;
  for (const GenerationRequest& request : requests) {
    Result<std::unique_ptr<GenerationStream>> stream = engine->Submit(request);
    ASSERT_TRUE(stream.ok()) << stream.status().message();
    streams.push_back(std::move(*stream));
    Result<std::unique_ptr<GenerationStream>> victim = engine->Submit(random.Of(requests));
    ASSERT_TRUE(victim.ok());
    victims.push_back(std::move(*victim));
  }
  for (auto& victim : victims) {
    if (random.OneIn(2)) {
      GenerationDelta delta;
      (void)victim->Next(&delta);
    }
    victim->Cancel();
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(Difference(streams[i]->Wait(), expected[i]), "") << "request " << i;
  }
  ExpectNothingHeld(*engine);
  EXPECT_GT(engine->statistics().preemptions, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, EngineProperty,
                         testing::Values(Setting{"tiny2", ReplayMode::kBounded}, Setting{"tiny2", ReplayMode::kExact},
                                         Setting{"nano", ReplayMode::kBounded}, Setting{"nano", ReplayMode::kExact}),
                         [](const testing::TestParamInfo<Setting>& setting) {
                           return std::string(setting.param.model) + "_" +
                                  std::string(ReplayModeName(setting.param.replay));
                         });

}  // namespace
}  // namespace deepinfer::test
