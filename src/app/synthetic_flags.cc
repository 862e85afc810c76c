#include "app/synthetic_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/engine_flags.h"
#include "app/find_model.h"
#include "app/flags.h"
#include "base/machine.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/device.h"
#include "text/byte_alphabet.h"

namespace deepinfer {
namespace {

/// A tokenizer for answers that nobody reads: three control tokens, the bytes, and a name for every other id.
Result<std::unique_ptr<Tokenizer>> MakeTokenizer(int64_t vocabulary) {
  using Json = nlohmann::json;
  constexpr int kControl = 3;
  Json added = Json::array();
  for (int id = 0; id < kControl; ++id) {
    added.push_back({{"id", id}, {"content", fmt::format("<control {}>", id)}, {"special", true}});
  }
  Json words = Json::object();
  for (int64_t id = kControl; id < vocabulary; ++id) {
    const int64_t byte = id - kControl;
    words[byte < 256 ? SpellingOfBytes(std::string(1, static_cast<char>(byte))) : fmt::format("t{}", id)] = id;
  }
  const Json file = {{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
                     {"decoder", {{"type", "ByteLevel"}}},
                     {"added_tokens", added},
                     {"model", {{"type", "BPE"}, {"vocab", words}, {"merges", Json::array()}}}};
  return Tokenizer::FromJson(file.dump());
}

Result<ModelFiles> GenerateFiles(const ModelConfig& config, const std::string& name) {
  ModelFiles files;
  DEEPINFER_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Generate(config, name, 1));
  files.checkpoint = std::make_unique<Checkpoint>(std::move(checkpoint));
  DEEPINFER_ASSIGN_OR_RETURN(files.tokenizer, MakeTokenizer(config.vocab_size));
  for (int64_t id = 0; id < config.vocab_size; ++id) {
    files.token_map.push_back(static_cast<int32_t>(id % config.engram_compressed_vocab_size));
  }
  return files;
}

}  // namespace

SyntheticFlags::~SyntheticFlags() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove_all(temporary_, ignored);
}

void SyntheticFlags::AddTo(CLI::App& flags) {
  flag_ = flags
              .add_option("--synthetic", text_,
                          "Measure a random checkpoint of these widths: mid (about 4 GB), smoke, v41-flash:N (N layers "
                          "of the release's widths, made in the memory of a GPU), or NAME:key=value,... such as "
                          "mid:layers=4")
              ->type_name("SPEC");
  flags
      .add_option("--synthetic-dir", kept_directory_,
                  "With --synthetic: keep the checkpoint in this folder and use it again (default: a temporary folder)")
      ->type_name("DIR");
}

bool SyntheticFlags::given() const { return flag_->count() > 0; }

Status SyntheticFlags::Check(const std::string& model, const std::string& device) {
  if (!given()) {
    if (kept_directory_.empty()) return Status::Ok();
    return Status::InvalidArgument("--synthetic-dir: needs --synthetic SPEC");
  }
  if (!model.empty()) return Status::InvalidArgument("--synthetic and --model exclude each other");
  DEEPINFER_ASSIGN_OR_RETURN(spec_, ParseSyntheticSpec(text_));
  if (!spec_.generated) return Status::Ok();
  if (!kept_directory_.empty()) return Status::InvalidArgument("--synthetic-dir: v41-flash is not written to a folder");
  if (GpuOfDevice(device) >= 0 && CountCudaDevices() > 0) return Status::Ok();
  return Status::InvalidArgument(fmt::format(
      "--synthetic: the weights of {} exist on a GPU only; it needs --device cuda and a GPU, found --device {} and {} "
      "GPUs that this build can use",
      text_, device, CountCudaDevices()));
}

Result<std::string> SyntheticFlags::Make() {
  if (spec_.generated) return text_;
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

Result<ModelFiles> SyntheticFlags::Load(const std::string& directory) const {
  if (generated()) return GenerateFiles(spec_.config, text_);
  DEEPINFER_ASSIGN_OR_RETURN(const std::filesystem::path folder, FindModel(directory));
  return ModelFiles::Load(folder);
}

Result<std::unique_ptr<EngineCore>> SyntheticFlags::Open(const EngineOptions& options) const {
  if (!generated()) return OpenEngine(options);
  DEEPINFER_ASSIGN_OR_RETURN(ModelFiles files, Load(options.model));
  return OpenEngine(std::move(files), options);
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
