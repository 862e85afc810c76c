#include "app/bench_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace deepinfer {

nlohmann::ordered_json OptionsJson(const EngineOptions& options) {
  return {{"threads", options.threads},
          {"gpu_layers", options.gpu_layers},
          {"engram", EngramPlaceName(options.engram)},
          {"activation_quant", options.exact_activations ? "off" : "official"},
          {"max_num_seqs", options.max_num_seqs},
          {"max_num_batched_tokens", options.max_num_batched_tokens},
          {"max_model_len", options.max_model_len},
          {"kv_memory_bytes", options.kv_memory_bytes},
          {"snapshot_memory_bytes", options.snapshot_memory_bytes},
          {"tpot_target_ms", options.tpot_target_ms},
          {"prefix_cache", options.prefix_cache},
          {"asynchronous", options.asynchronous},
          {"replay", ReplayModeName(options.replay)},
          {"replay_keep", options.replay_keep},
          {"replay_grid", options.replay_grid},
          {"draft_length", options.draft_length},
          {"variable_drafts", options.variable_drafts},
          {"speculation_rule", options.speculation_rule == SpeculationRule::kCoupled ? "coupled" : "rejection"},
          {"profile_steps", options.profile_steps}};
}

std::string ConfigHash(const EngineOptions& asked, const EngineOptions& chosen, std::string_view fingerprint) {
  EngineOptions options = chosen;
  options.kv_memory_bytes = asked.kv_memory_bytes;
  options.snapshot_memory_bytes = asked.snapshot_memory_bytes;
  const std::string text = OptionsJson(options).dump() + std::string(fingerprint);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

GenerationFigures FiguresOf(std::span<const Generation> generations) {
  GenerationFigures figures;
  std::vector<double> first;
  std::vector<double> per_token;
  std::vector<double> total;
  for (const Generation& generation : generations) {
    const int64_t tokens = generation.completion_tokens();
    figures.prompt_tokens += generation.prompt_tokens;
    figures.output_tokens += tokens;
    figures.drafts.steps += generation.drafts.steps;
    figures.drafts.drafted += generation.drafts.drafted;
    figures.drafts.verified += generation.drafts.verified;
    figures.drafts.accepted += generation.drafts.accepted;
    first.push_back(generation.first_token_ms);
    total.push_back(generation.total_ms);
    if (tokens > 1) {
      per_token.push_back((generation.total_ms - generation.first_token_ms) / static_cast<double>(tokens - 1));
    }
  }
  figures.first_token_ms = SpreadOf(std::move(first));
  figures.per_token_ms = SpreadOf(std::move(per_token));
  figures.total_ms = SpreadOf(std::move(total));
  return figures;
}

nlohmann::ordered_json DraftsJson(const GenerationFigures& figures) {
  return {{"steps", figures.drafts.steps},
          {"drafted", figures.drafts.drafted},
          {"verified", figures.drafts.verified},
          {"accepted", figures.drafts.accepted},
          {"accepted_per_step", figures.accepted_per_step()}};
}

std::vector<double> AcceptanceByPosition(std::span<const int64_t> accepted, std::span<const int64_t> verified) {
  std::vector<double> shares;
  for (size_t i = 0; i < accepted.size() && i < verified.size(); ++i) {
    shares.push_back(verified[i] > 0 ? static_cast<double>(accepted[i]) / static_cast<double>(verified[i]) : 0);
  }
  return shares;
}

std::string ReportRow(std::string_view name, std::string_view value) { return fmt::format("{:<26}{}\n", name, value); }

std::string ReportRow(std::string_view name, const Spread& milliseconds) {
  return fmt::format("{:<26}mean {:.2f}, p50 {:.2f}, p99 {:.2f} ms\n", name, milliseconds.mean, milliseconds.p50,
                     milliseconds.p99);
}

}  // namespace deepinfer
