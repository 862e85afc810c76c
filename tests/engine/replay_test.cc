// Promise 3: a prefix hit gives the bits of a cold run, in both modes, and computes the rows that it promises.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine_fixture.h"

namespace deepinfer::test {
namespace {

GenerationRequest Ask(std::vector<int32_t> prompt, int64_t tokens, const std::string& salt = "") {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 1;
  request.sampling.seed = 7;
  request.sampling.max_tokens = tokens;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 3;
  request.cache_salt = salt;
  return request;
}

/// Rows that a request costs.
RowCounts RowsOf(EngineCore& engine, const GenerationRequest& request, Generation* generation) {
  engine.WaitIdle();
  const EngineStatistics before = engine.statistics();
  *generation = Answer(engine, request);
  engine.WaitIdle();
  const EngineStatistics after = engine.statistics();
  return {after.encoder_rows - before.encoder_rows, after.decoder_rows - before.decoder_rows,
          after.logits_rows - before.logits_rows, after.draft_rows - before.draft_rows};
}

struct ReplayCase {
  ReplayMode mode;
  bool snapshots;  ///< without them a resume goes through the grid or the whole receptive field
};

class Replay : public testing::TestWithParam<ReplayCase> {};

TEST_P(Replay, AHitAtEveryBlockBoundaryEqualsAColdRun) {
  EngineOptions options;
  options.replay = GetParam().mode;
  options.replay_grid = 512;
  if (!GetParam().snapshots) options.snapshot_memory_bytes = 1;
  options.max_num_seqs = 2;
  options.max_model_len = 2048;
  options.draft_length = 2;
  const auto engine = MakeEngine("nano", options);
  const std::vector<int32_t> prompt = ProseIds(*engine, 1500);
  const Generation cold = Answer(*engine, Ask(prompt, 8, "cold"));

  for (int64_t hit = 64; hit < 1500; hit += 64) {
    const std::string salt = fmt::format("hit {}", hit);
    std::vector<int32_t> beginning(prompt.begin(), prompt.begin() + hit);
    beginning.push_back(prompt[static_cast<size_t>(hit)] == 99 ? 98 : 99);
    (void)Answer(*engine, Ask(beginning, 1, salt));
    const Generation warm = Answer(*engine, Ask(prompt, 8, salt));
    EXPECT_EQ(warm.cached_tokens, hit);
    if (GetParam().snapshots) {
      EXPECT_LT(warm.replayed_tokens, hit);
    }
    EXPECT_EQ(Difference(warm, cold), "") << "hit of " << hit;
  }
  ExpectNothingHeld(*engine);
}

INSTANTIATE_TEST_SUITE_P(Modes, Replay,
                         testing::Values(ReplayCase{ReplayMode::kBounded, true},
                                         ReplayCase{ReplayMode::kBounded, false}, ReplayCase{ReplayMode::kExact, true},
                                         ReplayCase{ReplayMode::kExact, false}),
                         [](const auto& replay) {
                           return std::string(ReplayModeName(replay.param.mode)) +
                                  (replay.param.snapshots ? "" : "_without_snapshots");
                         });

TEST(ReplayRows, BoundedPrefillComputesWhatTheLayerCountsPredict) {
  EngineOptions options;
  options.max_num_seqs = 1;
  options.max_model_len = 4096;
  options.draft_length = 0;
  options.prefix_cache = false;
  const auto engine = MakeEngine("nano", options);
  const std::vector<int32_t> prompt = ProseIds(*engine, 2000);
  GenerationRequest request = Ask(prompt, 1);
  Generation generation;

  // Every prompt token passes the encoder, the last 140 the decoder, one row gets logits.
  RowCounts rows = RowsOf(*engine, request, &generation);
  EXPECT_EQ(rows.encoder, 2000);
  EXPECT_EQ(rows.decoder, 140);
  EXPECT_EQ(rows.logits, 1);
  EXPECT_EQ(generation.replay, ReplayMode::kBounded);

  request.replay = ReplayMode::kExact;
  rows = RowsOf(*engine, request, &generation);
  EXPECT_EQ(rows.encoder, 2000);
  EXPECT_EQ(rows.decoder, 2000);
  EXPECT_EQ(generation.replay, ReplayMode::kExact);

  // At every restart point the encoder computes the kept suffix again.
  options.replay_grid = 512;
  const auto fine = MakeEngine("nano", options);
  request.replay = ReplayMode::kBounded;
  rows = RowsOf(*fine, request, &generation);
  EXPECT_EQ(rows.encoder, 2000 + 3 * 140);
  EXPECT_EQ(rows.decoder, 140);
}

TEST(ReplayRows, TheSecondTurnComputesItsNewTokensAndTheReplay) {
  for (const ReplayMode mode : {ReplayMode::kBounded, ReplayMode::kExact}) {
    EngineOptions options;
    options.max_num_seqs = 2;
    options.max_model_len = 2048;
    options.draft_length = 0;
    options.replay = mode;
    const auto engine = MakeEngine("nano", options);
    std::vector<int32_t> prompt = ProseIds(*engine, 700);
    const Generation first = Answer(*engine, Ask(prompt, 50));
    prompt.insert(prompt.end(), first.choices[0].ids.begin(), first.choices[0].ids.end());
    const std::vector<int32_t> more = ProseIds(*engine, 40, 123);
    prompt.insert(prompt.end(), more.begin(), more.end());

    Generation second;
    const RowCounts rows = RowsOf(*engine, Ask(prompt, 1), &second);
    const auto known = static_cast<int64_t>(prompt.size());
    // All rows that were computed are cached, in whole blocks: the last answer's token was never fed.
    EXPECT_EQ(second.cached_tokens, (700 + 50 - 1) / 64 * 64);
    EXPECT_EQ(rows.encoder, known - second.cached_tokens + second.replayed_tokens);
    // The kept suffix reaches back into the cached prefix, to the block boundary before it.
    EXPECT_LE(second.replayed_tokens, mode == ReplayMode::kBounded ? 140 + 64 : 0);
    EXPECT_EQ(rows.decoder, mode == ReplayMode::kBounded ? 140 : rows.encoder);

    EngineOptions cold_options = options;
    cold_options.prefix_cache = false;
    EXPECT_EQ(Difference(second, Answer(*MakeEngine("nano", cold_options), Ask(prompt, 1))), "");
  }
}

TEST(ReplayRows, OneSaltDoesNotSeeAnother) {
  EngineOptions options;
  options.max_num_seqs = 1;
  options.max_model_len = 1024;
  const auto engine = MakeEngine("tiny2", options);
  const std::vector<int32_t> prompt = ProseIds(*engine, 300);
  EXPECT_EQ(Answer(*engine, Ask(prompt, 2, "a")).cached_tokens, 0);
  EXPECT_EQ(Answer(*engine, Ask(prompt, 2, "b")).cached_tokens, 0);
  EXPECT_EQ(Answer(*engine, Ask(prompt, 2, "a")).cached_tokens, 256);
  // Rows of the two modes are not the same bits.
  GenerationRequest exact = Ask(prompt, 2, "a");
  exact.replay = ReplayMode::kExact;
  EXPECT_EQ(Answer(*engine, exact).cached_tokens, 0);
}

TEST(ReplayRows, ChoicesShareTheirPrompt) {
  EngineOptions options;
  options.max_num_seqs = 8;
  options.max_model_len = 1024;
  options.draft_length = 0;
  const auto engine = MakeEngine("nano", options);
  GenerationRequest request = Ask(ProseIds(*engine, 640), 1);
  request.sampling.n = 4;
  Generation generation;
  const RowCounts rows = RowsOf(*engine, request, &generation);
  // The first choice computes the prompt; each other one what lies behind the last boundary that the decoder allows.
  EXPECT_LE(rows.encoder, 640 + 3 * (140 + 64));
}

}  // namespace
}  // namespace deepinfer::test
