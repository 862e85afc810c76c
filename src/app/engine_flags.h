// EngineFlags: the flags of EngineOptions, for every command that generates, and the engine they describe.
//
// What is not given as a flag comes from the environment (EngineOptions::ApplyEnvironment), then from the defaults that
// the command has put into `options`. Thread-safety: the main thread only. Ownership: outlives the parse.
#ifndef DEEPINFER_APP_ENGINE_FLAGS_H_
#define DEEPINFER_APP_ENGINE_FLAGS_H_

#include <memory>
#include <string>

#include "deepinfer/engine.h"
#include "deepinfer/status.h"
#include "engine/engine_core.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace deepinfer {

/// Opens the model (FindModel) and builds the engine. Errors name the flags.
Result<std::unique_ptr<EngineCore>> OpenEngine(const EngineOptions& options);
/// The same of files that are open. On a terminal a bar shows how weights come to a GPU.
Result<std::unique_ptr<EngineCore>> OpenEngine(ModelFiles files, const EngineOptions& options);

struct EngineFlags {
  EngineOptions options;  ///< model: as --model says, empty when it does not

  /// Reads the environment, then declares the flags.
  void AddTo(CLI::App& flags);
  /// Errors name the flag or the variable.
  Status Check();

  bool has_max_num_seqs() const;

  Result<std::unique_ptr<EngineCore>> Open() const { return OpenEngine(options); }

 private:
  void AddLimitsTo(CLI::App& flags);
  void AddReplayTo(CLI::App& flags);
  void AddSpeculationTo(CLI::App& flags);

  Status environment_;
  CLI::Option* max_num_seqs_flag_ = nullptr;
  std::string engram_;
  std::string activation_quant_;
  std::string replay_;
  std::string variable_drafts_;
  std::string speculation_rule_;
  bool no_prefix_cache_ = false;
  bool synchronous_ = false;
};

/// What was asked for and is off, and why, as a line on standard error; nothing where everything works.
Status PrintWarning(const Engine& engine);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_ENGINE_FLAGS_H_
