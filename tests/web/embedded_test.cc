// The page as the program holds it.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include "server/web_page.h"

namespace deepinfer {
namespace {

constexpr size_t kLargestPage = 120'000;

TEST(EmbeddedPage, IsTheFile) {
  std::ifstream stream(DEEPINFER_SOURCE_DIR "/src/server/web/index.html", std::ios::binary);
  const std::string file(std::istreambuf_iterator<char>(stream), {});
  ASSERT_FALSE(file.empty());
  EXPECT_TRUE(WebPage() == file);  // to print both would take seconds
}

TEST(EmbeddedPage, IsWholeAndSmall) {
  EXPECT_TRUE(WebPage().starts_with("<!doctype html>"));
  EXPECT_NE(WebPage().find("</html>"), std::string_view::npos);
  EXPECT_LT(WebPage().size(), kLargestPage);
}

// The policy that it is sent with forbids both; without them it also works where somebody saves it.
TEST(EmbeddedPage, LoadsNothingAndBuildsNoMarkup) {
  const std::string page(WebPage());
  EXPECT_FALSE(std::regex_search(page, std::regex(R"re(\b(src|href|action)="(?!data:))re")));
  EXPECT_FALSE(std::regex_search(page, std::regex(R"(@import|url\(|import\()")));
  for (const char* word : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
                           "DOMParser", "console."}) {
    EXPECT_EQ(page.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace deepinfer
