#include "checkpoint/synthetic_values.h"

#include <algorithm>

#include "base/dtype.h"

namespace deepinfer {

uint64_t TensorSeed(std::string_view name, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325 ^ (seed * 0x9e3779b97f4a7c15);
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

Distribution DistributionOf(const WeightSlot& slot, const ModelConfig& config) {
  const std::string_view name = slot.name;
  const auto ends = [&](std::string_view suffix) { return name.ends_with(suffix); };
  if (ends("_scale")) return {.mean = 0.5, .deviation = 0.1};
  if (ends("norm.weight") || ends("norm1.weight") || ends("norm2.weight")) return {.mean = 1, .deviation = 0.1};
  if (ends("q_weight") || ends("k_weight")) return {.mean = 1, .deviation = 0.1};
  if (ends("attn_sink")) return {.mean = 0, .deviation = 0.2};
  if (ends("engram.embed.weight")) return {.mean = 0, .deviation = 1};
  if (ends("embed.weight")) return {.mean = 0, .deviation = 0.3};
  if (slot.shape.size() == 1) return {.mean = 0, .deviation = 0.05};  // biases, image delimiters
  Distribution matrix{.mean = 0, .deviation = 1 / std::sqrt(static_cast<double>(slot.columns()))};
  if (ends("w2.weight") || ends("wo_b.weight")) {
    matrix.deviation /= std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));
  }
  return matrix;
}

float HyperConnectionBase(int64_t index, int64_t streams) {
  if (index < streams) return streams == 1 ? 0.0f : -std::log(static_cast<float>(streams - 1));
  if (index < 2 * streams) return 0;
  const int64_t comb = index - 2 * streams;
  return comb / streams == comb % streams ? 3.0f : 0.0f;
}

ByteTable MakeByteTable(WeightFormat format, double deviation) {
  // A block's scale is 2^s or 2^(s-1), equally likely: the values make up for the mean square of the two.
  const double wanted = deviation / std::sqrt((1 + 0.25) / 2);
  const bool fp4 = format == WeightFormat::kF4Row32;
  // One standard deviation is 32 to 64 before rounding to E4M3 (the widest slice, at 2.9 of them, stays below 448)
  // and 1.5 to 3 before rounding to E2M1 (the widest of sixteen, at 1.9, stays below 6).
  const int exponent = fp4 ? std::ilogb(wanted / 1.5) : std::ilogb(wanted / 32);
  const float spread = static_cast<float>(std::ldexp(wanted, -exponent));
  ByteTable table;
  table.scale = static_cast<uint8_t>(std::clamp(exponent + 127, 1, 254));
  for (size_t byte = 0; byte < table.values.size(); ++byte) {
    if (fp4) {
      const auto nibble = [&](size_t slice) { return FloatToE2m1(NormalSlices<16>()[slice] * spread); };
      table.values[byte] = static_cast<uint8_t>(nibble(byte & 15) | nibble(byte >> 4) << 4);
    } else {
      table.values[byte] = FloatToE4m3(NormalSlices<256>()[byte] * spread);
    }
  }
  return table;
}

}  // namespace deepinfer
