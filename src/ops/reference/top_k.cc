#include "ops/reference/top_k.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace deepinfer::reference {

std::vector<int32_t> TopK(const std::vector<float>& scores, int64_t k) {
  const auto key = [&](int32_t i) {
    const float score = scores[static_cast<size_t>(i)];
    return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
  };
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return key(a) > key(b); });
  if (static_cast<int64_t>(order.size()) > k) order.resize(static_cast<size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace deepinfer::reference
