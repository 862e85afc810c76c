// ModelSession: a Model without an engine around it, for benchmarks of the forward pass alone.
//
// Thread-safety: one thread. Ownership: owns all of it; references it hands out die with it.
#ifndef DEEPINFER_APP_MODEL_SESSION_H_
#define DEEPINFER_APP_MODEL_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "deepinfer/status.h"
#include "engine/model_files.h"
#include "model/model.h"
#include "ops/ops.h"

namespace CLI {
class App;
}

namespace deepinfer {

struct ModelFlags {
  std::string directory;        ///< empty: FindModel() looks for one
  std::string device = "auto";  ///< as ops/device.h reads it
  int64_t gpu_layers = -1;      ///< -1: all
  std::string engram = "disk";  ///< as ParseEngramPlace reads it
  int threads = 0;              ///< 0: all that this process may use
  int64_t step_tokens = 0;      ///< prompt tokens of a step; 0: as the device
  std::string activation_quant = "official";
  int64_t context = 0;  ///< tokens; 0: as many as the benchmark needs

  void AddTo(CLI::App& flags);
  /// Errors name the flag.
  Status Check() const;
};

class ModelSession {
 public:
  /// `context`: tokens of one sequence; `sequences`: how many of them there are at once. kResourceExhausted, with both
  /// numbers, when that does not fit the free memory.
  static Result<std::unique_ptr<ModelSession>> Open(ModelFiles files, const ModelFlags& flags, int64_t context,
                                                    int64_t sequences);

  const Checkpoint& checkpoint() const { return *files_.checkpoint; }
  Model& model() { return *model_; }
  Ops& ops() { return *ops_; }
  int threads() const { return threads_; }

 private:
  ModelSession() = default;

  ModelFiles files_;
  int threads_ = 1;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_MODEL_SESSION_H_
