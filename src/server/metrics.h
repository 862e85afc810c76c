// Metrics: all that /metrics says (docs/metrics.md), fed by the engine's statistics when it is scraped and by
// observations of the requests.
//
// Names are vLLM's where it has one (spec serving.md section 11.3), under the prefix "deepinfer_" and, when asked for,
// under "vllm:" too. Intervals come from one monotonic clock, the caller's.
// Thread-safety: all members from any thread. Ownership: none. Cost: a token is one Histogram::Observe.
#ifndef DEEPINFER_SERVER_METRICS_H_
#define DEEPINFER_SERVER_METRICS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/api_error.h"
#include "deepinfer/engine.h"
#include "deepinfer/generation.h"
#include "server/exposition.h"
#include "server/instruments.h"
#include "server/rate_limiter.h"

namespace deepinfer {

struct MetricsOptions {
  std::string model_name;  ///< the label of every sample
  std::string version;
  int64_t max_model_len = 1 << 20;  ///< largest bound of histograms of tokens
  bool vllm_names = false;          ///< --vllm-metrics: what vLLM names is exported under its prefix as well
};

/// What one request to the engine was like, told at its end. Seconds count from its arrival.
struct RequestObservation {
  Protocol protocol = Protocol::kChat;
  FinishReason finish_reason = FinishReason::kStop;  ///< of the first choice
  int64_t choices = 1;
  int64_t max_tokens = 0;  ///< as the client gave it; 0: it did not
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;  ///< of these
  int64_t preemptions = 0;
  std::optional<double> queue_s;        ///< to the first step, nothing: it never ran
  std::optional<double> first_token_s;  ///< nothing: there was none
  double total_s = 0;
  DraftCounts drafts;
};

class Metrics {
 public:
  explicit Metrics(MetricsOptions options);

  void ObserveRequest(const RequestObservation& request);
  /// Between two deltas of one stream.
  void ObserveInterToken(double seconds) { inter_token_.Observe(seconds); }
  /// `route` is one of the server's patterns ("/v1/responses/{id}"), never what the client wrote.
  void ObserveHttp(std::string_view route, int status);
  void ObserveRateLimited(std::string_view key_name, RateLimit limit) {
    rate_limited_.Add(key_name, RateLimitName(limit));
  }
  /// Whether /ready says yes.
  void SetHealthy(bool healthy) { healthy_.Set(healthy ? 1 : 0); }

  /// The page, of ExpositionWriter::kContentType.
  std::string Render(const EngineStatistics& engine) const;

  Gauge open_connections;
  Gauge open_streams;            ///< answers that are being sent as events
  Counter slow_readers_dropped;  ///< connections closed because their buffer was full
  Counter client_disconnects;    ///< requests whose client left before the end
  Counter responses_not_stored;  ///< answers that the response store could not take

 private:
  void WriteRequests(ExpositionWriter* out) const;
  void WriteServer(ExpositionWriter* out) const;

  const MetricsOptions options_;
  Gauge healthy_;
  LabelledCounter http_requests_;
  LabelledCounter rate_limited_;
  std::array<Counter, 4> finished_;     // [FinishedLabel]
  std::array<Counter, 4> by_protocol_;  // [Protocol]
  Counter reasoning_tokens_;
  Histogram first_token_;
  Histogram inter_token_;
  Histogram per_output_token_;
  Histogram total_;
  Histogram queue_;
  Histogram inference_;
  Histogram prefill_;
  Histogram decode_;
  Histogram prompt_tokens_;
  Histogram completion_tokens_;
  Histogram max_tokens_;
  Histogram choices_;
  Histogram preemptions_;
  Histogram accepted_per_step_;
};

/// The part of the page that is the engine's.
void WriteEngineMetrics(const EngineStatistics& engine, ExpositionWriter* out);

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_METRICS_H_
