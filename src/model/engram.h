// Engram: n-gram memory. The last few token ids, compressed by the token map, hash to rows of a large table; the rows
// are gathered and injected into the residual streams before a layer (spec c.8).
//
// Thread-safety: immutable after Create(); the functions follow the StepContext. Ownership: copies the token map.
#ifndef DEEPINFER_MODEL_ENGRAM_H_
#define DEEPINFER_MODEL_ENGRAM_H_

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/weights.h"
#include "deepinfer/status.h"
#include "model/step.h"

namespace deepinfer {

class Engram {
 public:
  /// kInvalidArgument: a token map that does not belong to the config (wrong size, wrong number of distinct ids).
  /// Without Engram layers the map is not looked at.
  static Result<Engram> Create(const ModelConfig& config, std::span<const int32_t> token_map);

  /// Table rows of one n-gram window for hash layer `slot`: `history` ends with the token itself and holds up to
  /// engram_max_ngram_size ids (fewer at the start of a sequence). rows [hash columns].
  void HashRows(int slot, std::span<const int32_t> history, std::span<int64_t> rows) const;

  /// Fills the step's hash rows for every Engram layer. The sequences already hold the step's ids.
  void HashStep(StepContext& context) const;

 private:
  std::vector<int32_t> token_map_;  // [V]
  std::vector<EngramHash> hashes_;  // per Engram layer
  int64_t orders_ = 0;              // engram_max_ngram_size
  int64_t heads_ = 0;               // hash columns per order
  int64_t pad_ = 0;                 // compressed id of positions before the sequence
};

/// Whether a step has few enough rows to begin an Engram layer beside the layer before: what it adds hangs on token ids
/// alone. Steps of more rows have no memory for it that the layer before does not use.
bool EngramIsEarly(const StepContext& context);

/// Computes what hash layer `slot` adds. The step keeps its rows until InjectEngram(), which follows at once where
/// EngramIsEarly() is false.
void StartEngram(StepContext& context, int slot, const EngramWeights& weights);

/// Adds it to the step's streams.
void InjectEngram(StepContext& context, const EngramWeights& weights);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_ENGRAM_H_
