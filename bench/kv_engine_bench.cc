// What the tiers behind the KV pool mean to requests (docs/kv-tiers.md): time to the first token of a long prompt that
// is computed, and of the same prompt after a restart that finds it on the disk; and the time of a decode step while
// the tier writes, against one while it does not. All ratios are of one run.
//
// Usage: kv_engine_bench MODEL FOLDER [--prompt=TOKENS] [--rounds=N] [--rates=MB/S,...]
//   FOLDER    on the disk to be measured, new or empty
//   --prompt  of the first part, 13000; 0: without it
//   --rounds  of the second part for each rate, 80; 0: without it
//   --rates   handed to the tier meanwhile, "4,68"
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/engine_core.h"

namespace deepinfer {
namespace {

constexpr double kStretchSeconds = 0.12;  // of decode steps that are timed together
constexpr int kStretches = 5;             // of a round

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "kv_engine_bench: %s\n", message.c_str());
  std::exit(1);
}

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) Die(result.status().message());
  return std::move(*result);
}

std::unique_ptr<EngineCore> Open(const std::string& model, const std::string& folder, int64_t context) {
  EngineOptions options;
  options.model = model;
  options.max_num_seqs = 2;
  options.max_model_len = context;
  options.draft_length = 0;
  options.kv_disk = folder;
  options.profile_steps = false;
  return Must(EngineCore::Create(Must(ModelFiles::Load(model)), options));
}

std::vector<int32_t> RandomPrompt(const EngineCore& engine, int64_t tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int32_t> id(100,
                                            static_cast<int32_t>(engine.files().checkpoint->config().vocab_size) - 1);
  std::vector<int32_t> prompt(static_cast<size_t>(tokens));
  for (int32_t& token : prompt) token = id(random);
  return prompt;
}

GenerationRequest Ask(std::vector<int32_t> prompt, int64_t tokens, ReplayMode mode) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = tokens;
  request.sampling.ignore_eos = true;
  request.replay = mode;
  return request;
}

void FirstTokens(const std::string& model, const std::string& folder, int64_t tokens) {
  for (const ReplayMode mode : {ReplayMode::kBounded, ReplayMode::kExact}) {
    auto engine = Open(model, folder, tokens + 64);
    const GenerationRequest request = Ask(RandomPrompt(*engine, tokens, 1), 2, mode);
    const Generation cold = Must(engine->Generate(request));
    if (const Status flushed = engine->FlushTiers(600); !flushed.ok()) Die(flushed.message());
    engine.reset();
    engine = Open(model, folder, tokens + 64);
    // Weights are mapped anew by this engine, too; a prompt of its own makes them resident.
    Must(engine->Generate(Ask(RandomPrompt(*engine, 100, 2), 2, mode)));
    const Generation warm = Must(engine->Generate(request));
    const bool same = warm.choices[0].ids == cold.choices[0].ids;
    std::printf("%-8s %lld tokens: first token after %9.1f ms cold, %7.1f ms from disk (%lld cached): %5.1f x%s\n",
                mode == ReplayMode::kExact ? "exact" : "bounded", static_cast<long long>(tokens), cold.first_token_ms,
                warm.first_token_ms, static_cast<long long>(warm.cached_tokens),
                cold.first_token_ms / warm.first_token_ms, same ? "" : "  WRONG: other tokens");
    std::fflush(stdout);
  }
}

double Quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

/// One request that is answered all the time.
class Decoding {
 public:
  Decoding(EngineCore& engine, int64_t tokens) : stream_(Must(engine.Submit(Request(engine, tokens)))) {}

  /// Milliseconds of each of the next `tokens` steps; those that ended before the call do not count.
  double StepMs(int64_t tokens) {
    // What has come since the last call, and the beginning of a step.
    Next();
    Next();
    const double begin = NowSeconds();
    int64_t seen = 0;
    while (seen < tokens) seen += Next();
    return 1e3 * (NowSeconds() - begin) / static_cast<double>(seen);
  }

 private:
  static GenerationRequest Request(const EngineCore& engine, int64_t tokens) {
    GenerationRequest request = Ask(RandomPrompt(engine, 64, 3), tokens, ReplayMode::kBounded);
    request.no_store = true;
    return request;
  }

  int64_t Next() {
    GenerationDelta delta;
    if (!stream_->Next(&delta)) Die("the answer has ended too early");
    return std::ssize(delta.ids);
  }

  std::unique_ptr<GenerationStream> stream_;
};

/// Hands blocks to the tier, so many bytes a second, from its beginning to its end.
class Writing {
 public:
  Writing(EngineCore& engine, double bytes_per_second)
      : store_(*engine.tiers()),
        payload_(static_cast<size_t>(engine.plan().kv.block_bytes)),
        bytes_per_second_(bytes_per_second) {
    std::mt19937 random(9);
    for (uint8_t& byte : payload_) byte = static_cast<uint8_t>(random());
    thread_ = std::thread([this] { Loop(); });
  }
  ~Writing() {
    stop_ = true;
    thread_.join();
    if (!store_.Flush(60)) Die("the tier does not end its writes");
  }

 private:
  void Loop() {
    const double begin = NowSeconds();
    int64_t bytes = 0;
    // As much as the engine hands over at a time; less where that would be a single batch of a stretch.
    const auto batch_bytes = static_cast<int64_t>(std::min(4.0 * (1 << 20), bytes_per_second_ / 16));
    const std::vector<int32_t> ids(static_cast<size_t>(kKvBlockTokens), 7);
    static uint64_t next = 1;
    while (!stop_) {
      KvBatch batch;
      for (int64_t i = 0; i <= batch_bytes / std::ssize(payload_); ++i) {
        // The same block under a new key.
        KvWrite write;
        write.scope.root.bytes[0] = 1;
        std::memcpy(write.key.bytes.data(), &next, sizeof next);
        ++next;
        write.ids = ids;
        write.payload = payload_;
        write.expires_at = std::time(nullptr) + 86'400;
        batch.Add(write);
      }
      bytes += batch.payload_bytes();
      store_.Store(std::move(batch));
      const double due = begin + static_cast<double>(bytes) / bytes_per_second_;
      if (const double wait = due - NowSeconds(); wait > 0)
        std::this_thread::sleep_for(std::chrono::duration<double>(wait));
    }
  }

  TierStore& store_;
  std::vector<uint8_t> payload_;
  double bytes_per_second_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// Seconds of processor time that threads with this nice value have taken: those of the tiers.
double SecondsOfNice(int nice) {
  double seconds = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (getpriority(PRIO_PROCESS, static_cast<id_t>(std::atoi(task.path().filename().c_str()))) != nice) continue;
    double nanoseconds = 0;
    std::ifstream(task.path() / "schedstat") >> nanoseconds;
    seconds += nanoseconds / 1e9;
  }
  return seconds;
}

void PrintRise(const char* what, std::vector<double> rises) {
  // Of the median, were the rises normally distributed.
  const double error =
      1.25 / 1.35 * (Quantile(rises, 0.75) - Quantile(rises, 0.25)) / std::sqrt(static_cast<double>(rises.size()));
  std::printf("  %-34s %+5.1f %% +- %.1f   quartiles %+5.1f ... %+5.1f\n", what, Quantile(rises, 0.5), error,
              Quantile(rises, 0.25), Quantile(rises, 0.75));
}

/// Each round has five stretches of steps. The tier writes in the second or in the fourth one, and each of the two is
/// compared with the mean of its neighbours: what the machine does meanwhile is the same for both.
void Steps(EngineCore& engine, double megabytes, int rounds) {
  const TierStore& store = *engine.tiers();
  const auto tokens = static_cast<int64_t>(1e3 * kStretchSeconds / Decoding(engine, 200).StepMs(48)) + 3;
  std::vector<double> quiet, rises, noise;
  double written = 0;
  double seconds = 0;
  double processor_seconds = 0;
  const int nice_of_tiers = std::min(19, getpriority(PRIO_PROCESS, 0) + 19);
  for (int round = 0; round < rounds; ++round) {
    Decoding decoding(engine, 8000);
    const int writes = round % 2 == 0 ? 1 : 3;
    std::array<double, kStretches> ms = {};
    decoding.StepMs(tokens / 2);
    for (int i = 0; i < kStretches; ++i) {
      std::optional<Writing> writing;
      if (i == writes) writing.emplace(engine, megabytes * 1e6);
      const auto before = static_cast<double>(store.report()[0].counts.written_bytes);
      const double processor_before = SecondsOfNice(nice_of_tiers);
      const double begin = NowSeconds();
      ms[static_cast<size_t>(i)] = decoding.StepMs(tokens);
      if (i != writes) continue;
      processor_seconds += SecondsOfNice(nice_of_tiers) - processor_before;
      seconds += NowSeconds() - begin;
      written += static_cast<double>(store.report()[0].counts.written_bytes) - before;
    }
    quiet.push_back(ms[0]);
    const auto rise = [&](size_t i) { return 100 * (ms[i] / ((ms[i - 1] + ms[i + 1]) / 2) - 1); };
    rises.push_back(rise(static_cast<size_t>(writes)));
    noise.push_back(rise(static_cast<size_t>(4 - writes)));
  }
  std::printf("decode step of %.2f ms, %d rounds of stretches of %lld steps\n", Quantile(quiet, 0.5), rounds,
              static_cast<long long>(tokens));
  char what[64];
  std::snprintf(what, sizeof what, "handed over %.0f, written %.0f MB/s:", megabytes, written / seconds / 1e6);
  PrintRise(what, rises);
  PrintRise("nothing written:", noise);
  std::printf("  threads of tiers: %.1f %% of one processor, %.2f ms for each MB\n", 100 * processor_seconds / seconds,
              1e9 * processor_seconds / written);
  std::fflush(stdout);
}

int Main(int count, char** arguments) {
  std::vector<std::string> places;
  int64_t tokens = 13'000;
  int rounds = 80;
  std::vector<double> rates = {4, 68};
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (argument.starts_with("--prompt=")) {
      tokens = std::atoll(value.c_str());
    } else if (argument.starts_with("--rounds=")) {
      rounds = std::atoi(value.c_str());
    } else if (argument.starts_with("--rates=")) {
      rates.clear();
      std::istringstream list(value);
      for (std::string rate; std::getline(list, rate, ',');) rates.push_back(std::atof(rate.c_str()));
    } else {
      places.push_back(argument);
    }
  }
  if (places.size() != 2 || std::ranges::any_of(rates, [](double rate) { return rate <= 0; }))
    Die("usage: kv_engine_bench MODEL FOLDER [--prompt=TOKENS] [--rounds=N] [--rates=MB/S,...]");
  if (tokens != 0 && tokens < 1024) Die("--prompt: expected 1024 or more, or 0");
  if (rounds > 0) {
    const auto engine = Open(places[0], places[1], 8192);
    for (const double rate : rates) Steps(*engine, rate, rounds);
  }
  if (tokens > 0) FirstTokens(places[0], places[1], tokens);
  return 0;
}

}  // namespace
}  // namespace deepinfer

int main(int count, char** arguments) { return deepinfer::Main(count, arguments); }
