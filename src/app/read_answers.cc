#include "app/read_answers.h"

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

}  // namespace deepinfer
