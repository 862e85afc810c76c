#include "app/model_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <limits>

#include "app/find_model.h"
#include "app/flags.h"
#include "app/load_bar.h"
#include "base/machine.h"
#include "engine/engine_plan.h"
#include "ops/device.h"

namespace deepinfer {
namespace {

/// Prompt tokens of one step: enough rows to keep the arithmetic units busy, few enough to stop soon after Ctrl-C.
constexpr int64_t kRowsPerStep = 512;
constexpr int64_t kGpuRowsPerStep = 8192;

}  // namespace

void ModelFlags::AddTo(CLI::App& flags) {
  AddModelFlag(flags, &directory);
  AddDeviceFlag(flags, &device);
  AddPlacementFlags(flags, &gpu_layers, &engram);
  AddThreadsFlag(flags, &threads);
  AddIntegerFlag(flags, "--ctx", &context, 2, std::numeric_limits<int64_t>::max(),
                 "Longest context in tokens (default: what the tests need)");
  AddIntegerFlag(flags, "--step-tokens", &step_tokens, 1, ModelOptions::kMostRowsPerStep,
                 fmt::format("Prompt tokens of one step (default {}, on a GPU {})", kRowsPerStep, kGpuRowsPerStep));
  AddActivationFlag(flags, &activation_quant);
}

Status ModelFlags::Check() const { return NameFlags(CheckDeviceName(device)); }

Result<std::unique_ptr<ModelSession>> ModelSession::Open(ModelFiles files, const ModelFlags& flags, int64_t context,
                                                         int64_t sequences) {
  std::unique_ptr<ModelSession> session(new ModelSession());
  session->files_ = std::move(files);
  const int64_t longest = session->checkpoint().config().max_position_embeddings;
  if (context > longest) {
    return Status::InvalidArgument(fmt::format("--ctx: the model holds at most {} tokens, found {}", longest, context));
  }
  session->threads_ = flags.threads > 0 ? flags.threads : AvailableThreads();
  DEEPINFER_ASSIGN_OR_RETURN(session->ops_, MakeOps(flags.device, session->threads_));
  const int64_t step_tokens = flags.step_tokens > 0                      ? flags.step_tokens
                              : session->ops_->computes_on_host_memory() ? kRowsPerStep
                                                                         : kGpuRowsPerStep;
  ModelOptions options;
  options.activation = flags.activation_quant == "off" ? ActivationFormat::kExact : ActivationFormat::kFp8Groups32;
  options.max_context = context;
  options.max_rows_per_step = std::max(std::min(step_tokens, context), sequences);
  options.max_logits_rows = sequences;
  EngineOptions placed;
  placed.gpu_layers = flags.gpu_layers;
  DEEPINFER_ASSIGN_OR_RETURN(placed.engram, ParseEngramPlace(flags.engram));
  const WeightPlacement placement = PlacementOf(placed, session->checkpoint().config(), *session->ops_);
  const Result<FreeMemory> room = FindFreeMemory(*session->ops_, session->checkpoint(), placement);
  if (!room.ok()) return NameFlags(room.status());
  const int64_t free = room->device;
  DEEPINFER_ASSIGN_OR_RETURN(
      session->model_, Model::Create(*session->files_.checkpoint, session->files_.token_map, *session->ops_, options));
  const int64_t needed = session->model_->workspace_bytes() + sequences * session->model_->sequence_bytes(context);
  if (free != 0 && needed > free) {
    return Status::ResourceExhausted(fmt::format(
        "{} sequences of {} tokens need {} of memory, {} are free beside the weights; give shorter tests, fewer "
        "sequences or smaller --ctx or --step-tokens",
        sequences, context, HumanBytes(needed), HumanBytes(std::max<int64_t>(free, 0))));
  }
  LoadBar bar(session->checkpoint(), placed.engram);
  DEEPINFER_RETURN_IF_ERROR(NameFlags(PlaceWeights(session->checkpoint(), placement, *session->ops_, bar.progress())));
  return session;
}

}  // namespace deepinfer
