// bench: tokens per second of prefill and decode beside the limits of this machine, measured in the same run.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/bench_limit.h"
#include "app/bench_runner.h"
#include "app/command.h"
#include "app/flags.h"
#include "app/interrupt.h"
#include "app/synthetic_flags.h"
#include "app/terminal.h"
#include "base/machine.h"
#include "checkpoint/parameter_summary.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;

/// What all rows share.
struct BenchSetting {
  std::string model;
  std::string kernels;
  int64_t parameters = 0;
  int64_t bytes = 0;
  int threads = 0;
  std::string activation;
  bool filled = false;  ///< contexts hold random rows
  bool generated = false;
};

std::string RowMarkdown(const BenchSetting& setting, const BenchRow& row) {
  const std::string limit =
      row.test.prefill
          ? fmt::format("{:.1f} of {:.1f} GFLOP/s", row.flops_per_second() / 1e9, row.limits.fma_flops_per_second / 1e9)
          : fmt::format("{:.2f} of {:.2f} GB/s", row.bytes_per_second() / 1e9, row.limits.read_bytes_per_second / 1e9);
  return fmt::format("| {} | {} | {:.2f} M | {} | {} | {} | {:.2f} ± {:.2f} | {:.2f} MB | {} | {:.1f} % |\n",
                     setting.model, HumanBytes(setting.bytes), static_cast<double>(setting.parameters) / 1e6,
                     setting.kernels, setting.activation, row.test.name(), row.tokens_per_second, row.deviation,
                     row.bytes_per_token / 1e6, limit, 100 * row.share());
}

constexpr char kMarkdownHead[] =
    "| model | size | params | kernels | activations | test | t/s | bytes/token | limit of the same run | share |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
constexpr char kCsvHead[] =
    "model,bytes,parameters,threads,activations,test,prompt,generated,depth,tokens_per_second,deviation,bytes_per_"
    "token,"
    "flops_per_token,read_bytes_per_second,fma_flops_per_second,limit,share,kernels,batch,context,step_ms,"
    "distinct_experts,head_ms,layer_ms,release_ms,release_floor_ms\n";

/// What the table has no column for.
std::string RowNotes(const BenchSetting& setting, const BenchRow& row) {
  std::string text = fmt::format("{}: ", row.test.name());
  if (row.test.prefill) {
    text += fmt::format("{:.3f} ms the prompt", row.step_ms());
  } else {
    text += fmt::format("{:.3f} ms a step; {:.1f} experts a layer", row.step_ms(), row.distinct_experts);
    if (setting.filled && row.test.depth > 0) text += "; the context is random rows, not computed";
  }
  if (!setting.generated) return text + "\n";
  if (!row.test.prefill) text += fmt::format("; {:.3f} ms of it the head", row.head_ms);
  text += fmt::format("; {:.4f} ms a layer; in 40 layers {:.2f} ms", row.layer_ms, row.release_ms);
  if (row.test.prefill) return text + "\n";
  return text + fmt::format(", {:.1f} % of what its bytes take ({:.2f} ms)\n",
                            100 * row.release_floor_ms / row.release_ms, row.release_floor_ms);
}

Json RowJson(const BenchSetting& setting, const BenchRow& row) {
  return {{"model", setting.model},
          {"bytes", setting.bytes},
          {"parameters", setting.parameters},
          {"threads", setting.threads},
          {"activations", setting.activation},
          {"test", row.test.name()},
          {"prompt", row.test.prefill ? row.test.tokens : 0},
          {"generated", row.test.prefill ? 0 : row.test.tokens},
          {"depth", row.test.depth},
          {"tokens_per_second", row.tokens_per_second},
          {"deviation", row.deviation},
          {"bytes_per_token", row.bytes_per_token},
          {"flops_per_token", row.flops_per_token},
          {"read_bytes_per_second", row.limits.read_bytes_per_second},
          {"fma_flops_per_second", row.limits.fma_flops_per_second},
          {"limit", row.test.prefill ? "fma" : "read"},
          {"share", row.share()},
          {"kernels", setting.kernels},
          {"batch", row.test.batch},
          {"context", setting.filled ? "filled" : "computed"},
          {"step_ms", row.step_ms()},
          {"distinct_experts", row.distinct_experts},
          {"head_ms", row.head_ms},
          {"layer_ms", row.layer_ms},
          {"release_ms", row.release_ms},
          {"release_floor_ms", row.release_floor_ms}};
}

std::string RowCsv(const BenchSetting& setting, const BenchRow& row) {
  const Json object = RowJson(setting, row);
  std::string line;
  for (const auto& [key, value] : object.items()) {
    if (!line.empty()) line += ',';
    line += value.is_string() ? fmt::format("\"{}\"", value.get<std::string>()) : value.dump();
  }
  return line + "\n";
}

class BenchCommand : public Command {
 public:
  std::string_view name() const override { return "bench"; }
  std::string_view summary() const override { return "Measure prefill and decode against this machine's limits"; }

  void AddFlags(CLI::App& flags) override {
    flags
        .add_option("-p,--n-prompt", prompts_text_, "Prompt lengths in tokens, such as 512,2048; 0: none (default 512)")
        ->type_name("LIST");
    flags.add_option("-n,--n-gen", answers_text_, "Answer lengths in tokens; 0: none (default 128)")->type_name("LIST");
    flags.add_option("-d,--n-depth", depths_text_, "Tokens of context before each test (default 0)")->type_name("LIST");
    flags.add_option("-b,--batch", batches_text_, "Sequences that decode at once, such as 1,16 (default 1)")
        ->type_name("LIST");
    flags.add_flag("--depth-filled", depth_filled_,
                   "Fill the context of -d with random rows instead of computing it: a step reads as much");
    AddIntegerFlag(flags, "-r,--repetitions", &repetitions_, 1, 1000, "Repetitions of each test (default 3)");
    limits_.AddTo(flags);
    AddChoiceFlag(flags, "-o,--output", &output_, {"md", "csv", "json"}, "Form of the table (default md)");
    synthetic_.AddTo(flags);
    model_.AddTo(flags);
  }

  Status Check() override {
    DEEPINFER_ASSIGN_OR_RETURN(prompts_, ParseCounts("--n-prompt", prompts_text_));
    DEEPINFER_ASSIGN_OR_RETURN(answers_, ParseCounts("--n-gen", answers_text_));
    DEEPINFER_ASSIGN_OR_RETURN(depths_, ParseCounts("--n-depth", depths_text_));
    DEEPINFER_ASSIGN_OR_RETURN(batches_, ParseCounts("--batch", batches_text_));
    if (std::ranges::find(batches_, 0) != batches_.end()) {
      return Status::InvalidArgument("--batch: expected at least 1 sequence, found 0");
    }
    if (depth_filled_ && std::ranges::any_of(depths_, [](int64_t depth) { return depth == 0 || depth % 2 != 0; })) {
      return Status::InvalidArgument(
          "--depth-filled: expected even lengths of -d above 0, for whole pairs of tokens, found '" + depths_text_ +
          "'");
    }
    DEEPINFER_RETURN_IF_ERROR(model_.Check());
    return synthetic_.Check(model_.directory, model_.device);
  }

  Result<int> Run() override {
    const Interrupt interrupt;  // Ctrl-C ends the run between two steps, so that a temporary folder is removed
    if (synthetic_.given()) {
      DEEPINFER_ASSIGN_OR_RETURN(model_.directory, synthetic_.Make());
    }
    const std::vector<BenchCase> tests = Tests();
    int64_t longest = 16;  // what the warm-up needs
    for (const BenchCase& test : tests) longest = std::max(longest, test.depth + test.tokens);
    if (model_.context > 0 && longest > model_.context) {
      return Status::InvalidArgument(
          fmt::format("--ctx: the longest test needs {} tokens, found {}", longest, model_.context));
    }
    DEEPINFER_ASSIGN_OR_RETURN(ModelFiles files, synthetic_.Load(model_.directory));
    DEEPINFER_ASSIGN_OR_RETURN(
        const std::unique_ptr<ModelSession> session,
        ModelSession::Open(std::move(files), model_, model_.context > 0 ? model_.context : longest,
                           std::ranges::max(batches_)));

    BenchSetting setting;
    setting.model = synthetic_.given() ? synthetic_.name() : session->checkpoint().directory().filename().string();
    const ParameterSummary summary = SummariseParameters(session->checkpoint().config());
    setting.parameters = summary.total.parameters;
    setting.bytes = summary.total.bytes;
    setting.threads = session->threads();
    setting.kernels = std::string(session->ops().name());
    if (session->ops().computes_on_host_memory()) setting.kernels += fmt::format(", {} threads", setting.threads);
    setting.activation = model_.activation_quant;
    setting.filled = depth_filled_;
    setting.generated = synthetic_.generated();

    DEEPINFER_ASSIGN_OR_RETURN(BenchRunner runner, BenchRunner::Create(*session, repetitions_, depth_filled_));
    fmt::print(stderr, "warming up\n");
    DEEPINFER_RETURN_IF_ERROR(runner.WarmUp());

    Json list = Json::array();
    std::string notes;
    if (output_ == "md") DEEPINFER_RETURN_IF_ERROR(WriteAll(1, kMarkdownHead));
    if (output_ == "csv") DEEPINFER_RETURN_IF_ERROR(WriteAll(1, kCsvHead));
    for (const BenchCase& test : tests) {
      fmt::print(stderr, "{}\n", test.name());
      DEEPINFER_ASSIGN_OR_RETURN(const cpu::MachineLimits before, limits_.Measure(model_.device, setting.threads));
      DEEPINFER_ASSIGN_OR_RETURN(BenchRow row, runner.Run(test));
      DEEPINFER_ASSIGN_OR_RETURN(const cpu::MachineLimits after, limits_.Measure(model_.device, setting.threads));
      row.limits = MeanOf(before, after);
      if (setting.generated) DEEPINFER_RETURN_IF_ERROR(runner.AddRelease(&row));
      notes += RowNotes(setting, row);
      if (output_ == "md") DEEPINFER_RETURN_IF_ERROR(WriteAll(1, RowMarkdown(setting, row)));
      if (output_ == "csv") DEEPINFER_RETURN_IF_ERROR(WriteAll(1, RowCsv(setting, row)));
      if (output_ == "json") list.push_back(RowJson(setting, row));
    }
    if (output_ == "md") DEEPINFER_RETURN_IF_ERROR(WriteAll(1, "\n" + notes));
    if (output_ == "json") DEEPINFER_RETURN_IF_ERROR(WriteAll(1, list.dump(2) + "\n"));
    return kExitOk;
  }

 private:
  static Result<std::vector<int64_t>> ParseCounts(const std::string& name, const std::string& text) {
    std::vector<int64_t> lengths;
    size_t begin = 0;
    while (begin <= text.size()) {
      const size_t end = std::min(text.find(',', begin), text.size());
      int64_t value = 0;
      const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, value);
      if (error != std::errc() || stop != text.data() + end || value < 0) {
        return Status::InvalidArgument(
            fmt::format("{}: expected counts such as 16 or 512,2048, found '{}'", name, text));
      }
      lengths.push_back(value);
      begin = end + 1;
    }
    return lengths;
  }

  std::vector<BenchCase> Tests() const {
    std::vector<BenchCase> tests;
    for (const int64_t depth : depths_) {
      for (const int64_t tokens : prompts_) {
        if (tokens > 0) tests.push_back({.prefill = true, .tokens = tokens, .depth = depth});
      }
      for (const int64_t tokens : answers_) {
        if (tokens == 0) continue;
        for (const int64_t batch : batches_) {
          tests.push_back({.prefill = false, .tokens = tokens, .depth = depth, .batch = batch});
        }
      }
    }
    return tests;
  }

  ModelFlags model_;
  std::string prompts_text_ = "512";
  std::string answers_text_ = "128";
  std::string depths_text_ = "0";
  std::string batches_text_ = "1";
  std::vector<int64_t> prompts_;
  std::vector<int64_t> answers_;
  std::vector<int64_t> depths_;
  std::vector<int64_t> batches_;
  bool depth_filled_ = false;
  int64_t repetitions_ = 3;
  std::string output_ = "md";
  LimitFlags limits_;
  SyntheticFlags synthetic_;
};

}  // namespace

std::unique_ptr<Command> MakeBenchCommand() { return std::make_unique<BenchCommand>(); }

}  // namespace deepinfer
