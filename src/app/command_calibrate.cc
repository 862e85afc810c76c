// calibrate: fits the temperatures of DSpark's confidence head and writes them beside the model.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <nlohmann/json.hpp>

#include "app/bench_report.h"
#include "app/calibration_prompts.h"
#include "app/command.h"
#include "app/engine_flags.h"
#include "app/find_model.h"
#include "app/flags.h"
#include "app/interrupt.h"
#include "app/read_answers.h"
#include "app/terminal.h"
#include "engine/calibration.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;

class CalibrateCommand : public Command {
 public:
  CalibrateCommand() {
    engine_.options.profile_steps = false;
    engine_.options.store_calibration = false;  // this command does, where it was told to
  }

  std::string_view name() const override { return "calibrate"; }
  std::string_view summary() const override { return "Fit the confidence of DSpark's drafts to a model"; }

  void AddFlags(CLI::App& flags) override {
    flags
        .add_option("--output", output_,
                    fmt::format("Write {} into this folder (default: the model's)", kCalibrationFileName))
        ->type_name("DIR");
    AddIntegerFlag(flags, "--max-tokens", &max_tokens_, 1, 1 << 20, "Longest answer to a prompt (default 64)");
    flags.add_flag("--json", json_, "Print one JSON object");
    engine_.AddTo(flags);
  }

  Status Check() override {
    DEEPINFER_RETURN_IF_ERROR(engine_.Check());
    // Whole blocks are drafted and verified, so that every position is observed.
    engine_.options.draft_length = std::numeric_limits<int>::max();
    engine_.options.variable_drafts = false;
    return Status::Ok();
  }

  Result<int> Run() override {
    const Interrupt interrupt;
    DEEPINFER_ASSIGN_OR_RETURN(const std::filesystem::path model, FindModel(engine_.options.model));
    const std::filesystem::path folder = output_.empty() ? model : std::filesystem::path(output_);
    DEEPINFER_RETURN_IF_ERROR(CheckFolder(folder));
    DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<EngineCore> engine, engine_.Open());
    if (engine->options().draft_length == 0) {
      return Status::InvalidArgument(model.string() +
                                     ": the model has no DSpark stages, there is nothing to calibrate");
    }
    DEEPINFER_ASSIGN_OR_RETURN(std::vector<GenerationRequest> requests, MakeRequests(*engine->files().tokenizer));
    const int64_t count = std::ssize(requests);
    std::vector<Generation> generations;
    {
      ProgressBar bar("prompts", count);
      DEEPINFER_ASSIGN_OR_RETURN(generations, RunRequests(*engine, std::move(requests), &bar));
    }
    engine->WaitIdle();
    DEEPINFER_ASSIGN_OR_RETURN(const Calibration calibration, engine->FitCalibration());
    DEEPINFER_RETURN_IF_ERROR(SaveCalibration(folder, calibration));
    const std::string path = (folder / kCalibrationFileName).string();
    DEEPINFER_RETURN_IF_ERROR(WriteAll(1, json_ ? JsonText(*engine, path, FiguresOf(generations), calibration)
                                                : Text(*engine, path, count, FiguresOf(generations), calibration)));
    return kExitOk;
  }

 private:
  /// Before the work, not after it.
  Status CheckFolder(const std::filesystem::path& folder) const {
    const char* const remedy = output_.empty() ? "; give --output DIR, or make the folder writable" : "";
    std::error_code error;
    if (!std::filesystem::is_directory(folder, error)) {
      return Status::NotFound(
          fmt::format("{}{}: no such folder{}", output_.empty() ? "" : "--output: ", folder.string(), remedy));
    }
    if (access(folder.c_str(), W_OK) == 0) return Status::Ok();
    return Status::Io(
        fmt::format("{}{}: cannot be written{}", output_.empty() ? "" : "--output: ", folder.string(), remedy));
  }

  /// Every prompt at T = 0 and at T = 1, the two ends of what is asked for.
  Result<std::vector<GenerationRequest>> MakeRequests(const Tokenizer& tokenizer) const {
    std::vector<GenerationRequest> requests;
    for (const double temperature : {0.0, 1.0}) {
      for (const CalibrationPrompt& text : CalibrationPrompts()) {
        DEEPINFER_ASSIGN_OR_RETURN(const Prompt prompt, RenderCalibrationPrompt(text));
        GenerationRequest& request = requests.emplace_back();
        DEEPINFER_ASSIGN_OR_RETURN(request.prompt, PromptIds(prompt, tokenizer));
        request.sampling.temperature = temperature;
        request.sampling.seed = requests.size();
        request.sampling.max_tokens = max_tokens_;
      }
    }
    return requests;
  }

  static std::string Text(const EngineCore& engine, const std::string& path, int64_t requests,
                          const GenerationFigures& figures, const Calibration& calibration) {
    const EngineStatistics statistics = engine.statistics();
    const std::vector<double> shares =
        AcceptanceByPosition(statistics.accepted_by_position, statistics.verified_by_position);
    std::string text =
        fmt::format("{} answers of {} prompts, {} blocks of drafts, {:.2f} accepted a step\n\n", requests,
                    CalibrationPrompts().size(), calibration.observations, figures.accepted_per_step());
    constexpr std::string_view kRow = "{:<10}{:>12}{:>12}{:>12}{:>14}\n";
    text += fmt::format(kRow, "draft", "verified", "accepted", "share", "temperature");
    for (size_t i = 0; i < calibration.temperatures.size(); ++i) {
      const bool counted = i < shares.size();
      text += fmt::format(kRow, i + 1, counted ? fmt::format("{}", statistics.verified_by_position[i]) : "-",
                          counted ? fmt::format("{}", statistics.accepted_by_position[i]) : "-",
                          counted ? fmt::format("{:.3f}", shares[i]) : "-",
                          fmt::format("{:.3f}", calibration.temperatures[i]));
    }
    text += fmt::format("\nexpected calibration error: {:.4f} before, {:.4f} after\nwritten: {}\n",
                        calibration.error_before, calibration.error_after, WithoutControls(path));
    return text;
  }

  static std::string JsonText(const EngineCore& engine, const std::string& path, const GenerationFigures& figures,
                              const Calibration& calibration) {
    const EngineStatistics statistics = engine.statistics();
    Json acceptance = DraftsJson(figures);
    acceptance["by_position"] = AcceptanceByPosition(statistics.accepted_by_position, statistics.verified_by_position);
    const Json object = {{"file", path},
                         {"model_fingerprint", calibration.model_fingerprint},
                         {"observations", calibration.observations},
                         {"acceptance", acceptance},
                         {"temperatures", calibration.temperatures},
                         {"error_before", calibration.error_before},
                         {"error_after", calibration.error_after}};
    return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  EngineFlags engine_;
  std::string output_;
  int64_t max_tokens_ = 64;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeCalibrateCommand() { return std::make_unique<CalibrateCommand>(); }

}  // namespace deepinfer
