// When the requests of a load are sent: a function of rate, burstiness and seed alone.
//
// Thread-safety: pure function. Source: vLLM's `bench serve`: intervals of a gamma distribution with mean 1 / rate and
// shape `burstiness` (1: a Poisson process; less: bursts; more: even), scaled so that the last request comes at the
// time that the rate asks for.
#ifndef DEEPINFER_APP_LOAD_ARRIVALS_H_
#define DEEPINFER_APP_LOAD_ARRIVALS_H_

#include <cstdint>
#include <vector>

namespace deepinfer {

/// Seconds after the start, ascending; all 0 when `rate` (requests per second) is infinite. The first comes at 0.
std::vector<double> ArrivalTimes(int64_t requests, double rate, double burstiness, int64_t seed);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_LOAD_ARRIVALS_H_
