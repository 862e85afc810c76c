// Engine: answers many prompts at once on one model (docs/engine.md).
//
// What a request gets depends on the request and the engine's options of numerics (activation format, replay settings,
// speculation rule) alone: not on who else is running, the order, budgets, threads, drafts, preemptions or cache hits
// (promises 1 to 3). A bad request is refused and hurts nobody else.
//
// Thread-safety: all members from any thread. Ownership: the engine owns model, caches and threads; streams may outlive
// it (their requests end as cancelled).
#ifndef DEEPINFER_ENGINE_H_
#define DEEPINFER_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/generation.h"
#include "deepinfer/status.h"

namespace deepinfer {

enum class SpeculationRule : uint8_t {
  kCoupled,    ///< a draft stands iff it is the token that would have been drawn: speculation changes no byte
  kRejection,  ///< standard rejection sampling: more drafts stand, the distribution is the same, the text is not
};

/// Where Engram tables, which a step reads a few rows of, lie.
enum class EngramPlace : uint8_t {
  kDisk,    ///< in the mapped file: rows come from the disk when they are first asked for, and stay while memory lasts
  kHost,    ///< in host memory, read at the start
  kDevice,  ///< in the memory that computes, likewise
};
std::string_view EngramPlaceName(EngramPlace place);
/// kInvalidArgument: no place has this name.
Result<EngramPlace> ParseEngramPlace(std::string_view name);

struct EngineOptions {
  std::string model;            ///< folder of the checkpoint
  std::string device = "auto";  ///< cpu, cuda (the first GPU), cuda:N, or auto: a GPU where there is one
  int threads = 0;              ///< that compute on the CPU; 0: all this process may use
  int64_t gpu_layers = -1;      ///< layers whose weights stay on a GPU, the rest crosses when used; -1: all
  EngramPlace engram = EngramPlace::kDisk;
  bool exact_activations = false;  ///< false: FP8 activations as released; true: unquantised

  int64_t max_num_seqs = 16;             ///< requests computed at once
  int64_t max_num_batched_tokens = 512;  ///< cost of one step, in tokens that pass all layers
  int64_t max_model_len = 0;             ///< prompt and answer; 0: what the model was made for
  int64_t kv_memory_bytes = 0;           ///< of the KV pool; 0: chosen from the free memory
  int64_t snapshot_memory_bytes = 0;     ///< ring snapshots of the prefix cache; 0: chosen, see MemoryPlan
  double tpot_target_ms = 0;             ///< prefill yields when a step would take longer than this; 0: never
  bool prefix_cache = true;

  // Tiers behind the KV pool (docs/kv-tiers.md), off by default; `deepinfer serve` has a small host tier.
  int64_t kv_host_bytes = 0;         ///< of host memory; 0: none
  std::string kv_host_file;          ///< engines that name the same file share the host tier; empty: private memory
  std::string kv_disk;               ///< folder on a local disk; empty: none
  int64_t kv_disk_bytes = 0;         ///< of all engines in that folder together; 0: 16 GiB
  std::string kv_shared;             ///< folder that several machines mount, or redis://...; empty: none
  int64_t kv_shared_bytes = 0;       ///< of the shared folder; 0: 64 GiB
  int64_t kv_ttl_seconds = 259'200;  ///< life of a record: 3 days
  std::string kv_key_file;           ///< 32 bytes, or 64 hexadecimal digits: records are encrypted; empty: they are not
  int64_t kv_least_tokens = 256;     ///< shorter prefixes are neither kept nor fetched

  bool asynchronous = true;  ///< plan and launch a step before the last one's tokens are known

  ReplayMode replay = ReplayMode::kBounded;
  int64_t replay_keep = 0;     ///< tokens; 0: window + 12
  int64_t replay_grid = 2048;  ///< tokens between the encoder's restart points in bounded mode

  int draft_length = 5;         ///< most drafts of a step; 0: no speculation
  bool variable_drafts = true;  ///< verify only the drafts that are worth their cost
  SpeculationRule speculation_rule = SpeculationRule::kCoupled;
  /// Profile the cost of steps at the start; without it nothing is trimmed, and the log says so.
  bool profile_steps = true;
  /// Bring the weights to the device at the start; false: of an engine that only shows its plan.
  bool load_weights = true;
  /// Store the calibration of the confidence head beside the model when it is fitted on first use.
  bool store_calibration = true;

  /// kInvalidArgument naming the field.
  Status Validate() const;

  /// Sets what DeepInfer's environment variables say (docs/engine.md lists them). kInvalidArgument naming the variable.
  Status ApplyEnvironment();
};

/// One line of the memory plan.
struct PlannedMemory {
  std::string key;   ///< stable name for programs
  std::string text;  ///< for people
  int64_t bytes = 0;
  bool at_start = true;    ///< reserved at the start; false: at most so much, and only while it is needed
  bool on_device = false;  ///< in memory of a GPU's own
};

/// A tier behind the KV pool. Counters since the start but for those that say "now".
struct KvTierStatistics {
  std::string name;  ///< "host", "disk", "shared" or "redis"
  bool up = true;
  std::string reason;         ///< why it is down
  int64_t failures = 0;       ///< times it went down
  int64_t records = 0;        ///< now, of this model
  int64_t bytes = 0;          ///< now, everything that counts against the budget
  int64_t budget_bytes = 0;   ///< 0: none
  int64_t cached_tokens = 0;  ///< of prompts: taken from it
  int64_t hits = 0;           ///< records read
  int64_t misses = 0;         ///< records that were asked for and not there
  int64_t corrupt = 0;        ///< records dropped because they did not prove themselves
  int64_t foreign = 0;        ///< files or records left alone: another version or model
  int64_t read_bytes = 0;
  int64_t written = 0;  ///< records
  int64_t written_bytes = 0;
  int64_t evicted = 0;  ///< records dropped for space
  int64_t expired = 0;  ///< records dropped by age
  int64_t copied_forward = 0;
  int64_t dropped = 0;       ///< records that were not kept: the queue was full, or the tier down
  int64_t queued_bytes = 0;  ///< now, waiting to be written
  double read_seconds = 0;
  double write_seconds = 0;
};

/// Prefixes on their way from and to the tiers; counters since the start.
struct KvTransferCounts {
  int64_t fetches = 0;         ///< begun: something was found
  int64_t fetched_tokens = 0;  ///< that arrived
  int64_t refused = 0;         ///< computing was faster
  int64_t late = 0;            ///< ended at the deadline
  int64_t short_reads = 0;     ///< a record that was promised was not there, or did not prove itself
  int64_t persisted_tokens = 0;
  int64_t persisted_rings = 0;
};

struct EngineStatistics {
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t steps = 0;
  int64_t finished = 0;
  int64_t cancelled = 0;
  int64_t preemptions = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t replayed_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t encoder_rows = 0;  ///< rows through the layers below the decoder
  int64_t decoder_rows = 0;  ///< rows through the decoder's layers
  int64_t logits_rows = 0;
  int64_t draft_rows = 0;
  int64_t kv_blocks = 0;
  int64_t kv_blocks_free = 0;
  int64_t kv_blocks_cached = 0;  ///< held by the prefix cache alone
  int64_t snapshots = 0;
  int64_t snapshots_free = 0;
  std::vector<KvTierStatistics> kv_tiers;  ///< nearest first
  KvTransferCounts kv_transfers;
  double device_seconds = 0;  ///< spent computing steps
  double host_seconds = 0;    ///< spent planning steps and reading results
  DraftCounts drafts;
  std::vector<int64_t> verified_by_position;  // [b] steps that verified draft k of a block
  std::vector<int64_t> accepted_by_position;  // [b] of these: accepted
  std::vector<int64_t> verify_lengths;        // [b + 1] drafted steps by verify length
  double calibration_error = 0;               ///< of the survival that the confidence head predicts, 0..1
};

/// The answers to one request, as they come. A stream holds what was not read yet; a slow reader loses nothing.
class GenerationStream {
 public:
  virtual ~GenerationStream() = default;

  /// Waits for news of any choice; false when all choices have finished and everything was read.
  virtual bool Next(GenerationDelta* delta) = 0;

  /// As Next, but waits so long at most: true with `*timed_out` set and `delta` untouched when there was no news.
  virtual bool NextFor(GenerationDelta* delta, int milliseconds, bool* timed_out) = 0;

  /// Ends the request within a step; what was generated stays readable.
  virtual void Cancel() = 0;
  /// The same for one choice; the others go on.
  virtual void CancelChoice(int index) = 0;

  /// Waits for the end and returns everything, whether read or not.
  virtual const Generation& Wait() = 0;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> Open(const EngineOptions& options);
  virtual ~Engine() = default;

  virtual const EngineOptions& options() const = 0;  ///< with everything chosen

  /// What was asked for and is off, and why, for the log; empty: nothing.
  virtual std::string warning() const = 0;

  /// Not ok: the device has failed, which is final. Nothing is computed any more; the message names the cause and the
  /// remedy.
  virtual Status health() const = 0;

  /// kInvalidArgument: names the field; kResourceExhausted: it can never fit, with the numbers; health() when that is
  /// not ok.
  virtual Result<std::unique_ptr<GenerationStream>> Submit(GenerationRequest request) = 0;

  /// Submit, then wait.
  Result<Generation> Generate(GenerationRequest request);

  virtual Status Tokenize(const std::string& text, bool special, std::vector<int32_t>* ids) const = 0;
  virtual std::string Detokenize(std::span<const int32_t> ids) const = 0;
  virtual int32_t bos_token_id() const = 0;

  virtual std::vector<PlannedMemory> memory_plan() const = 0;
  virtual EngineStatistics statistics() const = 0;

  /// Forgets every cached prefix in the KV pool that no running request uses. What the tiers behind it keep, stays.
  virtual void ClearPrefixCache() = 0;

  /// Waits until nothing runs or waits.
  virtual void WaitIdle() = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_H_
