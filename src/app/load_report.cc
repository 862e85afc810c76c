#include "app/load_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "app/spread.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownErrors = 5;

bool Done(const LoadRecord& record) { return record.outcome == LoadRecord::Outcome::kDone; }

/// The most requests that were open at once.
int64_t PeakConcurrency(std::span<const LoadRecord> records, double end) {
  std::vector<std::pair<double, int>> changes;
  for (const LoadRecord& record : records) {
    if (record.outcome == LoadRecord::Outcome::kNotSent) continue;
    changes.emplace_back(record.sent, 1);
    changes.emplace_back(record.outcome == LoadRecord::Outcome::kRunning ? end : record.ended, -1);
  }
  // Of one moment, those that end come first.
  std::ranges::sort(changes);
  int64_t open = 0;
  int64_t most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, open += change);
  return most;
}

/// The most tokens of one second. A piece may hold several: those of an answer are spread over its pieces.
double PeakTokensPerSecond(std::span<const LoadRecord> records, double start) {
  std::vector<double> seconds;
  for (const LoadRecord& record : records) {
    if (!Done(record) || record.pieces == 0) continue;
    const double tokens = static_cast<double>(record.output_tokens) / static_cast<double>(record.pieces);
    double time = record.first_piece - start;
    for (size_t i = 0;; ++i) {
      const auto second = static_cast<size_t>(std::max(0.0, time));
      if (second >= seconds.size()) seconds.resize(second + 1);
      seconds[second] += tokens;
      if (i == record.gaps.size()) break;
      time += record.gaps[i];
    }
  }
  return seconds.empty() ? 0 : std::ranges::max(seconds);
}

std::string PercentileName(double percentile) { return fmt::format("{:g}", percentile); }

std::string Title(std::string_view title, char fill) {
  constexpr size_t kWidth = 50;
  const size_t blank = kWidth - std::min(kWidth, title.size());
  return std::string(blank / 2, fill) + std::string(title) + std::string(blank - blank / 2, fill) + "\n";
}

std::string Row(std::string_view name, int64_t value) { return fmt::format("{:<40} {:<10}\n", name, value); }
std::string Row(std::string_view name, double value) { return fmt::format("{:<40} {:<10.2f}\n", name, value); }

std::string Rows(std::string_view title, std::string_view name, const Distribution& distribution,
                 std::span<const double> percentiles) {
  std::string text = Title(title, '-');
  text += Row(fmt::format("Mean {} (ms):", name), distribution.mean);
  text += Row(fmt::format("Median {} (ms):", name), distribution.median);
  for (size_t i = 0; i < percentiles.size(); ++i) {
    text += Row(fmt::format("P{} {} (ms):", PercentileName(percentiles[i]), name), distribution.percentiles[i]);
  }
  return text;
}

double Percent(int64_t part, int64_t whole) {
  return whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

double AcceptanceLength(const ServerCounters::Drafts& drafts) {
  return drafts.steps > 0 ? 1 + static_cast<double>(drafts.accepted) / static_cast<double>(drafts.steps) : 0;
}

std::vector<double> PercentByPosition(const ServerCounters::Drafts& drafts) {
  std::vector<double> shares;
  for (const int64_t accepted : drafts.accepted_by_position) shares.push_back(Percent(accepted, drafts.steps));
  return shares;
}

std::string ServerText(const LoadFigures& figures, const ServerCounters& server) {
  std::string text;
  if (server.drafts.has_value() && server.drafts->steps > 0) {
    text += Title("Speculative Decoding", '-');
    text += Row("Acceptance rate (%):", Percent(server.drafts->accepted, server.drafts->verified));
    text += Row("Acceptance length:", AcceptanceLength(*server.drafts));
    text += Row("Drafts:", server.drafts->steps);
    text += Row("Draft tokens:", server.drafts->verified);
    text += Row("Accepted tokens:", server.drafts->accepted);
    text += "Per-position acceptance (%):\n";
    const std::vector<double> shares = PercentByPosition(*server.drafts);
    for (size_t i = 0; i < shares.size(); ++i) text += Row(fmt::format("  Position {}:", i), shares[i]);
  }
  const bool asked = server.prefix_cache.has_value() && server.prefix_cache->queried_tokens > 0;
  if (figures.cached_tokens > 0 || asked) {
    text += Title("Prefix Cache", '-');
    text += Row("Cached input tokens:", figures.cached_tokens);
    text += Row("Cached share of input tokens (%):", Percent(figures.cached_tokens, figures.input_tokens));
  }
  if (asked) {
    text += Row("Hit share by the server's metrics (%):",
                Percent(server.prefix_cache->hit_tokens, server.prefix_cache->queried_tokens));
  }
  return text;
}

void AddJson(const std::string& name, const Distribution& distribution, std::span<const double> percentiles,
             Json* json) {
  (*json)["mean_" + name] = distribution.mean;
  (*json)["median_" + name] = distribution.median;
  (*json)["std_" + name] = distribution.deviation;
  for (size_t i = 0; i < percentiles.size(); ++i) {
    (*json)[fmt::format("p{}_{}", PercentileName(percentiles[i]), name)] = distribution.percentiles[i];
  }
}

}  // namespace

Distribution DistributionOf(std::vector<double> values, std::span<const double> percentiles) {
  Distribution distribution;
  distribution.percentiles.resize(percentiles.size());
  if (values.empty()) return distribution;
  std::ranges::sort(values);
  const auto count = static_cast<double>(values.size());
  distribution.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - distribution.mean) * (value - distribution.mean);
  distribution.deviation = std::sqrt(squares / count);
  distribution.median = PercentileOf(values, 50);
  for (size_t i = 0; i < percentiles.size(); ++i) distribution.percentiles[i] = PercentileOf(values, percentiles[i]);
  return distribution;
}

LoadFigures FiguresOf(std::span<const LoadRecord> records, double start, std::span<const double> percentiles) {
  LoadFigures figures;
  std::vector<double> ttft, tpot, itl, e2el;
  double end = start;
  for (const LoadRecord& record : records) {
    end = std::max({end, record.ended, record.last_piece});
    switch (record.outcome) {
      case LoadRecord::Outcome::kNotSent:
      case LoadRecord::Outcome::kRunning:
        ++figures.unfinished;
        break;
      case LoadRecord::Outcome::kFailed:
        ++figures.failed;
        ++figures.errors[record.error];
        break;
      case LoadRecord::Outcome::kDone:
        ++figures.successful;
        figures.input_tokens += record.prompt_tokens;
        figures.cached_tokens += record.cached_tokens;
        figures.output_tokens += record.output_tokens;
        if (!record.has_usage) ++figures.without_usage;
        e2el.push_back(1e3 * (record.ended - record.sent));
        if (record.pieces == 0) break;
        ttft.push_back(1e3 * (record.first_piece - record.sent));
        if (record.output_tokens > 1) {
          tpot.push_back(1e3 * (record.last_piece - record.first_piece) /
                         static_cast<double>(record.output_tokens - 1));
        }
        for (const double gap : record.gaps) itl.push_back(1e3 * gap);
        break;
    }
  }
  figures.seconds = end - start;
  figures.peak_concurrency = PeakConcurrency(records, end);
  figures.peak_output_tokens_per_second = PeakTokensPerSecond(records, start);
  figures.ttft_ms = DistributionOf(std::move(ttft), percentiles);
  figures.tpot_ms = DistributionOf(std::move(tpot), percentiles);
  figures.itl_ms = DistributionOf(std::move(itl), percentiles);
  figures.e2el_ms = DistributionOf(std::move(e2el), percentiles);
  return figures;
}

std::string LoadText(const LoadSetting& setting, const LoadFigures& figures, const ServerCounters& server) {
  std::string text = Title(" Serving Benchmark Result ", '=');
  text += Row("Successful requests:", figures.successful);
  text += Row("Failed requests:", figures.failed);
  if (figures.unfinished > 0) text += Row("Unfinished requests:", figures.unfinished);
  if (setting.max_concurrency > 0) text += Row("Maximum request concurrency:", setting.max_concurrency);
  if (!std::isinf(setting.request_rate)) text += Row("Request rate configured (RPS):", setting.request_rate);
  text += Row("Benchmark duration (s):", figures.seconds);
  text += Row("Total input tokens:", figures.input_tokens);
  text += Row("Total generated tokens:", figures.output_tokens);
  text += Row("Request throughput (req/s):", figures.per_second(figures.successful));
  text += Row("Output token throughput (tok/s):", figures.per_second(figures.output_tokens));
  text += Row("Peak output token throughput (tok/s):", figures.peak_output_tokens_per_second);
  text += Row("Peak concurrent requests:", static_cast<double>(figures.peak_concurrency));
  text += Row("Total token throughput (tok/s):", figures.per_second(figures.input_tokens + figures.output_tokens));
  text += Rows("Time to First Token", "TTFT", figures.ttft_ms, setting.percentiles);
  text += Rows("Time per Output Token (excl. 1st token)", "TPOT", figures.tpot_ms, setting.percentiles);
  text += Rows("Inter-token Latency", "ITL", figures.itl_ms, setting.percentiles);
  text += Rows("End-to-end Latency", "E2EL", figures.e2el_ms, setting.percentiles);
  text += ServerText(figures, server);
  if (!figures.errors.empty()) {
    text += Title("Failures", '-');
    std::vector<std::pair<int64_t, std::string>> errors;
    for (const auto& [message, count] : figures.errors) errors.emplace_back(-count, message);
    std::ranges::sort(errors);
    for (size_t i = 0; i < std::min(kShownErrors, errors.size()); ++i) {
      text += fmt::format("{} x {}\n", -errors[i].first, errors[i].second);
    }
    if (errors.size() > kShownErrors) text += fmt::format("and {} other messages\n", errors.size() - kShownErrors);
  }
  return text + Title("", '=');
}

Json LoadJson(const LoadSetting& setting, const LoadFigures& figures, const ServerCounters& server) {
  const std::time_t now = std::time(nullptr);
  char date[20] = "";
  std::tm utc{};
  std::strftime(date, sizeof(date), "%Y%m%d-%H%M%S", gmtime_r(&now, &utc));
  Json json = {{"date", date},
               {"backend", "openai"},
               {"base_url", setting.base_url},
               {"endpoint", setting.endpoint},
               {"model_id", setting.model},
               {"dataset", setting.dataset},
               {"num_prompts", setting.requests},
               {"seed", setting.seed},
               {"request_rate", nullptr},
               {"burstiness", setting.burstiness},
               {"max_concurrency", nullptr},
               {"duration", figures.seconds},
               {"completed", figures.successful},
               {"failed", figures.failed},
               {"unfinished", figures.unfinished},
               {"total_input_tokens", figures.input_tokens},
               {"total_output_tokens", figures.output_tokens},
               {"request_throughput", figures.per_second(figures.successful)},
               {"output_throughput", figures.per_second(figures.output_tokens)},
               {"total_token_throughput", figures.per_second(figures.input_tokens + figures.output_tokens)},
               {"max_output_tokens_per_s", figures.peak_output_tokens_per_second},
               {"max_concurrent_requests", figures.peak_concurrency}};
  // JSON has no infinity; vLLM writes the word.
  if (std::isinf(setting.request_rate)) {
    json["request_rate"] = "inf";
  } else {
    json["request_rate"] = setting.request_rate;
  }
  if (setting.max_concurrency > 0) json["max_concurrency"] = setting.max_concurrency;
  AddJson("ttft_ms", figures.ttft_ms, setting.percentiles, &json);
  AddJson("tpot_ms", figures.tpot_ms, setting.percentiles, &json);
  AddJson("itl_ms", figures.itl_ms, setting.percentiles, &json);
  AddJson("e2el_ms", figures.e2el_ms, setting.percentiles, &json);
  json["cached_input_tokens"] = figures.cached_tokens;
  if (server.drafts.has_value()) {
    json["spec_decode_acceptance_rate"] = Percent(server.drafts->accepted, server.drafts->verified);
    json["spec_decode_acceptance_length"] = AcceptanceLength(*server.drafts);
    json["spec_decode_num_drafts"] = server.drafts->steps;
    json["spec_decode_draft_tokens"] = server.drafts->verified;
    json["spec_decode_accepted_tokens"] = server.drafts->accepted;
    json["spec_decode_per_position_acceptance_rates"] = PercentByPosition(*server.drafts);
  }
  if (server.prefix_cache.has_value()) {
    json["prefix_cache_queries"] = server.prefix_cache->queried_tokens;
    json["prefix_cache_hits"] = server.prefix_cache->hit_tokens;
  }
  json["errors"] = figures.errors;
  return json;
}

void AddDetails(std::span<const LoadRecord> records, Json* json) {
  Json inputs = Json::array();
  Json outputs = Json::array();
  Json ttfts = Json::array();
  Json itls = Json::array();
  for (const LoadRecord& record : records) {
    if (!Done(record)) continue;
    inputs.push_back(record.prompt_tokens);
    outputs.push_back(record.output_tokens);
    ttfts.push_back(record.pieces > 0 ? record.first_piece - record.sent : 0);
    itls.push_back(record.gaps);
  }
  (*json)["input_lens"] = std::move(inputs);
  (*json)["output_lens"] = std::move(outputs);
  (*json)["ttfts"] = std::move(ttfts);
  (*json)["itls"] = std::move(itls);
}

}  // namespace deepinfer
