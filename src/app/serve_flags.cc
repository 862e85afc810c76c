#include "app/serve_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <CLI/CLI.hpp>

#include "app/flags.h"
#include "text/conversation.h"

namespace deepinfer {
namespace {

constexpr int64_t kMostSeconds = 24 * 3600;

Result<int> ParseEffort(const std::string& text) {
  if (const std::optional<int> by_name = EffortByName(text)) return *by_name;
  int effort = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, effort);
  if (error == std::errc() && stop == end && effort >= kMinEffort && effort <= kMaxEffort) return effort;
  return Status::InvalidArgument(fmt::format(
      "--effort: expected low, medium, high, max or a number from {} to {}, found '{}'", kMinEffort, kMaxEffort, text));
}

}  // namespace

void ServeFlags::AddTo(CLI::App& flags) {
  AddNetworkTo(flags);
  AddAccessTo(flags);
  AddApiTo(flags);
}

void ServeFlags::AddNetworkTo(CLI::App& flags) {
  flags
      .add_option("--host", http.host,
                  fmt::format("Address to listen on; 0.0.0.0 for every network (default {})", http.host))
      ->type_name("ADDRESS");
  AddIntegerFlag(flags, "--port", &http.port, 0, 65535,
                 fmt::format("Port to listen on; 0: a free one, which is printed (default {})", http.port));
  flags.add_option("--uds", http.unix_socket, "Listen on this unix socket instead")->type_name("PATH");
  flags.add_option("--ssl-certfile", http.ssl_certfile, "TLS: the certificate chain in PEM")->type_name("FILE");
  flags.add_option("--ssl-keyfile", http.ssl_keyfile, "TLS: the private key in PEM")->type_name("FILE");
  AddRepeatedFlag(
      flags, "--allowed-origin", [this](const std::string& text) { service.allowed_origins.push_back(text); },
      "Pages of this origin may call the server (CORS), such as https://chat.example.com, or * for all; repeatable");
  AddIntegerFlag(flags, "--http-threads", &http.threads, 1, 256,
                 fmt::format("Threads that serve connections (default {})", http.threads));
  AddIntegerFlag(flags, "--max-connections", &http.max_connections, 1, int64_t{1} << 20,
                 fmt::format("Connections beyond these are closed at once (default {})", http.max_connections));
  AddMemoryFlag(flags, "--max-body", &http.limits.max_body_bytes, "Largest request body (default 64MiB)");
  AddMemoryFlag(flags, "--max-header", &http.limits.max_header_bytes, "Largest request header (default 64KiB)");
  AddIntegerFlag(flags, "--request-timeout", &request_seconds_, 1, kMostSeconds,
                 fmt::format("Seconds for a request to arrive (default {})", request_seconds_));
  AddIntegerFlag(
      flags, "--write-timeout", &write_seconds_, 1, kMostSeconds,
      fmt::format("Seconds for a client to take its bytes before it is dropped (default {})", write_seconds_));
  AddIntegerFlag(flags, "--idle-timeout", &idle_seconds_, 1, kMostSeconds,
                 fmt::format("Seconds that a connection may wait for its next request (default {})", idle_seconds_));
  AddIntegerFlag(flags, "--keep-alive", &keep_alive_seconds_, 1, kMostSeconds,
                 fmt::format("Seconds between signs of life while an answer waits (default {})", keep_alive_seconds_));
  AddIntegerFlag(flags, "--drain-timeout", &drain_seconds, 0, kMostSeconds,
                 fmt::format("Seconds that running answers may take after SIGTERM (default {})", drain_seconds));
}

void ServeFlags::AddAccessTo(CLI::App& flags) {
  AddRepeatedFlag(
      flags, "--api-key", [this](const std::string& text) { key_texts_.push_back(text); },
      "Let in who sends this key, as KEY or name=KEY; repeatable. Keys on a command line can be seen by other users of "
      "the machine: prefer --api-key-file");
  AddRepeatedFlag(
      flags, "--api-key-file", [this](const std::string& text) { key_files_.push_back(text); },
      "Keys with limits, one a line: name:key [concurrency=N] [requests_per_minute=N] [tokens_per_minute=N] "
      "[priority=N] [salt=TEXT]");
  flags
      .add_option("--access-log", access_log,
                  "A line per request into this file; - standard error, off none (default -)")
      ->type_name("FILE");
  AddIntegerFlag(
      flags, "--max-waiting", &service.max_waiting, 1, int64_t{1} << 30,
      fmt::format("Requests that may wait for the engine; more are answered 503 (default {})", service.max_waiting));
  flags.add_flag("--vllm-metrics", vllm_metrics, "Export metrics under vLLM's names as well");
}

void ServeFlags::AddApiTo(CLI::App& flags) {
  AddRepeatedFlag(
      flags, "--served-model-name", [this](const std::string& text) { model_names.push_back(text); },
      "Name of the model in /v1/models; repeatable (default: the name of its folder)");
  flags.add_flag("--strict-model-names", strict_model_names,
                 "Answer 404 to requests for a model of another name (default: any name is this model)");
  AddChoiceFlag(flags, "--thinking", &thinking_, {"on", "off"},
                "Whether the model thinks when a request does not say (default on)");
  flags
      .add_option("--effort", effort_,
                  "Effort when a request does not say: low, medium, high, max or 1..100 (default high)")
      ->type_name("EFFORT");
  AddChoiceFlag(flags, "--reasoning-history", &reasoning_history_, {"auto", "keep", "drop"},
                "Which earlier reasoning prompts repeat; auto: as the model was trained (default auto)");
  AddChoiceFlag(
      flags, "--usage-chunk", &usage_chunk_, {"last", "own"},
      "Where a chat stream's usage rides: on the last chunk, as DeepSeek has it, or in a chunk of its own, as "
      "OpenAI has it (default last)");
  flags
      .add_option(
          "--response-store", response_store,
          "SQLite file of /v1/responses; memory: lost at the end; off: none (default: in the user's state folder)")
      ->type_name("FILE");
  AddIntegerFlag(flags, "--response-days", &response_days, 1, 3650,
                 fmt::format("Days that a response is kept (default {})", response_days));
  AddMemoryFlag(flags, "--response-bytes", &response_bytes, "Most bytes of stored responses (default 1GiB)");
}

Status ServeFlags::Check() {
  for (std::string& text : key_texts_) DEEPINFER_RETURN_IF_ERROR(keys.AddFlag(&text));
  for (const std::string& path : key_files_) DEEPINFER_RETURN_IF_ERROR(keys.AddFile(path));
  service.requests.thinking = thinking_ == "on";
  if (!effort_.empty()) {
    DEEPINFER_ASSIGN_OR_RETURN(service.requests.effort, ParseEffort(effort_));
  }
  service.requests.reasoning_history = reasoning_history_ == "keep"   ? ReasoningHistory::kKeep
                                       : reasoning_history_ == "drop" ? ReasoningHistory::kDrop
                                                                      : ReasoningHistory::kAuto;
  service.usage_in_own_chunk = usage_chunk_ == "own";
  http.timeouts.request = std::chrono::seconds(request_seconds_);
  http.timeouts.write = std::chrono::seconds(write_seconds_);
  http.timeouts.idle = std::chrono::seconds(idle_seconds_);
  service.keep_alive = std::chrono::seconds(keep_alive_seconds_);
  for (const std::string& name : model_names) {
    if (name.empty()) return Status::InvalidArgument("--served-model-name: expected a name, found an empty one");
  }
  return http.Validate();
}

}  // namespace deepinfer
