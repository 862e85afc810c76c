// LoadDataset: the requests of a load on a server: random texts, texts that share prefixes, or those of a file.
//
// Request i is a function of the options, the file and i, so two runs ask for the same. Thread-safety: const members
// from any thread. Ownership: owns the file's prompts.
#ifndef DEEPINFER_APP_LOAD_DATASET_H_
#define DEEPINFER_APP_LOAD_DATASET_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/random_text.h"
#include "deepinfer/status.h"

namespace deepinfer {

enum class LoadKind : uint8_t { kRandom, kSharedPrefix, kFile };

struct LoadDatasetOptions {
  LoadKind kind = LoadKind::kRandom;
  int64_t input_tokens = 1024;  ///< of a random text; with shared prefixes: of what follows the prefix
  int64_t output_tokens = 128;  ///< most tokens of an answer
  double range_ratio = 0;       ///< lengths are drawn from (1 - ratio) to (1 + ratio) of the above
  int64_t prefix_tokens = 256;  ///< kSharedPrefix
  int64_t prefixes = 10;        ///< kSharedPrefix: different ones, in turn
  int64_t seed = 0;
};

/// What is sent of one request.
struct LoadPrompt {
  nlohmann::ordered_json messages;  ///< of a chat; null: `text` is the prompt
  std::string text;
  int64_t output_tokens = 0;
  int64_t input_tokens = 0;  ///< as far as they are known, for servers that do not tell; 0: unknown
};

/// The prompts of a file: JSON lines or one JSON array. An object has "prompt" (text), "messages", or "conversations"
/// (ShareGPT: everything up to the first answer), and may have "output_tokens" or "max_tokens". Objects of ShareGPT
/// without a question are left out. Errors name the file and the line.
Result<std::vector<LoadPrompt>> ParseLoadFile(const std::string& name, const std::string& text);

class LoadDataset {
 public:
  LoadDataset(const LoadDatasetOptions& options, std::vector<LoadPrompt> of_file = {});

  /// How many tokens the server makes of words.
  RandomText& words() { return words_; }
  int64_t file_prompts() const { return static_cast<int64_t>(of_file_.size()); }

  /// A file's prompts come again when there are fewer.
  LoadPrompt Make(int64_t index) const;

 private:
  const LoadDatasetOptions options_;
  const std::vector<LoadPrompt> of_file_;
  RandomText words_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_LOAD_DATASET_H_
