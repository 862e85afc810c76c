// SyntheticSpec: the widths of a random checkpoint for benchmarks and tests, by name or as "NAME:key=value,...".
//
// The specs of checkpoints on disk use the bundled Nano tokenizer's vocabulary, so that they can be run like any other.
// Thread-safety: values and pure functions. Sources: spec section (a) for the proportions.
#ifndef DEEPINFER_CHECKPOINT_SYNTHETIC_SPEC_H_
#define DEEPINFER_CHECKPOINT_SYNTHETIC_SPEC_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "checkpoint/model_config.h"
#include "deepinfer/status.h"

namespace deepinfer {

struct SyntheticSpec {
  ModelConfig config;                         ///< accepted by CheckModelConfig
  int64_t shard_bytes = int64_t{1} << 30;     ///< a new file begins once the last one has this many bytes
  bool generated = false;                     ///< too large for a file: for Checkpoint::Generate only
  std::filesystem::path tokenizer_directory;  ///< its tokenizer.json and tokenizer_config.json are copied; empty: none
};

/// Reads "mid", "smoke", "v41-flash" or a name followed by ":key=value,key=value". Keys are the integers of
/// config.json's text_config, or the short forms layers, experts, hidden, intermediate, heads, window. `layers`
/// re-derives which layers are sources. kInvalidArgument names the key.
///   mid    released proportions in 8 layers, about 4 GB
///   smoke  every mechanism at the smallest widths, about 5 MB
///   v41-flash  the release's widths, experts and vocabulary in `layers` layers (12) of which each role has its share
///              of the release, without a drafter and with Engram tables of 1 GB; v41-flash:N is v41-flash:layers=N
Result<SyntheticSpec> ParseSyntheticSpec(std::string_view text);

}  // namespace deepinfer

#endif  // DEEPINFER_CHECKPOINT_SYNTHETIC_SPEC_H_
