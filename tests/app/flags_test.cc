// Parts of the command line that need no program: sizes, names of flags, ranges, prompts of a file, spreads, progress.
#include "app/flags.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/bench_limit.h"
#include "app/bench_load.h"
#include "app/bench_report.h"
#include "app/calibration_prompts.h"
#include "app/load_bar.h"
#include "app/progress_bar.h"
#include "app/spread.h"
#include "checkpoint/weights.h"

namespace deepinfer {
namespace {

TEST(Flags, ParseIds) {
  EXPECT_EQ(ParseIds("--x", "1, 2\n3,4 ").value(), (std::vector<int32_t>{1, 2, 3, 4}));
  for (const std::string bad : {"", " , ", "1,-2", "99999999999", "0x10", "1;2"}) {
    EXPECT_FALSE(ParseIds("--x", bad).ok()) << bad;
  }
}

TEST(Flags, ParseMemorySize) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"0", 0},
      {"4096", 4096},
      {"100B", 100},
      {"512MiB", int64_t{512} << 20},
      {"2GiB", int64_t{2} << 30},
      {"2 gib", int64_t{2} << 30},
      {"1.5G", int64_t{3} << 29},
      {"0.5k", 512},
      {"3TB", 3'000'000'000'000},
      {"10 kb", 10'000},
      {"1M", 1 << 20},
  };
  for (const auto& [text, bytes] : sizes) {
    const Result<int64_t> parsed = ParseMemorySize(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, bytes) << text;
  }
  for (const std::string bad :
       {"", "G", "-1", "1e3", "1.5X", "1MiBs", "1 M B", "inf", "nan", "0x10", "9000000000T", "1..5"}) {
    const Result<int64_t> parsed = ParseMemorySize(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_NE(parsed.status().message().find("found '" + bad + "'"), std::string::npos) << parsed.status().message();
  }
}

TEST(Flags, ErrorsOfTheEngineNameFlags) {
  const std::pair<const char*, const char*> messages[] = {
      {"max_num_seqs: expected 1 or more, found 0", "--max-num-seqs: expected 1 or more, found 0"},
      {"max_model_len: the model holds at most 8 tokens", "--ctx: the model holds at most 8 tokens"},
      {"needs 3 GiB; lower max_model_len (8), max_num_seqs or kv_memory",
       "needs 3 GiB; lower --ctx (8), --max-num-seqs or --kv-memory"},
      {"min_tokens: expected 0 to max_tokens = 3", "--min-tokens: expected 0 to --max-tokens = 3"},
      {"bad_words: expected texts", "--bad-word: expected texts"},
      {"stop: expected at most 16 texts", "--stop: expected at most 16 texts"},
      {"n: expected 1 to 128", "-n: expected 1 to 128"},
      // Words of a sentence are no fields, and other names stay as they are.
      {"prompt: no seed, no stop in n threads", "prompt: no seed, no stop in n threads"},
      {"/models/kv_memory/x: no such file", "/models/kv_memory/x: no such file"},
  };
  for (const auto& [engine, flags] : messages) {
    const Status named = NameFlags(Status::InvalidArgument(engine));
    EXPECT_EQ(named.message(), flags);
    EXPECT_EQ(named.code(), StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(NameFlags(Status::Ok()).ok());
}

TEST(BenchLoad, CountRanges) {
  const CountRange one = ParseCountRange("--x", "7").value();
  EXPECT_EQ(one.low, 7);
  EXPECT_EQ(one.high, 7);
  const CountRange range = ParseCountRange("--x", "3:9").value();
  EXPECT_EQ(range.low, 3);
  EXPECT_EQ(range.high, 9);
  for (const std::string bad : {"", "0", "-1", "9:3", "3:", ":3", "3:4:5", "x"}) {
    EXPECT_FALSE(ParseCountRange("--x", bad).ok()) << bad;
  }
}

TEST(BenchLoad, PromptsOfAFile) {
  EXPECT_EQ(ParsePrompts("f", "one\n\ntwo {x}\r\n").value(), (std::vector<std::string>{"one", "two {x}"}));
  EXPECT_EQ(ParsePrompts("f", "{\"prompt\": \"a\\nb\"}\n{\"id\": 1, \"prompt\": \"c\"}").value(),
            (std::vector<std::string>{"a\nb", "c"}));
  EXPECT_FALSE(ParsePrompts("f", "\n\n").ok());
  const Result<std::vector<std::string>> broken = ParsePrompts("f", "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n");
  ASSERT_FALSE(broken.ok());
  EXPECT_TRUE(broken.status().message().starts_with("f:2: ")) << broken.status().message();
}

TEST(Bench, Spread) {
  const Spread none = SpreadOf({});
  EXPECT_EQ(none.mean, 0);
  const Spread three = SpreadOf({30, 10, 20});
  EXPECT_DOUBLE_EQ(three.mean, 20);
  EXPECT_DOUBLE_EQ(three.p50, 20);
  EXPECT_DOUBLE_EQ(three.p99, 29.8);
  EXPECT_DOUBLE_EQ(SpreadOf({5}).p99, 5);
}

Generation MakeGeneration(double first_token_ms, double total_ms, size_t tokens) {
  Generation generation;
  generation.choices.resize(1);
  generation.choices[0].ids.resize(tokens);
  generation.prompt_tokens = 10;
  generation.first_token_ms = first_token_ms;
  generation.total_ms = total_ms;
  generation.drafts = {.steps = static_cast<int64_t>(tokens) - 1, .drafted = 0, .verified = 0, .accepted = 0};
  return generation;
}

TEST(Bench, FiguresOfGenerations) {
  const std::vector<Generation> generations = {MakeGeneration(10, 50, 5), MakeGeneration(30, 30, 1)};
  const GenerationFigures figures = FiguresOf(generations);
  EXPECT_EQ(figures.prompt_tokens, 20);
  EXPECT_EQ(figures.output_tokens, 6);
  EXPECT_DOUBLE_EQ(figures.first_token_ms.mean, 20);
  EXPECT_DOUBLE_EQ(figures.per_token_ms.mean, 10);  // of the first alone
  EXPECT_DOUBLE_EQ(figures.total_ms.mean, 40);
}

TEST(Bench, LimitCountsTheStepsOfTheBatch) {
  const ModelConfig config =
      Checkpoint::Open(std::filesystem::path(DEEPINFER_SOURCE_DIR) / "models/nano").value().config();
  const cpu::MachineLimits machine = {.read_bytes_per_second = 1e9, .fma_flops_per_second = 1e12};
  // Two that decode at the same time share every step; one after the other share none.
  const std::vector<Generation> together = {MakeGeneration(10, 50, 5), MakeGeneration(10, 50, 5)};
  const RunLimit shared = LimitOf(config, together, 20 + 8, 20 + 8, machine);
  EXPECT_DOUBLE_EQ(shared.decode_steps, 4);
  EXPECT_DOUBLE_EQ(shared.rows_per_step, 2);
  const std::vector<Generation> apart = {MakeGeneration(10, 50, 5), MakeGeneration(50, 90, 5)};
  const RunLimit alone = LimitOf(config, apart, 20 + 8, 20 + 8, machine);
  EXPECT_DOUBLE_EQ(alone.decode_steps, 8);
  EXPECT_DOUBLE_EQ(alone.rows_per_step, 1);
  EXPECT_TRUE(alone.step_is_bound_by_reads());
  EXPECT_DOUBLE_EQ(alone.step_seconds, alone.step.bytes / 1e9);
  EXPECT_GT(alone.decode_seconds(), shared.decode_seconds());
  EXPECT_DOUBLE_EQ(alone.prefill_flops, shared.prefill_flops);
  EXPECT_GT(alone.prefill_flops, 0);
  // Rows that stop below the decoder cost less.
  EXPECT_LT(LimitOf(config, apart, 20 + 8, 8, machine).prefill_flops, alone.prefill_flops);
}

TEST(Bench, TheConfigHashTellsOptionsAndModelsApart) {
  EngineOptions options;
  const std::string hash = ConfigHash(options, options, "model");
  EXPECT_EQ(hash.size(), 16u);
  EXPECT_NE(hash, ConfigHash(options, options, "another"));
  EngineOptions chosen = options;
  chosen.kv_memory_bytes = 12345;  // from what is free at the moment
  EXPECT_EQ(hash, ConfigHash(options, chosen, "model"));
  chosen.draft_length = 2;
  EXPECT_NE(hash, ConfigHash(options, chosen, "model"));
}

TEST(ProgressBar, Line) {
  EXPECT_EQ(ProgressBar::Line("requests", 0, 8, 0, ""), "requests [                        ] 0/8");
  EXPECT_EQ(ProgressBar::Line("requests", 4, 8, 3.2, "99 tokens"),
            "requests [============            ] 4/8 99 tokens, 4 s left");
  EXPECT_EQ(ProgressBar::Line("requests", 8, 8, 6, ""), "requests [========================] 8/8");
}

TEST(LoadBar, SaysWhatIsLoaded) {
  EXPECT_EQ(LoadBar::Label(70, 30, EngramPlace::kDisk), "loading weights, MiB");
  EXPECT_EQ(LoadBar::Label(70, 30, EngramPlace::kHost), "loading weights, MiB");
  EXPECT_EQ(LoadBar::Label(30, 30, EngramPlace::kHost), "reading Engram tables, MiB");
  EXPECT_EQ(LoadBar::Label(100, 30, EngramPlace::kDevice), "loading weights and Engram tables, MiB");
  EXPECT_EQ(LoadBar::Label(30, 30, EngramPlace::kDevice), "reading Engram tables, MiB");  // a CPU has one memory
  EXPECT_EQ(LoadBar::Label(70, 0, EngramPlace::kDevice), "loading weights, MiB");
}

TEST(CalibrationPrompts, AllRender) {
  EXPECT_EQ(CalibrationPrompts().size(), 60u);
  bool tools = false;
  for (const CalibrationPrompt& prompt : CalibrationPrompts()) {
    const Result<Prompt> rendered = RenderCalibrationPrompt(prompt);
    ASSERT_TRUE(rendered.ok()) << rendered.status().message();
    EXPECT_NE(rendered->Text().find(prompt.text), std::string::npos) << prompt.text;
    tools = tools || rendered->parse_tool_calls;
  }
  EXPECT_TRUE(tools);
}

}  // namespace
}  // namespace deepinfer
