// What values a synthetic weight has: shared by checkpoints on disk (synthetic.h) and generated ones
// (Checkpoint::Generate).
//
// Thread-safety: pure functions. Source of the sizes: synthetic.h.
#ifndef DEEPINFER_CHECKPOINT_SYNTHETIC_VALUES_H_
#define DEEPINFER_CHECKPOINT_SYNTHETIC_VALUES_H_

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "checkpoint/weight_layout.h"

namespace deepinfer {

/// FNV-1a, so that a tensor's values follow from its name.
uint64_t TensorSeed(std::string_view name, uint64_t seed);

/// The middles of `kCount` equally likely slices of the normal distribution, scaled to variance 1: drawing one at
/// random is a cheap normal variate that has no outliers.
template <size_t kCount>
const std::array<float, kCount>& NormalSlices() {
  static const std::array<float, kCount> slices = [] {
    std::array<float, kCount> values{};
    double squares = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const double wanted = (static_cast<double>(i) + 0.5) / kCount;
      double low = -8, high = 8;
      for (int step = 0; step < 60; ++step) {
        const double middle = (low + high) / 2;
        (std::erfc(-middle / std::sqrt(2.0)) / 2 < wanted ? low : high) = middle;
      }
      values[i] = static_cast<float>(low);
      squares += low * low;
    }
    for (float& value : values) value /= static_cast<float>(std::sqrt(squares / kCount));
    return values;
  }();
  return slices;
}

/// Mean and standard deviation of a weight's elements.
struct Distribution {
  double mean = 0;
  double deviation = 0;
};
Distribution DistributionOf(const WeightSlot& slot, const ModelConfig& config);

/// Hyper-connection offsets: read mostly one stream's worth, write with weight 1, keep each stream (spec c.3).
float HyperConnectionBase(int64_t index, int64_t streams);

/// Random byte -> stored byte, and the larger of the two scale bytes that blocks use.
struct ByteTable {
  std::array<uint8_t, 256> values{};
  uint8_t scale = 0;
};
/// Of an FP8 or FP4 format.
ByteTable MakeByteTable(WeightFormat format, double deviation);

}  // namespace deepinfer

#endif  // DEEPINFER_CHECKPOINT_SYNTHETIC_VALUES_H_
