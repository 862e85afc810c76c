#include "engine/model_files.h"

#include <fmt/format.h>

#include "text/token_map.h"

namespace deepinfer {

Result<ModelFiles> ModelFiles::Load(const std::filesystem::path& folder, const std::filesystem::path& tokenizer_file) {
  ModelFiles files;
  DEEPINFER_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(folder));
  files.checkpoint = std::make_unique<Checkpoint>(std::move(checkpoint));
  const ModelConfig& config = files.checkpoint->config();
  const std::filesystem::path file = tokenizer_file.empty() ? folder / "tokenizer.json" : tokenizer_file;
  DEEPINFER_ASSIGN_OR_RETURN(files.tokenizer, Tokenizer::Load(file.string()));
  if (files.tokenizer->vocab_size() != config.vocab_size) {
    return Status::Corruption(fmt::format("{}: vocab_size of config.json is {}, {} has {} tokens", folder.string(),
                                          config.vocab_size, file.filename().string(), files.tokenizer->vocab_size()));
  }
  DEEPINFER_ASSIGN_OR_RETURN(files.token_map, BuildTokenMap(*files.tokenizer));
  return files;
}

}  // namespace deepinfer
