// Flags whose errors say what was expected and found, on top of CLI11.
//
// Thread-safety: the main thread only. Ownership: `value` outlives the parse; it keeps its default when the flag is not
// given. Errors: CLI::ValidationError with "FLAG: expected ..., found 'TEXT'", which RunCommandLine prints.
#ifndef DEEPINFER_APP_FLAGS_H_
#define DEEPINFER_APP_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "deepinfer/sampling_params.h"
#include "deepinfer/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace deepinfer {

CLI::Option* AddIntegerFlag(CLI::App& flags, const std::string& name, int64_t* value, int64_t low, int64_t high,
                            const std::string& help);
CLI::Option* AddNumberFlag(CLI::App& flags, const std::string& name, double* value, const std::string& help);
CLI::Option* AddChoiceFlag(CLI::App& flags, const std::string& name, std::string* value,
                           const std::vector<std::string>& choices, const std::string& help);

/// The flags of SamplingParams.
struct SamplingFlags {
  SamplingParams params;
  bool has_seed = false;

  void AddTo(CLI::App& flags);
  /// Errors name the flag. Without --seed a random one is drawn.
  Status Check();
};

/// "1, 2 3" -> ids; an error that begins with `name`.
Result<std::vector<int32_t>> ParseIds(const std::string& name, const std::string& text);

/// The whole of a file; "-" is standard input.
Result<std::string> ReadInput(const std::string& path);
/// All of standard input.
Result<std::string> ReadStandardInput();

}  // namespace deepinfer

#endif  // DEEPINFER_APP_FLAGS_H_
