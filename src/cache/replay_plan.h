// Replay plan: where a request resumes on a cached prefix, such that its outputs equal those of a cold run of the same
// mode (promise 3; docs/kv-cache.md has the argument). Global rows are cached; window rings are not, so the rows in
// front of the first new token are computed again until the rings are right, or the rings come from a snapshot.
//
//   exact     windows are never cut. Resume from a snapshot, or compute the whole receptive field again.
//   bounded   encoder windows restart at every multiple of `grid` in every run: the last `replay` tokens in front of it
//             pass the encoder again with windows that begin there. Decoder windows begin `keep` tokens before the
//             prompt's end. Resume from a snapshot, or at a multiple of the grid.
//
// Positions and counts are in tokens. Pure functions. Thread-safety: any thread. Ownership: none.
#ifndef DEEPINFER_CACHE_REPLAY_PLAN_H_
#define DEEPINFER_CACHE_REPLAY_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cache/kv_pool.h"
#include "cache/prefix_tree.h"
#include "deepinfer/status.h"

namespace deepinfer {

struct ReplaySettings {
  bool bounded = true;
  int64_t block_tokens = kKvBlockTokens;
  int64_t keep = 0;             ///< bounded: last prompt tokens that pass the decoder
  int64_t grid = 0;             ///< bounded: distance of the encoder's restart points, a multiple of block_tokens
  int64_t replay = 0;           ///< bounded: tokens computed again in front of a restart point, even, at most grid
  int64_t receptive_field = 0;  ///< exact: layers * (window - 1)
};

/// kInvalidArgument: settings that contradict the comments above.
Status CheckReplaySettings(const ReplaySettings& settings);

struct ReplayPlan {
  int64_t hit_tokens = 0;       ///< cached global rows used, whole blocks; rows below it are never written
  int64_t first_position = 0;   ///< first row computed, even
  int64_t resume_position = 0;  ///< from here on rows and rings equal a cold run's; rows in front only fill rings
  int64_t snapshot_position =
      -1;                     ///< rings are restored from the snapshot that ends here (== first_position); -1: none
  int64_t encoder_start = 0;  ///< first window position that encoder layers may see
  int64_t decoder_start = 0;  ///< same for decoder layers; in bounded mode also the first row that passes them

  friend bool operator==(const ReplayPlan&, const ReplayPlan&) = default;
};

/// The plan with the fewest rows. `path` is the match's; `known` counts the ids whose rows must exist (the prompt,
/// after a preemption also the outputs so far), `prompt` <= known the original prompt. At least one row is computed.
ReplayPlan PlanReplay(const ReplaySettings& settings, std::span<const MatchedBlock> path, int64_t known,
                      int64_t prompt);

/// Where a prefill by `plan` up to `known` saves ring snapshots, ascending: multiples of `interval`, the end of the hit
/// if a snapshot there would have saved rows (its prefix is shared), and the last four block boundaries. Only where
/// rings equal a cold run's, never where `path` has a snapshot, and in bounded mode never at a restart point. A
/// snapshot at b is taken when the rows below b are computed for the first time, before the restart that follows.
std::vector<int64_t> SnapshotBoundaries(const ReplaySettings& settings, const ReplayPlan& plan,
                                        std::span<const MatchedBlock> path, int64_t known, int64_t interval);

/// First window position that encoder layers see at `position` in a cold run: 0 in exact mode and below the first
/// restart.
int64_t EncoderStart(const ReplaySettings& settings, int64_t position);

/// Bounded: the first restart point beyond `position`; a chunk of first-time rows ends there.
int64_t NextRestart(int64_t position, int64_t grid);

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_REPLAY_PLAN_H_
