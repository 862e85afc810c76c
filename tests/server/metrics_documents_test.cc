// The page docs/metrics.md and the dashboard speak of the metrics that are exported.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include "exposition_check.h"
#include "server/metrics.h"

namespace deepinfer {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream stream(std::string(DEEPINFER_SOURCE_DIR) + "/" + path, std::ios::binary);
  EXPECT_TRUE(stream.good()) << path;
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

/// A page with a sample of every family.
Exposition FullPage() {
  Metrics metrics({.model_name = "nano", .version = "1", .vllm_names = true});
  metrics.ObserveHttp("/metrics", 200);
  metrics.ObserveRateLimited("alice", RateLimit::kTokens);
  EngineStatistics engine;
  engine.verified_by_position = {1};
  engine.accepted_by_position = {1};
  engine.verify_lengths = {1, 1};
  return ReadExposition(metrics.Render(engine));
}

TEST(MetricsDocuments, TheTablesListExactlyWhatIsExported) {
  const std::string page = ReadFile("docs/metrics.md");
  const std::regex row("\n\\| `([a-z0-9_]+)` \\| (counter|gauge|histogram) \\| (`vllm:` )?\\| [^\n]+ \\|");
  std::map<std::string, std::string> documented;
  for (auto match = std::sregex_iterator(page.begin(), page.end(), row); match != std::sregex_iterator(); ++match) {
    const std::string name = (*match)[1];
    EXPECT_TRUE(documented.emplace("deepinfer:" + name, (*match)[2]).second) << name << " is listed twice";
    if ((*match)[3].matched) documented.emplace("vllm:" + name, (*match)[2]);
  }
  const Exposition exported = FullPage();
  EXPECT_EQ(documented, exported.types);
}

void CollectExpressions(const nlohmann::json& value, std::vector<std::string>* out) {
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      if ((key == "expr" || key == "query") && member.is_string()) out->push_back(member.get<std::string>());
      CollectExpressions(member, out);
    }
  } else if (value.is_array()) {
    for (const auto& member : value) CollectExpressions(member, out);
  }
}

TEST(MetricsDocuments, TheDashboardAsksForWhatIsExported) {
  const nlohmann::json board = nlohmann::json::parse(ReadFile("deploy/grafana/deepinfer.json"), nullptr, false);
  ASSERT_FALSE(board.is_discarded());
  std::vector<std::string> expressions;
  CollectExpressions(board, &expressions);
  const Exposition exported = FullPage();
  std::set<std::string> asked;
  const std::regex name("deepinfer:[a-zA-Z0-9_]+");
  for (const std::string& text : expressions) {
    for (auto match = std::sregex_iterator(text.begin(), text.end(), name); match != std::sregex_iterator(); ++match) {
      asked.insert(match->str());
      EXPECT_TRUE(exported.sample_names.contains(match->str())) << match->str() << " in " << text;
    }
  }
  EXPECT_GT(asked.size(), 30u);
}

TEST(MetricsDocuments, PanelsOfTheDashboardDoNotOverlap) {
  const nlohmann::json board = nlohmann::json::parse(ReadFile("deploy/grafana/deepinfer.json"), nullptr, false);
  ASSERT_FALSE(board.is_discarded());
  std::set<std::pair<int, int>> cells;
  std::set<int> ids;
  for (const auto& panel : board["panels"]) {
    EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second);
    const auto& place = panel["gridPos"];
    const int x = place["x"], y = place["y"], width = place["w"], height = place["h"];
    EXPECT_LE(x + width, 24);
    for (int column = x; column < x + width; ++column) {
      for (int line = y; line < y + height; ++line) {
        EXPECT_TRUE(cells.emplace(column, line).second) << panel["title"];
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer
