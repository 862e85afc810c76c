// Where the model is when nobody says so, and what of it can be used without running it.
//
// Thread-safety: any thread. Ownership: results own what they hold.
#ifndef DEEPINFER_APP_FIND_MODEL_H_
#define DEEPINFER_APP_FIND_MODEL_H_

#include <filesystem>
#include <memory>
#include <string>

#include "deepinfer/status.h"
#include "text/tokenizer.h"

namespace CLI {
class App;
}

namespace deepinfer {

/// --model DIR.
void AddModelFlag(CLI::App& flags, std::string* directory);

/// The folder of the checkpoint: `directory`, else $DEEPINFER_MODEL, else the bundled Nano beside the program.
Result<std::filesystem::path> FindModel(const std::string& directory);

/// The tokenizer of the model in `directory` (as FindModel takes it).
Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_FIND_MODEL_H_
