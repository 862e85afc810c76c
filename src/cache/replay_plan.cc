#include "cache/replay_plan.h"

#include <algorithm>
#include <cassert>
#include <string>

namespace deepinfer {
namespace {

/// Block boundaries at a prompt's end that get a snapshot. The next turn's prompt ends somewhere behind them, and in
/// bounded mode its resume position lies `keep` tokens before its end.
constexpr int64_t kLastBoundaries = 4;

/// A sequence resumes between the pairs that a ratio-2 compressor pools.
constexpr int64_t kPair = 2;

int64_t RoundDown(int64_t value, int64_t multiple) { return value / multiple * multiple; }

bool IsRestart(const ReplaySettings& settings, int64_t position) {
  return settings.bounded && position > 0 && position % settings.grid == 0;
}

/// Whether the path's node that ends at boundary `position` has a snapshot.
bool HasSnapshot(std::span<const MatchedBlock> path, int64_t position, int64_t block_tokens) {
  const int64_t blocks = position / block_tokens;
  return blocks >= 1 && blocks <= static_cast<int64_t>(path.size()) && path[blocks - 1].snapshot != kNoSnapshot;
}

/// The last boundary <= limit with a snapshot that the mode can use; 0 when there is none.
int64_t LastSnapshot(const ReplaySettings& settings, std::span<const MatchedBlock> path, int64_t limit) {
  for (int64_t position = RoundDown(limit, settings.block_tokens); position > 0; position -= settings.block_tokens) {
    if (!IsRestart(settings, position) && HasSnapshot(path, position, settings.block_tokens)) return position;
  }
  return 0;
}

}  // namespace

Status CheckReplaySettings(const ReplaySettings& settings) {
  const auto refuse = [](const char* what, int64_t value, const std::string& expected) {
    return Status::InvalidArgument(std::string("replay ") + what + ": " + std::to_string(value) + ", " + expected +
                                   " expected");
  };
  if (settings.block_tokens < kPair || settings.block_tokens % kPair != 0) {
    return refuse("block tokens", settings.block_tokens, "a positive even number");
  }
  if (!settings.bounded) {
    if (settings.receptive_field < 0) return refuse("receptive field", settings.receptive_field, "at least 0");
    return Status::Ok();
  }
  if (settings.keep < 1) return refuse("kept tokens", settings.keep, "at least 1");
  if (settings.grid < 1 || settings.grid % settings.block_tokens != 0) {
    return refuse("grid", settings.grid, "a positive multiple of " + std::to_string(settings.block_tokens));
  }
  if (settings.replay < kPair || settings.replay > settings.grid || settings.replay % kPair != 0) {
    return refuse("length", settings.replay, "an even number, 2 to the grid's " + std::to_string(settings.grid));
  }
  return Status::Ok();
}

ReplayPlan PlanReplay(const ReplaySettings& settings, std::span<const MatchedBlock> path, int64_t known,
                      int64_t prompt) {
  assert(known >= 1 && prompt >= 0 && prompt <= known);
  const int64_t cached = static_cast<int64_t>(path.size()) * settings.block_tokens;
  ReplayPlan plan;
  plan.hit_tokens = std::min(cached, RoundDown(known - 1, settings.block_tokens));
  if (settings.bounded) plan.decoder_start = std::max<int64_t>(0, prompt - settings.keep);
  const int64_t limit = settings.bounded ? std::min(plan.hit_tokens, plan.decoder_start) : plan.hit_tokens;

  if (settings.bounded) {
    const int64_t restart = RoundDown(limit, settings.grid);
    if (restart > settings.replay) {
      plan.resume_position = restart;
      plan.first_position = plan.encoder_start = restart - settings.replay;
    }
  } else if (plan.hit_tokens - settings.receptive_field >= kPair) {
    plan.resume_position = plan.hit_tokens;
    plan.first_position = RoundDown(plan.hit_tokens - settings.receptive_field, kPair);
    plan.encoder_start = plan.decoder_start = plan.first_position;
  }

  const int64_t snapshot = LastSnapshot(settings, path, limit);
  if (snapshot > 0 && snapshot >= plan.first_position) {
    plan.resume_position = plan.first_position = plan.snapshot_position = snapshot;
    plan.encoder_start = EncoderStart(settings, snapshot);
    if (!settings.bounded) plan.decoder_start = 0;
  }
  return plan;
}

std::vector<int64_t> SnapshotBoundaries(const ReplaySettings& settings, const ReplayPlan& plan,
                                        std::span<const MatchedBlock> path, int64_t known, int64_t interval) {
  assert(interval >= settings.block_tokens && interval % settings.block_tokens == 0);
  std::vector<int64_t> boundaries;
  for (int64_t position = interval; position <= known; position += interval) boundaries.push_back(position);
  boundaries.push_back(plan.hit_tokens);
  const int64_t last = RoundDown(known, settings.block_tokens);
  for (int64_t i = 0; i < kLastBoundaries; ++i) boundaries.push_back(last - i * settings.block_tokens);

  std::erase_if(boundaries, [&](int64_t position) {
    return position <= plan.first_position || position < plan.resume_position || IsRestart(settings, position) ||
           HasSnapshot(path, position, settings.block_tokens);
  });
  std::ranges::sort(boundaries);
  boundaries.erase(std::unique(boundaries.begin(), boundaries.end()), boundaries.end());
  return boundaries;
}

int64_t EncoderStart(const ReplaySettings& settings, int64_t position) {
  if (!settings.bounded) return 0;
  const int64_t restart = RoundDown(position, settings.grid);
  return restart == 0 ? 0 : restart - settings.replay;
}

int64_t NextRestart(int64_t position, int64_t grid) { return RoundDown(position, grid) + grid; }

}  // namespace deepinfer
