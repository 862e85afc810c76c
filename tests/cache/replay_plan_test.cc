#include "cache/replay_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace deepinfer {
namespace {

// The released model: 40 layers, window 128.
constexpr ReplaySettings kExact = {.bounded = false, .receptive_field = 40 * 127};
constexpr ReplaySettings kBounded = {.bounded = true, .keep = 128, .grid = 2048, .replay = 128};

/// A match of `blocks` blocks with snapshots at these boundaries.
std::vector<MatchedBlock> Path(int64_t blocks, const std::vector<int64_t>& snapshots = {}) {
  std::vector<MatchedBlock> path(static_cast<size_t>(blocks));
  for (const int64_t boundary : snapshots) path[static_cast<size_t>(boundary / 64) - 1].snapshot = 0;
  return path;
}

using Boundaries = std::vector<int64_t>;

TEST(ReplayPlan, ColdRuns) {
  EXPECT_EQ(PlanReplay(kExact, {}, 1000, 1000), (ReplayPlan{0, 0, 0, -1, 0, 0}));
  EXPECT_EQ(PlanReplay(kBounded, {}, 1000, 1000), (ReplayPlan{0, 0, 0, -1, 0, 872}));
  EXPECT_EQ(PlanReplay(kBounded, {}, 100, 100), (ReplayPlan{0, 0, 0, -1, 0, 0}));
  // A whole prompt of one block: its last row must be computed, so the block is no hit.
  EXPECT_EQ(PlanReplay(kExact, Path(1), 64, 64).hit_tokens, 0);
  EXPECT_EQ(PlanReplay(kExact, Path(1), 65, 65).hit_tokens, 64);
  EXPECT_EQ(PlanReplay(kExact, Path(3), 130, 130).hit_tokens, 128);
}

TEST(ReplayPlan, ExactTakesTheLastSnapshotOrTheReceptiveField) {
  EXPECT_EQ(PlanReplay(kExact, Path(10, {512, 576}), 1000, 1000), (ReplayPlan{640, 576, 576, 576, 0, 0}));
  // Too short for a replay: all rows again, on the shared blocks.
  EXPECT_EQ(PlanReplay(kExact, Path(10), 1000, 1000), (ReplayPlan{640, 0, 0, -1, 0, 0}));
  EXPECT_EQ(PlanReplay(kExact, Path(100), 7000, 7000), (ReplayPlan{6400, 1320, 6400, -1, 1320, 1320}));
  // The snapshot saves rows, costs rows, or is as good.
  EXPECT_EQ(PlanReplay(kExact, Path(100, {1344}), 7000, 7000), (ReplayPlan{6400, 1344, 1344, 1344, 0, 0}));
  EXPECT_EQ(PlanReplay(kExact, Path(100, {1280}), 7000, 7000).snapshot_position, -1);
  ReplaySettings settings = kExact;
  settings.receptive_field = 6400 - 1280;
  EXPECT_EQ(PlanReplay(settings, Path(100, {1280}), 7000, 7000).snapshot_position, 1280);
  // Pairs are not split.
  settings.receptive_field = 63;
  EXPECT_EQ(PlanReplay(settings, Path(1), 100, 100).first_position, 0);
  EXPECT_EQ(PlanReplay(settings, Path(2), 200, 200), (ReplayPlan{128, 64, 128, -1, 64, 64}));
}

TEST(ReplayPlan, BoundedResumesBelowTheDecodersStart) {
  // decoder_start = 872: the snapshot at 896 lacks rows that the decoder needs.
  EXPECT_EQ(PlanReplay(kBounded, Path(15, {832, 896}), 1000, 1000), (ReplayPlan{960, 832, 832, 832, 0, 872}));
  EXPECT_EQ(PlanReplay(kBounded, Path(15, {896}), 1000, 1000), (ReplayPlan{960, 0, 0, -1, 0, 872}));
  // After a preemption the decoder's start stays the original prompt's.
  EXPECT_EQ(PlanReplay(kBounded, Path(30, {832, 1600}), 2000, 1000), (ReplayPlan{1920, 832, 832, 832, 0, 872}));
}

TEST(ReplayPlan, BoundedRestartsOnTheGrid) {
  EXPECT_EQ(PlanReplay(kBounded, Path(70), 5000, 5000), (ReplayPlan{4480, 3968, 4096, -1, 3968, 4872}));
  // The hit or the decoder ends before the second grid point.
  EXPECT_EQ(PlanReplay(kBounded, Path(63), 5000, 5000), (ReplayPlan{4032, 1920, 2048, -1, 1920, 4872}));
  EXPECT_EQ(PlanReplay(kBounded, Path(64), 4200, 4200), (ReplayPlan{4096, 1920, 2048, -1, 1920, 4072}));
  // A snapshot behind the grid point sees windows from the replay's start on.
  EXPECT_EQ(PlanReplay(kBounded, Path(70, {4160}), 5000, 5000), (ReplayPlan{4480, 4160, 4160, 4160, 3968, 4872}));
  // One at the grid point has the rings of the segment before, and is not used; one before it may save rows.
  EXPECT_EQ(PlanReplay(kBounded, Path(70, {4096}), 5000, 5000), (ReplayPlan{4480, 3968, 4096, -1, 3968, 4872}));
  EXPECT_EQ(PlanReplay(kBounded, Path(70, {4032}), 5000, 5000), (ReplayPlan{4480, 4032, 4032, 4032, 1920, 4872}));
  EXPECT_EQ(PlanReplay(kBounded, Path(70, {3968}), 5000, 5000).snapshot_position, 3968) << "as few rows: the snapshot";
  EXPECT_EQ(PlanReplay(kBounded, Path(70, {3904}), 5000, 5000).snapshot_position, -1);
}

TEST(ReplayPlan, TakesTheFewestRowsOfAllThatAreAllowed) {
  const uint32_t seed = 7;
  std::mt19937 random(seed);
  for (int i = 0; i < 20000; ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", case " + std::to_string(i));
    ReplaySettings settings = {.bounded = random() % 2 == 0, .block_tokens = 4};
    settings.keep = 1 + random() % 20;
    settings.grid = 4 * (1 + random() % 6);
    settings.replay = 2 * (1 + random() % (settings.grid / 2));
    settings.receptive_field = random() % 60;
    ASSERT_TRUE(CheckReplaySettings(settings).ok());
    const int64_t known = 1 + random() % 120;
    const int64_t prompt = 1 + random() % known;
    std::vector<MatchedBlock> path(random() % 31);
    for (MatchedBlock& block : path) block.snapshot = random() % 5 == 0 ? 3 : kNoSnapshot;

    const ReplayPlan plan = PlanReplay(settings, path, known, prompt);
    const int64_t hit = std::min<int64_t>(4 * static_cast<int64_t>(path.size()), (known - 1) / 4 * 4);
    const int64_t decoder_start = settings.bounded ? std::max<int64_t>(0, prompt - settings.keep) : 0;
    ASSERT_EQ(plan.hit_tokens, hit);
    ASSERT_LE(plan.first_position, plan.resume_position);
    ASSERT_LE(plan.resume_position, hit);
    ASSERT_LT(plan.resume_position, known);
    ASSERT_EQ(plan.first_position % 2, 0);

    int64_t first_of_snapshot = -1;
    int64_t first_of_others = settings.bounded ? 0 : std::max<int64_t>(0, hit - settings.receptive_field) / 2 * 2;
    for (int64_t at = 4; at <= (settings.bounded ? std::min(hit, decoder_start) : hit); at += 4) {
      if (settings.bounded && at % settings.grid == 0) {
        first_of_others = at - settings.replay;
      } else if (path[static_cast<size_t>(at / 4) - 1].snapshot != kNoSnapshot) {
        first_of_snapshot = at;
      }
    }
    ASSERT_EQ(plan.first_position, std::max(first_of_snapshot, first_of_others));
    ASSERT_EQ(plan.snapshot_position, first_of_snapshot >= first_of_others ? first_of_snapshot : -1);
    if (settings.bounded) {
      ASSERT_EQ(plan.decoder_start, decoder_start);
      ASSERT_LE(plan.resume_position, decoder_start);
    }
    if (plan.snapshot_position >= 0) {
      ASSERT_EQ(plan.resume_position, plan.snapshot_position);
      ASSERT_EQ(plan.encoder_start, EncoderStart(settings, plan.snapshot_position));
      ASSERT_NE(path[static_cast<size_t>(plan.snapshot_position / 4) - 1].snapshot, kNoSnapshot);
    } else if (plan.resume_position > 0) {
      ASSERT_EQ(plan.encoder_start, plan.first_position);
    }
  }
}

TEST(SnapshotBoundaries, ColdRuns) {
  EXPECT_EQ(SnapshotBoundaries(kExact, PlanReplay(kExact, {}, 1300, 1300), {}, 1300, 512),
            (Boundaries{512, 1024, 1088, 1152, 1216, 1280}));
  EXPECT_EQ(SnapshotBoundaries(kExact, PlanReplay(kExact, {}, 128, 128), {}, 128, 512), (Boundaries{64, 128}));
  EXPECT_EQ(SnapshotBoundaries(kExact, PlanReplay(kExact, {}, 63, 63), {}, 63, 512), Boundaries());
  // In bounded mode the restart points need none.
  EXPECT_EQ(SnapshotBoundaries(kBounded, PlanReplay(kBounded, {}, 2200, 2200), {}, 2200, 512),
            (Boundaries{512, 1024, 1536, 1984, 2112, 2176}));
}

TEST(SnapshotBoundaries, ASharedPrefixGetsOneAtItsEnd) {
  const auto path = Path(10, {512});
  const ReplayPlan plan = PlanReplay(kExact, path, 1300, 1300);
  ASSERT_EQ(plan.first_position, 512);
  EXPECT_EQ(SnapshotBoundaries(kExact, plan, path, 1300, 512), (Boundaries{640, 1024, 1088, 1152, 1216, 1280}));
  // It has one, though it could not be used: no second copy.
  const auto kept = Path(15, {832, 896, 960});
  EXPECT_EQ(SnapshotBoundaries(kBounded, PlanReplay(kBounded, kept, 1000, 1000), kept, 1000, 512), Boundaries());
}

TEST(SnapshotBoundaries, NoneWhereRingsAreStillFilling) {
  // Replay from 1320: the rings are a cold run's from 6400 on.
  const auto path = Path(100);
  EXPECT_EQ(SnapshotBoundaries(kExact, PlanReplay(kExact, path, 7000, 7000), path, 7000, 512),
            (Boundaries{6400, 6656, 6784, 6848, 6912, 6976}));
  // Replay of 3968 .. 4095: the rings of a cold run at 4032 reach further back.
  EXPECT_EQ(SnapshotBoundaries(kBounded, PlanReplay(kBounded, Path(65), 4300, 4300), Path(65), 4300, 64),
            (Boundaries{4160, 4224, 4288}));
}

TEST(ReplaySettings, AreChecked) {
  EXPECT_TRUE(CheckReplaySettings(kExact).ok());
  EXPECT_TRUE(CheckReplaySettings(kBounded).ok());
  const auto refused = [](ReplaySettings settings, int64_t ReplaySettings::*field, int64_t value) {
    settings.*field = value;
    return CheckReplaySettings(settings).code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(kExact, &ReplaySettings::block_tokens, 63));
  EXPECT_TRUE(refused(kExact, &ReplaySettings::receptive_field, -1));
  EXPECT_TRUE(refused(kBounded, &ReplaySettings::keep, 0));
  EXPECT_TRUE(refused(kBounded, &ReplaySettings::grid, 0));
  EXPECT_TRUE(refused(kBounded, &ReplaySettings::grid, 2050));
  EXPECT_TRUE(refused(kBounded, &ReplaySettings::replay, 0));
  EXPECT_TRUE(refused(kBounded, &ReplaySettings::replay, 127));
  EXPECT_TRUE(refused(kBounded, &ReplaySettings::replay, 2112));
}

TEST(ReplaySettings, RestartPoints) {
  EXPECT_EQ(NextRestart(0, 2048), 2048);
  EXPECT_EQ(NextRestart(2047, 2048), 2048);
  EXPECT_EQ(NextRestart(2048, 2048), 4096);
  EXPECT_EQ(EncoderStart(kBounded, 2047), 0);
  EXPECT_EQ(EncoderStart(kBounded, 2048), 1920);
  EXPECT_EQ(EncoderStart(kBounded, 4095), 1920);
  EXPECT_EQ(EncoderStart(kExact, 4095), 0);
}

}  // namespace
}  // namespace deepinfer
