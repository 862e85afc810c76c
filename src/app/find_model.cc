#include "app/find_model.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <vector>

namespace deepinfer {

void AddModelFlag(CLI::App& flags, std::string* directory) {
  flags
      .add_option("--model", *directory, "Folder of the checkpoint (default: $DEEPINFER_MODEL, else the bundled Nano)")
      ->type_name("DIR");
}

Result<std::filesystem::path> FindModel(const std::string& directory) {
  if (!directory.empty()) return std::filesystem::path(directory);
  const char* variable = std::getenv("DEEPINFER_MODEL");
  if (variable != nullptr && *variable != '\0') return std::filesystem::path(variable);

  std::vector<std::filesystem::path> places;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    places.push_back(program.parent_path() / "../../models/nano");
    places.push_back(program.parent_path() / "models/nano");
  }
  places.push_back("models/nano");
  for (const std::filesystem::path& place : places) {
    if (std::filesystem::exists(place / "config.json", error)) return place.lexically_normal();
  }
  return Status::NotFound(
      "no model: neither --model nor $DEEPINFER_MODEL is given and models/nano is not beside the "
      "program; give --model DIR");
}

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::filesystem::path folder, FindModel(directory));
  return Tokenizer::Load((folder / "tokenizer.json").string());
}

}  // namespace deepinfer
