// GrammarCompiler: each text once, within its budget, and errors as answers.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "engine_fixture.h"
#include "grammar/front_ends.h"
#include "grammar/grammar_compiler.h"

namespace deepinfer::test {
namespace {

std::unique_ptr<Tokenizer> NanoTokenizer() {
  EngineOptions options;
  options.threads = 1;
  return std::move(ModelFiles::Load(MakeEngine("nano", options)->files().checkpoint->directory())->tokenizer);
}

TEST(GrammarCompiler, CompilesEqualTextsOnce) {
  const auto tokenizer = NanoTokenizer();
  GrammarCompiler compiler(*tokenizer, 8192, {});
  std::atomic<int> compiled = 0;
  const auto compile = [&] {
    ++compiled;
    return CompileRegex("[a-z]+");
  };
  std::vector<std::shared_ptr<const CompiledGrammar>> found(8);
  std::vector<std::thread> threads;
  for (auto& one : found) threads.emplace_back([&] { one = *compiler.Get("a key", compile); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiled, 1);
  for (const auto& one : found) EXPECT_EQ(one, found[0]);
}

TEST(GrammarCompiler, KeepsFailuresToo) {
  const auto tokenizer = NanoTokenizer();
  GrammarCompiler compiler(*tokenizer, 8192, {});
  int compiled = 0;
  const auto compile = [&] {
    ++compiled;
    return CompileRegex("(a");
  };
  const Status first = compiler.Get("bad", compile).status();
  const Status second = compiler.Get("bad", compile).status();
  EXPECT_EQ(first.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(first.message(), second.message());
  EXPECT_EQ(compiled, 1);
}

TEST(GrammarCompiler, ForgetsTheLeastRecentlyUsed) {
  const auto tokenizer = NanoTokenizer();
  GrammarCompilerOptions options;
  options.max_cached_bytes = 400'000;
  GrammarCompiler compiler(*tokenizer, 8192, {}, options);
  int compiled = 0;
  const auto get = [&](const std::string& pattern) {
    const auto result = compiler.Get(pattern, [&] {
      ++compiled;
      return CompileRegex(pattern);
    });
    ASSERT_TRUE(result.ok()) << result.status().message();
  };
  get("kept");
  for (int i = 0; i < 200; ++i) {
    get("[a-z]{" + std::to_string(i + 1) + "}x");
    get("kept");
    EXPECT_LE(compiler.cached_bytes(), options.max_cached_bytes);
  }
  EXPECT_EQ(compiled, 201);  // "kept" was never compiled again
  get("[a-z]{1}x");
  EXPECT_EQ(compiled, 202);  // the first one was
}

TEST(GrammarCompiler, TheFirstMaskBelongsToCompilation) {
  const auto tokenizer = NanoTokenizer();
  GrammarCompilerOptions options;
  options.matcher.recogniser.max_work = 1;
  GrammarCompiler compiler(*tokenizer, 8192, {}, options);
  const auto result = compiler.Get({StructuredOutput::Kind::kRegex, "[a-z]{0,90}(one|two|three)[a-z]{0,90}"});
  EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace deepinfer::test
