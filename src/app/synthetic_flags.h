// SyntheticFlags: --synthetic and --synthetic-dir of the benchmarks: a random checkpoint of given widths.
//
// Thread-safety: the main thread only. Ownership: a checkpoint in a temporary folder is removed with this object.
#ifndef DEEPINFER_APP_SYNTHETIC_FLAGS_H_
#define DEEPINFER_APP_SYNTHETIC_FLAGS_H_

#include <filesystem>
#include <string>

#include "checkpoint/synthetic.h"
#include "deepinfer/status.h"

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
  /// Errors name the flag. `model`: the value of --model, which excludes --synthetic.
  Status Check(const std::string& model);

  bool given() const;
  const std::string& name() const { return text_; }

  /// Writes the checkpoint unless it is kept from before, telling so on standard error; returns its folder.
  Result<std::string> Make();

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
