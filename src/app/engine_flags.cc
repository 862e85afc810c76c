#include "app/engine_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>

#include "app/find_model.h"
#include "app/flags.h"
#include "app/kv_flags.h"
#include "app/load_bar.h"
#include "app/terminal.h"

namespace deepinfer {
namespace {

constexpr int64_t kAnyCount = std::numeric_limits<int64_t>::max();

}  // namespace

void EngineFlags::AddTo(CLI::App& flags) {
  environment_ = options.ApplyEnvironment();
  AddModelFlag(flags, &options.model);
  AddDeviceFlag(flags, &options.device);
  engram_ = EngramPlaceName(options.engram);
  AddPlacementFlags(flags, &options.gpu_layers, &engram_);
  AddThreadsFlag(flags, &options.threads);
  AddIntegerFlag(flags, "--ctx,--max-model-len", &options.max_model_len, 2, kAnyCount,
                 "Longest context in tokens, prompt and answer (default: the model's)");
  activation_quant_ = options.exact_activations ? "off" : "official";
  AddActivationFlag(flags, &activation_quant_);
  AddLimitsTo(flags);
  AddKvTierFlags(flags, &options);
  AddReplayTo(flags);
  AddSpeculationTo(flags);
}

void EngineFlags::AddLimitsTo(CLI::App& flags) {
  max_num_seqs_flag_ = AddIntegerFlag(flags, "--max-num-seqs", &options.max_num_seqs, 1, kAnyCount,
                                      fmt::format("Most requests computed at once (default {})", options.max_num_seqs));
  AddIntegerFlag(
      flags, "--max-num-batched-tokens", &options.max_num_batched_tokens, 1, kAnyCount,
      fmt::format("Cost of one step, in tokens that pass all layers (default {})", options.max_num_batched_tokens));
  AddMemoryFlag(flags, "--kv-memory", &options.kv_memory_bytes,
                "Memory of the KV pool, such as 512MiB or 1.5G (default: from what is free)");
  AddMemoryFlag(flags, "--snapshot-memory", &options.snapshot_memory_bytes,
                "Memory of the prefix cache's ring snapshots (default: from what is free)");
  AddNumberFlag(flags, "--tpot-target-ms", &options.tpot_target_ms,
                "Prefill yields when a step would take longer than this (default 0: never)");
  flags.add_flag("--no-prefix-cache", no_prefix_cache_, "Compute every prompt from its beginning");
  flags.add_flag("--sync", synchronous_, "Plan a step only when the tokens of the one before are known");
}

void EngineFlags::AddReplayTo(CLI::App& flags) {
  replay_ = ReplayModeName(options.replay);
  AddChoiceFlag(
      flags, "--replay", &replay_, {"bounded", "exact"},
      fmt::format("bounded: the last tokens of a prompt pass the decoder, as the model is served; exact: all of them, "
                  "and a cache hit equals a cold run bit for bit (default {})",
                  replay_));
  AddIntegerFlag(flags, "--replay-keep", &options.replay_keep, 1, kAnyCount,
                 "With bounded replay: prompt tokens that pass the decoder (default: the window and 12)");
  AddIntegerFlag(flags, "--replay-grid", &options.replay_grid, 1, kAnyCount,
                 fmt::format("With bounded replay: tokens between restart points (default {})", options.replay_grid));
}

void EngineFlags::AddSpeculationTo(CLI::App& flags) {
  AddIntegerFlag(flags, "--draft-length", &options.draft_length, 0, 1000,
                 fmt::format("Most DSpark drafts of a step; 0: no speculation (default {})", options.draft_length));
  variable_drafts_ = options.variable_drafts ? "on" : "off";
  AddChoiceFlag(flags, "--draft-varlen", &variable_drafts_, {"on", "off"},
                fmt::format("Verify only drafts that are worth their cost (default {})", variable_drafts_));
  speculation_rule_ = options.speculation_rule == SpeculationRule::kCoupled ? "coupled" : "rejection";
  AddChoiceFlag(flags, "--speculation-rule", &speculation_rule_, {"coupled", "rejection"},
                "coupled: drafts never change the text; rejection: more drafts stand, equal in distribution only "
                "(default coupled)");
}

bool EngineFlags::has_max_num_seqs() const { return max_num_seqs_flag_->count() > 0; }

Status EngineFlags::Check() {
  DEEPINFER_RETURN_IF_ERROR(environment_);
  DEEPINFER_ASSIGN_OR_RETURN(options.engram, ParseEngramPlace(engram_));
  options.exact_activations = activation_quant_ == "off";
  options.replay = replay_ == "exact" ? ReplayMode::kExact : ReplayMode::kBounded;
  options.variable_drafts = variable_drafts_ == "on";
  options.speculation_rule = speculation_rule_ == "rejection" ? SpeculationRule::kRejection : SpeculationRule::kCoupled;
  if (no_prefix_cache_) options.prefix_cache = false;
  if (synchronous_) options.asynchronous = false;
  return NameFlags(options.Validate());
}

Result<std::unique_ptr<EngineCore>> OpenEngine(const EngineOptions& options) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::filesystem::path folder, FindModel(options.model));
  DEEPINFER_ASSIGN_OR_RETURN(ModelFiles files, ModelFiles::Load(folder));
  return OpenEngine(std::move(files), options);
}

Result<std::unique_ptr<EngineCore>> OpenEngine(ModelFiles files, const EngineOptions& options) {
  LoadBar bar(*files.checkpoint, options.engram);
  Result<std::unique_ptr<EngineCore>> engine = EngineCore::Create(std::move(files), options, {}, bar.progress());
  if (!engine.ok()) return NameFlags(engine.status());
  return engine;
}

Status PrintWarning(const Engine& engine) {
  const std::string warning = engine.warning();
  return warning.empty() ? Status::Ok() : WriteAll(2, "deepinfer: " + NameFlags(Status::Io(warning)).message() + "\n");
}

}  // namespace deepinfer
