#include "app/model_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <limits>

#include "app/find_model.h"
#include "app/flags.h"
#include "base/machine.h"

namespace deepinfer {
namespace {

/// Prompt tokens of one step: enough rows to keep the arithmetic units busy, few enough to stop soon after Ctrl-C.
constexpr int64_t kRowsPerStep = 512;

}  // namespace

void ModelFlags::AddTo(CLI::App& flags) {
  AddModelFlag(flags, &directory);
  AddThreadsFlag(flags, &threads);
  AddIntegerFlag(flags, "--ctx", &context, 2, std::numeric_limits<int64_t>::max(),
                 "Longest context in tokens (default: what the tests need)");
  AddActivationFlag(flags, &activation_quant);
}

Result<std::unique_ptr<ModelSession>> ModelSession::Open(const ModelFlags& flags, int64_t context) {
  std::unique_ptr<ModelSession> session(new ModelSession());
  DEEPINFER_ASSIGN_OR_RETURN(const std::filesystem::path folder, FindModel(flags.directory));
  DEEPINFER_ASSIGN_OR_RETURN(session->files_, ModelFiles::Load(folder));
  const int64_t longest = session->checkpoint().config().max_position_embeddings;
  if (context > longest) {
    return Status::InvalidArgument(fmt::format("--ctx: the model holds at most {} tokens, found {}", longest, context));
  }
  ModelOptions options;
  options.activation = flags.activation_quant == "off" ? ActivationFormat::kExact : ActivationFormat::kFp8Groups32;
  options.max_context = context;
  options.max_rows_per_step = std::min(kRowsPerStep, context);
  options.max_logits_rows = 1;
  session->threads_ = flags.threads > 0 ? flags.threads : AvailableThreads();
  session->ops_ = MakeCpuOps(session->threads_);
  DEEPINFER_ASSIGN_OR_RETURN(
      session->model_, Model::Create(*session->files_.checkpoint, session->files_.token_map, *session->ops_, options));
  const int64_t needed = session->model_->workspace_bytes() + session->model_->sequence_bytes(context);
  const int64_t free = FindMemory().available;
  if (free > 0 && needed > free) {
    return Status::ResourceExhausted(
        fmt::format("a context of {} tokens needs {} of memory, {} are free; give shorter tests or a smaller --ctx",
                    context, HumanBytes(needed), HumanBytes(free)));
  }
  return session;
}

}  // namespace deepinfer
