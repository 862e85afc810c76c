// serve: the HTTP server on one engine.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "app/command.h"
#include "app/engine_flags.h"
#include "app/find_model.h"
#include "app/flags.h"
#include "app/memory_plan.h"
#include "app/serve_flags.h"
#include "app/shutdown_signals.h"
#include "app/terminal.h"
#include "engine/kv_tiers.h"
#include "server/access_log.h"
#include "server/api_service.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/rate_limiter.h"
#include "server/response_store.h"
#include "server/served_model.h"

namespace deepinfer {
namespace {

using std::chrono::milliseconds;

/// A modest second chance for prefixes that the KV pool drops.
constexpr int64_t kHostTierBytes = int64_t{256} << 20;
constexpr milliseconds kPoll{100};
constexpr milliseconds kWatch{1000};
// For answers that were cut off to reach their clients.
constexpr milliseconds kAfterAbort{2000};

Status Say(const std::string& line) { return WriteAll(2, "deepinfer: " + line + "\n"); }

// The user's folder for what programs keep (XDG base directories).
std::string DefaultResponseStore() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != '\0') return std::string(state) + "/deepinfer/responses.sqlite";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return std::string(home) + "/.local/state/deepinfer/responses.sqlite";
  return "memory";
}

class ServeCommand : public Command {
 public:
  std::string_view name() const override { return "serve"; }
  std::string_view summary() const override { return "Serve OpenAI's and Anthropic's APIs, and a web page to chat"; }

  void AddFlags(CLI::App& flags) override {
    serve_.AddTo(flags);
    flags.add_flag("--dry-run", dry_run_, "Print the memory plan and stop");
    engine_.options.kv_host_bytes = kHostTierBytes;
    engine_.AddTo(flags);
  }

  Status Check() override {
    DEEPINFER_RETURN_IF_ERROR(engine_.Check());
    return serve_.Check();
  }

  Result<int> Run() override {
    // Who reads the log may go; the server goes on.
    std::signal(SIGPIPE, SIG_IGN);
    // Before any thread is made.
    ShutdownSignals signals;
    DEEPINFER_ASSIGN_OR_RETURN(const std::filesystem::path folder, FindModel(engine_.options.model));
    if (serve_.model_names.empty()) serve_.model_names.push_back(NameOf(folder));
    if (dry_run_) engine_.options.load_weights = engine_.options.profile_steps = false;
    DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<EngineCore> engine, engine_.Open());
    DEEPINFER_RETURN_IF_ERROR(PrintWarning(*engine));
    if (dry_run_) {
      DEEPINFER_RETURN_IF_ERROR(WriteAll(1, PlanText(*engine)));
      return kExitOk;
    }

    DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<AccessLog> log, AccessLog::Open(serve_.access_log));
    DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<ResponseStore> store, OpenStore());
    RateLimiter limiter;
    Metrics metrics({.model_name = serve_.model_names.front(),
                     .version = DEEPINFER_VERSION,
                     .max_model_len = engine->options().max_model_len,
                     .vllm_names = serve_.vllm_metrics});
    ApiServiceParts parts;
    parts.model = ServedModel::Of(engine.get(), engine->files().tokenizer.get());
    parts.model.grammars = &engine->grammars();
    parts.model.names = serve_.model_names;
    parts.model.strict_names = serve_.strict_model_names;
    parts.model.system_fingerprint = "fp_" + engine->fingerprint().substr(0, 16);
    parts.keys = &serve_.keys;
    parts.limiter = &limiter;
    parts.metrics = &metrics;
    parts.log = log.get();
    parts.store = store.get();
    serve_.service.version = DEEPINFER_VERSION;
    ApiService service(serve_.service, std::move(parts));
    DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server,
                               HttpServer::Start(
                                   serve_.http,
                                   [&service](HttpConnection& connection, HttpRequest request) {
                                     return service.Handle(connection, std::move(request));
                                   },
                                   &ApiService::ErrorPage));
    service.CountConnections([server = server.get()] { return server->connections(); });
    metrics.SetHealthy(true);
    DEEPINFER_RETURN_IF_ERROR(Announce(*engine, *server));

    const Status health = WatchUntilStopped(*engine, signals);
    metrics.SetHealthy(false);
    service.BeginDrain();
    server->StopAccepting();
    if (!Drain(*server, signals)) {
      service.Abort();
      server->PokeAll();
      server->WaitUntilIdle(kAfterAbort);
    }
    // A program that lives on without its device would look alive to whoever restarts programs that end.
    return health.ok() ? kExitOk : kExitError;
  }

 private:
  static std::string NameOf(const std::filesystem::path& folder) {
    const std::filesystem::path whole = std::filesystem::weakly_canonical(folder);
    return whole.filename().empty() ? whole.parent_path().filename().string() : whole.filename().string();
  }

  /// Says what happens to the engine until a signal comes (OK) or the device has failed (why).
  static Status WatchUntilStopped(const EngineCore& engine, ShutdownSignals& signals) {
    std::vector<KvTierStatistics> tiers = engine.statistics().kv_tiers;
    while (!signals.WaitFor(kWatch)) {
      TellTierChanges(engine.statistics().kv_tiers, &tiers);
      const Status health = engine.health();
      if (health.ok()) continue;
      (void)Say(health.message());
      return health;
    }
    return Status::Ok();
  }

  /// Says which tiers have stopped working since `last`, and which work again. The log may be on the very disk that is
  /// full, so a line that cannot be written is lost and no more.
  static void TellTierChanges(std::vector<KvTierStatistics> now, std::vector<KvTierStatistics>* last) {
    for (size_t i = 0; i < now.size(); ++i) {
      const bool failed = now[i].failures > (*last)[i].failures;
      const bool returned = now[i].up && (failed || !(*last)[i].up);
      if (failed) {
        const std::string text = TierDownText(now[i].name, now[i].up ? "it failed for a moment" : now[i].reason);
        (void)Say(NameFlags(Status::Io(text)).message());
      }
      if (returned) (void)Say(fmt::format("the KV tier '{}' works again", now[i].name));
    }
    last->swap(now);
  }

  static std::string PlanText(const EngineCore& engine) {
    const MemoryPlan plan = PlanOf(engine);
    std::string text;
    const auto add = [&](bool at_start) {
      for (const PlannedMemory& line : plan.allocations) {
        if (line.at_start != at_start) continue;
        text += fmt::format("{:>16} bytes  {}{}\n", line.bytes, line.on_device ? "GPU: " : "", line.text);
      }
    };
    add(true);
    if (plan.device_bytes > 0) text += fmt::format("{:>16} bytes  GPU: all of these\n", plan.device_bytes);
    text += fmt::format("{:>16} bytes  {}all of these\n", plan.allocated_bytes - plan.device_bytes,
                        plan.device_bytes > 0 ? "host: " : "");
    add(false);
    text += fmt::format("{:>16} bytes  of the checkpoint, mapped; the system may drop pages\n", plan.mapped_bytes);
    return text;
  }

  Result<std::unique_ptr<ResponseStore>> OpenStore() const {
    const std::string target = serve_.response_store.empty() ? DefaultResponseStore() : serve_.response_store;
    if (target == "off") return std::unique_ptr<ResponseStore>();
    ResponseStoreOptions options;
    options.path = target == "memory" ? ":memory:" : target;
    options.max_age_days = serve_.response_days;
    options.max_bytes = serve_.response_bytes;
    Result<std::unique_ptr<ResponseStore>> store = ResponseStore::Open(options);
    if (store.ok() || !serve_.response_store.empty()) return store;
    // Nobody asked for this file: a folder that cannot be written must not keep the server from starting.
    DEEPINFER_RETURN_IF_ERROR(
        Say("responses are kept in memory only: " + store.status().message() + "; choose a --response-store"));
    options.path = ":memory:";
    return ResponseStore::Open(options);
  }

  Status Announce(const EngineCore& engine, const HttpServer& server) const {
    const EngineOptions& options = engine.options();
    const bool local = serve_.http.host == "127.0.0.1" || serve_.http.host == "localhost" ||
                       serve_.http.host == "::1" || !serve_.http.unix_socket.empty();
    if (!local && serve_.keys.open()) {
      DEEPINFER_RETURN_IF_ERROR(Say("anybody who reaches this address may use the server; set --api-key-file"));
    }
    return Say(
        fmt::format("{} is served at {} ({} tokens of context, {} requests at once; docs/clients.md has blocks "
                    "to copy, Ctrl-C ends it)",
                    serve_.model_names.front(), server.address(), options.max_model_len, options.max_num_seqs));
  }

  // Whether all answers were finished in time and no second signal came.
  bool Drain(HttpServer& server, ShutdownSignals& signals) const {
    const int64_t answers = server.connections();
    if (answers > 0) {
      (void)Say(fmt::format("stopping: {} connections may finish within {} s; a second signal stops at once", answers,
                            serve_.drain_seconds));
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(serve_.drain_seconds);
    while (std::chrono::steady_clock::now() < deadline) {
      if (server.WaitUntilIdle(kPoll)) return true;
      if (signals.WaitFor(milliseconds(0))) return false;
    }
    return server.WaitUntilIdle(milliseconds(0));
  }

  EngineFlags engine_;
  ServeFlags serve_;
  bool dry_run_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeServeCommand() { return std::make_unique<ServeCommand>(); }

}  // namespace deepinfer
