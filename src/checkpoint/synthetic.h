// Synthetic checkpoints: random weights in the released formats, for benchmarks of any width and for tests.
//
// Values are drawn so that activations stay near 1 through the layers: matrices have standard deviation
// 1/sqrt(inputs), those that write to the residual streams are divided by sqrt(2 * layers), norms are near 1. E4M3
// values never are NaN. The same spec and seed give the same bytes; a tensor's values depend on its name, shape and the
// seed only.
//
// Thread-safety: calls with different directories are independent. Ownership: none.
#ifndef DEEPINFER_CHECKPOINT_SYNTHETIC_H_
#define DEEPINFER_CHECKPOINT_SYNTHETIC_H_

#include <cstdint>
#include <filesystem>
#include <functional>

#include "checkpoint/synthetic_spec.h"
#include "deepinfer/status.h"

namespace deepinfer {

/// Bytes of tensors written so far and in the end.
using SyntheticProgress = std::function<void(int64_t done, int64_t total)>;

/// Writes config.json, the shards, their index and the tokenizer files to `directory`, which must not exist yet: all is
/// written to a folder beside it and renamed at the end; after an error nothing is left. kResourceExhausted: too little
/// disk space. `progress` may be empty.
Status WriteSyntheticCheckpoint(const SyntheticSpec& spec, const std::filesystem::path& directory, uint64_t seed,
                                const SyntheticProgress& progress = {});

}  // namespace deepinfer

#endif  // DEEPINFER_CHECKPOINT_SYNTHETIC_H_
