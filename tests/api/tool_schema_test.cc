// Tool parameters: what counts as a JSON Schema of an object, and the place that an error names.
#include "api/tool_schema.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

// "" when the schema is accepted.
std::string Check(const std::string& text) {
  const Result<JsonValue> schema = ParseJson(text);
  if (!schema.ok()) return "not JSON: " + schema.status().message();
  return CheckToolParameters(*schema, "p").message();
}

std::string Object(const std::string& keywords) { return R"({"type":"object",)" + keywords + "}"; }

TEST(ToolSchema, AcceptsSchemas) {
  for (
      const std::string& schema : {
          std::string(R"({"type":"object"})"),
          Object(R"("properties":{"a":true,"b":{"type":["string","null"]},"c":{}})"),
          Object(R"("required":[],"additionalProperties":false,"description":5,"unknown":{"type":7})"),
          Object(R"("properties":{"a":{"items":[{"type":"string"}]},"b":{"items":{"enum":[1,"x",null]}}})"),
          Object(R"("minProperties":0,"maxProperties":2.0,"patternProperties":{"^x":{"minimum":1e400}})"),
          Object(R"("anyOf":[{"not":{"const":{"type":5}}}],"if":{},"then":true,"else":false)"),
          Object(
              R"("$defs":{"a/b~c":{"type":"integer"}},"properties":{"x":{"$ref":"#/$defs/a~1b~0c"},"y":{"$ref":"#"}})"),
          Object(R"("properties":{"x":{"$ref":"#anchor"},"y":{"$ref":"other.json#/a"},"z":{"$ref":"#/a%20b"}})"),
          Object(R"("allOf":[{"type":"object"}],"properties":{"x":{"$ref":"#/allOf/0"}})"),
          Object(R"("properties":{"n":{"exclusiveMinimum":true,"minimum":0}})"),
      }) {
    EXPECT_EQ(Check(schema), "") << schema;
  }
}

TEST(ToolSchema, NamesThePlace) {
  const std::pair<std::string, std::string> cases[] = {
      {"[]", "p: expected a JSON Schema object, found an array"},
      {"true", "p: expected a JSON Schema object, found true"},
      {"{}", "p.type: expected \"object\", found nothing"},
      {R"({"type":["object"]})", "p.type: expected \"object\", found an array"},
      {Object(R"("properties":{"a":5})"), "p.properties.a: expected a JSON Schema (an object or a boolean), found 5"},
      {Object(R"("properties":{"a":{"type":"text"}})"),
       "p.properties.a.type: expected array, boolean, integer, null, number, object or string, or an array of these, "
       "found "
       "\"text\""},
      {Object(R"("properties":{"a":{"type":[]}})"), "p.properties.a.type: expected array"},
      {Object(R"("properties":{"a":{"anyOf":[true,{"items":3}]}})"),
       "p.properties.a.anyOf[1].items: expected a JSON Schema"},
      {Object(R"("oneOf":[])"), "p.oneOf: expected an array of at least one schema"},
      {Object(R"("required":[1])"), "p.required: expected an array of strings"},
      {Object(R"("enum":1)"), "p.enum: expected an array, found 1"},
      {Object(R"("minimum":"1")"), "p.minimum: expected a number, found \"1\""},
      {Object(R"("maxLength":-1)"), "p.maxLength: expected an integer of at least 0, found -1"},
      {Object(R"("maxItems":1.5)"), "p.maxItems: expected an integer of at least 0, found 1.5"},
      {Object(R"("pattern":1)"), "p.pattern: expected a string, found 1"},
      {Object(R"("uniqueItems":1)"), "p.uniqueItems: expected a boolean, found 1"},
      {Object(R"("$ref":"#/$defs/x")"), "p.$ref: the reference \"#/$defs/x\" leads nowhere"},
      {Object(R"("$ref":"#/allOf/1","allOf":[true])"), "p.$ref: the reference \"#/allOf/1\" leads nowhere"},
      {Object(R"("$ref":5)"), "p.$ref: expected a string, found 5"},
      {Object(R"("properties":{"a b\n":1})"), "p.properties[\"a b\\n\"]: expected a JSON Schema"},
      {Object(R"("$defs":{")" + std::string(100, 'k') + R"(":1})"), "p.$defs[\"kkkkk"},
  };
  for (const auto& [schema, message] : cases) {
    EXPECT_TRUE(Check(schema).starts_with(message)) << Check(schema) << "\nexpected: " << message;
  }
}

// Long keys on the way to many members, and many references into a wide object, cost no more than reading the schema.
TEST(ToolSchema, CostIsLinear) {
  std::string members;
  std::string references;
  for (int i = 0; i < 40000; ++i) {
    const std::string name = "\"m" + std::to_string(i) + "\":";
    members += (i > 0 ? "," : "") + name + "{}";
    references += (i > 0 ? "," : "") + name + "{\"$ref\":\"#/$defs/m" + std::to_string(i) + "\"}";
  }
  EXPECT_EQ(Check(Object("\"$defs\":{" + members + "},\"properties\":{" + references + "}")), "");
  const std::string key(1000000, 'k');
  EXPECT_EQ(Check(Object("\"properties\":{\"" + key + "\":{\"properties\":{" + members + "}}}")), "");
}

}  // namespace
}  // namespace deepinfer
