// answer MODEL TEXT: continues TEXT and prints it as it comes (docs/cpp-api.md).
#include <cstdio>

#include "deepinfer/engine.h"

int main(int argc, char** argv) {
  const auto fail = [](const deepinfer::Status& status) {
    std::fprintf(stderr, "answer: %s\n", status.message().c_str());
    return 1;
  };
  if (argc != 3) return fail(deepinfer::Status::InvalidArgument("expected a model's folder and a text"));

  deepinfer::EngineOptions options;
  options.model = argv[1];
  options.max_num_seqs = 1;
  auto engine = deepinfer::Engine::Open(options);
  if (!engine.ok()) return fail(engine.status());

  deepinfer::GenerationRequest request;
  request.prompt = {(*engine)->bos_token_id()};
  const deepinfer::Status tokenized = (*engine)->Tokenize(argv[2], false, &request.prompt);
  if (!tokenized.ok()) return fail(tokenized);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 40;
  auto stream = (*engine)->Submit(std::move(request));
  if (!stream.ok()) return fail(stream.status());

  deepinfer::GenerationDelta delta;
  while ((*stream)->Next(&delta)) {
    std::fwrite(delta.content.data(), 1, delta.content.size(), stdout);
    std::fflush(stdout);
  }

  const deepinfer::Generation& all = (*stream)->Wait();
  std::printf("\n%lld prompt tokens, %lld generated, %s\n", static_cast<long long>(all.prompt_tokens),
              static_cast<long long>(all.completion_tokens()),
              std::string(deepinfer::FinishReasonName(all.choices[0].finish_reason)).c_str());
  return all.choices[0].status.ok() ? 0 : fail(all.choices[0].status);
}
