// bench throughput: many requests at once through the engine, as fast as it can.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/bench_limit.h"
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

constexpr int64_t kDefaultPrompts = 32;

struct ThroughputResult {
  double seconds = 0;
  std::vector<Generation> generations;
  GenerationFigures figures;
  EngineStatistics spent;  ///< counters of the run alone
  RunLimit limit;

  double per_second(int64_t count) const { return static_cast<double>(count) / seconds; }
  double per_step_ms(double total_seconds) const {
    return spent.steps > 0 ? 1e3 * total_seconds / static_cast<double>(spent.steps) : 0;
  }
};

/// The counters of `after` that have grown since `before`.
EngineStatistics Difference(const EngineStatistics& before, EngineStatistics after) {
  for (int64_t EngineStatistics::*counter :
       {&EngineStatistics::steps, &EngineStatistics::preemptions, &EngineStatistics::cached_tokens,
        &EngineStatistics::replayed_tokens, &EngineStatistics::encoder_rows, &EngineStatistics::decoder_rows}) {
    after.*counter -= before.*counter;
  }
  after.device_seconds -= before.device_seconds;
  after.host_seconds -= before.host_seconds;
  for (std::vector<int64_t> EngineStatistics::*list :
       {&EngineStatistics::accepted_by_position, &EngineStatistics::verified_by_position}) {
    for (size_t i = 0; i < (before.*list).size(); ++i) (after.*list)[i] -= (before.*list)[i];
  }
  return after;
}

class BenchThroughputCommand : public Command {
 public:
  std::string_view name() const override { return "bench throughput"; }
  std::string_view summary() const override { return "Measure the engine with many requests at once"; }

  void AddFlags(CLI::App& flags) override {
    AddIntegerFlag(flags, "--num-prompts", &num_prompts_, 1, 1 << 20,
                   fmt::format("Requests (default: the file's prompts, else {})", kDefaultPrompts));
    load_.AddTo(flags);
    limits_.AddTo(flags);
    flags.add_flag("--json", json_, "Print one JSON object");
    synthetic_.AddTo(flags);
    engine_.AddTo(flags);
  }

  Status Check() override {
    DEEPINFER_RETURN_IF_ERROR(load_.Check());
    DEEPINFER_RETURN_IF_ERROR(engine_.Check());
    return synthetic_.Check(engine_.options.model, engine_.options.device);
  }

  Result<int> Run() override {
    const Interrupt interrupt;
    DEEPINFER_RETURN_IF_ERROR(load_.Read());
    if (synthetic_.given()) {
      DEEPINFER_ASSIGN_OR_RETURN(engine_.options.model, synthetic_.Make());
    }
    DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<EngineCore> engine, synthetic_.Open(engine_.options));
    DEEPINFER_ASSIGN_OR_RETURN(const ThroughputResult result, Measure(*engine));
    DEEPINFER_RETURN_IF_ERROR(WriteAll(1, json_ ? JsonText(*engine, result) : Text(*engine, result)));
    return kExitOk;
  }

 private:
  Result<ThroughputResult> Measure(EngineCore& engine) const {
    const ModelConfig& config = engine.files().checkpoint->config();
    const int64_t in_file = load_.file_prompts();
    const int64_t count = num_prompts_ > 0 ? num_prompts_ : in_file > 0 ? in_file : kDefaultPrompts;
    DEEPINFER_ASSIGN_OR_RETURN(std::vector<GenerationRequest> requests,
                               load_.Make(engine, config.vocab_size, 0, count));
    // Weights are paged in and buffers touched before the clock runs; of a generated model every expert is made.
    const int64_t warm_ups = synthetic_.generated() ? 128 : 2;
    DEEPINFER_ASSIGN_OR_RETURN(std::vector<GenerationRequest> warm_up,
                               load_.Make(engine, config.vocab_size, count, warm_ups));
    for (GenerationRequest& request : warm_up) {
      request.sampling.max_tokens = std::min<int64_t>(request.sampling.max_tokens, 8);
    }
    DEEPINFER_RETURN_IF_ERROR(RunRequests(engine, std::move(warm_up), nullptr).status());
    engine.WaitIdle();
    engine.ClearPrefixCache();

    const int threads = engine.options().threads;
    const std::string& device = engine.options().device;
    DEEPINFER_ASSIGN_OR_RETURN(const cpu::MachineLimits limits_before, limits_.Measure(device, threads));
    ThroughputResult result;
    const EngineStatistics before = engine.statistics();
    {
      ProgressBar bar("requests", count);
      const double begin = NowSeconds();
      DEEPINFER_ASSIGN_OR_RETURN(result.generations, RunRequests(engine, std::move(requests), &bar));
      result.seconds = NowSeconds() - begin;
    }
    engine.WaitIdle();
    result.spent = Difference(before, engine.statistics());
    DEEPINFER_ASSIGN_OR_RETURN(const cpu::MachineLimits limits_after, limits_.Measure(device, threads));
    result.figures = FiguresOf(result.generations);
    result.limit = LimitOf(config, result.generations, result.spent.encoder_rows, result.spent.decoder_rows,
                           MeanOf(limits_before, limits_after));
    return result;
  }

  std::string ModelName(const EngineCore& engine) const {
    return synthetic_.given() ? synthetic_.name() : engine.files().checkpoint->directory().filename().string();
  }

  std::string Text(const EngineCore& engine, const ThroughputResult& result) const {
    const GenerationFigures& figures = result.figures;
    const RunLimit& limit = result.limit;
    std::string text;
    text += ReportRow(
        "model", fmt::format("{}, config {}", WithoutControls(ModelName(engine)),
                             ConfigHash(engine_.options, engine.options(), Fingerprint(*engine.files().checkpoint))));
    text += ReportRow("load", fmt::format("{} requests: {}", result.generations.size(), load_.Describe()));
    text += ReportRow("engine",
                      fmt::format("{} threads, {} at once, {} tokens a step, {} replay, {} drafts{}",
                                  engine.options().threads, engine.options().max_num_seqs,
                                  engine.options().max_num_batched_tokens, ReplayModeName(engine.options().replay),
                                  engine.options().draft_length, engine.options().asynchronous ? "" : ", synchronous"));
    if (!engine.warning().empty()) text += ReportRow("warning", engine.warning());
    text += ReportRow("requests/s", fmt::format("{:.2f}", result.per_second(std::ssize(result.generations))));
    text += ReportRow("output tokens/s", fmt::format("{:.1f}", result.per_second(figures.output_tokens)));
    text += ReportRow("total tokens/s",
                      fmt::format("{:.1f}", result.per_second(figures.output_tokens + figures.prompt_tokens)));
    text += ReportRow("time to first token", figures.first_token_ms);
    text += ReportRow("time per token", figures.per_token_ms);
    const std::vector<double> by_position =
        AcceptanceByPosition(result.spent.accepted_by_position, result.spent.verified_by_position);
    text += ReportRow("acceptance",
                      fmt::format("{:.2f} drafts a step; {} of {} verified{}{:.2f}", figures.accepted_per_step(),
                                  figures.drafts.accepted, figures.drafts.verified,
                                  by_position.empty() ? "" : "; by position ", fmt::join(by_position, " ")));
    text += ReportRow("prefix hits", fmt::format("{} of {} prompt tokens, {} replayed", result.spent.cached_tokens,
                                                 figures.prompt_tokens, result.spent.replayed_tokens));
    text += ReportRow("preemptions", fmt::format("{}", result.spent.preemptions));
    text += ReportRow("steps", fmt::format("{}, {:.3f} ms of the host and {:.3f} ms of the device each",
                                           result.spent.steps, result.per_step_ms(result.spent.host_seconds),
                                           result.per_step_ms(result.spent.device_seconds)));
    text += ReportRow("machine",
                      fmt::format("reads {:.2f} GB/s, FMA {:.1f} GFLOP/s", limit.machine.read_bytes_per_second / 1e9,
                                  limit.machine.fma_flops_per_second / 1e9));
    text += ReportRow("decode limit",
                      fmt::format("{:.2f} ms a step of {:.1f} rows: {:.1f} MB, {:.2f} GFLOP", 1e3 * limit.step_seconds,
                                  limit.rows_per_step, limit.step.bytes / 1e6, limit.step.flops / 1e9));
    text += ReportRow("share of limit",
                      fmt::format("{:.1f} % ({:.2f} s of decode and {:.2f} s of prefill at the limit, {:.2f} s taken)",
                                  100 * limit.seconds() / result.seconds, limit.decode_seconds(),
                                  limit.prefill_seconds(), result.seconds));
    return text;
  }

  std::string JsonText(const EngineCore& engine, const ThroughputResult& result) const {
    const GenerationFigures& figures = result.figures;
    const std::string fingerprint = Fingerprint(*engine.files().checkpoint);
    Json acceptance = DraftsJson(figures);
    acceptance["by_position"] =
        AcceptanceByPosition(result.spent.accepted_by_position, result.spent.verified_by_position);
    const Json object = {{"model", ModelName(engine)},
                         {"fingerprint", fingerprint},
                         {"config_hash", ConfigHash(engine_.options, engine.options(), fingerprint)},
                         {"options", OptionsJson(engine.options())},
                         {"warning", engine.warning()},
                         {"load", load_.Describe()},
                         {"requests", result.generations.size()},
                         {"prompt_tokens", figures.prompt_tokens},
                         {"output_tokens", figures.output_tokens},
                         {"seconds", result.seconds},
                         {"requests_per_second", result.per_second(std::ssize(result.generations))},
                         {"output_tokens_per_second", result.per_second(figures.output_tokens)},
                         {"total_tokens_per_second", result.per_second(figures.output_tokens + figures.prompt_tokens)},
                         {"ttft_ms", SpreadJson(figures.first_token_ms)},
                         {"tpot_ms", SpreadJson(figures.per_token_ms)},
                         {"acceptance", acceptance},
                         {"prefix_hit_tokens", result.spent.cached_tokens},
                         {"replayed_tokens", result.spent.replayed_tokens},
                         {"preemptions", result.spent.preemptions},
                         {"steps", result.spent.steps},
                         {"host_ms_per_step", result.per_step_ms(result.spent.host_seconds)},
                         {"device_ms_per_step", result.per_step_ms(result.spent.device_seconds)},
                         {"limit", LimitJson(result.limit, result.seconds)}};
    return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  EngineFlags engine_;
  BenchLoad load_;
  LimitFlags limits_;
  SyntheticFlags synthetic_;
  int64_t num_prompts_ = 0;  // 0: not given
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeBenchThroughputCommand() { return std::make_unique<BenchThroughputCommand>(); }

}  // namespace deepinfer
