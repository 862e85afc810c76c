// bench: tokens per second of prefill and decode beside the limits of this machine, measured in the same run.
#include <fmt/format.h>

#include <charconv>
#include <CLI/CLI.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/bench_limit.h"
#include "app/command.h"
#include "app/flags.h"
#include "app/interrupt.h"
#include "app/model_session.h"
#include "app/synthetic_flags.h"
#include "app/terminal.h"
#include "base/clock.h"
#include "base/machine.h"
#include "checkpoint/parameter_summary.h"
#include "model/step_cost.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;

/// One line of the table: `prompt` or `generated` tokens after `depth` tokens of context.
struct BenchCase {
  bool prefill = false;
  int64_t tokens = 0;
  int64_t depth = 0;

  std::string name() const {
    const std::string base = fmt::format("{}{}", prefill ? "pp" : "tg", tokens);
    return depth > 0 ? fmt::format("{} @ d{}", base, depth) : base;
  }
};

struct BenchRow {
  BenchCase test;
  double tokens_per_second = 0;  ///< mean over the repetitions
  double deviation = 0;          ///< sample standard deviation of it
  double bytes_per_token = 0;    ///< distinct bytes that a token of this test must read (decode)
  double flops_per_token = 0;
  cpu::MachineLimits limits;  ///< measured right before and after the test, the mean of both

  double bytes_per_second() const { return bytes_per_token * tokens_per_second; }
  double flops_per_second() const { return flops_per_token * tokens_per_second; }
  double share() const {
    return test.prefill ? flops_per_second() / limits.fma_flops_per_second
                        : bytes_per_second() / limits.read_bytes_per_second;
  }
};

/// What all rows share.
struct BenchSetting {
  std::string model;
  int64_t parameters = 0;
  int64_t bytes = 0;
  int threads = 0;
  std::string activation;
};

std::string RowMarkdown(const BenchSetting& setting, const BenchRow& row) {
  const std::string limit =
      row.test.prefill
          ? fmt::format("{:.1f} of {:.1f} GFLOP/s", row.flops_per_second() / 1e9, row.limits.fma_flops_per_second / 1e9)
          : fmt::format("{:.2f} of {:.2f} GB/s", row.bytes_per_second() / 1e9, row.limits.read_bytes_per_second / 1e9);
  return fmt::format("| {} | {} | {:.2f} M | {} | {} | {} | {:.2f} ± {:.2f} | {:.2f} MB | {} | {:.1f} % |\n",
                     setting.model, HumanBytes(setting.bytes), static_cast<double>(setting.parameters) / 1e6,
                     setting.threads, setting.activation, row.test.name(), row.tokens_per_second, row.deviation,
                     row.bytes_per_token / 1e6, limit, 100 * row.share());
}

constexpr char kMarkdownHead[] =
    "| model | size | params | threads | activations | test | t/s | bytes/token | limit of the same run | share |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
constexpr char kCsvHead[] =
    "model,bytes,parameters,threads,activations,test,prompt,generated,depth,tokens_per_second,deviation,bytes_per_"
    "token,"
    "flops_per_token,read_bytes_per_second,fma_flops_per_second,limit,share\n";

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
          {"share", row.share()}};
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

/// Runs the tests on one sequence of random tokens.
class BenchRunner {
 public:
  BenchRunner(Model& model, int64_t repetitions) : model_(model), repetitions_(repetitions) {}

  Result<BenchRow> Run(const BenchCase& test) {
    BenchRow row;
    row.test = test;
    const ModelConfig& config = model_.config();
    if (test.prefill) {
      const StepCost cost = PrefillCost(config, test.depth, test.tokens);
      row.flops_per_token = cost.flops / static_cast<double>(test.tokens);
      row.bytes_per_token = cost.bytes / static_cast<double>(test.tokens);
    } else {
      for (int64_t i = 0; i < test.tokens; ++i) {
        const StepCost cost = DecodeCost(config, test.depth + i);
        row.flops_per_token += cost.flops / static_cast<double>(test.tokens);
        row.bytes_per_token += cost.bytes / static_cast<double>(test.tokens);
      }
    }
    double sum = 0;
    double squares = 0;
    for (int64_t repetition = 0; repetition < repetitions_; ++repetition) {
      DEEPINFER_ASSIGN_OR_RETURN(const double speed, RunOnce(test));
      sum += speed;
      squares += speed * speed;
    }
    const double count = static_cast<double>(repetitions_);
    row.tokens_per_second = sum / count;
    row.deviation = count > 1 ? std::sqrt(std::max(0.0, (squares - sum * sum / count) / (count - 1))) : 0;
    return row;
  }

  /// Touches the weights that prompts and answers use, so that no page of them is read from disk while the clock runs.
  Status WarmUp() {
    const int64_t tokens = std::min<int64_t>(model_.options().max_rows_per_step, model_.options().max_context - 8);
    DEEPINFER_ASSIGN_OR_RETURN(auto prompt, RunOnce({.prefill = true, .tokens = tokens}));
    DEEPINFER_ASSIGN_OR_RETURN(auto answer, RunOnce({.tokens = 4}));
    (void)prompt;
    (void)answer;
    return Status::Ok();
  }

 private:
  /// Tokens per second of one repetition.
  Result<double> RunOnce(const BenchCase& test) {
    DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<SequenceState> sequence,
                               model_.NewSequence(test.depth + test.tokens));
    DEEPINFER_RETURN_IF_ERROR(Feed(*sequence, test.depth, model_.options().max_rows_per_step));
    const double start = NowSeconds();
    DEEPINFER_RETURN_IF_ERROR(Feed(*sequence, test.tokens, test.prefill ? model_.options().max_rows_per_step : 1));
    return static_cast<double>(test.tokens) / (NowSeconds() - start);
  }

  Status Feed(SequenceState& sequence, int64_t count, int64_t chunk) {
    const int64_t vocabulary = model_.config().vocab_size;
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (int32_t& id : ids) id = static_cast<int32_t>(next_token_++ * 2654435761u % static_cast<uint64_t>(vocabulary));
    const std::span<const int32_t> all(ids);
    for (int64_t begin = 0; begin < count; begin += chunk) {
      const int64_t length = std::min(chunk, count - begin);
      const bool last = begin + length == count || chunk == 1;
      const BatchItem item{.sequence = &sequence,
                           .ids = all.subspan(static_cast<size_t>(begin), static_cast<size_t>(length)),
                           .logits = last ? LogitsRows::kLast : LogitsRows::kNone};
      if (Interrupt::flag()) return Status::Cancelled("interrupted");
      DEEPINFER_ASSIGN_OR_RETURN(const ForwardResult result, model_.Forward({std::span(&item, 1)}));
      (void)result;
    }
    return Status::Ok();
  }

  Model& model_;
  const int64_t repetitions_;
  uint64_t next_token_ = 1;
};

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
    AddIntegerFlag(flags, "-r,--repetitions", &repetitions_, 1, 1000, "Repetitions of each test (default 3)");
    limits_.AddTo(flags);
    AddChoiceFlag(flags, "-o,--output", &output_, {"md", "csv", "json"}, "Form of the table (default md)");
    synthetic_.AddTo(flags);
    model_.AddTo(flags);
  }

  Status Check() override {
    DEEPINFER_ASSIGN_OR_RETURN(prompts_, ParseLengths("--n-prompt", prompts_text_));
    DEEPINFER_ASSIGN_OR_RETURN(answers_, ParseLengths("--n-gen", answers_text_));
    DEEPINFER_ASSIGN_OR_RETURN(depths_, ParseLengths("--n-depth", depths_text_));
    return synthetic_.Check(model_.directory);
  }

  Result<int> Run() override {
    const Interrupt interrupt;  // Ctrl-C ends the run between two steps, so that a temporary folder is removed
    if (synthetic_.given()) {
      DEEPINFER_ASSIGN_OR_RETURN(model_.directory, synthetic_.Make());
    }
    const std::vector<BenchCase> tests = Tests();
    int64_t longest = 16;  // the warm-up needs a few
    for (const BenchCase& test : tests) longest = std::max(longest, test.depth + test.tokens);
    if (model_.context > 0 && longest > model_.context) {
      return Status::InvalidArgument(
          fmt::format("--ctx: the longest test needs {} tokens, found {}", longest, model_.context));
    }
    DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSession> session,
                               ModelSession::Open(model_, model_.context > 0 ? model_.context : longest));

    BenchSetting setting;
    setting.model = synthetic_.given() ? synthetic_.name() : session->checkpoint().directory().filename().string();
    const ParameterSummary summary = SummariseParameters(session->checkpoint().config());
    setting.parameters = summary.total.parameters;
    setting.bytes = summary.total.bytes;
    setting.threads = session->threads();
    setting.activation = model_.activation_quant;

    BenchRunner runner(session->model(), repetitions_);
    fmt::print(stderr, "warming up\n");
    DEEPINFER_RETURN_IF_ERROR(runner.WarmUp());

    Json list = Json::array();
    if (output_ == "md") DEEPINFER_RETURN_IF_ERROR(WriteAll(1, kMarkdownHead));
    if (output_ == "csv") DEEPINFER_RETURN_IF_ERROR(WriteAll(1, kCsvHead));
    for (const BenchCase& test : tests) {
      fmt::print(stderr, "{}\n", test.name());
      DEEPINFER_ASSIGN_OR_RETURN(const cpu::MachineLimits before, limits_.Measure(setting.threads));
      DEEPINFER_ASSIGN_OR_RETURN(BenchRow row, runner.Run(test));
      DEEPINFER_ASSIGN_OR_RETURN(const cpu::MachineLimits after, limits_.Measure(setting.threads));
      row.limits = MeanOf(before, after);
      if (output_ == "md") DEEPINFER_RETURN_IF_ERROR(WriteAll(1, RowMarkdown(setting, row)));
      if (output_ == "csv") DEEPINFER_RETURN_IF_ERROR(WriteAll(1, RowCsv(setting, row)));
      if (output_ == "json") list.push_back(RowJson(setting, row));
    }
    if (output_ == "json") DEEPINFER_RETURN_IF_ERROR(WriteAll(1, list.dump(2) + "\n"));
    return kExitOk;
  }

 private:
  static Result<std::vector<int64_t>> ParseLengths(const std::string& name, const std::string& text) {
    std::vector<int64_t> lengths;
    size_t begin = 0;
    while (begin <= text.size()) {
      const size_t end = std::min(text.find(',', begin), text.size());
      int64_t value = 0;
      const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, value);
      if (error != std::errc() || stop != text.data() + end || value < 0) {
        return Status::InvalidArgument(
            fmt::format("{}: expected token counts such as 512,2048, found '{}'", name, text));
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
        if (tokens > 0) tests.push_back({.prefill = false, .tokens = tokens, .depth = depth});
      }
    }
    return tests;
  }

  ModelFlags model_;
  std::string prompts_text_ = "512";
  std::string answers_text_ = "128";
  std::string depths_text_ = "0";
  std::vector<int64_t> prompts_;
  std::vector<int64_t> answers_;
  std::vector<int64_t> depths_;
  int64_t repetitions_ = 3;
  std::string output_ = "md";
  LimitFlags limits_;
  SyntheticFlags synthetic_;
};

}  // namespace

std::unique_ptr<Command> MakeBenchCommand() { return std::make_unique<BenchCommand>(); }

}  // namespace deepinfer
