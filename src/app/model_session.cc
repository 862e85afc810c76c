#include "app/model_session.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "app/flags.h"
#include "base/machine.h"
#include "text/token_map.h"

namespace deepinfer {
namespace {

constexpr int64_t kMostThreads = 1024;
/// Prompt tokens of one step: enough rows to keep the arithmetic units busy, few enough to stop soon after Ctrl-C.
constexpr int64_t kRowsPerStep = 512;

}  // namespace

void ModelFlags::AddModelTo(CLI::App& flags) {
  flags.add_option("--model", directory, "Folder of the checkpoint (default: $DEEPINFER_MODEL, else the bundled Nano)")
      ->type_name("DIR");
}

void ModelFlags::AddTo(CLI::App& flags) {
  AddModelTo(flags);
  AddIntegerFlag(flags, "--threads", &threads, 1, kMostThreads,
                 fmt::format("Threads to compute with (default: all that may be used here, {})", AvailableThreads()));
  AddIntegerFlag(flags, "--ctx", &context, 2, std::numeric_limits<int64_t>::max(),
                 "Longest context in tokens, prompt and answer (default: the model's)");
  AddChoiceFlag(flags, "--activation-quant", &activation_quant, {"official", "off"},
                "official: FP8 activations as released; off: unquantised (default official)");
}

Result<std::filesystem::path> FindModel(const std::string& directory) {
  if (!directory.empty()) return std::filesystem::path(directory);
  const char* variable = std::getenv("DEEPINFER_MODEL");
  if (variable != nullptr && *variable != '\0') return std::filesystem::path(variable);

  std::vector<std::filesystem::path> places;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    places.push_back(program.parent_path() / "../../models/nano");
    places.push_back(program.parent_path() / "models/nano");
  }
  places.push_back("models/nano");
  for (const std::filesystem::path& place : places) {
    if (std::filesystem::exists(place / "config.json", error)) return place.lexically_normal();
  }
  return Status::NotFound(
      "no model: neither --model nor $DEEPINFER_MODEL is given and models/nano is not beside the "
      "program; give --model DIR");
}

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::filesystem::path folder, FindModel(directory));
  return Tokenizer::Load((folder / "tokenizer.json").string());
}

Result<std::unique_ptr<ModelSession>> ModelSession::Open(const ModelFlags& flags) {
  std::unique_ptr<ModelSession> session(new ModelSession());
  DEEPINFER_ASSIGN_OR_RETURN(const std::filesystem::path folder, FindModel(flags.directory));
  DEEPINFER_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(folder));
  session->checkpoint_.emplace(std::move(checkpoint));
  const ModelConfig& config = session->config();

  DEEPINFER_ASSIGN_OR_RETURN(session->tokenizer_, Tokenizer::Load((folder / "tokenizer.json").string()));
  if (session->tokenizer_->vocab_size() != config.vocab_size) {
    return Status::Corruption(fmt::format("{}: vocab_size of config.json is {}, tokenizer.json has {} tokens",
                                          folder.string(), config.vocab_size, session->tokenizer_->vocab_size()));
  }
  DEEPINFER_ASSIGN_OR_RETURN(session->token_map_, BuildTokenMap(*session->tokenizer_));

  if (flags.context > config.max_position_embeddings) {
    return Status::InvalidArgument(fmt::format("--ctx: the model holds at most {} tokens, found {}",
                                               config.max_position_embeddings, flags.context));
  }
  ModelOptions options;
  options.activation = flags.activation_quant == "off" ? ActivationFormat::kExact : ActivationFormat::kFp8Groups32;
  options.max_context = flags.context > 0 ? flags.context : config.max_position_embeddings;
  options.max_rows_per_step = std::min(kRowsPerStep, options.max_context);
  options.max_logits_rows = 1;
  session->threads_ = flags.threads > 0 ? static_cast<int>(flags.threads) : AvailableThreads();
  session->ops_ = MakeCpuOps(session->threads_);
  DEEPINFER_ASSIGN_OR_RETURN(session->model_,
                             Model::Create(*session->checkpoint_, session->token_map_, *session->ops_, options));
  return session;
}

}  // namespace deepinfer
