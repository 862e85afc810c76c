#include "ops/weight_list.h"

#include <algorithm>
#include <map>

namespace deepinfer {

WeightTotals TotalsOf(std::span<const ListedBytes> list) {
  WeightTotals totals;
  std::map<int, int64_t> of_layer;
  for (const ListedBytes& weight : list) {
    const int64_t bytes = PaddedWeight(weight.bytes);
    if (weight.resident) {
      totals.resident += bytes;
      continue;
    }
    totals.passing += bytes;
    totals.window = std::max(totals.window, of_layer[weight.layer] += bytes);
  }
  return totals;
}

}  // namespace deepinfer
