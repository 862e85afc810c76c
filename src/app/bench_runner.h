// BenchRunner: times prefill and decode of a Model on random tokens, without an engine around it.
//
// Thread-safety: the thread that drives the session's model. Ownership: the session outlives it. Units: tokens, bytes,
// FLOPs, seconds where no other is said.
#ifndef DEEPINFER_APP_BENCH_RUNNER_H_
#define DEEPINFER_APP_BENCH_RUNNER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/fill_context.h"
#include "app/model_session.h"
#include "ops/cpu/machine_limits.h"

namespace deepinfer {

/// One line of the table: `prompt` or `generated` tokens after `depth` tokens of context, for each of `batch`
/// sequences.
struct BenchCase {
  bool prefill = false;
  int64_t tokens = 0;
  int64_t depth = 0;
  int64_t batch = 1;

  std::string name() const;
};

struct BenchRow {
  BenchCase test;
  double tokens_per_second = 0;  ///< of all sequences, mean over the repetitions
  double deviation = 0;          ///< sample standard deviation of it
  double bytes_per_token = 0;    ///< distinct bytes that a token of this test must read (decode)
  double flops_per_token = 0;
  /// Experts of a layer that a decode step picks, mean over layers and repetitions; 0: prefill.
  double distinct_experts = 0;
  cpu::MachineLimits limits;  ///< measured right before and after the test, the mean of both

  // Of a generated model: what the release would take, whose layers have the same roles in the same shares.
  double head_ms = 0;           ///< logits of a decode step: its time with them less that without
  double layer_ms = 0;          ///< a layer of a decode step or of the prompt
  double release_ms = 0;        ///< a decode step or the prompt in all layers of the release
  double release_floor_ms = 0;  ///< decode: the bytes of that step at the limit of reads

  /// Of a decode step, or of the prompt.
  double step_ms() const {
    return 1e3 * static_cast<double>(test.prefill ? test.tokens : test.batch) / tokens_per_second;
  }
  double bytes_per_second() const { return bytes_per_token * tokens_per_second; }
  double flops_per_second() const { return flops_per_token * tokens_per_second; }
  double share() const {
    return test.prefill ? flops_per_second() / limits.fma_flops_per_second
                        : bytes_per_second() / limits.read_bytes_per_second;
  }
};

class BenchRunner {
 public:
  /// `fill_depth`: contexts are filled with random rows (ContextFiller) instead of computed.
  static Result<BenchRunner> Create(ModelSession& session, int64_t repetitions, bool fill_depth);

  /// kCancelled after Ctrl-C.
  Result<BenchRow> Run(const BenchCase& test);

  /// The parts of a row that speak of the release; after row->limits is set.
  Status AddRelease(BenchRow* row);

  /// Touches the weights that prompts and answers use, so that no page of them is read from disk while the clock runs.
  Status WarmUp();

 private:
  BenchRunner(ModelSession& session, int64_t repetitions) : session_(&session), repetitions_(repetitions) {}

  using Sequences = std::vector<std::unique_ptr<SequenceState>>;

  /// Seconds of one repetition. `logits`: of the last token, or of every decode step; `experts`: where not null, what
  /// distinct_experts says is counted in a step before the clock runs.
  Result<double> RunOnce(const BenchCase& test, bool logits, double* experts);
  Status Feed(const Sequences& sequences, int64_t count, int64_t chunk, bool logits);
  std::vector<int32_t> RandomIds(int64_t count);

  ModelSession* session_;
  int64_t repetitions_;
  std::optional<ContextFiller> filler_;
  uint64_t next_token_ = 1;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_BENCH_RUNNER_H_
