// What the server itself costs, each figure beside its limit: memory of an idle stream, processor time of a streamed
// token, what a thousand disconnects leave behind, how it ends under load, and requests per second by wrk where that is
// installed. The engine is a scripted one (tests/server/fake_server.cc), the real program with Nano where it is ended.
// Usage: server_bench [memory|cpu|disconnect|shutdown|wrk]...
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "app/http_load_client.h"
#include "app/load_runner.h"
#include "base/clock.h"
#include "child_server.h"
#include "http_client.h"

namespace deepinfer {
namespace {

using testing::HttpClient;

constexpr double kIdleLimit = 50e3;    // bytes of a stream
constexpr double kTokenLimit = 30e-6;  // seconds of processor time of a token
constexpr int kStreams = 2000;
constexpr int kDisconnects = 1000;
constexpr double kGoneLimit = 5;   // seconds until nothing runs
constexpr int kDrainSeconds = 30;  // of serve

std::string Body(int64_t max_tokens, bool stream) {
  return nlohmann::json({{"model", "nano"},
                         {"stream", stream},
                         {"max_tokens", max_tokens},
                         {"ignore_eos", true},
                         {"thinking", {{"type", "disabled"}}},
                         {"messages", {{{"role", "user"}, {"content", "Tell me about the sea."}}}}})
      .dump();
}

std::string Bytes(const std::string& body) {
  return fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Length: {}\r\n\r\n{}", body.size(),
                     body);
}

void Print(std::string_view what, const std::string& value, double share) {
  fmt::print("{:<58} {:>24}  {:>6.1f} % of the limit{}\n", what, value, 100 * share, share > 1 ? "  MISSED" : "");
  std::fflush(stdout);
}

ChildServer FakeServer(std::vector<std::string> flags) {
  flags.insert(flags.begin(), SERVER_BENCH_FAKE_SERVER);
  return ChildServer(std::move(flags), "http://");
}

/// Resident bytes of each of many streams that wait for their next token.
void MeasureMemory(int64_t begun) {
  const auto flags =
      begun > 0 ? std::vector<std::string>{"--hold-after", std::to_string(begun)} : std::vector<std::string>{"--hold"};
  ChildServer server = FakeServer(flags);
  const std::string request = Bytes(Body(1000, true));
  std::vector<std::unique_ptr<HttpClient>> clients;
  const auto open = [&](int count) {
    for (int i = 0; i < count; ++i) {
      clients.push_back(std::make_unique<HttpClient>(server.port()));
      clients.back()->Send(request);
    }
    for (int i = 0; begun > 0 && i < count; ++i) {
      if (!clients[clients.size() - 1 - static_cast<size_t>(i)]->ReceiveUntil("data: ")) std::exit(1);
    }
    while (std::atoi(server.Ask("running").c_str()) < static_cast<int>(clients.size())) std::this_thread::yield();
  };
  open(16);  // threads and tables that all share
  const int64_t before = server.Resident();
  open(kStreams);
  const double each = static_cast<double>(server.Resident() - before) / kStreams;
  Print(
      fmt::format("memory of an idle stream, {} of them, {}", kStreams, begun > 0 ? "begun" : "before the first token"),
      fmt::format("{:.1f} of {:.0f} KB", each / 1e3, kIdleLimit / 1e3), each / kIdleLimit);
}

std::unique_ptr<HttpLoadClient> ClientOf(const std::string& address) {
  const Result<ServerUrl> url = ServerUrl::Parse(address);
  Result<std::unique_ptr<HttpLoadClient>> client = HttpLoadClient::Open(*url, {});
  if (!client.ok()) std::exit(1);
  return std::move(*client);
}

LoadRun Run(const std::string& address, int64_t requests, int64_t concurrency, const std::string& body,
            const std::function<void(int64_t, int64_t)>& progress = nullptr) {
  const std::unique_ptr<HttpLoadClient> client = ClientOf(address);
  return RunLoad(*client, {.path = "/v1/chat/completions",
                           .arrivals = std::vector<double>(static_cast<size_t>(requests), 0.0),
                           .max_concurrency = concurrency,
                           .body = [&](int64_t) { return body; },
                           .progress = progress});
}

/// Processor time of the server for each token, system calls included. The scripted engine's thread, most of whose time
/// is that of going to sleep and of waking the server, is told apart: it stands where a real engine would.
void MeasureCpu(int64_t streams, int64_t step_microseconds, int64_t tokens) {
  ChildServer server = FakeServer({"--tokens", "1000", "--step-us", std::to_string(step_microseconds)});
  const int64_t requests = std::max<int64_t>(streams, tokens / 500);
  Run("http://" + server.address(), streams, streams, Body(5, true));  // connections and tables
  const double before = server.Cpu();
  const double engine_before = server.CpuOf("fake-engine");
  const LoadRun run = Run("http://" + server.address(), requests, streams, Body(500, true));
  const double engine = server.CpuOf("fake-engine") - engine_before;
  const double spent = server.Cpu() - before - engine;
  int64_t made = 0;
  int64_t pieces = 0;
  for (const LoadRecord& record : run.records) {
    if (record.outcome != LoadRecord::Outcome::kDone) {
      fmt::print(stderr, "server_bench: {}\n", record.error);
      std::exit(1);
    }
    made += record.output_tokens;
    pieces += record.pieces;
  }
  const auto each = [&](double seconds) { return seconds / static_cast<double>(made); };
  const std::string pace =
      step_microseconds > 0 ? fmt::format("every {:g} ms", 1e-3 * static_cast<double>(step_microseconds)) : "at once";
  Print(fmt::format("CPU of a token, {:>3} streams, {}, {:.2f} tokens an event", streams, pace,
                    static_cast<double>(made) / static_cast<double>(pieces)),
        fmt::format("{:.2f} of {:.0f} us", 1e6 * each(spent), 1e6 * kTokenLimit), each(spent) / kTokenLimit);
  fmt::print("{:<58} {:>21.2f} us\n", "  the scripted engine beside it", 1e6 * each(engine));
}

void MeasureDisconnects() {
  ChildServer server = FakeServer({"--tokens", "1000", "--hold-after", "20"});
  std::mt19937 random(1);
  const auto below = [&](size_t limit) { return random() % limit; };
  const std::string stream = Bytes(Body(900, true));
  const std::string whole = Bytes(Body(900, false));
  std::vector<std::unique_ptr<HttpClient>> open;
  for (int i = 0; i < kDisconnects; ++i) {
    auto client = std::make_unique<HttpClient>(server.port());
    const std::string& request = below(2) == 0 ? stream : whole;
    const size_t moment = below(3);
    client->Send(moment == 0 ? request.substr(0, below(request.size())) : moment == 1 ? request : stream);
    if (moment == 2 && !client->ReceiveUntil("data: ")) std::exit(1);
    open.push_back(std::move(client));
    while (open.size() > below(200)) {
      std::unique_ptr<HttpClient>& leaving = open[below(open.size())];
      if (below(2) == 0) leaving->Reset();
      std::swap(leaving, open.back());
      open.pop_back();
    }
  }
  open.clear();
  const double begin = NowSeconds();
  while ((server.Ask("running") != "0" || server.Ask("connections") != "0") && NowSeconds() - begin < kGoneLimit) {
    std::this_thread::yield();
  }
  const double seconds = NowSeconds() - begin;
  Print(fmt::format("{} disconnects: {} running, {} connected after", kDisconnects, server.Ask("running"),
                    server.Ask("connections")),
        fmt::format("{:.3f} of {:.0f} s", seconds, kGoneLimit), seconds / kGoneLimit);
}

void MeasureShutdown(int64_t streams) {
  ChildServer server({SERVER_BENCH_PROGRAM, "serve", "--port", "0", "--response-store", "memory", "--access-log", "off",
                      "--drain-timeout", std::to_string(kDrainSeconds)},
                     " is served at http://");
  double told = 0;
  const LoadRun run =
      Run("http://" + server.address(), 4 * streams, streams, Body(64, true), [&](int64_t done, int64_t running) {
        if (told > 0 || done < streams || running == 0) return;
        told = NowSeconds();
        server.Signal(SIGTERM);
      });
  const int status = server.Wait();
  const double seconds = NowSeconds() - told;
  int64_t done = 0;
  int64_t refused = 0;
  int64_t others = 0;
  for (const LoadRecord& record : run.records) {
    if (record.outcome == LoadRecord::Outcome::kDone) {
      ++done;
    } else if (record.sent >= told) {
      ++refused;
    } else {
      ++others;
      fmt::print(stderr, "server_bench: {}\n", record.error);
    }
  }
  Print(fmt::format("kill -TERM with {} streams: exit {}, {} whole, {} later refused, {} cut", streams, status, done,
                    refused, others),
        fmt::format("{:.2f} of {} s", seconds, kDrainSeconds),
        others == 0 && status == 0 ? seconds / kDrainSeconds : 99);
}

void RunWrk() {
  if (std::system("command -v wrk >/dev/null 2>&1") != 0) {
    fmt::print("wrk is not installed\n");
    return;
  }
  ChildServer server = FakeServer({"--tokens", "16"});
  const std::string script =
      (std::filesystem::temp_directory_path() / fmt::format("server_bench.{}.lua", getpid())).string();
  std::ofstream(script) << "wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\nwrk.body = [["
                        << Body(16, false) << "]]\n";
  const auto wrk = [&](const std::string& what, const std::string& flags) {
    fmt::print("wrk: {}\n", what);
    std::fflush(stdout);
    const double before = server.Cpu();
    const double begin = NowSeconds();
    if (std::system(
            fmt::format("wrk -t1 -c64 -d5s --latency {} | grep -E 'Latency|Requests/sec|Non-2xx|50%|99%'", flags)
                .c_str()) != 0) {
      fmt::print("wrk failed\n");
    }
    fmt::print("  server: {:.2f} processors\n", (server.Cpu() - before) / (NowSeconds() - begin));
  };
  wrk("GET /health, 64 connections", fmt::format("http://{}/health", server.address()));
  wrk("POST /v1/chat/completions, whole answers of 16 tokens, 64 connections",
      fmt::format("-s {} http://{}/v1/chat/completions", script, server.address()));
  std::filesystem::remove(script);
}

}  // namespace
}  // namespace deepinfer

int main(int argument_count, char** arguments) {
  using namespace deepinfer;
  const std::vector<std::string> wanted(arguments + 1, arguments + argument_count);
  const auto runs = [&](const std::string& name) {
    return wanted.empty() || std::ranges::find(wanted, name) != wanted.end();
  };
  std::signal(SIGPIPE, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (runs("memory")) {
    MeasureMemory(0);
    MeasureMemory(5);
  }
  if (runs("cpu")) {
    for (const int64_t streams : {1, 32, 256}) MeasureCpu(streams, 0, 100'000);
    // Slow enough for every token to be an event of its own.
    MeasureCpu(1, 500, 5'000);
    MeasureCpu(32, 5'000, 16'000);
    MeasureCpu(256, 40'000, 128'000);
  }
  if (runs("disconnect")) MeasureDisconnects();
  if (runs("shutdown")) MeasureShutdown(16);
  if (runs("wrk")) RunWrk();
  return 0;
}
