#include "app/spread.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

namespace deepinfer {
namespace {

double Percentile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {sum / static_cast<double>(values.size()), Percentile(values, 0.5), Percentile(values, 0.99)};
}

nlohmann::ordered_json SpreadJson(const Spread& spread) {
  return {{"mean", spread.mean}, {"p50", spread.p50}, {"p99", spread.p99}};
}

}  // namespace deepinfer
