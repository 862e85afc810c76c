// SyntheticFlags: --synthetic and --synthetic-dir of the benchmarks: a random checkpoint of given widths, in a folder
// or (v41-flash) generated in the memory of a GPU.
//
// Thread-safety: the main thread only. Ownership: a checkpoint in a temporary folder is removed with this object.
#ifndef DEEPINFER_APP_SYNTHETIC_FLAGS_H_
#define DEEPINFER_APP_SYNTHETIC_FLAGS_H_

#include <filesystem>
#include <memory>
#include <string>

#include "checkpoint/synthetic.h"
#include "deepinfer/status.h"
#include "engine/engine_core.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace deepinfer {

class SyntheticFlags {
 public:
  SyntheticFlags() = default;
  ~SyntheticFlags();
  SyntheticFlags(const SyntheticFlags&) = delete;
  SyntheticFlags& operator=(const SyntheticFlags&) = delete;

  void AddTo(CLI::App& flags);
  /// Errors name the flag. `model`: the value of --model, which excludes --synthetic. `device`: that of --device, which
  /// must be a GPU for a generated checkpoint.
  Status Check(const std::string& model, const std::string& device);

  bool given() const;
  const std::string& name() const { return text_; }
  /// Whether there are no files: every role of the release's layers at its widths.
  bool generated() const { return given() && spec_.generated; }

  /// Writes the checkpoint unless it is kept from before, telling so on standard error; returns its folder. Of a
  /// generated one only the name.
  Result<std::string> Make();
  /// The files of the model in `directory` (as FindModel takes it), or what is generated instead.
  Result<ModelFiles> Load(const std::string& directory) const;
  /// The engine of `options`, whose model is what Make() has returned.
  Result<std::unique_ptr<EngineCore>> Open(const EngineOptions& options) const;

 private:
  Status CheckKept(const std::filesystem::path& config_file) const;

  CLI::Option* flag_ = nullptr;
  std::string text_;
  std::string kept_directory_;
  SyntheticSpec spec_;
  std::filesystem::path temporary_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_SYNTHETIC_FLAGS_H_
