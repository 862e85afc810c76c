// JSON Schema against the official test suite: every schema that compiles admits each valid instance, as a text, and no
// invalid one. The share that compiles is printed; what does not must say which keyword.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "grammar/json_decimal.h"
#include "grammar_fixture.h"

namespace deepinfer::testing {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

/// As json.dumps(ensure_ascii=False), but numbers without exponents, as the grammar spells constrained numbers.
std::string Dump(const Json& value) {
  if (value.is_number_float()) {
    const auto decimal = ParseDecimal(value.dump());
    std::string text = decimal ? decimal->Spelling() : value.dump();
    if (text.find('.') == std::string::npos) text += ".0";
    return text;
  }
  if (value.is_array()) {
    std::string text = "[";
    for (const Json& item : value) text += (text.size() > 1 ? ", " : "") + Dump(item);
    return text + "]";
  }
  if (value.is_object()) {
    std::string text = "{";
    for (const auto& [key, member] : value.items()) {
      text += (text.size() > 1 ? ", " : "") + Json(key).dump() + ": " + Dump(member);
    }
    return text + "}";
  }
  return value.dump();
}

struct Tally {
  int schemas = 0;
  int compiled = 0;
  int instances = 0;
  std::vector<std::string> wrong;
  std::vector<std::string> refused;
};

void RunGroup(const std::string& file, const Json& group, JsonSchemaOptions options, Tally* tally) {
  // By default the suite takes `format` for an annotation.
  if (file == "format") options.format = JsonSchemaOptions::Format::kAnnotation;
  ++tally->schemas;
  const std::string name = file + ": " + group["description"].get<std::string>();
  const auto grammar = CompileJsonSchema(group["schema"].dump(), options);
  const std::string message = grammar.status().message();
  // A schema that nothing satisfies is refused; then every instance is invalid.
  const bool unsatisfiable = message == "no JSON text satisfies the schema";
  if (!grammar.ok() && !unsatisfiable) {
    EXPECT_EQ(grammar.status().code(), StatusCode::kUnsupported) << name;
    EXPECT_TRUE(message.starts_with("#/")) << name << ": " << message;
    tally->refused.push_back(name + " -- " + message);
    return;
  }
  ++tally->compiled;
  for (const Json& test : group["tests"]) {
    ++tally->instances;
    const std::string text = Dump(test["data"]);
    const bool accepted = grammar.ok() && Accepts(*grammar, text);
    if (accepted == test["valid"].get<bool>()) continue;
    tally->wrong.push_back(name + ": " + test["description"].get<std::string>() + ": " + text);
  }
}

void Judge(const std::string& title, const Tally& tally, double least_share) {
  std::cout << title << ": " << tally.compiled << " of " << tally.schemas << " schemas compile ("
            << 100.0 * tally.compiled / tally.schemas << " %), "
            << tally.instances - static_cast<int>(tally.wrong.size()) << " of " << tally.instances
            << " instances agree\n";
  for (const std::string& line : tally.refused) std::cout << "  refused: " << line << "\n";
  for (const std::string& line : tally.wrong) ADD_FAILURE() << line;
  EXPECT_GE(tally.compiled, least_share * tally.schemas);
}

JsonSchemaOptions OptionsOf(JsonSchemaOptions::Draft draft) {
  JsonSchemaOptions options;
  options.draft = draft;
  options.key_order = JsonSchemaOptions::KeyOrder::kAny;
  return options;
}

void RunFolder(const fs::path& folder, JsonSchemaOptions::Draft draft, double least_share) {
  Tally tally;
  ASSERT_TRUE(fs::is_directory(folder)) << folder;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    for (const Json& group : Json::parse(file)) {
      RunGroup(entry.path().stem().string(), group, OptionsOf(draft), &tally);
    }
  }
  Judge(folder.filename().string(), tally, least_share);
}

void RunLines(const std::string& name, JsonSchemaOptions::Draft draft, double least_share) {
  std::ifstream file(std::string(DEEPINFER_SOURCE_DIR) + "/tests/data/grammar/" + name);
  Tally tally;
  for (std::string line; std::getline(file, line);) {
    const Json group = Json::parse(line);
    RunGroup(group["file"].get<std::string>(), group, OptionsOf(draft), &tally);
  }
  ASSERT_GT(tally.schemas, 0);
  Judge(name, tally, least_share);
}

std::string SuiteRoot() {
  const char* shared = std::getenv("DEEPINFER_SHARED");
  return shared == nullptr ? "" : std::string(shared) + "/suites/json-schema-test-suite/tests";
}

TEST(JsonSchemaSuiteTest, CopyOfDraft7) { RunLines("draft7.jsonl", JsonSchemaOptions::Draft::kDraft7, 0.9); }

TEST(JsonSchemaSuiteTest, CopyOfDraft2020) { RunLines("draft2020-12.jsonl", JsonSchemaOptions::Draft::k2020, 0.9); }

TEST(JsonSchemaSuiteTest, WholeDraft7) {
  if (SuiteRoot().empty()) GTEST_SKIP() << "DEEPINFER_SHARED is not set: it has the whole suite";
  RunFolder(SuiteRoot() + "/draft7", JsonSchemaOptions::Draft::kDraft7, 0.75);
}

TEST(JsonSchemaSuiteTest, WholeDraft2020) {
  if (SuiteRoot().empty()) GTEST_SKIP() << "DEEPINFER_SHARED is not set: it has the whole suite";
  RunFolder(SuiteRoot() + "/draft2020-12", JsonSchemaOptions::Draft::k2020, 0.75);
}

}  // namespace
}  // namespace deepinfer::testing
