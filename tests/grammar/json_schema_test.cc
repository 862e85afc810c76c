// JSON Schema beyond the official suite: the forms of texts, refusals with their path, limits, random walks.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "grammar_fixture.h"

namespace deepinfer::testing {
namespace {

struct Case {
  std::string schema;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

void Check(const std::vector<Case>& cases, const JsonSchemaOptions& options = {}) {
  for (const Case& item : cases) {
    const auto grammar = CompileJsonSchema(item.schema, options);
    ASSERT_TRUE(grammar.ok()) << item.schema << ": " << grammar.status().message();
    for (const auto& text : item.accepted) EXPECT_TRUE(Accepts(*grammar, text)) << item.schema << " on " << text;
    for (const auto& text : item.rejected) EXPECT_FALSE(Accepts(*grammar, text)) << item.schema << " on " << text;
  }
}

TEST(JsonSchemaTest, FormsOfTexts) {
  Check({
      {"true",
       {"1", "-0.5e+10", R"("\u00e9\ud83d\ude00\n/\/")", "[]", "[1, [true,null]]", R"({ "a" :1 ,"b":{}})"},
       {"", "01", "1.", "+1", "nul", "[1,]", "{\"a\"}", " 1", "1 ", "\"\n\"", R"("\ud83d")", R"("\x")", "\"\xC3\""}},
      {R"({"type": "integer"})",
       {"0", "-0", "12", "1.0", "-7.00", "4e0", "-1.0E+2", "1e-0"},
       {"1.5", "1e-1", "1.5e1", "01", "--1"}},
      {R"({"type": "number", "minimum": -1.5, "exclusiveMaximum": 20})",
       {"-1.5", "-1.50", "-0", "0", "19.999", "7"},
       {"-1.51", "20", "20.0", "-2", "100"}},
      {R"({"multipleOf": 0.25})", {"0.5", "10", "-1.75", "0.250"}, {"0.3", "0.125"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("é漢😀")", R"("\n\"")"},
       {R"("a")", R"("abcd")"}},
      {R"({"type": "string", "pattern": "^a.c$|x"})", {R"("abc")", R"("uxv")"}, {R"("abcd")", R"("a\nc")"}},
      {R"x({"type": "string", "pattern": "b(?!a)(?=.c)|^(?!x)$"})x",
       {R"("abbc")", R"("")", R"("bccd")"},
       {R"("bac")", R"("b")", R"("xb")", R"("x")", R"("bca")"}},
      {R"({"enum": ["a", 1, null, {"k": [1]}, [2, "b"]]})",
       {R"("a")", "1", "1.0", "null", R"({"k": [1]})", R"([2,"b"])"},
       {"2", "true", R"({"k": [2]})", R"({"k": [1], "l": 1})", "[2]"}},
      {R"({"type": "object", "properties": {"b": {"type": "null"}, "a": {"type": "boolean"}}, "required": ["a"]})",
       {R"({"b": null, "a": true})", R"({"a":false})", R"({"a": true, "c": [1], "d": "x"})"},
       {R"({"a": true, "b": null})", R"({"b": null})", R"({"a": true, "c": 1, "a": true})", R"({"a": 1})", "{}"}},
      {R"({"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": false})",
       {"{}", R"({"x1": 1, "x2": 2})"},
       {R"({"y": 1})", R"({"x": "a"})"}},
      {R"({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
       {R"(["a", 1])", R"(["a",1,2])"},
       {R"(["a"])", R"([1, 1])", R"(["a", 1, 2, 3])", R"(["a", "b"])"}},
      {R"({"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": true})",
       {"[]", "[2, 1, 3]"},
       {"[1, 1]", "[1, 1.0]"}},
      {R"({"$defs": {"n": {"type": "object", "properties": {"v": {"type": "integer"}, "k": {"type": "array",
          "items": {"$ref": "#/$defs/n"}}}, "required": ["v"], "additionalProperties": false}}, "$ref": "#/$defs/n"})",
       {R"({"v": 1})", R"({"v": 1, "k": [{"v": 2, "k": []}, {"v": 3}]})"},
       {R"({"v": 1, "k": [{}]})", R"({"v": 1, "k": [{"v": 2}})"}},
      {R"({"type": "integer", "format": "int32"})", {"2147483647", "-2147483648"}, {"2147483648", "-2147483649"}},
      {R"({"type": "string", "format": "date"})",
       {R"("2024-02-29")", R"("2000-02-29")"},
       {R"("2023-02-29")", R"("1900-02-29")", R"("2024-13-01")"}},
      {R"({"type": "string", "format": "ipv6"})",
       {R"("::1")", R"("2001:db8::ff00:42:8329")", R"("::ffff:1.2.3.4")"},
       {R"(":1")", R"("1:2:3:4:5:6:7:8:9")", R"("::1::")"}},
  });
}

TEST(JsonSchemaTest, PlainIntegers) {
  JsonSchemaOptions options;
  options.plain_integers = true;
  Check({{R"({"type": "integer"})", {"0", "-0", "12", "-7"}, {"1.0", "4e0", "4.", "01"}},
         {R"({"type": ["integer", "string"], "minimum": 3})", {"3", "12", "\"a\""}, {"3.0", "2", "30e0"}},
         {R"({"enum": [1, -20, "a"]})", {"1", "-20", "\"a\""}, {"1.0", "-20.0"}},
         {R"({"allOf": [{"multipleOf": 5}, {"maximum": 100}]})", {"5", "-10", "100"}, {"5.0", "105"}},
         {R"({"type": "array", "items": {"type": "integer"}})", {"[1, 2]", "[]"}, {"[1.0]", "[1, 2e1]"}},
         {R"({"properties": {"a": {"type": "integer"}}})", {R"({"a": 1, "b": 1.0})", "1.0", "1e3"}, {R"({"a": 1.0})"}},
         {R"({"type": "number", "minimum": 3})", {"3", "3.0", "3.5"}, {"2.5"}}},
        options);
}

TEST(JsonSchemaTest, KeysInAnyOrder) {
  JsonSchemaOptions options;
  options.key_order = JsonSchemaOptions::KeyOrder::kAny;
  Check({{R"({"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"], "type": "object"})",
          {R"({"b": "x", "a": 1})", R"({"a": 1, "b": "x"})", R"({"c": 1, "b": "x", "d": 2, "a": 1})"},
          {R"({"a": 1})", R"({"b": "x", "a": "y"})", R"({"b": "x", "b": "y"})"}}},
        options);
}

TEST(JsonSchemaTest, WhiteSpaceAndSeparators) {
  JsonSchemaOptions compact;
  compact.max_whitespace = 0;
  Check({{R"({"type": "array", "items": {"type": "integer"}})", {"[1,2]"}, {"[1, 2]", "[ 1]"}},
         {R"({"type": "object", "x-guidance": {"item_separator": ", ", "key_separator": ": "}})",
          {R"({"a": 1, "b": 2})"},
          {R"({"a":1})", R"({"a": 1,"b": 2})"}}},
        compact);
  Check({{R"({"type": "array"})", {"[" + std::string(20, ' ') + "]"}, {"[" + std::string(21, ' ') + "]"}}});
  EXPECT_FALSE(CompileJsonSchema(R"({"x-guidance": {"item_separator": ";"}})").ok());
  EXPECT_FALSE(CompileJsonSchema(R"({"x-guidance": {"colour": "red"}})").ok());
}

TEST(JsonSchemaTest, RefusalsNameThePath) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"x({"properties": {"a/b": {"pattern": "a(?<=b)"}}})x",
       "#/properties/a~1b/pattern: character 4: look-behind is not supported"},
      {R"({"items": {"format": "colour"}})", "#/items/format: the format colour is not known"},
      {R"({"type": "array", "uniqueItems": true})", "#/uniqueItems: the items are not from a short list"},
      {R"({"$ref": "https://example.com/other"})",
       "#/$ref: refers to https://example.com/other, which is not in the schema"},
      {R"({"$ref": "#/$defs/none"})", "#/$ref: refers to #/$defs/none, which is not in the schema"},
      {R"({"type": "text"})", "#/type: unknown type text"},
      {R"({"allOf": {}})", "#/allOf: expected an array of schemas, found an object"},
      {R"({"minLength": -1})", "#/minLength: expected a whole number from 0, found a number"},
      {R"({"properties": {"a": 1}})", "#/properties/a: expected a schema (an object or a boolean), found a number"},
      {R"({"allOf": [{"properties": {"a": true}}], "unevaluatedProperties": false})",
       "#/unevaluatedProperties: beside schemas that evaluate in place"},
      {R"({"anyOf": [{"$ref": "#"}]})", "#: refers to itself without end"},
      {R"({"type": "integer", "minimum": 3, "maximum": 2})", "no JSON text satisfies the schema"},
      {R"({"$schema": "https://example.com/own"})", "#/$schema: the rules of https://example.com/own are not known"},
  };
  for (const auto& [schema, message] : cases) {
    const auto grammar = CompileJsonSchema(schema);
    ASSERT_FALSE(grammar.ok()) << schema;
    EXPECT_EQ(grammar.status().message(), message) << schema;
  }
}

TEST(JsonSchemaTest, HostileSchemasHitLimits) {
  std::string nested = "true";
  for (int i = 0; i < 5000; ++i) nested = std::string(R"({"items": )").append(nested).append("}");
  EXPECT_FALSE(CompileJsonSchema(nested).ok());
  EXPECT_EQ(CompileJsonSchema(std::string(size_t{10} << 20, ' ')).status().code(), StatusCode::kResourceExhausted);
  // 2^40 alternatives.
  std::string product = R"({"type": "object", "allOf": [)";
  for (int i = 0; i < 40; ++i) {
    const std::string name = std::to_string(i);
    product.append(i == 0 ? "" : ",").append(R"({"anyOf": [{"required": ["a)").append(name);
    product.append(R"("]}, {"required": ["b)").append(name).append(R"("]}]})");
  }
  EXPECT_EQ(CompileJsonSchema(product + "]}").status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(CompileJsonSchema(R"({"type": "array", "minItems": 100000000})").status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(CompileJsonSchema(R"({"type": "string", "minLength": 100000000})").status().code(),
            StatusCode::kUnsupported);
  const std::string powers =
      R"x({"pattern": "^((a{1000}){1000}b?){1000}$", "not": {"pattern": "((a|b)*a(a|b){30})"}})x";
  EXPECT_EQ(CompileJsonSchema(powers, {}, {.max_regex_nodes = 100'000}).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(JsonSchemaTest, MaskIsTheNaiveOneAlongWalks) {
  const std::vector<std::string> schemas = {
      R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer",
          "minimum": 3, "maximum": 120}}, "required": ["name", "age"], "additionalProperties": false})",
      R"({"type": "array", "items": {"anyOf": [{"type": "number"}, {"enum": ["red", "green"]}, {"$ref": "#"}]}})",
      R"({"type": "object", "patternProperties": {"^[a-c]+$": {"type": "boolean"}}, "propertyNames": {"maxLength": 4}})",
  };
  const int32_t end = EndToken(*NanoTrie());
  std::mt19937 random(3);
  for (const std::string& schema : schemas) {
    auto source = CompileJsonSchema(schema);
    ASSERT_TRUE(source.ok()) << source.status().message();
    const auto grammar = CompiledGrammar::Make(std::move(*source), NanoTrie());
    Matcher matcher(grammar, {end});
    std::string text;
    std::vector<uint32_t> words(NanoTrie()->words());
    for (int step = 0; step < 25; ++step) {
      std::vector<int32_t> naive = NaiveMask(grammar->grammar(), text, *NanoTrie());
      if (matcher.MayEnd()) naive.push_back(end);
      std::ranges::sort(naive);
      ASSERT_TRUE(matcher.FillMask(words).ok());
      const std::vector<int32_t> mask = TokensOf(words);
      ASSERT_EQ(mask, naive) << schema << " after " << text;
      const int32_t token = mask[random() % mask.size()];
      if (token == end) break;
      ASSERT_TRUE(*matcher.Accept(token));
      text += NanoTrie()->BytesOf(token);
    }
  }
}

TEST(JsonSchemaTest, WalksEndInValidTexts) {
  auto source = CompileJsonSchema(
      R"({"type": "object", "properties": {"id": {"type": "integer", "minimum": 10, "maximum": 99999, "multipleOf": 5},
          "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 9}, "maxItems": 3}},
          "required": ["id", "tags"], "additionalProperties": false})");
  ASSERT_TRUE(source.ok());
  const auto compiled = CompiledGrammar::Make(std::move(*source), NanoTrie());
  std::mt19937 random(9);
  int ended = 0;
  for (int walk = 0; walk < 40; ++walk) {
    const std::string text = RandomWalk(compiled, &random, 300, false);
    if (text.empty()) continue;
    ++ended;
    const auto json = nlohmann::json::parse(text);
    EXPECT_TRUE(json["id"].is_number()) << text;
    const double id = json["id"].get<double>();
    EXPECT_TRUE(id >= 10 && id <= 99999 && static_cast<int64_t>(id) % 5 == 0) << text;
    EXPECT_LE(json["tags"].size(), 3u);
    for (const auto& tag : json["tags"]) EXPECT_LE(tag.get<std::string>().size(), 9u) << text;
    EXPECT_EQ(json.size(), 2u);
  }
  EXPECT_GT(ended, 10);
}

}  // namespace
}  // namespace deepinfer::testing
