#include <gtest/gtest.h>

#include <filesystem>

#include "deepinfer/engine.h"

namespace deepinfer::test {
namespace {

TEST(Engine, AnswersAndIsDeterministic) {
  EngineOptions options;
  options.model = (std::filesystem::path(DEEPINFER_SOURCE_DIR) / "models" / "nano").string();
  Result<std::unique_ptr<Engine>> opened = Engine::Open(options);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  Engine& engine = **opened;
  GenerationRequest request;
  ASSERT_TRUE(engine.Tokenize("Once upon a time", false, &request.prompt).ok());
  request.prompt.insert(request.prompt.begin(), engine.bos_token_id());
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 40;
  const Result<Generation> first = engine.Generate(request);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(first->choices[0].ids.size(), 40u);
  printf("%s\n", first->choices[0].content.c_str());
  const Result<Generation> second = engine.Generate(request);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(first->choices[0].ids, second->choices[0].ids);
}

}  // namespace
}  // namespace deepinfer::test
