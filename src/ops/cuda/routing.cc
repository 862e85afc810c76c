#include "ops/cuda/routing.h"

#include <cstddef>

namespace deepinfer::cuda {

Routing SortByExpert(TensorView<const int32_t> picks, ConstFloatView weights, int64_t experts) {
  Routing routing;
  routing.per_token = static_cast<int>(picks.columns);
  routing.offsets.assign(static_cast<size_t>(experts) + 1, 0);
  for (int64_t t = 0; t < picks.rows; ++t) {
    routing.weights.insert(routing.weights.end(), weights.row(t), weights.row(t) + picks.columns);
    for (int64_t k = 0; k < picks.columns; ++k) ++routing.offsets[static_cast<size_t>(picks.row(t)[k]) + 1];
  }
  for (size_t e = 0; e < static_cast<size_t>(experts); ++e) {
    if (routing.offsets[e + 1] > 0) routing.active.push_back(static_cast<int32_t>(e));
    routing.offsets[e + 1] += routing.offsets[e];
  }
  std::vector<int32_t> next(routing.offsets.begin(), routing.offsets.end() - 1);
  routing.order.resize(static_cast<size_t>(picks.rows * picks.columns));
  for (int64_t t = 0; t < picks.rows; ++t) {
    for (int64_t k = 0; k < picks.columns; ++k) {
      const int32_t at = next[static_cast<size_t>(picks.row(t)[k])]++;
      routing.order[static_cast<size_t>(at)] = static_cast<int32_t>(t * picks.columns + k);
    }
  }
  return routing;
}

}  // namespace deepinfer::cuda
