#include "app/read_answers.h"

#include <fmt/format.h>

#include <utility>

#include "app/flags.h"
#include "app/interrupt.h"

namespace deepinfer {
namespace {

/// How long Ctrl-C may go unnoticed.
constexpr int kPollMilliseconds = 20;

}  // namespace

Result<Generation> ReadAnswers(Engine& engine, GenerationRequest request,
                               const std::function<Status(const GenerationDelta& delta)>& sink) {
  Result<std::unique_ptr<GenerationStream>> submitted = engine.Submit(std::move(request));
  if (!submitted.ok()) return NameFlags(submitted.status());
  GenerationStream& stream = **submitted;
  Status sunk;
  bool cancelled = false;
  bool timed_out = false;
  GenerationDelta delta;
  while (stream.NextFor(&delta, kPollMilliseconds, &timed_out)) {
    if (!timed_out && sunk.ok()) sunk = sink(delta);
    if (!cancelled && (!sunk.ok() || Interrupt::flag())) {
      stream.Cancel();
      cancelled = true;
    }
  }
  DEEPINFER_RETURN_IF_ERROR(sunk);
  const Generation& generation = stream.Wait();
  for (const Choice& choice : generation.choices) DEEPINFER_RETURN_IF_ERROR(choice.status);
  return generation;
}

Result<std::vector<Generation>> RunRequests(Engine& engine, std::vector<GenerationRequest> requests, ProgressBar* bar) {
  const int64_t finished_before = engine.statistics().finished;
  std::vector<std::unique_ptr<GenerationStream>> streams;
  streams.reserve(requests.size());
  for (GenerationRequest& request : requests) {
    Result<std::unique_ptr<GenerationStream>> submitted = engine.Submit(std::move(request));
    if (!submitted.ok()) {
      const Status status = NameFlags(submitted.status());
      return Status(status.code(), fmt::format("request {}: {}", streams.size() + 1, status.message()));
    }
    streams.push_back(std::move(*submitted));
  }
  std::vector<Generation> generations;
  generations.reserve(streams.size());
  GenerationDelta delta;
  for (const std::unique_ptr<GenerationStream>& stream : streams) {
    bool timed_out = false;
    while (stream->NextFor(&delta, kPollMilliseconds, &timed_out)) {
      if (Interrupt::flag()) return Status::Cancelled("interrupted");  // streams that are dropped are cancelled
      if (bar != nullptr) {
        const EngineStatistics now = engine.statistics();
        bar->Update(now.finished - finished_before, fmt::format("{} tokens", now.generated_tokens));
      }
    }
    generations.push_back(stream->Wait());
    for (const Choice& choice : generations.back().choices) DEEPINFER_RETURN_IF_ERROR(choice.status);
  }
  return generations;
}

}  // namespace deepinfer
