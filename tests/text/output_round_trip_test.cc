// A rendered assistant turn, as text and as token ids, comes back as the turn, and renders to the same prompt again.
#include <gtest/gtest.h>

#include <algorithm>

#include "output_fixture.h"
#include "text/prompt_renderer.h"
#include "tokenizer_fixture.h"

namespace deepinfer {
namespace {

using testing::Parse;
using testing::Parsed;
using Kind = OutputEvent::Kind;

class RandomTurn {
 public:
  explicit RandomTurn(uint64_t seed) : random_(seed), text_random_(static_cast<uint32_t>(seed)) {}

  uint64_t Below(uint64_t limit) { return random_() % limit; }
  std::mt19937_64* random() { return &random_; }

  // With `look_alikes`, control tokens spelt as text.
  std::string Text(bool look_alikes) {
    static const char* const kWords[] = {"\"quoted\"", "C:\\x", "line\nline", "\n\n",     "日本",
                                         "🚀",          "<b>",   "</",         "{\"a\":1}"};
    static const char* const kLookAlikes[] = {
        "</think>", "<think>", "<｜DSML｜ calls>", "</｜DSML｜ parameter>", "｜DSML｜", "<｜end▁of▁sentence｜>"};
    std::string text;
    for (uint64_t words = Below(5); words > 0; --words) {
      const uint64_t kind = Below(look_alikes ? 4 : 3);
      if (kind == 0) text += testing::RandomText(&text_random_, Below(10));
      if (kind == 1) text += kWords[Below(std::size(kWords))];
      if (kind == 2) text += " word";
      if (kind == 3) text += kLookAlikes[Below(std::size(kLookAlikes))];
    }
    return text;
  }

  // Newlines at the ends of reasoning and answer are not part of the format.
  std::string Trimmed(std::string text) {
    text.erase(0, std::min(text.find_first_not_of('\n'), text.size()));
    text.erase(text.find_last_not_of('\n') + 1);
    return text;
  }

  JsonValue Value(bool look_alikes, int depth) {
    static const char* const kNumbers[] = {"0",    "-0", "17", "1.0", "1e-7", "2.50", "123456789012345678901234567890",
                                           "1E400"};
    switch (Below(depth > 3 ? 4 : 6)) {
      case 0:
        return JsonValue();
      case 1:
        return JsonValue(Below(2) == 0);
      case 2:
        return JsonValue(JsonValue::Number{kNumbers[Below(std::size(kNumbers))]});
      case 3:
        return JsonValue(Text(look_alikes));
      case 4: {
        JsonValue::Array items;
        for (uint64_t count = Below(4); count > 0; --count) items.push_back(Value(look_alikes, depth + 1));
        return JsonValue(std::move(items));
      }
      default:
        return Object(look_alikes, depth + 1);
    }
  }

  JsonValue Object(bool look_alikes, int depth) {
    JsonValue::Object members;
    for (uint64_t count = Below(4); count > 0; --count) {
      std::string key = Text(look_alikes) + std::to_string(count);
      std::erase(key, '"');  // the markup cannot say it
      members.push_back({std::move(key), Value(look_alikes, depth)});
    }
    return JsonValue(std::move(members));
  }

  Message Turn(bool look_alikes) {
    Message message;
    message.role = Role::kAssistant;
    message.reasoning = Trimmed(Text(look_alikes));
    message.content.push_back({Trimmed(Text(look_alikes)), std::nullopt});
    for (uint64_t calls = Below(4); calls > 0; --calls) {
      ToolCall call{"c" + std::to_string(calls), Below(2) == 0 ? "read" : "fs::write", ""};
      AppendPythonJson(Object(look_alikes, 0), &call.arguments);
      message.tool_calls.push_back(std::move(call));
    }
    return message;
  }

 private:
  std::mt19937_64 random_;
  std::mt19937 text_random_;
};

Conversation WithTurn(Message turn) {
  Conversation conversation = NewChat("Be brief.", /*thinking=*/true);
  AppendUserTurn("Go.", &conversation);
  for (const char* name : {"read", "fs::write"}) {
    Tool tool;
    tool.name = name;
    conversation.tools.push_back(std::move(tool));
  }
  conversation.messages.push_back(std::move(turn));
  return conversation;
}

// The segments that the model has written: from behind the think mark to the end of the turn.
std::vector<PromptSegment> Written(const Prompt& prompt) {
  const auto is = [](std::string_view token) {
    return [token](const PromptSegment& segment) { return segment.special && segment.text == token; };
  };
  const auto turn = std::find_if(prompt.segments.begin(), prompt.segments.end(), is(special_token::kAssistant));
  return {turn + 2, std::find_if(turn, prompt.segments.end(), is(special_token::kEndOfSentence))};
}

Message TurnOf(const Parsed& parsed) {
  Message turn;
  turn.role = Role::kAssistant;
  turn.reasoning = parsed.All(Kind::kReasoning);
  turn.content.push_back({parsed.All(Kind::kText), std::nullopt});
  for (const OutputEvent& event : parsed.events) {
    if (event.kind == Kind::kCallBegin) turn.tool_calls.push_back({"c", event.text, ""});
    if (event.kind == Kind::kCallArguments) turn.tool_calls.back().arguments += event.text;
  }
  return turn;
}

void ExpectSameTurn(const Message& turn, const Message& again) {
  EXPECT_EQ(again.reasoning, turn.reasoning);
  EXPECT_EQ(TextOf(again), TextOf(turn));
  ASSERT_EQ(again.tool_calls.size(), turn.tool_calls.size());
  for (size_t i = 0; i < turn.tool_calls.size(); ++i) {
    EXPECT_EQ(again.tool_calls[i].name, turn.tool_calls[i].name);
    EXPECT_EQ(again.tool_calls[i].arguments, turn.tool_calls[i].arguments);
  }
}

OutputParserOptions OptionsOf(const Conversation& conversation) {
  OutputParserOptions options;
  options.start = OutputStart::kThinkLead;
  options.parse_tool_calls = true;
  for (const Tool& tool : conversation.tools) options.tool_names.push_back(tool.name);
  return options;
}

TEST(OutputRoundTrip, SpeltTurns) {
  RandomTurn random(testing::RunSeed("spelt turns"));
  for (int round = 0; round < 2000 && !::testing::Test::HasFailure(); ++round) {
    const Conversation conversation = WithTurn(random.Turn(/*look_alikes=*/false));
    const Result<Prompt> prompt = RenderPrompt(conversation);
    ASSERT_TRUE(prompt.ok()) << prompt.status().message();
    std::string text;
    for (const PromptSegment& segment : Written(*prompt)) text += segment.text;
    SCOPED_TRACE(text);
    const Message again =
        TurnOf(Parse(OptionsOf(conversation), testing::RandomPieces(text, 1 + random.Below(20), random.random())));
    ExpectSameTurn(conversation.messages.back(), again);
    EXPECT_EQ(RenderPrompt(WithTurn(again))->segments, prompt->segments);
  }
}

// As the server reads the model: ids, of which two are marks and the rest is text, whatever it spells.
TEST(OutputRoundTrip, TurnsOfTokens) {
  const Tokenizer& tokenizer = testing::ReleasedTokenizer();
  const int32_t dsml = *tokenizer.IdOfAddedToken(special_token::kDsml);
  const int32_t end_think = *tokenizer.IdOfAddedToken(special_token::kEndThink);
  RandomTurn random(testing::RunSeed("turns of tokens"));
  for (int round = 0; round < 1000 && !::testing::Test::HasFailure(); ++round) {
    const Conversation conversation = WithTurn(random.Turn(/*look_alikes=*/true));
    const Result<Prompt> prompt = RenderPrompt(conversation);
    ASSERT_TRUE(prompt.ok()) << prompt.status().message();
    Prompt written;
    written.segments = Written(*prompt);
    const Result<std::vector<int32_t>> ids = PromptIds(written, tokenizer);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    std::string output;
    for (const int32_t id : *ids) {
      if (id == dsml) {
        output += OutputParser::kDsmlMark;
      } else if (id == end_think) {
        output += OutputParser::kEndThinkMark;
      } else {
        output += tokenizer.TokenBytes(id);
      }
    }
    SCOPED_TRACE(written.Text());
    const Message again = TurnOf(Parse(testing::WithMarks(OptionsOf(conversation)),
                                       testing::RandomPieces(output, 1 + random.Below(20), random.random())));
    ExpectSameTurn(conversation.messages.back(), again);
    const Result<Prompt> rendered = RenderPrompt(WithTurn(again));
    ASSERT_TRUE(rendered.ok()) << rendered.status().message();
    EXPECT_EQ(rendered->Text(), prompt->Text());
    EXPECT_EQ(*PromptIds(*rendered, tokenizer), *PromptIds(*prompt, tokenizer));
  }
}

}  // namespace
}  // namespace deepinfer
