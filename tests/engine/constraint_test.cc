// Answers under a grammar: they belong to it, end where it lets them, and depend on nobody and on no draft.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine/slot_constraint.h"
#include "engine_fixture.h"
#include "grammar/front_ends.h"
#include "grammar/hostile_grammars.h"
#include "grammar/matcher.h"

namespace deepinfer::test {
namespace {

using Kind = StructuredOutput::Kind;

EngineOptions Options(int draft_length, SpeculationRule rule = SpeculationRule::kCoupled) {
  EngineOptions options;
  options.threads = 1;
  options.max_num_seqs = 4;
  options.max_model_len = 1024;
  options.draft_length = draft_length;
  options.variable_drafts = false;  // every draft that stands ready is verified
  options.profile_steps = false;
  options.speculation_rule = rule;
  return options;
}

GenerationRequest Request(EngineCore& engine, const StructuredOutput& form, double temperature, uint64_t seed) {
  GenerationRequest request;
  request.prompt = ProseIds(engine, 30);
  request.sampling.structured_output = form;
  request.sampling.temperature = temperature;
  request.sampling.seed = seed;
  request.sampling.max_tokens = 200;
  return request;
}

// Whether the text belongs to the form, by its bytes alone.
bool Belongs(const StructuredOutput& form, const std::string& text) {
  Result<Grammar> grammar = CompileStructuredOutput(form);
  EXPECT_TRUE(grammar.ok()) << grammar.status().message();
  Recogniser recogniser(&*grammar, {});
  const int32_t state = recogniser.Walk(recogniser.start(), text);
  return state != Recogniser::kDead && recogniser.Accepts(state);
}

TEST(Constraint, AnswersBelongToTheirGrammarForEveryDraftLength) {
  std::vector<std::string> without;
  for (const int drafts : {0, 1, 5}) {
    const auto engine = MakeEngine("nano", Options(drafts));
    size_t next = 0;
    for (const StructuredOutput& form : SomeForms()) {
      for (const double temperature : {0.0, 1.0}) {
        const Generation answer = *engine->Generate(Request(*engine, form, temperature, 11));
        const Choice& choice = answer.choices[0];
        if (choice.finish_reason == FinishReason::kStop) {
          EXPECT_TRUE(Belongs(form, choice.content)) << choice.content;
        } else {
          EXPECT_EQ(choice.finish_reason, FinishReason::kLength) << choice.status.message();
        }
        if (drafts == 0) {
          without.push_back(choice.content);
        } else {
          EXPECT_EQ(choice.content, without[next]) << drafts << " drafts";
        }
        ++next;
      }
    }
  }
}

TEST(Constraint, TextThatTheGrammarLeavesNoChoiceAboutIsDrafted) {
  const auto engine = MakeEngine("nano", Options(5));
  const StructuredOutput form{Kind::kRegex, "(the quick brown fox jumps over the lazy dog and goes home|no)"};
  GenerationRequest request = Request(*engine, form, 0, 1);
  request.sampling.logit_bias = {{engine->files().tokenizer->TokenBytes(0).empty() ? 0 : 1, -100.0F}};
  std::vector<int32_t> no;
  ASSERT_TRUE(engine->Tokenize("no", false, &no).ok());
  request.sampling.bad_token_sequences = {no, {no[0]}};
  const Generation answer = *engine->Generate(request);
  ASSERT_EQ(answer.choices[0].finish_reason, FinishReason::kStop) << answer.choices[0].status.message();
  const auto tokens = static_cast<int64_t>(answer.choices[0].ids.size());
  EXPECT_LT(answer.drafts.steps, tokens) << answer.choices[0].content;
  EXPECT_GT(answer.drafts.accepted, 0);
}

TEST(Constraint, RejectionSamplingObeysToo) {
  const auto engine = MakeEngine("nano", Options(5, SpeculationRule::kRejection));
  for (const StructuredOutput& form : SomeForms()) {
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const Generation answer = *engine->Generate(Request(*engine, form, 1, seed));
      const Choice& choice = answer.choices[0];
      if (choice.finish_reason == FinishReason::kStop) {
        EXPECT_TRUE(Belongs(form, choice.content)) << choice.content;
      } else {
        EXPECT_EQ(choice.finish_reason, FinishReason::kLength) << choice.status.message();
      }
    }
  }
}

TEST(Constraint, BeginsBehindTheReasoning) {
  const auto engine = MakeEngine("nano", Options(5));
  const StructuredOutput form{Kind::kRegex, "[0-9]{4}"};
  std::vector<int32_t> end;
  ASSERT_TRUE(engine->Tokenize(" the", false, &end).ok());
  ASSERT_EQ(end.size(), 1u);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    GenerationRequest request = Request(*engine, form, 1, seed);
    request.starts_in_reasoning = true;
    request.end_of_reasoning = end[0];
    const Generation answer = *engine->Generate(request);
    const Choice& choice = answer.choices[0];
    // The end of the answer is barred before the end of the reasoning.
    ASSERT_EQ(choice.finish_reason, FinishReason::kStop) << choice.reasoning;
    EXPECT_TRUE(Belongs(form, choice.content)) << choice.content;
  }
}

TEST(Constraint, GoesOnWithTheEndOfThePrompt) {
  const auto engine = MakeEngine("nano", Options(0));
  GenerationRequest request = Request(*engine, {Kind::kRegex, "abc[0-9]{3}def"}, 0, 1);
  std::vector<int32_t> opening;
  ASSERT_TRUE(engine->Tokenize("abc", false, &opening).ok());
  request.prompt.insert(request.prompt.end(), opening.begin(), opening.end());
  request.constrained_prompt_tokens = std::ssize(opening);
  const Generation answer = *engine->Generate(request);
  EXPECT_TRUE(Belongs({Kind::kRegex, "[0-9]{3}def"}, answer.choices[0].content)) << answer.choices[0].content;

  request.constrained_prompt_tokens = 30;  // prose, which the grammar does not admit
  const Generation wrong = *engine->Generate(request);
  EXPECT_EQ(wrong.choices[0].finish_reason, FinishReason::kError);
  EXPECT_NE(wrong.choices[0].status.message().find("does not continue the grammar"), std::string::npos);
}

TEST(Constraint, MinTokensGivesWayToTheGrammar) {
  const auto engine = MakeEngine("nano", Options(5));
  GenerationRequest request = Request(*engine, {Kind::kRegex, "ok"}, 1, 1);
  request.sampling.min_tokens = 50;
  request.sampling.ignore_eos = true;
  const Generation answer = *engine->Generate(request);
  EXPECT_EQ(answer.choices[0].content, "ok");
  EXPECT_EQ(answer.choices[0].finish_reason, FinishReason::kStop);

  // Where the text may go on, it does.
  GenerationRequest longer = Request(*engine, {Kind::kRegex, "(ok ?)+"}, 0, 1);
  longer.sampling.min_tokens = 20;
  const Generation text = *engine->Generate(longer);
  EXPECT_GE(text.choices[0].ids.size(), 20u);
}

TEST(Constraint, WhatIsBarredEverywhereIsAnErrorOfTheRequest) {
  const auto engine = MakeEngine("nano", Options(0));
  GenerationRequest request = Request(*engine, {Kind::kRegex, "x"}, 0, 1);
  request.sampling.bad_words = {"x"};
  const Generation answer = *engine->Generate(request);
  EXPECT_EQ(answer.choices[0].finish_reason, FinishReason::kError);
  EXPECT_NE(answer.choices[0].status.message().find("bar everything that the grammar leaves"), std::string::npos);
  EXPECT_EQ(engine->Generate(Request(*engine, {Kind::kRegex, "x"}, 0, 1))->choices[0].content, "x");
  ExpectNothingHeld(*engine);
}

TEST(Constraint, AGrammarThatCannotBeEnforcedIsRefused) {
  const auto engine = MakeEngine("nano", Options(0));
  const auto refused = [&](Kind kind, const std::string& source) {
    const Result<Generation> answer = engine->Generate(Request(*engine, {kind, source}, 0, 1));
    EXPECT_FALSE(answer.ok()) << source;
    return answer.ok() ? "" : answer.status().message();
  };
  EXPECT_NE(refused(Kind::kRegex, "(a)\\1").find("structured_output: "), std::string::npos);
  EXPECT_NE(refused(Kind::kJsonSchema, R"({"$ref": "http://example.com/x"})").find("$ref"), std::string::npos);
  EXPECT_NE(refused(Kind::kEbnf, "start ::= \"a\"").find("root"), std::string::npos);
}

TEST(Constraint, HostileGrammarsDisturbNobody) {
  const auto engine = MakeEngine("nano", Options(5));
  GenerationRequest plain = Request(*engine, {}, 1, 3);
  const Generation alone = *engine->Generate(plain);
  const Result<std::unique_ptr<GenerationStream>> other = engine->Submit(plain);
  ASSERT_TRUE(other.ok());
  const std::vector<testing::HostileGrammar> all = testing::HostileGrammars();
  // All of them go through the server's test.
  for (size_t i = 0; i < all.size(); i += 4) {
    const testing::HostileGrammar& hostile = all[i];
    GenerationRequest request = Request(*engine, hostile.form, 1, 1);
    request.sampling.max_tokens = 30;
    const Result<Generation> answer = engine->Generate(request);
    if (!answer.ok()) continue;  // refused
    const Choice& choice = answer->choices[0];
    if (choice.finish_reason == FinishReason::kError) {
      EXPECT_EQ(choice.status.code(), StatusCode::kResourceExhausted) << hostile.name << choice.status.message();
    }
  }
  EXPECT_EQ(Difference((*other)->Wait(), alone), "");
  ExpectNothingHeld(*engine);
}

TEST(Constraint, LogprobsAreThoseOfTheModel) {
  const auto engine = MakeEngine("nano", Options(0));
  GenerationRequest request = Request(*engine, {Kind::kRegex, "[0-9]{3}"}, 0, 1);
  request.sampling.logprobs = 5;
  const Generation answer = *engine->Generate(request);
  GenerationRequest free = request;
  free.sampling.structured_output = {};
  const Generation other = *engine->Generate(free);
  // The first position is the same; only the choice differs.
  const PositionLogprobs& constrained = answer.choices[0].logprobs[0];
  const PositionLogprobs& unconstrained = other.choices[0].logprobs[0];
  ASSERT_EQ(constrained.top.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(constrained.top[i].id, unconstrained.top[i].id);
    EXPECT_EQ(constrained.top[i].logprob, unconstrained.top[i].logprob);
  }
}

TEST(SlotConstraint, MasksOfDraftsAreThoseOfTheTokensAccepted) {
  const auto engine = MakeEngine("nano", Options(0));
  const Tokenizer& tokenizer = *engine->files().tokenizer;
  Random random(RunSeed("masks of drafts"));
  for (const StructuredOutput& form : SomeForms()) {
    auto constraint = std::make_shared<OutputConstraint>();
    constraint->grammar = *engine->grammars().Get(form);
    constraint->end_ids = {1};
    SlotConstraint walker(constraint, 5);
    std::vector<int32_t> taken;
    for (int step = 0; step < 40; ++step) {
      // Five tokens, each allowed behind those before it, found by a second matcher.
      Matcher matcher(constraint->grammar, constraint->end_ids);
      for (const int32_t id : taken) ASSERT_TRUE(*matcher.Accept(id));
      std::vector<int32_t> drafts;
      std::vector<std::vector<uint32_t>> masks;
      for (int i = 0; i < 6; ++i) {
        std::vector<uint32_t> words(constraint->grammar->trie().words());
        ASSERT_TRUE(matcher.FillMask(words).ok());
        masks.push_back(words);
        std::vector<int32_t> allowed;
        for (size_t id = 0; id < 32 * words.size(); ++id) {
          if ((words[id / 32] >> (id % 32) & 1) != 0) allowed.push_back(static_cast<int32_t>(id));
        }
        if (allowed.empty() || i == 5) break;
        drafts.push_back(random.Of(allowed));
        ASSERT_TRUE(*matcher.Accept(drafts.back()));
      }
      walker.FillMasks(drafts);
      ASSERT_TRUE(walker.status().ok());
      // A slow machine may have made fewer.
      for (size_t i = 0; i < std::min<size_t>(masks.size(), 1 + walker.masked_drafts()); ++i) {
        ASSERT_TRUE(std::ranges::equal(walker.mask(static_cast<int32_t>(i)), masks[i])) << "row " << i;
      }
      EXPECT_EQ(*walker.Admitted(drafts), std::ssize(drafts));
      if (drafts.empty() || drafts.front() == 1) break;
      std::vector<int32_t> barred = drafts;
      barred.insert(barred.begin() + 1, 0);  // a control token
      EXPECT_EQ(*walker.Admitted(barred), 1);
      // What is forced is admitted, and nothing else is.
      std::vector<int32_t> forced;
      ASSERT_TRUE(walker.Continuation({}, tokenizer, 5, &forced).ok());
      EXPECT_EQ(*walker.Admitted(forced), std::ssize(forced));
      ASSERT_TRUE(walker.Accept(drafts.front()).ok());
      taken.push_back(drafts.front());
    }
  }
}

// Limits are guards of work and memory. One that drafts run into ends the drafts; the answer goes on from nothing,
// where what was remembered no longer helps, and ends only by a limit of its own.
TEST(SlotConstraint, DraftsThatReachALimitAreNotFollowed) {
  const auto engine = MakeEngine("nano", Options(0));
  const Tokenizer& tokenizer = *engine->files().tokenizer;
  Random random(RunSeed("drafts near limits"));
  const auto trie = *TokenTrie::Build(tokenizer, tokenizer.vocab_size());
  const auto compile = [&](const StructuredOutput& form, const MatcherLimits& limits) {
    Result<Grammar> grammar = CompileStructuredOutput(form);
    auto constraint = std::make_shared<OutputConstraint>();
    // Of its own, so that no matcher learns from another.
    constraint->grammar = CompiledGrammar::Make(std::move(*grammar), trie, limits);
    constraint->end_ids = {1};
    return constraint;
  };
  // A text of the grammar; without drafts it is the answer, with them its next tokens are the drafts.
  const auto text_of = [&](const StructuredOutput& form) {
    SlotConstraint free(compile(form, MatcherLimits()), 5);
    std::vector<int32_t> text;
    while (text.size() < 40) {
      free.FillMasks({});
      std::vector<int32_t> allowed;
      for (size_t id = 2; id < 32 * free.mask(0).size(); ++id) {
        if ((free.mask(0)[id / 32] >> (id % 32) & 1) != 0) allowed.push_back(static_cast<int32_t>(id));
      }
      if (allowed.empty()) break;
      text.push_back(random.Of(allowed));
      EXPECT_TRUE(free.Accept(text.back()).ok());
    }
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 20 && stopped == 0; ++round) {
    for (const StructuredOutput& form : SomeForms()) {
      const std::vector<int32_t> text = text_of(form);
      for (uint64_t work = 1'000; work <= 300'000; work += work / 2) {
        MatcherLimits limits;
        limits.recogniser.max_work = work;
        SlotConstraint plain(compile(form, limits), 5);
        SlotConstraint drafted(compile(form, limits), 5);
        for (size_t step = 0; step < text.size(); ++step) {
          plain.FillMasks({});
          if (!plain.status().ok()) break;
          std::vector<int32_t> drafts(text.begin() + static_cast<std::ptrdiff_t>(step),
                                      text.begin() + static_cast<std::ptrdiff_t>(std::min(step + 5, text.size())));
          const Result<int32_t> admitted = drafted.Admitted(drafts);
          ASSERT_TRUE(admitted.ok()) << admitted.status().message();
          drafts.resize(static_cast<size_t>(*admitted));
          std::vector<int32_t> forced;
          ASSERT_TRUE(drafted.Continuation(drafts, tokenizer, 5 - *admitted, &forced).ok());
          drafted.FillMasks(drafts);
          if (!drafted.status().ok()) {
            EXPECT_EQ(drafted.status().code(), StatusCode::kResourceExhausted);
            break;
          }
          ASSERT_TRUE(std::ranges::equal(drafted.mask(0), plain.mask(0)));
          // It no longer looks at drafts, though the next token is as good as before.
          stopped += *drafted.Admitted(std::span(text).subspan(step, 1)) == 0 ? 1 : 0;
          if (!plain.Accept(text[step]).ok()) break;
          if (!drafted.Accept(text[step]).ok()) break;
        }
      }
    }
  }
  EXPECT_GT(stopped, 0) << "no limit was reached, so nothing was tested";
}

}  // namespace
}  // namespace deepinfer::test
