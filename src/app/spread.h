// Spread: mean and percentiles of a list of measurements.
//
// Thread-safety: pure function, a value.
#ifndef DEEPINFER_APP_SPREAD_H_
#define DEEPINFER_APP_SPREAD_H_

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace deepinfer {

struct Spread {
  double mean = 0;
  double p50 = 0;
  double p99 = 0;
};

/// Percentile 0 to 100 of ascending values, at least one; interpolates between neighbours (NumPy's default).
double PercentileOf(const std::vector<double>& ascending, double percentile);

/// All 0 without values.
Spread SpreadOf(std::vector<double> values);

/// {"mean": ..., "p50": ..., "p99": ...}
nlohmann::ordered_json SpreadJson(const Spread& spread);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_SPREAD_H_
