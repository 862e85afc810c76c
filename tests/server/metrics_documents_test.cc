// The page docs/metrics.md and the dashboard speak of the metrics that are exported.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

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
  engine.kv_tiers.emplace_back().name = "disk";
  return ReadExposition(metrics.Render(engine));
}

TEST(MetricsDocuments, TheTablesListExactlyWhatIsExported) {
  std::istringstream page(ReadFile("docs/metrics.md"));
  std::map<std::string, std::string> documented;
  for (std::string line; std::getline(page, line);) {
    // | `name` | type | `vllm:` | meaning |
    if (!line.starts_with("| `")) continue;
    std::vector<std::string> cells;
    std::istringstream columns(line.substr(2));
    for (std::string cell; std::getline(columns, cell, '|');) cells.push_back(cell);
    ASSERT_GE(cells.size(), 4u) << line;
    const std::string name = cells[0].substr(1, cells[0].rfind('`') - 1),
                      type = cells[1].substr(1, cells[1].size() - 2);
    EXPECT_TRUE(documented.emplace("deepinfer_" + name, type).second) << name << " is listed twice";
    if (cells[2] == " `vllm:` ") documented.emplace("vllm:" + name, type);
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
  constexpr char kNameCharacters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:";
  for (const std::string& text : expressions) {
    for (size_t at = text.find("deepinfer_"); at != std::string::npos; at = text.find("deepinfer_", at + 1)) {
      const std::string name = text.substr(at, text.find_first_not_of(kNameCharacters, at) - at);
      asked.insert(name);
      EXPECT_TRUE(exported.sample_names.contains(name)) << name << " in " << text;
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
