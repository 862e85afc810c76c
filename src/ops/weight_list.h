// WeightList: the weights of a model as bytes in host memory, for the Ops that copies them to its device before the
// first step, and what such a list takes.
//
// Thread-safety: values and pure functions. Ownership: none of the bytes, which must neither change nor move as long as
// the Ops lives.
#ifndef DEEPINFER_OPS_WEIGHT_LIST_H_
#define DEEPINFER_OPS_WEIGHT_LIST_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/weight_matrix.h"

namespace deepinfer {

/// What the bytes of a weight are, as far as a device lays them out differently.
enum class WeightBytes : uint8_t {
  kPlain,
  kFp4Codes,  ///< E2M1, eight a word of 32 bits; a multiple of 16 bytes
};
/// Those of a weight's values; scales are plain.
constexpr WeightBytes ValuesOf(WeightFormat format) {
  return format == WeightFormat::kF4Row32 ? WeightBytes::kFp4Codes : WeightBytes::kPlain;
}

/// The values or the scales of one weight.
struct ListedBytes {
  const uint8_t* data = nullptr;
  int64_t bytes = 0;
  /// On the device for good; false: in host memory that the device reaches, and across the bus whenever it is used.
  bool resident = true;
  int layer = -1;  ///< those of a layer that are not resident may be on their way at once; -1: beside the layers
  WeightBytes kind = WeightBytes::kPlain;
};
using WeightList = std::vector<ListedBytes>;

/// Weights start at multiples of this, on the device and in host memory that it reaches.
inline constexpr int64_t kWeightAlignment = 256;
constexpr int64_t PaddedWeight(int64_t bytes) {
  return (bytes + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
}

/// Bytes that a list takes, with what alignment adds.
struct WeightTotals {
  int64_t resident = 0;  ///< of the device
  int64_t passing = 0;   ///< of host memory
  int64_t window = 0;    ///< of the device: room for those of one layer that pass

  int64_t on_device() const { return resident + window; }
};
WeightTotals TotalsOf(std::span<const ListedBytes> list);

/// Bytes that have come so far, and all.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

}  // namespace deepinfer

#endif  // DEEPINFER_OPS_WEIGHT_LIST_H_
