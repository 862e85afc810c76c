// What the benchmarks of the engine print alike: options, their hash, and figures of a list of generations.
//
// Thread-safety: pure functions, values. Units: milliseconds, tokens.
#ifndef DEEPINFER_APP_BENCH_REPORT_H_
#define DEEPINFER_APP_BENCH_REPORT_H_

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/spread.h"
#include "deepinfer/engine.h"

namespace deepinfer {

/// Everything that was chosen, the model's folder apart.
nlohmann::ordered_json OptionsJson(const EngineOptions& options);

/// 16 hexadecimal digits (xxHash) of an engine's options and its model's fingerprint: runs of equal ones may be
/// compared. Memory sizes count as `asked` for, because those that are chosen depend on what is free at the moment.
std::string ConfigHash(const EngineOptions& asked, const EngineOptions& chosen, std::string_view fingerprint);

/// Sums and spreads over generations.
struct GenerationFigures {
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  DraftCounts drafts;
  Spread first_token_ms;  ///< submission to the first token
  Spread per_token_ms;    ///< of the tokens after the first; answers of one token do not count
  Spread total_ms;        ///< submission to the end

  double accepted_per_step() const {
    return drafts.steps > 0 ? static_cast<double>(drafts.accepted) / static_cast<double>(drafts.steps) : 0;
  }
};
GenerationFigures FiguresOf(std::span<const Generation> generations);

/// {"steps", "drafted", "verified", "accepted", "accepted_per_step"}
nlohmann::ordered_json DraftsJson(const GenerationFigures& figures);

/// Share of verified drafts that were accepted, by position: 0 where none was verified.
std::vector<double> AcceptanceByPosition(std::span<const int64_t> accepted, std::span<const int64_t> verified);

/// "name                   value" lines.
std::string ReportRow(std::string_view name, std::string_view value);
/// "name     mean      p50      p99 ms".
std::string ReportRow(std::string_view name, const Spread& milliseconds);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_BENCH_REPORT_H_
