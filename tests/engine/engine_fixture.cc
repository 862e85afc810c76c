#include "engine_fixture.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace deepinfer::test {
namespace {

const std::filesystem::path kSource = DEEPINFER_SOURCE_DIR;

constexpr char kProse[] =
    "Once upon a time there was a small fox who lived under an old oak tree. Every morning the fox walked to the river "
    "to "
    "drink, and every evening it came home before the moon rose. One day the river was gone. \"Where did you go?\" "
    "asked "
    "the fox. Nobody answered, so it followed the dry stones up the hill, past the mill and the two sleepy cows, until "
    "it "
    "found a wall that the beavers had built. They were sorry. Together they opened a door in the wall, and the water "
    "ran "
    "down again, singing. def add(a, b):\n    return a + b\n{\"name\": \"fox\", \"age\": 3, \"friends\": [\"cow\", "
    "\"beaver\"]} "
    "The children in the village heard about it and wrote a song. It had four verses, and in the last one the fox "
    "danced. ";

}  // namespace

static ModelFiles LoadTestModel(const std::string& model) {
  const std::filesystem::path nano = kSource / "models" / "nano";
  const std::filesystem::path folder = model == "nano" ? nano : kSource / "tests" / "data" / "models" / model;
  Result<ModelFiles> files = ModelFiles::Load(folder, nano / "tokenizer.json");
  if (!files.ok()) {
    ADD_FAILURE() << files.status().message();
    std::abort();
  }
  return std::move(*files);
}

Result<std::unique_ptr<EngineCore>> TryToMakeEngine(const std::string& model, const EngineOptions& asked,
                                                    std::unique_ptr<Ops> ops, const KvTierFactory& make_tiers) {
  EngineOptions options = asked;
  options.store_calibration = false;  // the folders are the repository's
  return EngineCore::Create(LoadTestModel(model), options, make_tiers, {}, std::move(ops));
}

std::unique_ptr<EngineCore> MakeEngine(const std::string& model, const EngineOptions& options,
                                       const KvTierFactory& make_tiers, std::unique_ptr<Ops> ops) {
  Result<std::unique_ptr<EngineCore>> engine = TryToMakeEngine(model, options, std::move(ops), make_tiers);
  if (!engine.ok()) {
    ADD_FAILURE() << engine.status().message();
    std::abort();
  }
  return std::move(*engine);
}

uint64_t RunSeed(const char* what) {
  const char* given = std::getenv("DEEPINFER_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  fmt::print("{}: DEEPINFER_TEST_SEED={}\n", what, seed);
  return seed;
}

std::vector<int32_t> ProseIds(const EngineCore& engine, int64_t count, int64_t offset) {
  std::vector<int32_t> text;
  EXPECT_TRUE(engine.Tokenize(kProse, false, &text).ok());
  std::vector<int32_t> ids = {engine.bos_token_id()};
  for (int64_t i = 1; i < count; ++i) ids.push_back(text[static_cast<size_t>((offset + i) % std::ssize(text))]);
  return ids;
}

const std::vector<StructuredOutput>& SomeForms() {
  using Kind = StructuredOutput::Kind;
  static const std::vector<StructuredOutput> forms = {
      {Kind::kRegex, "[a-z ]{3,40}[.!]"},
      {Kind::kRegex, "(?:été|日本|日曜|🦊 fox){1,4}"},
      {Kind::kRegex, "(The|A) (fox|bear) (was|is) (happy|sad|very (tired|old))( and (hungry|cold)){0,3}\\."},
      {Kind::kJsonSchema,
       R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer",
           "minimum": 0, "maximum": 150}, "a long key that nobody can choose": {"enum": ["yes", "no", null]}},
           "required": ["name", "a long key that nobody can choose"], "additionalProperties": false})"},
      {Kind::kJsonSchema, R"({"type": "array", "items": {"type": ["number", "string"]}, "maxItems": 4})"},
      {Kind::kEbnf, "root ::= term (\" + \" term){1,4}\nterm ::= [0-9]{1,3} | \"(\" root \")\""},
  };
  return forms;
}

std::vector<GenerationRequest> RandomRequests(const EngineCore& engine, int64_t count, const RequestRange& range,
                                              Random& random) {
  std::vector<GenerationRequest> requests;
  const std::vector<int64_t> lengths = {1, 2, 3, 63, 64, 65, 127, 128, 129, 140, 141, 191, 192, 193};
  for (int64_t i = 0; i < count; ++i) {
    GenerationRequest request;
    const int64_t length =
        random.OneIn(2) ? std::min(random.Of(lengths), range.longest_prompt) : random.Between(1, range.longest_prompt);
    // A few offsets only, so that prefixes are shared.
    request.prompt = ProseIds(engine, length, random.Between(0, 2) * 50);
    if (length > 4 && random.OneIn(3)) {
      const auto from = static_cast<size_t>(random.Between(1, length - 1));
      for (size_t at = from; at < request.prompt.size(); ++at) {
        request.prompt[at] = static_cast<int32_t>(random.Between(4, 8000));
      }
    }
    SamplingParams& sampling = request.sampling;
    sampling.temperature = range.greedy_only || random.OneIn(2) ? 0 : 1;
    sampling.seed = static_cast<uint64_t>(random.Between(0, 1 << 30));
    sampling.max_tokens = random.Between(1, range.most_tokens);
    sampling.logprobs = static_cast<int>(random.Between(0, 3));
    sampling.ignore_eos = random.OneIn(2);
    if (random.OneIn(3)) sampling.top_p = 0.9;
    if (random.OneIn(4)) sampling.top_k = 20;
    if (random.OneIn(4)) sampling.min_p = 0.05;
    if (random.OneIn(4)) sampling.repetition_penalty = 1.2;
    if (random.OneIn(4)) sampling.frequency_penalty = 0.5;
    if (random.OneIn(4)) sampling.presence_penalty = -0.3;
    if (random.OneIn(4)) sampling.stops = {"the", "fox"};
    if (random.OneIn(4)) sampling.min_tokens = random.Between(0, sampling.max_tokens);
    if (random.OneIn(5)) sampling.bad_words = {"was", "river"};
    if (random.OneIn(5)) sampling.logit_bias = {{static_cast<int32_t>(random.Between(0, 8191)), 4.0F}};
    if (random.OneIn(8)) sampling.stop_token_ids = {static_cast<int32_t>(random.Between(4, 400))};
    if (random.OneIn(8)) sampling.n = 2;
    if (random.OneIn(8)) sampling.prompt_logprobs = 1;
    if (random.OneIn(4)) request.replay = random.OneIn(2) ? ReplayMode::kExact : ReplayMode::kBounded;
    if (random.OneIn(4)) request.cache_salt = "other";
    if (random.OneIn(4)) sampling.structured_output = random.Of(SomeForms());
    if (random.OneIn(4)) {
      // Now and then an answer leaves its reasoning, and the grammar begins.
      request.end_of_reasoning = static_cast<int32_t>(random.Between(4, 60));
      request.starts_in_reasoning = true;
    }
    request.priority = static_cast<int>(random.Between(0, 1));
    requests.push_back(std::move(request));
  }
  return requests;
}

SamplingParams SeededSampling(int64_t tokens, int top_logprobs) {
  SamplingParams sampling;
  sampling.temperature = 1;
  sampling.seed = 7;
  sampling.max_tokens = tokens;
  sampling.ignore_eos = true;
  sampling.logprobs = top_logprobs;
  return sampling;
}

std::vector<Generation> RunTogether(EngineCore& engine, const std::vector<GenerationRequest>& requests,
                                    const std::vector<size_t>& order) {
  std::vector<std::unique_ptr<GenerationStream>> streams(requests.size());
  for (const size_t index : order) {
    Result<std::unique_ptr<GenerationStream>> stream = engine.Submit(requests[index]);
    EXPECT_TRUE(stream.ok()) << stream.status().message();
    if (stream.ok()) streams[index] = std::move(*stream);
  }
  std::vector<Generation> results;
  for (const auto& stream : streams) results.push_back(stream == nullptr ? Generation() : stream->Wait());
  return results;
}

Generation Answer(EngineCore& engine, const GenerationRequest& request) {
  Result<Generation> result = engine.Generate(request);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? std::move(*result) : Generation();
}

std::vector<Generation> RunAlone(EngineCore& engine, const std::vector<GenerationRequest>& requests) {
  std::vector<Generation> results;
  for (const GenerationRequest& request : requests) results.push_back(Answer(engine, request));
  return results;
}

std::string Difference(const Generation& a, const Generation& b) {
  if (a.choices.size() != b.choices.size()) return "number of choices";
  if (a.replay != b.replay) return "replay mode";
  for (size_t i = 0; i < a.choices.size(); ++i) {
    const Choice& x = a.choices[i];
    const Choice& y = b.choices[i];
    for (size_t k = 0; k < std::min(x.ids.size(), y.ids.size()); ++k) {
      if (x.ids[k] != y.ids[k]) return fmt::format("choice {}: token {} is {} and {}", i, k, x.ids[k], y.ids[k]);
      if (k < x.logprobs.size() && k < y.logprobs.size() && !(x.logprobs[k] == y.logprobs[k])) {
        return fmt::format("choice {}: log probability of token {}: {} and {}", i, k, x.logprobs[k].chosen.logprob,
                           y.logprobs[k].chosen.logprob);
      }
    }
    if (x.ids.size() != y.ids.size()) return fmt::format("choice {}: {} and {} tokens", i, x.ids.size(), y.ids.size());
    if (x.logprobs.size() != y.logprobs.size()) return fmt::format("choice {}: number of log probabilities", i);
    if (x.content != y.content) return fmt::format("choice {}: text '{}' and '{}'", i, x.content, y.content);
    if (x.reasoning != y.reasoning) return fmt::format("choice {}: reasoning", i);
    if (x.finish_reason != y.finish_reason) {
      return fmt::format("choice {}: finish reason {} and {}", i, FinishReasonName(x.finish_reason),
                         FinishReasonName(y.finish_reason));
    }
    if (x.stop_sequence != y.stop_sequence || x.stop_token_id != y.stop_token_id) return "what ended the answer";
  }
  if (a.prompt_logprobs.size() != b.prompt_logprobs.size()) {
    return fmt::format("{} and {} prompt log probabilities", a.prompt_logprobs.size(), b.prompt_logprobs.size());
  }
  for (size_t i = 0; i < a.prompt_logprobs.size(); ++i) {
    if (!(a.prompt_logprobs[i] == b.prompt_logprobs[i])) return fmt::format("prompt log probability {}", i);
  }
  return "";
}

void ExpectNothingHeld(EngineCore& engine) {
  engine.WaitIdle();
  engine.ClearPrefixCache();
  const EngineStatistics statistics = engine.statistics();
  EXPECT_EQ(statistics.running, 0);
  EXPECT_EQ(statistics.waiting, 0);
  EXPECT_EQ(statistics.kv_blocks_free, statistics.kv_blocks);
  EXPECT_EQ(statistics.snapshots_free, statistics.snapshots);
}

}  // namespace deepinfer::test
