// Rehearsal: a sequence of made-up ids in memory of its own, for steps before the first request.
//
// Thread-safety: the thread that drives the model. Ownership: owns its sequence; the Ops has finished when it goes.
#ifndef DEEPINFER_ENGINE_REHEARSAL_H_
#define DEEPINFER_ENGINE_REHEARSAL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/device_memory.h"
#include "model/model.h"

namespace deepinfer {

class Rehearsal {
 public:
  /// Of up to `rows` tokens. kResourceExhausted: no memory for their rows.
  static Result<Rehearsal> Create(Model& model, Ops& ops, int64_t rows);

  /// Forgets everything, computes the first `rows` ids in one step, with their logits as asked, and chooses the tokens
  /// of those.
  Result<ForwardResult> Run(int64_t rows, LogitsRows logits);

  SequenceState& state() { return *state_; }
  int32_t id(int64_t row) const { return ids_[static_cast<size_t>(row)]; }

 private:
  Rehearsal(Model& model, Ops& ops) : model_(&model), ops_(&ops) {}

  Model* model_;
  Ops* ops_;
  int64_t blocks_ = 0;
  DeviceMemory memory_;
  std::unique_ptr<SequenceState> state_;
  std::vector<int32_t> ids_;
  std::vector<TokenRule> rules_;
  std::vector<TokenChoice> choices_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_REHEARSAL_H_
