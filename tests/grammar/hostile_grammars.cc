#include "hostile_grammars.h"

#include <fmt/format.h>

namespace deepinfer::testing {
namespace {

using Kind = StructuredOutput::Kind;

std::string Repeated(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

/// `count` texts of `item`, which gets the index, with commas between them.
template <typename Item>
std::string List(int count, const Item& item) {
  std::string all;
  for (int i = 0; i < count; ++i) {
    if (i > 0) all += ",";
    all += item(i);
  }
  return all;
}

/// {"a0": ..., "a1": ...}
template <typename Item>
std::string Members(int count, const Item& item) {
  return fmt::format("{{{}}}", List(count, [&](int i) { return fmt::format("\"a{}\": {}", i, item(i)); }));
}

void AddRegexes(std::vector<HostileGrammar>* all) {
  const auto add = [all](const char* name, std::string source) {
    all->push_back({name, {Kind::kRegex, std::move(source)}});
  };
  add("stars of stars", "((((((a*)*)*b?)*)*)*)*c");
  add("(a|aa)*b", "(a|aa)*b");
  add("(x+x+)+y", "(x+x+)+y");
  add("a?{100}a{100}", "(a?){100}a{100}");
  add("last but 60", "(a|b)*a(a|b){60}c");
  add("last but 1000", ".*a.{1000}b");
  add("counted 1000 cubed", "((a{1,1000}){1,1000}){1,1000}");
  add("counted with options", "(((((a{0,100}b?){0,100}c?){0,100}d?){0,100}e?){0,100}f?)*");
  add("nested windows", "(.{0,1000}a){0,1000}b");
  add("overlapping windows", "((a|b|.{1,50}){1,50}|(b.{1,70}){1,40}){1,100}z");
  add("letters 100000", "(\\p{L}|\\p{N}|[\\u4e00-\\u9fff]){1,100000}\\p{Lu}");
  add("groups in groups", fmt::format("{}a{}", Repeated("(", 190), Repeated(")*b?", 190)));
  std::string words;
  for (int i = 0; i < 30'000; ++i) words += fmt::format("{}w{}", i == 0 ? "" : "|", i * 7919 % 30'000);
  add("30000 words", words);
  std::string classes;
  for (int i = 0; i < 2000; ++i)
    classes +=
        fmt::format("{}[{}-{}]*x", i == 0 ? "" : "|", static_cast<char>('a' + i % 13), static_cast<char>('n' + i % 12));
  add("2000 loops", fmt::format("({})*y", classes));
  add("anchors", Repeated("(", 60) + "(^a|b$|c)" + Repeated("){1,90}", 60));
}

void AddEbnfs(std::vector<HostileGrammar>* all) {
  const auto add = [all](const char* name, std::string source) {
    all->push_back({name, {Kind::kEbnf, std::move(source)}});
  };
  add("ambiguous", "root ::= root root | root root root | \"a\" | \"\"");
  add("ambiguous in many ways",
      "root ::= a b c d\na ::= a a | b c | \"x\" | \"\"\nb ::= b b | a c d | \"x\" | \"\"\nc ::= c c | d a | \"x\" | "
      "\"\"\n"
      "d ::= d d | a b c | \"x\" | \"\"");
  add("palindromes",
      "root ::= \"a\" root \"a\" | \"a\" root | root \"a\" | \"b\" root \"b\" | root root | \"a\" | \"b\"");
  std::string doubling = "root ::= r60\nr0 ::= \"a\" | \"b\"\n";
  for (int i = 1; i <= 60; ++i) doubling += fmt::format("r{} ::= r{} r{}\n", i, i - 1, i - 1);
  add("doubling", doubling);
  std::string nested = "root ::= \"(\" r60 \")\" | \"x\"\nr0 ::= root | \"a\"\n";
  for (int i = 1; i <= 60; ++i) nested += fmt::format("r{} ::= r{} r{}?\n", i, i - 1, i - 1);
  add("doubling with recursion", nested);
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 100'000; ++i) chain += fmt::format("r{} ::= r{}\n", i, i + 1);
  add("a chain of 100000 rules", chain + "r100000 ::= \"a\"\n");
  std::string recursive = "root ::= r0\n";
  for (int i = 0; i < 50'000; ++i) recursive += fmt::format("r{} ::= r{} | \"x\" root\n", i, i + 1);
  add("a chain of 50000 recursive rules", recursive + "r50000 ::= root \"a\" | \"b\"\n");
  add("counted cubed", "root ::= ((\"a\" root? \"b\"){1000}){1000}{1000}");
  std::string ways = "root ::= \"a\" root";
  for (int i = 0; i < 50'000; ++i) ways += fmt::format(" | \"x{}\" root", i);
  add("50000 ways", ways + " | \"e\"");
  std::string hidden = "root ::= ";
  for (int i = 0; i < 2000; ++i) hidden += fmt::format("n{}? ", i);
  hidden += "\"e\" | \"r\" root\n";
  for (int i = 0; i < 2000; ++i) hidden += fmt::format("n{} ::= root \"{}\" | n{} \"b\"\n", i, i % 10, (i + 1) % 2000);
  add("2000 empty rules", hidden);
}

void AddSchemas(std::vector<HostileGrammar>* all) {
  const auto add = [all](const char* name, std::string source) {
    all->push_back({name, {Kind::kJsonSchema, std::move(source)}});
  };
  add("nested 5000", Repeated(R"({"items": )", 5000) + "true" + Repeated("}", 5000));
  add("10 MB", R"({"enum": [)" + List(1'000'000, [](int i) { return fmt::format("\"{}\"", i); }) + "]}");
  add("100000 words", R"({"enum": [)" + List(100'000, [](int i) { return fmt::format("\"word {}\"", i); }) + "]}");
  add("100000 numbers", R"({"enum": [)" + List(100'000, [](int i) { return fmt::format("{}.5", i); }) + "]}");
  add("5000 objects",
      R"({"enum": [)" + List(5'000, [](int i) { return fmt::format(R"({{"a": {}, "b": [{}]}})", i, i); }) + "]}");
  add("one long word in another", R"({"enum": [)" + List(2'000, [](int i) {
                                    return fmt::format("\"{}\"", std::string(static_cast<size_t>(i), 'a'));
                                  }) + "]}");
  add("oneOf 3000 constants", R"({"oneOf": [)" + List(3'000, [](int i) {
                                return fmt::format(R"({{"const": "c{}", "title": "t"}})", i);
                              }) + "]}");
  add("oneOf 1000 patterns", R"({"oneOf": [)" + List(1'000, [](int i) {
                               return fmt::format(R"({{"type": "string", "pattern": "a.*{}"}})", i);
                             }) + "]}");
  add("oneOf 1000 objects",
      R"({"oneOf": [)" + List(1'000, [](int i) {
        return fmt::format(
            R"({{"type": "object", "properties": {{"k": {{"const": "v{}"}}, "p": {{"type": "string"}}}}, "required": ["k"]}})",
            i);
      }) + "]}");
  add("oneOf 200 objects that overlap",
      R"({"oneOf": [)" + List(200, [](int i) {
        return fmt::format(R"({{"type": "object", "properties": {{"k{}": {{"type": "string"}}}}}})", i);
      }) + "]}");
  add("allOf of 40 choices", R"({"type": "object", "allOf": [)" + List(40, [](int i) {
                               return fmt::format(R"({{"anyOf": [{{"required": ["a{}"]}}, {{"required": ["b{}"]}}]}})",
                                                  i, i);
                             }) + "]}");
  add("allOf of 12 choices of wide objects",
      R"({"type": "object", "properties": )" + Members(2'000, [](int) { return "{}"; }) + R"(, "allOf": [)" +
          List(12,
               [](int i) {
                 return fmt::format(R"({{"anyOf": [{{"required": ["a{}"]}}, {{"required": ["b{}"]}}]}})", i, i);
               }) +
          "]}");
  add("choices in choices",
      R"({"$defs": )" + Members(40, [](int i) {
        return i == 39
                   ? std::string(R"({"type": "object", "properties": {"x": {"type": "integer"}}})")
                   : fmt::format(
                         R"({{"anyOf": [{{"$ref": "#/$defs/a{}"}}, {{"$ref": "#/$defs/a{}", "required": ["r{}"]}}]}})",
                         i + 1, i + 1, i);
      }) + R"(, "$ref": "#/$defs/a0"})");
  add("doubled references",
      R"({"$defs": )" + Members(60, [](int i) {
        return i == 59 ? std::string(R"({"type": "string"})")
                       : fmt::format(R"({{"allOf": [{{"$ref": "#/$defs/a{}"}}, {{"$ref": "#/$defs/a{}"}}]}})", i + 1,
                                     i + 1);
      }) + R"(, "$ref": "#/$defs/a0"})");
  const auto chain = [](const char* form) {
    return R"({"$defs": )" +
           Members(20'000,
                   [form](int i) {
                     return i == 19'999
                                ? std::string("{}")
                                : fmt::format(fmt::runtime(form), fmt::format(R"({{"$ref": "#/$defs/a{}"}})", i + 1));
                   }) +
           R"(, "$ref": "#/$defs/a0"})";
  };
  add("20000 references", chain("{}"));
  add("20000 references in allOf", chain(R"({{"allOf": [{}, {{"type": "object"}}]}})"));
  add("20000 references in items", chain(R"({{"items": {}, "maxItems": 2}})"));
  add("10000 properties",
      R"({"type": "object", "properties": )" + Members(10'000, [](int) { return R"({"type": "string"})"; }) + "}");
  add("10000 properties, closed, required", R"({"type": "object", "additionalProperties": false, "properties": )" +
                                                Members(10'000, [](int) { return "{}"; }) + R"(, "required": [)" +
                                                List(10'000, [](int i) { return fmt::format("\"a{}\"", i); }) + "]}");
  add("minProperties of 3000",
      R"({"type": "object", "minProperties": 1500, "properties": )" + Members(3'000, [](int) { return "{}"; }) + "}");
  add("not of wide objects", R"({"type": "object", "not": {"properties": )" +
                                 Members(3'000, [](int) { return R"({"type": "string"})"; }) + "}}");
  add("not of not",
      R"({"allOf": [)" + List(30, [](int i) {
        return fmt::format(
            R"({{"not": {{"properties": {{"a": {{"maxLength": {}}}, "b": {{"minimum": {}}}, "c": {{}}}}, "required": ["a", "b"]}}}})",
            i, i);
      }) + "]}");
  add("lengths of lengths",
      R"({"type": "string", "minLength": 900000, "maxLength": 1000000, "pattern": "(a|b)*a(a|b){30}"})");
  add("patterns of keys", R"({"type": "object", "patternProperties": {)" + List(6, [](int i) {
                            return fmt::format(R"("^(.*a){{{}}}.{{{}}}b": {{"type": "integer"}})", 3 + i, 20 + i);
                          }) + "}}");
  add("patterns against each other", R"({"allOf": [)" + List(8, [](int i) {
                                       return fmt::format(R"({{"type": "string", "pattern": "a.{{{}}}b.{{{}}}c"}})",
                                                          30 + i, 50 + 3 * i);
                                     }) + R"x(, {"not": {"pattern": "(a|b).{25}(a|c)"
}
}]
})x");
  add("contains of contains", R"({"type": "array", "minItems": 300, "maxItems": 1000, "allOf": [)" + List(3, [](int i) {
                                return fmt::format(
                                    R"({{"contains": {{"minimum": {}}}, "minContains": 100, "maxContains": 200}})", i);
                              }) + "]}");
  add("arrays of 50000",
      R"({"$defs": {"a": {"type": "array", "minItems": 40000, "maxItems": 50000, "items": {"type": "integer"}}}, "type": "array", "prefixItems": [)" +
          List(20, [](int i) { return fmt::format(R"({{"$ref": "#/$defs/a", "minItems": {}}})", i); }) + "]}");
  add("multiples of a prime", R"({"allOf": [)" + List(6, [](int i) {
                                return fmt::format(R"({{"type": "number", "multipleOf": {}}})", 999'999'937 - 2 * i);
                              }) + "]}");
  add("digits", R"({"type": "number", "minimum": 0.)" + std::string(390, '1') + R"(, "exclusiveMaximum": 0.)" +
                    std::string(390, '1') + R"(2, "multipleOf": 0.000000001})");
  add("unique subsets",
      R"({"type": "array", "uniqueItems": true, "items": {"enum": [1,2,3,4,5,6,7,8,9,[10]]}, "contains": {"enum": [1,3,5]}, "minContains": 2, "maxContains": 3})");
  add("conditions",
      R"({"type": "object", "allOf": [)" + List(25, [](int i) {
        return fmt::format(
            R"({{"if": {{"properties": {{"t": {{"const": "{}"}}}}, "required": ["t"]}}, "then": {{"properties": {{"v{}": {{"type": "integer"}}}}, "required": ["v{}"]}}}})",
            i, i, i);
      }) + "]}");
  add("dependencies", R"({"type": "object", "dependentRequired": {)" + List(40, [](int i) {
                        return fmt::format(R"("a{}": ["b{}", "a{}"])", i, i, (i + 7) % 40);
                      }) + "}}");
}

}  // namespace

std::vector<HostileGrammar> HostileGrammars() {
  std::vector<HostileGrammar> all;
  AddRegexes(&all);
  AddEbnfs(&all);
  AddSchemas(&all);
  return all;
}

}  // namespace deepinfer::testing
