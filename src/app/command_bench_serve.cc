// bench serve: a load on a server of the OpenAI API, this program's or another's.
#include <fmt/format.h>
#include <sys/resource.h>

#include <charconv>
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/command.h"
#include "app/flags.h"
#include "app/http_load_client.h"
#include "app/interrupt.h"
#include "app/load_arrivals.h"
#include "app/load_dataset.h"
#include "app/load_report.h"
#include "app/load_runner.h"
#include "app/progress_bar.h"
#include "app/terminal.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultPrompts = 1000;
constexpr int64_t kMostTokens = int64_t{1} << 24;

/// Each connection is a file descriptor.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

class BenchServeCommand : public Command {
 public:
  std::string_view name() const override { return "bench serve"; }
  std::string_view summary() const override { return "Measure a server of the OpenAI API under load"; }

  void AddFlags(CLI::App& flags) override {
    AddServerTo(flags);
    AddDatasetTo(flags);
    AddLoadTo(flags);
    flags
        .add_option("--percentile,--metric-percentiles", percentiles_text_,
                    "Percentiles to report, such as 50,90,99 (default 99)")
        ->type_name("LIST");
    flags.add_option("--save-result", result_file_, "Write the result as JSON, with a list of every request's figures")
        ->type_name("FILE");
    flags.add_flag("--json", json_, "Print one JSON object");
  }

  Status Check() override {
    const Result<ServerUrl> url = ServerUrl::Parse(setting_.base_url);
    if (!url.ok()) return Status::InvalidArgument("--base-url: " + url.status().message());
    url_ = *url;
    // People give the address that clients of the API take.
    if (url_.path.ends_with("/v1") && setting_.endpoint.starts_with("/v1/")) url_.path.resize(url_.path.size() - 3);
    DEEPINFER_RETURN_IF_ERROR(CheckDataset());
    DEEPINFER_RETURN_IF_ERROR(CheckRate());
    return CheckPercentiles();
  }

  Result<int> Run() override {
    const Interrupt interrupt;
    RaiseDescriptorLimit();
    std::vector<LoadPrompt> of_file;
    if (dataset_.kind == LoadKind::kFile) {
      DEEPINFER_ASSIGN_OR_RETURN(of_file, ReadFile());
    }
    HttpLoadOptions options;
    const char* const key = std::getenv("OPENAI_API_KEY");
    options.api_key = !api_key_.empty() ? api_key_ : key != nullptr ? key : "";
    options.verify_certificate = !insecure_;
    options.timeout = std::chrono::seconds(timeout_seconds_);
    DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<HttpLoadClient> client, HttpLoadClient::Open(url_, options));
    if (setting_.model.empty()) {
      DEEPINFER_ASSIGN_OR_RETURN(setting_.model, FirstModel(*client));
    }
    LoadDataset dataset(dataset_, std::move(of_file));
    DEEPINFER_RETURN_IF_ERROR(SendOne(*client));
    if (dataset_.kind != LoadKind::kFile) AskForTokenCounts(*client, &dataset.words());
    setting_.requests = num_prompts_ > 0                   ? num_prompts_
                        : dataset_.kind == LoadKind::kFile ? dataset.file_prompts()
                                                           : kDefaultPrompts;
    return Measure(*client, dataset);
  }

 private:
  void AddServerTo(CLI::App& flags) {
    flags
        .add_option("--base-url", setting_.base_url,
                    fmt::format("Server: http://, https:// or unix:/path (default {})", setting_.base_url))
        ->type_name("URL");
    AddChoiceFlag(flags, "--endpoint", &setting_.endpoint, {"/v1/chat/completions", "/v1/completions"},
                  "Where requests go (default /v1/chat/completions)");
    flags.add_option("--model", setting_.model, "Name of the model (default: the first that /v1/models lists)")
        ->type_name("NAME");
    flags
        .add_option("--api-key", api_key_,
                    "Key of the server (default $OPENAI_API_KEY, which other users of the machine cannot see)")
        ->type_name("KEY");
    flags.add_flag("--insecure", insecure_, "Accept any certificate of an https server");
    AddIntegerFlag(flags, "--timeout", &timeout_seconds_, 1, 24 * 3600,
                   fmt::format("Seconds for a whole answer; later ones failed (default {})", timeout_seconds_));
  }

  void AddDatasetTo(CLI::App& flags) {
    AddChoiceFlag(flags, "--dataset,--dataset-name", &dataset_name_, {"random", "shared-prefix", "file"},
                  "random: texts of random words; shared-prefix: the same behind a few prefixes; file: those of "
                  "--dataset-path (default random)");
    flags
        .add_option("--dataset-path", dataset_path_,
                    "JSON lines, or a JSON array, of objects with prompt, messages, or conversations (ShareGPT)")
        ->type_name("FILE");
    AddIntegerFlag(flags, "--random-input-len", &dataset_.input_tokens, 1, kMostTokens,
                   fmt::format("Tokens of a random text (default {})", dataset_.input_tokens));
    AddIntegerFlag(flags, "--random-output-len", &dataset_.output_tokens, 1, kMostTokens,
                   fmt::format("Most tokens of an answer; of a file's prompts: of those that do not say (default {})",
                               dataset_.output_tokens));
    AddNumberFlag(flags, "--random-range-ratio", &dataset_.range_ratio,
                  "Lengths are drawn from (1 - ratio) to (1 + ratio) of these (default 0)");
    prefix_len_ = AddIntegerFlag(flags, "--prefix-len", &dataset_.prefix_tokens, 1, kMostTokens,
                                 fmt::format("Tokens of a shared prefix (default {})", dataset_.prefix_tokens));
    num_prefixes_ = AddIntegerFlag(flags, "--num-prefixes", &dataset_.prefixes, 1, 1 << 20,
                                   fmt::format("Different shared prefixes (default {})", dataset_.prefixes));
    AddIntegerFlag(flags, "--num-prompts", &num_prompts_, 1, 1 << 24,
                   fmt::format("Requests (default: the file's prompts, else {})", kDefaultPrompts));
  }

  void AddLoadTo(CLI::App& flags) {
    flags.add_option("--request-rate", rate_text_, "Requests per second, or inf: all at once (default inf)")
        ->type_name("RATE");
    AddNumberFlag(flags, "--burstiness", &setting_.burstiness,
                  "Shape of the arrivals: 1 Poisson, less bursts, more even (default 1)");
    AddIntegerFlag(flags, "--max-concurrency", &setting_.max_concurrency, 1, 1 << 20,
                   "Most requests at once; more wait on this side (default: no limit)");
    AddIntegerFlag(flags, "--seed", &dataset_.seed, 0, std::numeric_limits<int64_t>::max(),
                   "Of texts, lengths and arrivals (default 0)");
    flags.add_flag("--ignore-eos", ignore_eos_, "Answers go on to their full length, where the server can do that");
    AddNumberFlag(flags, "--temperature", &temperature_, "Randomness of the answers (default 0)");
    AddChoiceFlag(flags, "--thinking", &thinking_, {"on", "off"},
                  "Whether the model thinks, where the server can do that (default: the server's)");
  }

  Status CheckDataset() {
    dataset_.kind = dataset_name_ == "file"            ? LoadKind::kFile
                    : dataset_name_ == "shared-prefix" ? LoadKind::kSharedPrefix
                                                       : LoadKind::kRandom;
    setting_.dataset = dataset_name_;
    setting_.seed = dataset_.seed;
    if (dataset_path_.empty() != (dataset_.kind != LoadKind::kFile)) {
      return Status::InvalidArgument("--dataset-path: goes together with --dataset file: give both or none");
    }
    for (const CLI::Option* option : {prefix_len_, num_prefixes_}) {
      if (option->count() == 0 || dataset_.kind == LoadKind::kSharedPrefix) continue;
      return Status::InvalidArgument(option->get_name() + ": only with --dataset shared-prefix");
    }
    if (!(dataset_.range_ratio >= 0 && dataset_.range_ratio < 1)) {
      return Status::InvalidArgument(fmt::format(
          "--random-range-ratio: expected a number of at least 0 and below 1, found {:g}", dataset_.range_ratio));
    }
    if (!chat() && !thinking_.empty()) {
      return Status::InvalidArgument("--thinking: only with --endpoint /v1/chat/completions");
    }
    if (!(temperature_ >= 0 && temperature_ <= 2)) {
      return Status::InvalidArgument(fmt::format("--temperature: expected 0 to 2, found {:g}", temperature_));
    }
    return Status::Ok();
  }

  Status CheckRate() {
    if (rate_text_ != "inf") {
      double rate = 0;
      const char* const end = rate_text_.data() + rate_text_.size();
      const auto [stop, error] = std::from_chars(rate_text_.data(), end, rate);
      if (error != std::errc() || stop != end || !(rate > 0) || std::isinf(rate)) {
        return Status::InvalidArgument("--request-rate: expected requests per second above 0, or inf, found '" +
                                       rate_text_ + "'");
      }
      setting_.request_rate = rate;
    }
    if (!(setting_.burstiness > 0) || std::isinf(setting_.burstiness)) {
      return Status::InvalidArgument(
          fmt::format("--burstiness: expected a number above 0, found {:g}", setting_.burstiness));
    }
    return Status::Ok();
  }

  Status CheckPercentiles() {
    setting_.percentiles.clear();
    for (size_t begin = 0; begin <= percentiles_text_.size();) {
      const size_t end = std::min(percentiles_text_.find(',', begin), percentiles_text_.size());
      double value = 0;
      const char* const last = percentiles_text_.data() + end;
      const auto [stop, error] = std::from_chars(percentiles_text_.data() + begin, last, value);
      if (error != std::errc() || stop != last || !(value >= 0 && value <= 100)) {
        return Status::InvalidArgument("--percentile: expected numbers from 0 to 100, such as 50,90,99, found '" +
                                       percentiles_text_ + "'");
      }
      setting_.percentiles.push_back(value);
      begin = end + 1;
    }
    return Status::Ok();
  }

  bool chat() const { return setting_.endpoint == "/v1/chat/completions"; }

  Result<std::vector<LoadPrompt>> ReadFile() const {
    DEEPINFER_ASSIGN_OR_RETURN(const std::string text, ReadInput(dataset_path_));
    DEEPINFER_ASSIGN_OR_RETURN(std::vector<LoadPrompt> prompts, ParseLoadFile(dataset_path_, text));
    for (LoadPrompt& prompt : prompts) {
      if (chat() || prompt.messages.is_null()) continue;
      // One question alone can be a prompt.
      const Json& messages = prompt.messages;
      if (messages.size() != 1 || !messages[0].is_object() || !messages[0].contains("content") ||
          !messages[0]["content"].is_string()) {
        return Status::InvalidArgument(dataset_path_ + ": conversations need --endpoint /v1/chat/completions");
      }
      prompt.text = messages[0]["content"].get<std::string>();
      prompt.messages = nullptr;
    }
    return prompts;
  }

  std::string Body(const LoadPrompt& prompt) const {
    Json body = {{"model", setting_.model}};
    if (!chat()) {
      body["prompt"] = prompt.text;
    } else if (prompt.messages.is_null()) {
      body["messages"] = Json::array({{{"role", "user"}, {"content", prompt.text}}});
    } else {
      body["messages"] = prompt.messages;
    }
    body[chat() ? "max_completion_tokens" : "max_tokens"] = prompt.output_tokens;
    body["temperature"] = temperature_;
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    if (ignore_eos_) body["ignore_eos"] = true;
    // The two names that chat templates know.
    if (!thinking_.empty()) {
      const bool on = thinking_ == "on";
      body["chat_template_kwargs"] = {{"thinking", on}, {"enable_thinking", on}};
    }
    return body.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  static Result<std::string> FirstModel(HttpLoadClient& client) {
    const HttpLoadResponse response = client.Fetch({.method = "GET", .path = "/v1/models", .body = ""});
    if (!response.broken.empty()) return Status::Io("--base-url: " + response.broken);
    if (response.status != 200) {
      return Status::Io("--model: /v1/models answers " + HttpErrorText(response.status, response.body));
    }
    const Json json = Json::parse(response.body, nullptr, false);
    if (json.is_object() && json.contains("data") && json["data"].is_array() && !json["data"].empty()) {
      const Json& first = json["data"][0];
      if (first.is_object() && first.contains("id") && first["id"].is_string()) return first["id"].get<std::string>();
    }
    return Status::InvalidArgument("--model: /v1/models lists none; name one");
  }

  /// What is wrong with the server, the key or the model is said once, not a thousand times.
  Status SendOne(HttpLoadClient& client) const {
    LoadPrompt prompt;
    prompt.text = "Hello";
    prompt.output_tokens = 1;
    const LoadRun run = RunLoad(client, {.path = setting_.endpoint,
                                         .arrivals = {0},
                                         .max_concurrency = 0,
                                         .body = [&](int64_t) { return Body(prompt); },
                                         .progress = nullptr});
    if (run.interrupted) return Status::Cancelled("interrupted");
    const LoadRecord& record = run.records.front();
    if (record.outcome == LoadRecord::Outcome::kDone) return Status::Ok();
    return Status::Io(fmt::format("--base-url: the first request failed: {}", record.error));
  }

  /// vLLM's endpoint, which ours has too. Where there is none, every word counts one.
  void AskForTokenCounts(HttpLoadClient& client, RandomText* words) const {
    std::vector<int64_t> counts;
    for (const std::string_view word : RandomText::Words()) {
      const Json body = {{"model", setting_.model}, {"prompt", " " + std::string(word)}, {"add_special_tokens", false}};
      const HttpLoadResponse response = client.Fetch({.method = "POST", .path = "/tokenize", .body = body.dump()});
      const Json json = Json::parse(response.body, nullptr, false);
      if (response.status != 200 || !json.is_object() || !json.contains("count") ||
          !json["count"].is_number_integer()) {
        return;
      }
      counts.push_back(std::max<int64_t>(1, json["count"].get<int64_t>()));
    }
    words->SetTokenCounts(std::move(counts));
  }

  static ServerCounters ReadCounters(HttpLoadClient& client) {
    const HttpLoadResponse response = client.Fetch({.method = "GET", .path = "/metrics", .body = ""});
    return response.status == 200 ? ServerCounters::Parse(response.body) : ServerCounters();
  }

  Result<int> Measure(HttpLoadClient& client, const LoadDataset& dataset) const {
    const ServerCounters before = ReadCounters(client);
    LoadRun run;
    {
      ProgressBar bar("requests", setting_.requests);
      run = RunLoad(
          client,
          {.path = setting_.endpoint,
           .arrivals = ArrivalTimes(setting_.requests, setting_.request_rate, setting_.burstiness, setting_.seed),
           .max_concurrency = setting_.max_concurrency,
           .body = [&](int64_t index) { return Body(dataset.Make(index)); },
           .progress = [&](int64_t done, int64_t running) { bar.Update(done, fmt::format("{} running", running)); }});
    }
    const ServerCounters counted = ReadCounters(client).Since(before);
    for (size_t i = 0; i < run.records.size(); ++i) {
      LoadRecord& record = run.records[i];
      if (record.outcome == LoadRecord::Outcome::kDone && !record.has_usage) {
        record.prompt_tokens = dataset.Make(static_cast<int64_t>(i)).input_tokens;
      }
    }
    const LoadFigures figures = FiguresOf(run.records, run.start, setting_.percentiles);
    const Json json = LoadJson(setting_, figures, counted);
    if (figures.without_usage > 0) {
      DEEPINFER_RETURN_IF_ERROR(WriteAll(
          2,
          fmt::format("deepinfer: the server counted no tokens of {} answers: their tokens are pieces of the stream\n",
                      figures.without_usage)));
    }
    DEEPINFER_RETURN_IF_ERROR(WriteAll(1, json_ ? Text(json) : LoadText(setting_, figures, counted)));
    if (!result_file_.empty()) DEEPINFER_RETURN_IF_ERROR(Save(json, run.records));
    if (run.interrupted) return kExitInterrupted;
    return figures.successful > 0 ? kExitOk : kExitError;
  }

  static std::string Text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

  Status Save(Json json, std::span<const LoadRecord> records) const {
    AddDetails(records, &json);
    std::ofstream file(result_file_, std::ios::binary);
    file << Text(json);
    file.close();
    if (!file) return Status::Io("--save-result: " + result_file_ + " cannot be written");
    return Status::Ok();
  }

  LoadSetting setting_{
      .base_url = "http://127.0.0.1:8000", .endpoint = "/v1/chat/completions", .model = "", .dataset = "random"};
  LoadDatasetOptions dataset_;
  ServerUrl url_;
  std::string api_key_;
  std::string dataset_name_ = "random";
  std::string dataset_path_;
  CLI::Option* prefix_len_ = nullptr;
  CLI::Option* num_prefixes_ = nullptr;
  int64_t num_prompts_ = 0;  // 0: not given
  std::string rate_text_ = "inf";
  std::string percentiles_text_ = "99";
  std::string thinking_;  // empty: not given
  std::string result_file_;
  double temperature_ = 0;
  int64_t timeout_seconds_ = 3600;
  bool ignore_eos_ = false;
  bool insecure_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeBenchServeCommand() { return std::make_unique<BenchServeCommand>(); }

}  // namespace deepinfer
