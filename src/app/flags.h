// Flags whose errors say what was expected and found, on top of CLI11.
//
// Thread-safety: the main thread only. Ownership: `value` outlives the parse; it keeps its default when the flag is not
// given. Errors: CLI::ValidationError with "FLAG: expected ..., found 'TEXT'", which RunCommandLine prints.
#ifndef DEEPINFER_APP_FLAGS_H_
#define DEEPINFER_APP_FLAGS_H_

#include <cstdint>
#include <functional>
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
CLI::Option* AddIntegerFlag(CLI::App& flags, const std::string& name, int* value, int low, int high,
                            const std::string& help);
CLI::Option* AddNumberFlag(CLI::App& flags, const std::string& name, double* value, const std::string& help);
CLI::Option* AddChoiceFlag(CLI::App& flags, const std::string& name, std::string* value,
                           const std::vector<std::string>& choices, const std::string& help);
/// A flag that may be given again and again, with one value each time.
CLI::Option* AddRepeatedFlag(CLI::App& flags, const std::string& name, std::function<void(const std::string& text)> add,
                             const std::string& help);
/// --device NAME, as ops/device.h reads it.
void AddDeviceFlag(CLI::App& flags, std::string* device);
/// --gpu-layers N and --engram PLACE, as ParseEngramPlace reads it.
void AddPlacementFlags(CLI::App& flags, int64_t* gpu_layers, std::string* engram);
/// --threads N; 0 stands for all.
void AddThreadsFlag(CLI::App& flags, int* threads);
/// --activation-quant official|off.
void AddActivationFlag(CLI::App& flags, std::string* format);
/// Bytes, as ParseMemorySize reads them.
CLI::Option* AddMemoryFlag(CLI::App& flags, const std::string& name, int64_t* value, const std::string& help);

/// "4096", "512MiB", "1.5G", "2 GB" -> bytes. K, M, G, T and KiB ... TiB count in 1024s, KB ... TB in 1000s; case does
/// not matter. kInvalidArgument says what was expected.
Result<int64_t> ParseMemorySize(const std::string& text);

/// An error of SamplingParams, EngineOptions or the engine in the words of the command line: fields become flags, as in
/// "max_num_seqs: ..." -> "--max-num-seqs: ...".
Status NameFlags(const Status& status);

/// The flags of SamplingParams that make sense for one answer.
struct SamplingFlags {
  SamplingParams params;
  bool has_seed = false;

  void AddTo(CLI::App& flags);
  /// Errors name the flag. Without --seed a random one is drawn.
  Status Check();

 private:
  void AddPenaltiesTo(CLI::App& flags);
  void AddEndingTo(CLI::App& flags);
};

/// "1, 2 3" -> ids; an error that begins with `name`.
Result<std::vector<int32_t>> ParseIds(const std::string& name, const std::string& text);

/// The whole of a file; "-" is standard input.
Result<std::string> ReadInput(const std::string& path);
/// All of standard input.
Result<std::string> ReadStandardInput();

}  // namespace deepinfer

#endif  // DEEPINFER_APP_FLAGS_H_
