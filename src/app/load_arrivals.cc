#include "app/load_arrivals.h"

#include <cmath>
#include <numbers>
#include <random>

#include "base/counter_rng.h"

namespace deepinfer {
namespace {

/// Draws that are the same everywhere, which the distributions of <random> do not promise.
class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}

  double Uniform() { return OpenUnit(random_()); }
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }
  /// Mean `shape` (Marsaglia and Tsang, "A simple method for generating gamma variables", 2000).
  double Gamma(double shape) {
    if (shape < 1) return Gamma(shape + 1) * std::pow(Uniform(), 1 / shape);
    const double d = shape - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = Normal();
      const double root = 1 + c * x;
      if (root <= 0) continue;
      const double v = root * root * root;
      if (std::log(Uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace

std::vector<double> ArrivalTimes(int64_t requests, double rate, double burstiness, int64_t seed) {
  std::vector<double> times(static_cast<size_t>(requests), 0.0);
  if (std::isinf(rate) || requests < 2) return times;
  Draws draws(CounterBits(static_cast<uint64_t>(seed), 0, 0, RandomPurpose::kSeed));
  for (size_t i = 1; i < times.size(); ++i) times[i] = times[i - 1] + draws.Gamma(burstiness) / (burstiness * rate);
  const double scale = static_cast<double>(requests - 1) / rate / times.back();
  for (double& time : times) time *= scale;
  return times;
}

}  // namespace deepinfer
