// ModelFiles: what lies in the folder of a model: checkpoint, tokenizer, and the Engram token map made of both.
//
// Thread-safety: read-only once loaded. Ownership: owns all of it.
#ifndef DEEPINFER_ENGINE_MODEL_FILES_H_
#define DEEPINFER_ENGINE_MODEL_FILES_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "checkpoint/weights.h"
#include "deepinfer/status.h"
#include "text/tokenizer.h"

namespace deepinfer {

struct ModelFiles {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<int32_t> token_map;  // [V]

  /// `tokenizer_file`: empty: tokenizer.json of `folder`. Errors name the file.
  static Result<ModelFiles> Load(const std::filesystem::path& folder, const std::filesystem::path& tokenizer_file = {});
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_MODEL_FILES_H_
