#include "app/synthetic_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "app/find_model.h"
#include "app/flags.h"
#include "base/machine.h"

namespace deepinfer {

SyntheticFlags::~SyntheticFlags() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove_all(temporary_, ignored);
}

void SyntheticFlags::AddTo(CLI::App& flags) {
  flag_ = flags
              .add_option("--synthetic", text_,
                          "Measure a random checkpoint of these widths: mid (about 4 GB), smoke, or NAME:key=value,... "
                          "such as mid:layers=4")
              ->type_name("SPEC");
  flags
      .add_option("--synthetic-dir", kept_directory_,
                  "With --synthetic: keep the checkpoint in this folder and use it again (default: a temporary folder)")
      ->type_name("DIR");
}

bool SyntheticFlags::given() const { return flag_->count() > 0; }

Status SyntheticFlags::Check(const std::string& model) {
  if (!given()) {
    if (kept_directory_.empty()) return Status::Ok();
    return Status::InvalidArgument("--synthetic-dir: needs --synthetic SPEC");
  }
  if (!model.empty()) return Status::InvalidArgument("--synthetic and --model exclude each other");
  DEEPINFER_ASSIGN_OR_RETURN(spec_, ParseSyntheticSpec(text_));
  return Status::Ok();
}

Result<std::string> SyntheticFlags::Make() {
  std::string directory = kept_directory_;
  if (!directory.empty()) {
    std::error_code ignored;
    const std::filesystem::path config_file = std::filesystem::path(directory) / "config.json";
    if (std::filesystem::exists(config_file, ignored)) {
      DEEPINFER_RETURN_IF_ERROR(CheckKept(config_file));
      return directory;
    }
  } else {
    std::error_code error;
    std::string name = (std::filesystem::temp_directory_path(error) / "deepinfer-XXXXXX").string();
    if (error || mkdtemp(name.data()) == nullptr) {
      return Status::Io("no temporary folder for the checkpoint: set $TMPDIR or give --synthetic-dir DIR");
    }
    temporary_ = name;
    directory = (temporary_ / "checkpoint").string();
  }
  DEEPINFER_ASSIGN_OR_RETURN(spec_.tokenizer_directory, FindModel(""));
  int64_t shown = -1;
  DEEPINFER_RETURN_IF_ERROR(WriteSyntheticCheckpoint(spec_, directory, 1, [&](int64_t done, int64_t total) {
    const int64_t percent = total > 0 ? 100 * done / total : 100;
    if (percent / 10 == shown / 10 && percent != 100) return;
    shown = percent;
    fmt::print(stderr, "writing {}: {} of {}\n", directory, HumanBytes(done), HumanBytes(total));
  }));
  return directory;
}

/// A kept checkpoint is used again only for the spec that it was written for.
Status SyntheticFlags::CheckKept(const std::filesystem::path& config_file) const {
  DEEPINFER_ASSIGN_OR_RETURN(const std::string text, ReadInput(config_file.string()));
  DEEPINFER_ASSIGN_OR_RETURN(const ModelConfig kept, ParseModelConfig(text));
  if (WriteModelConfig(kept) == WriteModelConfig(spec_.config)) return Status::Ok();
  return Status::InvalidArgument(fmt::format(
      "--synthetic-dir: {} holds a checkpoint of other widths than {}; give another folder", kept_directory_, text_));
}

}  // namespace deepinfer
