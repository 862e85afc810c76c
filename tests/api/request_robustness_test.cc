// Damaged requests: every mutation of every recorded request is answered, with a prompt or with one clear line.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "prompt_vectors.h"

namespace deepinfer {
namespace {

using nlohmann::ordered_json;
using testing::PromptOf;
using testing::PromptVector;
using testing::PromptVectors;

constexpr const char* kProtocols[] = {"chat_completions", "responses", "messages", "completions"};

// Returns whether the request was accepted.
bool ExpectAnswer(std::string_view protocol, const std::string& body) {
  const Result<Prompt> prompt = PromptOf(protocol, body);
  if (prompt.ok()) {
    EXPECT_FALSE(prompt->segments.empty());
    EXPECT_EQ(prompt->segments.front(), (PromptSegment{true, "<｜begin▁of▁sentence｜>"}));
    return true;
  }
  const std::string message = prompt.status().message();
  EXPECT_TRUE(testing::IsRefusal(prompt.status())) << message;
  EXPECT_EQ(message.find_first_of("\n\r"), std::string::npos) << message;
  EXPECT_LT(message.size(), 1000u);
  EXPECT_NE(message.find(": "), std::string::npos) << message;
  return false;
}

// Every value of the document by JSON pointer, the root left out.
void CollectPointers(const ordered_json& value, const ordered_json::json_pointer& at,
                     std::vector<ordered_json::json_pointer>* pointers) {
  if (!at.empty()) pointers->push_back(at);
  if (value.is_object()) {
    for (auto member = value.begin(); member != value.end(); ++member) {
      CollectPointers(*member, at / member.key(), pointers);
    }
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) CollectPointers(value[i], at / i, pointers);
  }
}

// Each field in turn takes every kind of value.
TEST(RequestRobustness, WrongTypesEverywhere) {
  const char* values[] = {"null",         "true", "0",      "-1", "1e999",           "\"\"",
                          "\"\\u0000<\"", "[]",   "[null]", "{}", "{\"type\":\"x\"}"};
  size_t accepted = 0;
  size_t refused = 0;
  for (const PromptVector& vector : PromptVectors()) {
    ordered_json request = ordered_json::parse(vector.request);
    std::vector<ordered_json::json_pointer> pointers;
    CollectPointers(request, ordered_json::json_pointer(), &pointers);
    for (const auto& pointer : pointers) {
      ordered_json& place = request[pointer];
      const ordered_json original = place;
      place = "<place>";
      std::string body = request.dump();
      place = original;
      const size_t at = body.find("\"<place>\"");
      for (const char* value : values) {
        std::string changed = body;
        changed.replace(at, 9, value);
        ++(ExpectAnswer(vector.protocol, changed) ? accepted : refused);
      }
    }
  }
  EXPECT_GT(accepted, 1000u);
  EXPECT_GT(refused, 5000u);
}

// Each field in turn goes missing or comes twice.
TEST(RequestRobustness, MissingAndRepeatedFields) {
  for (const PromptVector& vector : PromptVectors()) {
    const ordered_json request = ordered_json::parse(vector.request);
    std::vector<ordered_json::json_pointer> pointers;
    CollectPointers(request, ordered_json::json_pointer(), &pointers);
    for (const auto& pointer : pointers) {
      ordered_json changed = request;
      ordered_json& parent = changed[pointer.parent_pointer()];
      if (parent.is_array()) {
        const size_t index = std::stoul(pointer.back());
        ordered_json twice = changed;
        ordered_json& items = twice[pointer.parent_pointer()];
        items.insert(items.begin() + static_cast<std::ptrdiff_t>(index), items[index]);
        ExpectAnswer(vector.protocol, twice.dump());
        parent.erase(index);
      } else {
        parent.erase(pointer.back());
      }
      ExpectAnswer(vector.protocol, changed.dump());
    }
    // A repeated key counts with its last value, wherever the first one stood.
    const std::string repeated = R"({"model":5,"model":[],)" + vector.request.substr(1);
    EXPECT_EQ(testing::TextOf(vector.protocol, repeated, {.ignore_schemas = true}), vector.expected);
  }
}

// Bytes go wrong: replaced, dropped, doubled, cut off, spliced with another request.
TEST(RequestRobustness, DamagedBytes) {
  std::mt19937 random(2026);
  size_t accepted = 0;
  for (int i = 0; i < 8000; ++i) {
    const PromptVector& vector = PromptVectors()[random() % PromptVectors().size()];
    std::string body = vector.request;
    for (unsigned edits = 1 + random() % 4; edits > 0 && !body.empty(); --edits) {
      const size_t at = random() % body.size();
      switch (random() % 6) {
        case 0:
          body[at] = static_cast<char>(random());
          break;
        case 1:
          body.erase(at, 1 + random() % 8);
          break;
        case 2:
          body.insert(at, body.substr(at, random() % 40));
          break;
        case 3:
          body[at] = "{}[]\",:0\\"[random() % 9];
          break;
        case 4:
          if (random() % 8 == 0) body.resize(at);
          break;
        default: {
          const std::string& other = PromptVectors()[random() % PromptVectors().size()].request;
          body.insert(at, other.substr(random() % other.size(), random() % 60));
        }
      }
    }
    accepted += ExpectAnswer(vector.protocol, body) ? 1 : 0;
  }
  EXPECT_GT(accepted, 100u);
}

// A request of one protocol sent to another.
TEST(RequestRobustness, WrongProtocol) {
  for (const PromptVector& vector : PromptVectors()) {
    for (const char* protocol : kProtocols) ExpectAnswer(protocol, vector.request);
  }
}

// The fields that no recorded request has, each with every kind of value.
TEST(RequestRobustness, WrongTypesInFurtherFields) {
  const char* fields[] = {"logprobs",
                          "top_logprobs",
                          "n",
                          "best_of",
                          "seed",
                          "top_k",
                          "min_p",
                          "repetition_penalty",
                          "logit_bias",
                          "bad_words",
                          "min_tokens",
                          "stop_token_ids",
                          "ignore_eos",
                          "user",
                          "user_id",
                          "cache_salt",
                          "priority",
                          "replay",
                          "metadata",
                          "chat_template_kwargs",
                          "guided_json",
                          "include",
                          "truncation",
                          "previous_response_id",
                          "store",
                          "conversation",
                          "background",
                          "max_tool_calls",
                          "output_format",
                          "output_config",
                          "tool_choice",
                          "parallel_tool_calls",
                          "stream_options",
                          "stop",
                          "echo",
                          "prompt",
                          "cache_ttl",
                          "no_store",
                          "prompt_cache_retention"};
  const std::string deep = std::string(127, '[') + std::string(127, ']');
  const std::string values[] = {"null",
                                "true",
                                "0",
                                "-1",
                                "1.5",
                                "1e999",
                                "18446744073709551616",
                                "\"\"",
                                "\"x\"",
                                "[]",
                                "[0]",
                                "[\"\"]",
                                "[[0]]",
                                "[null]",
                                "[{}]",
                                "{}",
                                "{\"\":0}",
                                deep,
                                "{\"type\":\"regex\"}",
                                "{\"1\":1e300}",
                                std::string(400, '9')};
  const std::pair<const char*, std::string> requests[] = {
      {"chat_completions", R"({"model":"m","messages":[{"role":"user","content":"json"}],)"},
      {"messages", R"({"model":"m","messages":[{"role":"user","content":"json"}],)"},
      {"responses", R"({"model":"m","input":"json",)"},
      {"completions", R"({"model":"m","prompt":"p",)"}};
  size_t refused = 0;
  for (const auto& [protocol, head] : requests) {
    for (const char* field : fields) {
      for (const std::string& value : values) {
        std::string body = head;
        body.append("\"").append(field).append("\":").append(value).append("}");
        refused += ExpectAnswer(protocol, body) ? 0 : 1;
      }
    }
  }
  EXPECT_GT(refused, 500u);
}

// What is no JSON is refused wherever it stands, also where unknown fields are ignored.
TEST(RequestRobustness, NoJson) {
  const std::string values[] = {"NaN",
                                "Infinity",
                                "-Infinity",
                                "nul",
                                "01",
                                "+1",
                                ".5",
                                "1.",
                                "1e",
                                "'x'",
                                "\"\x01\"",
                                "[1,]",
                                "{,}",
                                "{\"a\":1,}",
                                "[1 2]",
                                "\"\\ud800\"",
                                "\"\xff\"",
                                "\"\xc0\xaf\"",
                                "\"\xed\xa0\x80\"",
                                "\"\\x41\"",
                                "\"open",
                                "[",
                                "{\"a\"",
                                "/**/1",
                                std::string(129, '[') + std::string(129, ']'),
                                std::string(1000000, '[')};
  for (const char* protocol : kProtocols) {
    for (const std::string& value : values) {
      for (const char* field : {"unknown", "model", "temperature"}) {
        std::string body = R"({"model":"m","prompt":"p","input":"q","messages":[{"role":"user","content":"q"}],")";
        body.append(field).append("\":").append(value).append("}");
        EXPECT_FALSE(ExpectAnswer(protocol, body)) << field << " " << value.substr(0, 20);
      }
    }
    for (const char* body : {"", " ", "\xef\xbb\xbf{}", "[]", "5", "null", "\"x\"", "{} {}", "{}x", "\0"}) {
      EXPECT_FALSE(ExpectAnswer(protocol, body)) << body;
    }
  }
}

// Ten megabytes of text in any place are read or refused with a short message.
TEST(RequestRobustness, LongTexts) {
  const std::string text(10'000'000, 'x');
  const std::pair<const char*, std::string> requests[] = {
      {"chat_completions", R"({"model":"#","messages":[{"role":"user","content":"#"}],"stop":"#","user":"#"})"},
      {"chat_completions", R"({"model":"m","messages":[{"role":"#","content":"q"}]})"},
      {"chat_completions", R"({"model":"m","messages":[{"role":"user","content":"q"}],"#":1})"},
      {"messages", R"({"model":"m","system":"#","messages":[{"role":"user","content":[{"type":"#"}]}]})"},
      {"messages", R"({"model":"m","system":"#","messages":[{"role":"user","content":"#"}]})"},
      {"responses", R"({"model":"m","input":"#","instructions":"#"})"},
      {"responses", R"({"model":"m","input":[{"type":"#"}],"metadata":{"#":"#"}})"},
      {"completions", R"({"model":"m","prompt":"#","suffix":"#"})"},
      {"completions", R"({"model":"m","prompt":"p","logit_bias":{"#":1}})"}};
  size_t accepted = 0;
  for (const auto& [protocol, form] : requests) {
    std::string body;
    for (const char c : form) c == '#' ? body.append(text) : body.append(1, c);
    accepted += ExpectAnswer(protocol, body) ? 1 : 0;
  }
  EXPECT_EQ(accepted, 4u);
}

// Large requests of every shape are read in linear time; each of these would take minutes if any step were quadratic.
TEST(RequestRobustness, LargeRequests) {
  const auto repeat = [](const std::string& item, int count) {
    std::string items;
    for (int i = 0; i < count; ++i) {
      if (i > 0) items += ",";
      std::string one = item;
      for (size_t at = one.find('#'); at != std::string::npos; at = one.find('#', at))
        one.replace(at, 1, std::to_string(i));
      items += one;
    }
    return items;
  };
  const int many = 20000;
  const std::string off = R"({"model":"m","thinking":{"type":"disabled"},)";
  EXPECT_TRUE(ExpectAnswer("chat_completions",
                           off + R"("messages":[)" + repeat(R"({"role":"user","content":"x"})", many) + "]}"));
  EXPECT_TRUE(ExpectAnswer(
      "chat_completions", off + R"("messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[)" +
                              repeat(R"({"id":"#","type":"function","function":{"name":"f","arguments":"{}"}})", many) +
                              "]}," + repeat(R"({"role":"tool","tool_call_id":"#","content":"r"})", many) + "]}"));
  EXPECT_TRUE(ExpectAnswer("chat_completions", off + R"("messages":[{"role":"user","content":"x"}],"tools":[)" +
                                                   repeat(R"({"type":"function","function":{"name":"f#"}})", many) +
                                                   "]}"));
  EXPECT_TRUE(ExpectAnswer(
      "responses",
      R"({"model":"m","tools":[{"type":"namespace","name":"n","tools":[)" +
          repeat(R"({"type":"function","name":"f#"})", many) + R"(]}],"input":[)" +
          repeat(R"({"type":"function_call","call_id":"#","namespace":"n","name":"f#","arguments":"{}"})", many) + "," +
          repeat(R"({"type":"function_call_output","call_id":"#","output":"o"})", many) + "]}"));
  EXPECT_TRUE(ExpectAnswer(
      "responses", R"({"model":"m","tools":[)" +
                       repeat(R"({"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]})", many) +
                       R"(],"input":"x"})"));
  EXPECT_TRUE(ExpectAnswer("messages", R"({"model":"m","messages":[{"role":"assistant","content":[)" +
                                           repeat(R"({"type":"tool_use","id":"#","name":"f","input":{}})", many) +
                                           R"(]},{"role":"user","content":[)" +
                                           repeat(R"({"type":"tool_result","tool_use_id":"#"})", many) + "]}]}"));
  const std::string text(4000000, '<');
  EXPECT_TRUE(
      ExpectAnswer("chat_completions", off + R"("messages":[{"role":"assistant","content":")" + text + R"("}]})"));
}

}  // namespace
}  // namespace deepinfer
