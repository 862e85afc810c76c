#include "app/bench_limit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "app/flags.h"
#include "base/thread_pool.h"
#include "model/sequence_state.h"
#include "ops/cuda/device_limits.h"
#include "ops/device.h"

namespace deepinfer {
namespace {

/// How many of the intervals hold a moment that at least one of them holds, on average.
double MeanOverlap(std::vector<std::pair<double, double>> intervals) {
  std::sort(intervals.begin(), intervals.end());
  double lengths = 0;
  double covered = 0;
  double end = -1;
  for (const auto& [from, to] : intervals) {
    lengths += to - from;
    covered += std::max(0.0, to - std::max(from, end));
    end = std::max(end, to);
  }
  return covered > 0 ? lengths / covered : 1;
}

}  // namespace

void LimitFlags::AddTo(CLI::App& flags) {
  AddIntegerFlag(
      flags, "--limit-ms", &milliseconds, 1, 60'000,
      "Milliseconds for a measurement of the machine's limits, before and after each test; short ones are for "
      "trying things out (default 1000)");
}

Result<cpu::MachineLimits> LimitFlags::Measure(const std::string& device, int threads) const {
  if (const int gpu = GpuOfDevice(device); gpu >= 0) {
    const cuda::DeviceLimits limits = cuda::MeasureDeviceLimits(gpu, 1e-3 * milliseconds, int64_t{1} << 30);
    // Unknown on other GPUs than SM90: nothing is bound by it.
    const double tensor =
        limits.tensor_flops_per_second > 0 ? limits.tensor_flops_per_second : std::numeric_limits<double>::infinity();
    if (limits.read_bytes_per_second > 0) return cpu::MachineLimits{limits.read_bytes_per_second, tensor};
    return Status::ResourceExhausted("the limits of the GPU cannot be measured: it has no GiB of memory left");
  }
  ThreadPool pool(threads);
  // A GiB, which no cache holds, takes longer to fill than a short measurement lasts.
  const int64_t buffer_bytes = (int64_t{1} << 30) * std::clamp(milliseconds, 50, 1000) / 1000;
  return cpu::MeasureMachineLimits(pool, 1e-3 * milliseconds, buffer_bytes);
}

cpu::MachineLimits MeanOf(const cpu::MachineLimits& a, const cpu::MachineLimits& b) {
  return {(a.read_bytes_per_second + b.read_bytes_per_second) / 2,
          (a.fma_flops_per_second + b.fma_flops_per_second) / 2};
}

RunLimit LimitOf(const ModelConfig& config, std::span<const Generation> generations, int64_t encoder_rows,
                 int64_t decoder_rows, const cpu::MachineLimits& machine) {
  RunLimit limit;
  limit.machine = machine;
  std::vector<std::pair<double, double>> decoding;
  int64_t sequence_steps = 0;
  int64_t rows = 0;
  int64_t prompt_tokens = 0;
  double position_sum = 0;
  for (const Generation& generation : generations) {
    decoding.emplace_back(generation.first_token_ms, generation.total_ms);
    sequence_steps += generation.drafts.steps;
    rows += generation.drafts.steps + generation.drafts.verified;
    prompt_tokens += generation.prompt_tokens;
    const int64_t middle = generation.prompt_tokens + generation.completion_tokens() / 2;
    position_sum += static_cast<double>(middle * generation.drafts.steps);
  }
  if (sequence_steps > 0) {
    limit.sequences_per_step = MeanOverlap(std::move(decoding));
    limit.decode_steps = static_cast<double>(sequence_steps) / limit.sequences_per_step;
    limit.rows_per_step = static_cast<double>(rows) / limit.decode_steps;
    const auto position = static_cast<int64_t>(position_sum / static_cast<double>(sequence_steps));
    const auto sequences = std::max<int64_t>(1, std::llround(limit.sequences_per_step));
    const std::vector<int64_t> positions(static_cast<size_t>(sequences), position);
    limit.step = DecodeCost(config, std::max<int64_t>(1, std::llround(limit.rows_per_step)), positions);
    limit.step_seconds =
        std::max(limit.step.bytes / machine.read_bytes_per_second, limit.step.flops / machine.fma_flops_per_second);
  }
  if (!generations.empty()) {
    const int64_t prompt = std::max<int64_t>(1, prompt_tokens / static_cast<int64_t>(generations.size()));
    const double token_flops = PrefillCost(config, 0, prompt).flops / static_cast<double>(prompt);
    const auto layout = SequenceLayout::FromConfig(config);
    const double encoder_share = static_cast<double>(layout->first_decoder_layer) / layout->layers;
    limit.prefill_flops =
        token_flops * (encoder_share * static_cast<double>(std::max<int64_t>(0, encoder_rows - rows)) +
                       (1 - encoder_share) * static_cast<double>(std::max<int64_t>(0, decoder_rows - rows)));
  }
  return limit;
}

nlohmann::ordered_json LimitJson(const RunLimit& limit, double seconds) {
  return {{"read_bytes_per_second", limit.machine.read_bytes_per_second},
          {"fma_flops_per_second", limit.machine.fma_flops_per_second},
          {"decode_steps", limit.decode_steps},
          {"sequences_per_step", limit.sequences_per_step},
          {"rows_per_step", limit.rows_per_step},
          {"bytes_per_step", limit.step.bytes},
          {"flops_per_step", limit.step.flops},
          {"bound", limit.step_is_bound_by_reads() ? "read" : "fma"},
          {"decode_seconds", limit.decode_seconds()},
          {"prefill_seconds", limit.prefill_seconds()},
          {"share", limit.seconds() / seconds}};
}

}  // namespace deepinfer
