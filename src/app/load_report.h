// LoadReport: the figures of a load on a server, and the block and the JSON that print them.
//
// Names and definitions are those of vLLM's `bench serve`, so that results can stand side by side: TTFT from sending to
// the first piece of text; TPOT the time of the rest over the tokens behind the first; ITL between two pieces; E2EL
// until the response has ended. Thread-safety: pure functions, values. Units: seconds in, milliseconds out.
#ifndef DEEPINFER_APP_LOAD_REPORT_H_
#define DEEPINFER_APP_LOAD_REPORT_H_

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "app/load_answer.h"
#include "app/server_counters.h"

namespace deepinfer {

/// What was asked for, as the report repeats it.
struct LoadSetting {
  std::string base_url;
  std::string endpoint;
  std::string model;
  std::string dataset;
  int64_t requests = 0;
  double request_rate = std::numeric_limits<double>::infinity();  ///< requests per second
  double burstiness = 1;
  int64_t max_concurrency = 0;  ///< 0: none
  int64_t seed = 0;
  std::vector<double> percentiles = {99};
};

struct Distribution {
  double mean = 0;
  double median = 0;
  double deviation = 0;             ///< of the population, as NumPy has it
  std::vector<double> percentiles;  ///< as asked for
};
/// All 0 without values.
Distribution DistributionOf(std::vector<double> values, std::span<const double> percentiles);

struct LoadFigures {
  double seconds = 0;  ///< from the start to the last end
  int64_t successful = 0;
  int64_t failed = 0;
  int64_t unfinished = 0;  ///< stopped by Ctrl-C, or not sent any more
  int64_t input_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  int64_t without_usage = 0;  ///< successful ones whose server did not count tokens
  int64_t peak_concurrency = 0;
  double peak_output_tokens_per_second = 0;  ///< over whole seconds from the start
  Distribution ttft_ms, tpot_ms, itl_ms, e2el_ms;
  std::map<std::string, int64_t> errors;  ///< message -> failed requests

  double per_second(int64_t count) const { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }
};

/// Of the requests sent from `start` on. Token figures are those of successful requests.
LoadFigures FiguresOf(std::span<const LoadRecord> records, double start, std::span<const double> percentiles);

/// The block that ends with a line of "=".
std::string LoadText(const LoadSetting& setting, const LoadFigures& figures, const ServerCounters& server);
nlohmann::ordered_json LoadJson(const LoadSetting& setting, const LoadFigures& figures, const ServerCounters& server);
/// Lists with one entry for each successful request: input_lens, output_lens, ttfts, itls (seconds).
void AddDetails(std::span<const LoadRecord> records, nlohmann::ordered_json* json);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_LOAD_REPORT_H_
