// What the engine's tests share: engines on the test models, random requests, and how to run and compare them.
#ifndef DEEPINFER_TESTS_ENGINE_ENGINE_FIXTURE_H_
#define DEEPINFER_TESTS_ENGINE_ENGINE_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine_core.h"

namespace deepinfer::test {

/// An engine on "nano" or "tiny2", with these Ops.
Result<std::unique_ptr<EngineCore>> TryToMakeEngine(const std::string& model, const EngineOptions& options,
                                                    std::unique_ptr<Ops> ops, const KvTierFactory& make_tiers = {});

/// The same; the test ends when it cannot be made.
std::unique_ptr<EngineCore> MakeEngine(const std::string& model, const EngineOptions& options,
                                       const KvTierFactory& make_tiers = {}, std::unique_ptr<Ops> ops = nullptr);

/// A seed for this run: $DEEPINFER_TEST_SEED, else random; printed, so that a failure can be repeated.
uint64_t RunSeed(const char* what);

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t Between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  bool OneIn(int64_t n) { return Between(1, n) == 1; }
  template <typename T>
  const T& Of(const std::vector<T>& values) {
    return values[static_cast<size_t>(Between(0, std::ssize(values) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

/// Ids that the model has seen in texts: some of Nano's own prose, repeated where it ends.
std::vector<int32_t> ProseIds(const EngineCore& engine, int64_t count, int64_t offset = 0);

struct RequestRange {
  int64_t longest_prompt = 200;
  int64_t most_tokens = 40;
  bool greedy_only = false;
};

/// Grammars of every kind, with choices, free text, recursion and forced text.
const std::vector<StructuredOutput>& SomeForms();

/// Prompts of many lengths, some with common beginnings; parameters of every kind.
std::vector<GenerationRequest> RandomRequests(const EngineCore& engine, int64_t count, const RequestRange& range,
                                              Random& random);

/// Answers at temperature 1 of one seed, of so many tokens.
SamplingParams SeededSampling(int64_t tokens, int top_logprobs);

/// The whole answer; a refusal fails the test.
Generation Answer(EngineCore& engine, const GenerationRequest& request);
/// All at once, in this order of submission; results in the order of `requests`.
std::vector<Generation> RunTogether(EngineCore& engine, const std::vector<GenerationRequest>& requests,
                                    const std::vector<size_t>& order);
/// One after the other.
std::vector<Generation> RunAlone(EngineCore& engine, const std::vector<GenerationRequest>& requests);

/// What differs between two answers, in words; empty when every id, log probability and text is the same.
std::string Difference(const Generation& a, const Generation& b);

/// Nothing runs and nothing is lost: every block and snapshot is free once the prefix cache is cleared.
void ExpectNothingHeld(EngineCore& engine);

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_ENGINE_ENGINE_FIXTURE_H_
