// KvFlags: the flags of the tiers behind the KV pool (docs/kv-tiers.md).
//
// Thread-safety: the main thread only. Ownership: outlives the parse.
#ifndef DEEPINFER_APP_KV_FLAGS_H_
#define DEEPINFER_APP_KV_FLAGS_H_

#include <string>

#include "deepinfer/engine.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace deepinfer {

/// "3d" -> seconds, at least 1; a flag whose error says which forms there are.
CLI::Option* AddDurationFlag(CLI::App& flags, const std::string& name, int64_t* seconds, const std::string& help);
/// A number of GiB, such as 0.5 -> bytes, at least `least`.
CLI::Option* AddGibFlag(CLI::App& flags, const std::string& name, int64_t* bytes, const std::string& help,
                        int64_t least = 0);
/// A path. An empty one, which is what a shell makes of a variable that is not set, is refused: it would turn off what
/// the flag is there for, such as encryption.
CLI::Option* AddPathFlag(CLI::App& flags, const std::string& name, std::string* path, const std::string& type,
                         const std::string& help);

/// `options` keeps its values where no flag is given.
void AddKvTierFlags(CLI::App& flags, EngineOptions* options);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_KV_FLAGS_H_
