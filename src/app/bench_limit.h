// What a run of requests would have cost a perfect machine of the speeds measured beside it.
//
// A decode step of R rows takes at least the larger of (distinct bytes / read bandwidth) and (FLOPs / FMA peak), see
// model/step_cost.h; a prompt takes its FLOPs. Steps and their rows are means over the run, so the share is one of the
// run. Not counted, so that the share errs to the low side: drafting, sampling, weights read by prefill.
//
// Thread-safety: pure functions. Units: bytes, FLOPs, seconds.
#ifndef DEEPINFER_APP_BENCH_LIMIT_H_
#define DEEPINFER_APP_BENCH_LIMIT_H_

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "checkpoint/model_config.h"
#include "deepinfer/engine.h"
#include "deepinfer/status.h"
#include "model/step_cost.h"
#include "ops/cpu/machine_limits.h"

namespace CLI {
class App;
}

namespace deepinfer {

/// The machine may be shared: limits are measured anew around each test, with the same number of threads. On a GPU they
/// are its own: fma_flops_per_second is the BF16 rate of the tensor cores.
struct LimitFlags {
  int milliseconds = 1000;  ///< of one measurement

  void AddTo(CLI::App& flags);
  Result<cpu::MachineLimits> Measure(const std::string& device, int threads) const;
};

cpu::MachineLimits MeanOf(const cpu::MachineLimits& a, const cpu::MachineLimits& b);

struct RunLimit {
  cpu::MachineLimits machine;
  double decode_steps = 0;        ///< of the batch
  double sequences_per_step = 0;  ///< that decode
  double rows_per_step = 0;       ///< drafts under verification included
  StepCost step;                  ///< of the mean decode step
  double step_seconds = 0;
  double prefill_flops = 0;

  bool step_is_bound_by_reads() const {
    return step.bytes / machine.read_bytes_per_second > step.flops / machine.fma_flops_per_second;
  }
  double decode_seconds() const { return decode_steps * step_seconds; }
  double prefill_seconds() const { return prefill_flops / machine.fma_flops_per_second; }
  double seconds() const { return decode_seconds() + prefill_seconds(); }
};

/// `generations`: requests that were submitted at one time. `encoder_rows`, `decoder_rows`: what the engine has
/// computed for them in all.
RunLimit LimitOf(const ModelConfig& config, std::span<const Generation> generations, int64_t encoder_rows,
                 int64_t decoder_rows, const cpu::MachineLimits& machine);

/// With the share of the `seconds` that the run took.
nlohmann::ordered_json LimitJson(const RunLimit& limit, double seconds);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_BENCH_LIMIT_H_
