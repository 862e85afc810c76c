// Request: one answer in the making, as the engine thread sees it (docs/engine.md).
//
// Thread-safety: the engine thread, after Submit() has handed it over. Ownership: the scheduler owns requests; the
// stream is shared with the reader.
#ifndef DEEPINFER_ENGINE_REQUEST_H_
#define DEEPINFER_ENGINE_REQUEST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/kv_key.h"
#include "engine/output_writer.h"
#include "engine/sequence_cache.h"
#include "engine/step_plan.h"
#include "engine/stream_state.h"

namespace deepinfer {

/// What of a request concerns the tiers (engine/kv_transfers.h).
struct RequestTransfer {
  KvScope scope;
  std::vector<KvKey> keys;  ///< of the full blocks of ids, as far as they were needed
  int64_t ttl_seconds = 0;  ///< of records
  bool no_store = false;    ///< nothing of it is kept outside the pool
  bool waiting = false;     ///< for a fetch; not admitted before it ends
  int64_t persisted = 0;    ///< blocks from the front that were looked at
  bool input_persisted = false;
  std::vector<int64_t> tokens_from;  ///< [tiers] fetched for it; empty: none
};

struct Request {
  // What was asked.
  uint64_t arrival = 0;
  int priority = 0;
  int choice = 0;
  std::shared_ptr<StreamState> stream;
  std::shared_ptr<Request> leader;  ///< choice 0 of the same prompt: its prefill is waited for and then shared
  SamplingParams sampling;
  std::vector<int32_t> end_ids;
  std::shared_ptr<const OutputConstraint> constraint;
  int64_t prompt_tokens = 0;
  int64_t most_tokens = 0;  ///< prompt and answer
  std::optional<OutputWriter> output;
  double submitted_seconds = 0;

  // How far it is.
  std::vector<int32_t> ids;  ///< prompt and answer so far
  bool finished = false;
  bool prefilled = false;       ///< the first token is known
  int64_t prompt_logprobs = 0;  ///< known of the prompt
  int64_t preemptions = 0;
  DraftCounts drafts;
  SequenceCache cache;
  RequestTransfer transfer;

  // While it runs.
  int32_t slot = -1;
  bool preempt = false;          ///< leaves its slot when no step is in flight
  int64_t next_position = 0;     ///< of the prefill that was planned
  int64_t input_tokens = 0;      ///< ids that the prefill of this run feeds
  int64_t length = 0;            ///< rows that are computed, as far as results were read
  int64_t rows_in_flight = 0;    ///< most rows that steps in flight may add
  int64_t tokens_in_flight = 0;  ///< fewest tokens that they will choose
  int32_t steps_in_flight = 0;
  std::shared_ptr<const RequestInput> input;

  int64_t outputs() const { return std::ssize(ids) - prompt_tokens; }
  bool decoding() const { return next_position >= input_tokens; }
  bool running() const { return slot >= 0; }
};

/// Whether `a` is served before `b`.
inline bool ServedBefore(const Request& a, const Request& b) {
  return a.priority != b.priority ? a.priority < b.priority : a.arrival < b.arrival;
}

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_REQUEST_H_
