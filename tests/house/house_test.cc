#include <gtest/gtest.h>

#include "house_checks.h"

namespace deepinfer::house {
namespace {

/// All findings, one a line.
std::string Joined(const Findings& findings) {
  std::string text;
  for (const std::string& finding : findings) text += finding + "\n";
  return text;
}

const std::vector<SourceFile>& Tree() {
  static const std::vector<SourceFile> tree = ReadTree(DEEPINFER_SOURCE_DIR);
  return tree;
}

TEST(House, TheTreeIsRead) { EXPECT_GT(Tree().size(), 50u); }
TEST(House, IncludesAndLinksRunDown) { EXPECT_EQ(Joined(CheckLayering(Tree())), ""); }
TEST(House, FilesAreShort) { EXPECT_EQ(Joined(CheckLength(Tree())), ""); }
TEST(House, HeadersBeginWithTheirContract) { EXPECT_EQ(Joined(CheckContracts(Tree())), ""); }
TEST(House, NothingIsLeftOver) { EXPECT_EQ(Joined(CheckLeftOvers(Tree())), ""); }
TEST(House, NoPlacesOfOneMachine) { EXPECT_EQ(Joined(CheckPlaces(Tree())), ""); }
TEST(House, TheTwoCommandsAreThere) { EXPECT_EQ(Joined(CheckCommands(Tree())), ""); }
TEST(House, TheTreeIsSmall) { EXPECT_EQ(Joined(CheckSize(Tree())), ""); }

// The checks themselves find what they look for.

TEST(HouseChecks, FindUpwardIncludesAndLinks) {
  const Findings findings = CheckLayering({
      {"src/ops/a.cc", "#include \"ops/a.h\"\n#include \"base/b.h\"\n#include \"model/m.h\"\n#include <app/x>\n"},
      {"src/ops/cpu/c.h", "#include \"../a.h\"\n"},
      {"src/text/CMakeLists.txt",
       "deepinfer_room(text a.cc\n  LINK deepinfer_base deepinfer_engine)  # deepinfer_app\n"},
      {"src/attic/x.cc", ""},
      {"tests/base/t.cc", "#include \"app/flags.h\"\n"},
  });
  EXPECT_EQ(Joined(findings),
            "src/ops/a.cc:3: include runs up, from ops to model\n"
            "src/ops/cpu/c.h:1: includes are written from src/, found ../a.h\n"
            "src/text/CMakeLists.txt:2: link runs up, from text to engine\n"
            "src/attic/x.cc: attic is no room of docs/architecture.md\n");
}

TEST(HouseChecks, FindLongFilesMissingContractsAndLeftOvers) {
  EXPECT_EQ(CheckLength({{"src/base/a.cc", std::string(601, '\n')},
                         {"src/base/b.cc", std::string(600, '\n')},
                         {"models/c.py", std::string(900, '\n')}})
                .size(),
            1u);
  EXPECT_EQ(CheckContracts({{"src/base/a.h", "#ifndef A\n"}, {"src/base/b.h", "// B: ...\n"}}).size(), 1u);
  const std::string mark = std::string("TO") + "DO";
  EXPECT_EQ(CheckLeftOvers({{"src/base/a.cc", "// " + mark + ": later\nint " + mark + "S;\n"}}).size(), 1u);
  const std::string sleep = std::string("std::this_thread::sleep") + "_for(1ms);\n";
  EXPECT_EQ(CheckLeftOvers({{"tests/base/a.cc", sleep}, {"src/base/a.cc", sleep}}).size(), 1u);
}

TEST(HouseChecks, FindPlacesCommandsAndSize) {
  EXPECT_EQ(
      CheckPlaces({{"docs/a.md", std::string("see /wo") + "rk/main\n"}, {"models/b.md", std::string("/wo") + "rk/"}})
          .size(),
      1u);
  EXPECT_EQ(Joined(CheckCommands(
                {{"run", "", true}, {"test", "", false}, {".ci/run", "true", true}, {"README.md", "./run"}})),
            "test: expected an executable file\n.ci/run: does not run ./test\nREADME.md: does not show ./test\n");
  EXPECT_EQ(CheckSize({{"a", std::string(54 << 20, 'x')}}).size(), 1u);
}

}  // namespace
}  // namespace deepinfer::house
