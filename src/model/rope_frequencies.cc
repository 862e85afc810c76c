#include "model/rope_frequencies.h"

#include <algorithm>
#include <cmath>

namespace deepinfer {

std::vector<float> RopeFrequencies(const ModelConfig& config, bool compressed) {
  const int64_t width = config.qk_rope_head_dim;
  const double base = compressed ? config.compress_rope_theta : config.rope_theta;
  const RopeScaling& yarn = config.rope_scaling;

  // Each value is rounded to F32 where the oracle rounds: an angle is position * frequency, so one unit in the last
  // place of a frequency is visible at large positions.
  std::vector<float> frequencies(static_cast<size_t>(width / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(width);
    frequencies[i] = 1.0f / static_cast<float>(std::pow(base, static_cast<double>(exponent)));
  }
  if (!compressed || yarn.original_max_position_embeddings == 0) return frequencies;

  // The pair that makes `turns` full turns over the original length.
  const auto pair_of = [&](double turns) {
    const double length = static_cast<double>(yarn.original_max_position_embeddings);
    return static_cast<double>(width) * std::log(length / (turns * 2 * M_PI)) / (2 * std::log(base));
  };
  const double low = std::max(std::floor(pair_of(yarn.beta_fast)), 0.0);
  const double high = std::min(std::ceil(pair_of(yarn.beta_slow)), static_cast<double>(width - 1));
  const float span = static_cast<float>(std::max(high - low, 1e-3));
  const float factor = static_cast<float>(yarn.factor);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float ramp = std::clamp((static_cast<float>(i) - static_cast<float>(low)) / span, 0.0f, 1.0f);
    frequencies[i] = frequencies[i] / factor * ramp + frequencies[i] * (1.0f - ramp);
  }
  return frequencies;
}

}  // namespace deepinfer
