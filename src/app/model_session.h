// ModelSession: everything that stands behind --model: checkpoint, tokenizer, ops, model.
//
// Thread-safety: one thread. Ownership: owns all of it; references it hands out die with it.
#ifndef DEEPINFER_APP_MODEL_SESSION_H_
#define DEEPINFER_APP_MODEL_SESSION_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/weights.h"
#include "deepinfer/status.h"
#include "model/model.h"
#include "ops/ops.h"
#include "text/tokenizer.h"

namespace CLI {
class App;
}

namespace deepinfer {

/// The flags of every command that runs the model.
struct ModelFlags {
  std::string directory;  ///< empty: FindModel() looks for one
  int64_t threads = 0;    ///< 0: all that this process may use
  std::string activation_quant = "official";
  int64_t context = 0;  ///< tokens; 0: what the model was made for

  void AddTo(CLI::App& flags);
  /// Only --model, for commands that do not run it.
  void AddModelTo(CLI::App& flags);
};

/// The folder of the checkpoint: `directory`, else $DEEPINFER_MODEL, else the bundled Nano beside the program.
Result<std::filesystem::path> FindModel(const std::string& directory);

/// The tokenizer of the model in `directory` (as FindModel takes it).
Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory);

class ModelSession {
 public:
  static Result<std::unique_ptr<ModelSession>> Open(const ModelFlags& flags);

  const std::filesystem::path& directory() const { return checkpoint_->directory(); }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  const ModelConfig& config() const { return checkpoint_->config(); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  Model& model() { return *model_; }
  int threads() const { return threads_; }
  int64_t context() const { return model_->options().max_context; }

 private:
  ModelSession() = default;

  std::optional<Checkpoint> checkpoint_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<int32_t> token_map_;  // [V]
  int threads_ = 1;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_MODEL_SESSION_H_
