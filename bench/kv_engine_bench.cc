// What the tiers behind the KV pool mean to requests (docs/kv-tiers.md): time to the first token of a long prompt that
// is computed, and of the same prompt after a restart that finds it on the disk; and the time of a decode step while
// the tier writes, against one while it does not. All ratios are of one run.
//
// Usage: kv_engine_bench MODEL FOLDER [PROMPT_TOKENS]     FOLDER: on the disk to be measured, new or empty
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/engine_core.h"

namespace deepinfer {
namespace {

constexpr int64_t kDecodeTokens = 48;
constexpr int kPairs = 5;

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

/// Milliseconds of a decode step.
double StepMs(EngineCore& engine, const GenerationRequest& request) {
  const Generation answer = Must(engine.Generate(request));
  return (answer.total_ms - answer.first_token_ms) / static_cast<double>(answer.completion_tokens() - 1);
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void FirstTokens(const std::string& model, const std::string& folder, int64_t tokens) {
  for (const ReplayMode mode : {ReplayMode::kBounded, ReplayMode::kExact}) {
    auto engine = Open(model, folder, tokens + 64);
    const GenerationRequest request = Ask(RandomPrompt(*engine, tokens, 1), 2, mode);
    const Generation cold = Must(engine->Generate(request));
    if (!engine->tiers()->Flush(600)) Die("the tier does not end its writes");
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

/// A write of the tier is under way during all of the measured steps: the same blocks again and again under new keys.
void Steps(const std::string& model, const std::string& folder) {
  auto engine = Open(model, folder, 4096);
  const GenerationRequest request = Ask(RandomPrompt(*engine, 64, 3), kDecodeTokens, ReplayMode::kBounded);
  TierStore& store = *engine->tiers();
  std::vector<uint8_t> payload(static_cast<size_t>(engine->plan().kv.block_bytes));
  std::mt19937 random(9);
  for (uint8_t& byte : payload) byte = static_cast<uint8_t>(random());
  uint64_t next = 1;
  // As much as prompts at the prefill speed of a large GPU would bring, serving.md 7.3.
  constexpr double kBytesPerSecond = 68e6;
  std::vector<double> quiet;
  std::vector<double> writing;
  int64_t written = 0;
  double writing_seconds = 0;
  for (int pair = 0; pair < kPairs; ++pair) {
    quiet.push_back(StepMs(*engine, request));
    const double begin = NowSeconds();
    std::atomic<bool> stop{false};
    int64_t bytes = 0;
    std::thread writer([&] {
      while (!stop.load()) {
        KvBatch batch;
        const std::vector<int32_t> ids(static_cast<size_t>(kKvBlockTokens), 7);
        // As much as the engine hands over at a time.
        for (int64_t i = 0; i < (int64_t{4} << 20) / std::ssize(payload); ++i) {
          KvWrite write;
          write.scope.root.bytes[0] = 1;
          std::memcpy(write.key.bytes.data(), &next, sizeof next);
          ++next;
          write.ids = ids;
          write.payload = payload;
          write.expires_at = std::time(nullptr) + 86'400;
          batch.Add(write);
        }
        bytes += batch.payload_bytes();
        store.Store(std::move(batch));
        store.Flush(60);
        const double due = begin + static_cast<double>(bytes) / kBytesPerSecond;
        if (const double wait = due - NowSeconds(); wait > 0)
          std::this_thread::sleep_for(std::chrono::duration<double>(wait));
      }
    });
    writing.push_back(StepMs(*engine, request));
    stop = true;
    writer.join();
    written += bytes;
    writing_seconds += NowSeconds() - begin;
  }
  std::printf("decode step: %.2f ms, %.2f ms while the tier writes %.0f MB/s: %+.1f %% (medians of %d pairs)\n",
              Median(quiet), Median(writing), static_cast<double>(written) / writing_seconds / 1e6,
              100 * (Median(writing) / Median(quiet) - 1), kPairs);
}

int Main(int count, char** arguments) {
  if (count < 3 || count > 4) Die("usage: kv_engine_bench MODEL FOLDER [PROMPT_TOKENS]");
  const int64_t tokens = count == 4 ? std::atoll(arguments[3]) : 13'000;
  if (tokens < 1024) Die("PROMPT_TOKENS: expected 1024 or more");
  Steps(arguments[1], arguments[2]);
  FirstTokens(arguments[1], arguments[2], tokens);
  return 0;
}

}  // namespace
}  // namespace deepinfer

int main(int count, char** arguments) { return deepinfer::Main(count, arguments); }
