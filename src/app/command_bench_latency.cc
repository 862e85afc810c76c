// bench latency: a fixed batch again and again, and what asynchronous steps and drafts are worth.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/bench_load.h"
#include "app/bench_report.h"
#include "app/command.h"
#include "app/engine_flags.h"
#include "app/flags.h"
#include "app/interrupt.h"
#include "app/read_answers.h"
#include "app/synthetic_flags.h"
#include "app/terminal.h"
#include "base/clock.h"
#include "checkpoint/fingerprint.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;

/// One engine under test; all get the same requests, in turn.
struct Side {
  std::string name;
  EngineOptions asked;
  std::unique_ptr<EngineCore> engine;
  std::vector<Generation> generations;
  std::vector<double> tokens_per_second;  ///< of each repetition

  GenerationFigures figures() const { return FiguresOf(generations); }
};

/// How much faster the first side is than another one.
struct Comparison {
  std::string name;
  double ratio = 0;         ///< of the mean tokens per second
  double median_ratio = 0;  ///< of the repetitions' ratios: both of a pair ran one after the other
};

class BenchLatencyCommand : public Command {
 public:
  /// Every repetition is computed from its beginning.
  BenchLatencyCommand() { engine_.options.prefix_cache = false; }

  std::string_view name() const override { return "bench latency"; }
  std::string_view summary() const override { return "Measure the engine with one batch, repeatedly"; }

  void AddFlags(CLI::App& flags) override {
    AddIntegerFlag(flags, "--batch-size", &batch_size_, 1, 4096, "Requests that start together (default 1)");
    AddIntegerFlag(flags, "-r,--repetitions", &repetitions_, 1, 10000,
                   "Repetitions, after one that does not count (default 5)");
    load_.AddTo(flags);
    flags.add_flag("--compare-sync", compare_sync_, "Run the same without asynchronous steps, in turn");
    flags.add_flag("--compare-draft", compare_draft_, "Run the same without drafts, in turn");
    flags.add_flag("--json", json_, "Print one JSON object");
    synthetic_.AddTo(flags);
    engine_.AddTo(flags);
  }

  Status Check() override {
    DEEPINFER_RETURN_IF_ERROR(load_.Check());
    if (!engine_.has_max_num_seqs()) engine_.options.max_num_seqs = batch_size_;
    DEEPINFER_RETURN_IF_ERROR(engine_.Check());
    if (compare_sync_ && !engine_.options.asynchronous) {
      return Status::InvalidArgument("--compare-sync: excludes --sync");
    }
    if (compare_draft_ && engine_.options.draft_length == 0) {
      return Status::InvalidArgument("--compare-draft: needs --draft-length above 0");
    }
    return synthetic_.Check(engine_.options.model, engine_.options.device);
  }

  Result<int> Run() override {
    const Interrupt interrupt;
    DEEPINFER_RETURN_IF_ERROR(load_.Read());
    if (synthetic_.given()) {
      DEEPINFER_ASSIGN_OR_RETURN(engine_.options.model, synthetic_.Make());
    }
    DEEPINFER_ASSIGN_OR_RETURN(std::vector<Side> sides, OpenSides());
    DEEPINFER_RETURN_IF_ERROR(Measure(&sides));
    const std::vector<Comparison> comparisons = Compare(sides);
    DEEPINFER_RETURN_IF_ERROR(WriteAll(1, json_ ? JsonText(sides, comparisons) : Text(sides, comparisons)));
    return kExitOk;
  }

 private:
  Result<std::vector<Side>> OpenSides() const {
    std::vector<Side> sides(1);
    sides[0].name = "configured";
    sides[0].asked = engine_.options;
    if (compare_sync_) {
      Side& side = sides.emplace_back();
      side.name = "synchronous";
      side.asked = engine_.options;
      side.asked.asynchronous = false;
    }
    if (compare_draft_) {
      Side& side = sides.emplace_back();
      side.name = "no drafts";
      side.asked = engine_.options;
      side.asked.draft_length = 0;
    }
    for (Side& side : sides) {
      DEEPINFER_ASSIGN_OR_RETURN(side.engine, synthetic_.Open(side.asked));
    }
    return sides;
  }

  Status Measure(std::vector<Side>* sides) const {
    const int64_t vocabulary = sides->front().engine->files().checkpoint->config().vocab_size;
    ProgressBar bar("repetitions", repetitions_);
    for (int64_t repetition = 0; repetition <= repetitions_; ++repetition) {
      for (size_t turn = 0; turn < sides->size(); ++turn) {
        // The order turns, too: who runs second finds a warmer machine.
        Side& side = (*sides)[(turn + static_cast<size_t>(repetition)) % sides->size()];
        DEEPINFER_ASSIGN_OR_RETURN(std::vector<GenerationRequest> requests,
                                   load_.Make(*side.engine, vocabulary, repetition * batch_size_, batch_size_));
        const double begin = NowSeconds();
        DEEPINFER_ASSIGN_OR_RETURN(std::vector<Generation> generations,
                                   RunRequests(*side.engine, std::move(requests), nullptr));
        const double seconds = NowSeconds() - begin;
        side.engine->WaitIdle();
        if (repetition == 0) continue;  // weights were paged in
        side.tokens_per_second.push_back(static_cast<double>(FiguresOf(generations).output_tokens) / seconds);
        std::move(generations.begin(), generations.end(), std::back_inserter(side.generations));
      }
      bar.Update(repetition);
    }
    return Status::Ok();
  }

  static std::vector<Comparison> Compare(const std::vector<Side>& sides) {
    std::vector<Comparison> comparisons;
    const std::vector<double>& first = sides[0].tokens_per_second;
    for (size_t i = 1; i < sides.size(); ++i) {
      const std::vector<double>& other = sides[i].tokens_per_second;
      std::vector<double> ratios;
      for (size_t k = 0; k < first.size(); ++k) ratios.push_back(first[k] / other[k]);
      comparisons.push_back({fmt::format("{} / {}", sides[0].name, sides[i].name),
                             SpreadOf(first).mean / SpreadOf(other).mean, SpreadOf(ratios).p50});
    }
    return comparisons;
  }

  std::string ModelName(const EngineCore& engine) const {
    return synthetic_.given() ? synthetic_.name() : engine.files().checkpoint->directory().filename().string();
  }

  static std::string HashOf(const Side& side) {
    return ConfigHash(side.asked, side.engine->options(), Fingerprint(*side.engine->files().checkpoint));
  }

  std::string Text(const std::vector<Side>& sides, const std::vector<Comparison>& comparisons) const {
    std::string text;
    text += ReportRow("model", WithoutControls(ModelName(*sides[0].engine)));
    text += ReportRow("load",
                      fmt::format("{} repetitions of {} requests: {}", repetitions_, batch_size_, load_.Describe()));
    for (const Side& side : sides) {
      const GenerationFigures figures = side.figures();
      const EngineOptions& options = side.engine->options();
      text += fmt::format("\n{}: {} threads, {} drafts{}, config {}\n", side.name, options.threads,
                          options.draft_length, options.asynchronous ? "" : ", synchronous", HashOf(side));
      text += ReportRow("output tokens/s", fmt::format("{:.1f}", SpreadOf(side.tokens_per_second).mean));
      text += ReportRow("time to first token", figures.first_token_ms);
      text += ReportRow("time per token", figures.per_token_ms);
      text += ReportRow("whole answer", figures.total_ms);
      text +=
          ReportRow("acceptance", fmt::format("{:.2f} drafts a step; {} of {} verified", figures.accepted_per_step(),
                                              figures.drafts.accepted, figures.drafts.verified));
    }
    if (!comparisons.empty()) text += "\n";
    for (const Comparison& comparison : comparisons) {
      text += ReportRow(comparison.name, fmt::format("{:.3f} x tokens/s, median of pairs {:.3f} x", comparison.ratio,
                                                     comparison.median_ratio));
    }
    return text;
  }

  std::string JsonText(const std::vector<Side>& sides, const std::vector<Comparison>& comparisons) const {
    Json side_list = Json::array();
    for (const Side& side : sides) {
      const GenerationFigures figures = side.figures();
      side_list.push_back({{"name", side.name},
                           {"config_hash", HashOf(side)},
                           {"options", OptionsJson(side.engine->options())},
                           {"output_tokens", figures.output_tokens},
                           {"output_tokens_per_second", SpreadOf(side.tokens_per_second).mean},
                           {"ttft_ms", SpreadJson(figures.first_token_ms)},
                           {"tpot_ms", SpreadJson(figures.per_token_ms)},
                           {"total_ms", SpreadJson(figures.total_ms)},
                           {"acceptance", DraftsJson(figures)}});
    }
    Json ratios = Json::array();
    for (const Comparison& comparison : comparisons) {
      ratios.push_back(
          {{"name", comparison.name}, {"ratio", comparison.ratio}, {"median_ratio", comparison.median_ratio}});
    }
    const Json object = {{"model", ModelName(*sides[0].engine)},
                         {"fingerprint", Fingerprint(*sides[0].engine->files().checkpoint)},
                         {"load", load_.Describe()},
                         {"batch_size", batch_size_},
                         {"repetitions", repetitions_},
                         {"sides", side_list},
                         {"comparisons", ratios}};
    return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  EngineFlags engine_;
  BenchLoad load_;
  SyntheticFlags synthetic_;
  int64_t batch_size_ = 1;
  int64_t repetitions_ = 5;
  bool compare_sync_ = false;
  bool compare_draft_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeBenchLatencyCommand() { return std::make_unique<BenchLatencyCommand>(); }

}  // namespace deepinfer
