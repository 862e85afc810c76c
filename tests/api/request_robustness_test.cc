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
