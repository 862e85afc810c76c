#include "app/spread.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

namespace deepinfer {

double PercentileOf(const std::vector<double>& ascending, double percentile) {
  const double place = percentile / 100 * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, ascending.size() - 1);
  return ascending[below] + (place - static_cast<double>(below)) * (ascending[above] - ascending[below]);
}

Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {sum / static_cast<double>(values.size()), PercentileOf(values, 50), PercentileOf(values, 99)};
}

nlohmann::ordered_json SpreadJson(const Spread& spread) {
  return {{"mean", spread.mean}, {"p50", spread.p50}, {"p99", spread.p99}};
}

}  // namespace deepinfer
