// grammar check, through the real binary: what compiles, what is refused and where, texts that belong and do not.
#include <gtest/gtest.h>

#include <fstream>

#include "program.h"
#include "temporary_folder.h"

namespace deepinfer {
namespace {

TEST(GrammarCheck, TriesTexts) {
  const std::string schema = R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})";
  const ProgramResult good = RunProgram({"grammar", "check", "--json-schema", "-", "--string", R"({"a": 1})"}, schema);
  EXPECT_EQ(good.exit_status, 0) << good.err;
  EXPECT_NE(good.out.find("ok: "), std::string::npos);
  EXPECT_NE(good.out.find("accepted: "), std::string::npos);
  const ProgramResult bad = RunProgram(
      {"grammar", "check", "--json-schema", "-", "--string", R"({"a": 1})", "--string", R"({"a": x})", "--string", "{"},
      schema);
  EXPECT_EQ(bad.exit_status, 1);
  EXPECT_NE(bad.out.find("rejected at byte 7: "), std::string::npos) << bad.out;
  EXPECT_NE(bad.out.find("rejected at its end: "), std::string::npos) << bad.out;
}

TEST(GrammarCheck, ReadsFilesOfEachKind) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "digits.txt") << "[0-9]+\n";
  std::ofstream(folder.path() / "list.gbnf") << "root ::= \"[\" root? \"]\"\n";
  std::ofstream(folder.path() / "text") << "[[]]";
  const std::string digits = (folder.path() / "digits.txt").string();
  const std::string list = (folder.path() / "list.gbnf").string();
  EXPECT_EQ(RunProgram({"grammar", "check", "--regex", digits, "--string", "42"}).exit_status, 0);
  EXPECT_EQ(RunProgram({"grammar", "check", "--regex", digits, "--string", "x"}).exit_status, 1);
  const std::string text = (folder.path() / "text").string();
  EXPECT_EQ(RunProgram({"grammar", "check", "--ebnf", list, "--string-file", text}).exit_status, 0);
}

TEST(GrammarCheck, SaysWhatIsRefusedAndWhere) {
  const ProgramResult schema =
      RunProgram({"grammar", "check", "--json-schema", "-"}, R"json({"properties": {"a": {"pattern": "(?<=x)y"}}})json");
  EXPECT_EQ(schema.exit_status, 1);
  EXPECT_EQ(schema.err, "deepinfer: #/properties/a/pattern: character 3: look-behind is not supported\n");
  const ProgramResult usage = RunProgram({"grammar", "check"});
  EXPECT_EQ(usage.exit_status, 2);
  EXPECT_NE(usage.err.find("give one of --json-schema, --regex and --ebnf"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer
