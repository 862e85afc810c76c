#include "server/metrics.h"

#include <algorithm>

namespace deepinfer {
namespace {

constexpr NameOrigin kOurs = NameOrigin::kOurs;
constexpr NameOrigin kVllm = NameOrigin::kVllm;

// vLLM's bounds, so that its dashboards look alike; below its first one for output tokens ours are finer.
std::vector<double> FirstTokenBounds() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
          1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
}

std::vector<double> OutputTokenBounds() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,  0.15, 0.2,  0.3,
          0.4,   0.5,    0.75,  1.0,  2.5,   5.0,  7.5,   10.0, 20.0, 40.0, 80.0};
}

std::vector<double> RequestBounds() {
  return {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
          30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
}

/// vLLM's values of finished_reason.
constexpr std::string_view kFinishedLabels[] = {"stop", "length", "abort", "error"};

size_t FinishedLabel(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
    case FinishReason::kStopSequence:
      return 0;
    case FinishReason::kLength:
      return 1;
    case FinishReason::kCancelled:
      return 2;
    case FinishReason::kError:
      return 3;
  }
  return 3;
}

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

void WriteDrafts(const EngineStatistics& engine, ExpositionWriter* out) {
  int64_t with_drafts = 0;
  for (size_t length = 1; length < engine.verify_lengths.size(); ++length) with_drafts += engine.verify_lengths[length];
  out->WriteCounter(kVllm, "spec_decode_num_drafts_total", "Steps of a sequence that verified drafts.", with_drafts);
  out->WriteCounter(kVllm, "spec_decode_num_draft_tokens_total", "Drafts that the model verified.",
                    engine.drafts.verified);
  out->WriteCounter(kVllm, "spec_decode_num_accepted_tokens_total", "Drafts that were accepted.",
                    engine.drafts.accepted);
  out->BeginCounter(kVllm, "spec_decode_num_accepted_tokens_per_pos_total",
                    "Drafts that were accepted, by their place in the block, from 0.");
  for (size_t k = 0; k < engine.accepted_by_position.size(); ++k) {
    out->Sample(engine.accepted_by_position[k], {{"position", std::to_string(k)}});
  }
  out->BeginCounter(kOurs, "verified_drafts_per_position_total",
                    "Drafts that were verified, by their place in the block, from 0.");
  for (size_t k = 0; k < engine.verified_by_position.size(); ++k) {
    out->Sample(engine.verified_by_position[k], {{"position", std::to_string(k)}});
  }
  out->WriteCounter(kOurs, "drafted_tokens_total", "Drafts that were proposed, verified or not.",
                    engine.drafts.drafted);
  out->WriteCounter(kOurs, "decode_steps_total", "Steps of a sequence that decoded.", engine.drafts.steps);
  out->WriteGauge(kOurs, "accepted_tokens_per_step", "Accepted drafts per decode step since the start.",
                  Ratio(static_cast<double>(engine.drafts.accepted), static_cast<double>(engine.drafts.steps)));
  out->WriteGauge(kOurs, "confidence_calibration_error",
                  "Mean distance of the survival that the confidence head predicts from what happened, 0 to 1.",
                  engine.calibration_error);

  HistogramCounts lengths;
  for (size_t length = 0; length < engine.verify_lengths.size(); ++length) {
    lengths.bounds.push_back(static_cast<double>(length));
    lengths.buckets.push_back(engine.verify_lengths[length]);
    lengths.sum += static_cast<double>(length) * static_cast<double>(engine.verify_lengths[length]);
  }
  lengths.buckets.push_back(0);
  out->WriteHistogram(kOurs, "verify_length", "Drafts verified in a step of a sequence that had some.", lengths);
}

void WriteCache(const EngineStatistics& engine, ExpositionWriter* out) {
  const int64_t used = std::max<int64_t>(0, engine.kv_blocks - engine.kv_blocks_free - engine.kv_blocks_cached);
  out->WriteGauge(kVllm, "kv_cache_usage_perc", "Share of the KV blocks that running requests hold, 0 to 1.",
                  Ratio(static_cast<double>(used), static_cast<double>(engine.kv_blocks)));
  out->WriteCounter(kVllm, "prefix_cache_queries_total", "Prompt tokens that were looked up in the prefix cache.",
                    engine.prompt_tokens);
  out->WriteCounter(kVllm, "prefix_cache_hits_total", "Prompt tokens that were found in the prefix cache.",
                    engine.cached_tokens);
  out->BeginCounter(kOurs, "prefix_cache_hit_tokens_total", "Prompt tokens taken from the prefix cache, by tier.");
  int64_t from_device = engine.cached_tokens;
  for (const KvTierStatistics& tier : engine.kv_tiers) from_device -= tier.cached_tokens;
  out->Sample(std::max<int64_t>(0, from_device), {{"tier", "device"}});
  for (const KvTierStatistics& tier : engine.kv_tiers) out->Sample(tier.cached_tokens, {{"tier", tier.name}});
  out->WriteCounter(kOurs, "replay_tokens_total", "Cached tokens that were computed again to rebuild windows.",
                    engine.replayed_tokens);
  out->BeginGauge(kOurs, "kv_blocks", "KV blocks: held by running requests, by the prefix cache alone, free.");
  out->Sample(used, {{"state", "used"}});
  out->Sample(engine.kv_blocks_cached, {{"state", "cached"}});
  out->Sample(engine.kv_blocks_free, {{"state", "free"}});
  out->BeginGauge(kOurs, "snapshots", "Ring snapshots of the prefix cache.");
  out->Sample(engine.snapshots - engine.snapshots_free, {{"state", "used"}});
  out->Sample(engine.snapshots_free, {{"state", "free"}});
}

void WriteTiers(const EngineStatistics& engine, ExpositionWriter* out) {
  if (engine.kv_tiers.empty()) return;
  const auto sample = [&](auto member) {
    for (const KvTierStatistics& tier : engine.kv_tiers) out->Sample(tier.*member, {{"tier", tier.name}});
  };
  const auto gauge = [&](std::string_view name, std::string_view help, auto member) {
    out->BeginGauge(kOurs, name, help);
    sample(member);
  };
  const auto counter = [&](std::string_view name, std::string_view help, auto member) {
    out->BeginCounter(kOurs, name, help);
    sample(member);
  };
  using Tier = KvTierStatistics;
  out->BeginGauge(kOurs, "kv_tier_up", "1 when the tier works, 0 while it is left alone.");
  for (const Tier& tier : engine.kv_tiers) out->Sample(int64_t{tier.up ? 1 : 0}, {{"tier", tier.name}});
  counter("kv_tier_failures_total", "Times the tier went down.", &Tier::failures);
  gauge("kv_tier_records", "Records of this model in the tier.", &Tier::records);
  gauge("kv_tier_bytes", "Bytes of the tier that count against its budget.", &Tier::bytes);
  gauge("kv_tier_budget_bytes", "Budget of the tier, 0: none.", &Tier::budget_bytes);
  gauge("kv_tier_queued_bytes", "Bytes that wait to be written.", &Tier::queued_bytes);
  counter("kv_tier_hits_total", "Records that were read.", &Tier::hits);
  counter("kv_tier_misses_total", "Records that were asked for and not there.", &Tier::misses);
  counter("kv_tier_read_bytes_total", "Bytes that were read.", &Tier::read_bytes);
  counter("kv_tier_read_seconds_total", "Time spent reading.", &Tier::read_seconds);
  counter("kv_tier_written_records_total", "Records that were written.", &Tier::written);
  counter("kv_tier_written_bytes_total", "Bytes that were written.", &Tier::written_bytes);
  counter("kv_tier_write_seconds_total", "Time spent writing.", &Tier::write_seconds);
  counter("kv_tier_dropped_records_total", "Records that were not kept: the queue was full, or the tier down.",
          &Tier::dropped);
  counter("kv_tier_evicted_records_total", "Records that made room for others.", &Tier::evicted);
  counter("kv_tier_expired_records_total", "Records whose time was over.", &Tier::expired);
  counter("kv_tier_copied_forward_records_total", "Records that were saved from a place that was given up.",
          &Tier::copied_forward);
  counter("kv_tier_corrupt_records_total", "Records that were dropped because they did not prove themselves.",
          &Tier::corrupt);
  counter("kv_tier_foreign_total", "Files or records of another version or model, which were left alone.",
          &Tier::foreign);

  const KvTransferCounts& transfers = engine.kv_transfers;
  out->WriteCounter(kOurs, "kv_fetches_total", "Prefixes that were fetched from a tier.", transfers.fetches);
  out->WriteCounter(kOurs, "kv_fetched_tokens_total", "Tokens that arrived from tiers.", transfers.fetched_tokens);
  out->WriteCounter(kOurs, "kv_fetches_refused_total",
                    "Prefixes that were found and not fetched: computing was faster.", transfers.refused);
  out->WriteCounter(kOurs, "kv_fetches_late_total", "Fetches that ended at their deadline.", transfers.late);
  out->WriteCounter(kOurs, "kv_fetch_short_reads_total", "Fetches in which a record was missing or wrong.",
                    transfers.short_reads);
  out->WriteCounter(kOurs, "kv_persisted_tokens_total", "Tokens that were handed to the tiers.",
                    transfers.persisted_tokens);
  out->WriteCounter(kOurs, "kv_persisted_rings_total", "Snapshots of window rings that were handed to the tiers.",
                    transfers.persisted_rings);
}

}  // namespace

void WriteEngineMetrics(const EngineStatistics& engine, ExpositionWriter* out) {
  out->WriteGauge(kVllm, "num_requests_running", "Requests that are being computed.", engine.running);
  out->WriteGauge(kVllm, "num_requests_waiting", "Requests that wait to be computed.", engine.waiting);
  out->WriteCounter(kVllm, "num_preemptions_total", "Requests that were put back to wait.", engine.preemptions);
  out->WriteCounter(kVllm, "prompt_tokens_total", "Prompt tokens, cached ones included.", engine.prompt_tokens);
  out->WriteCounter(kVllm, "generation_tokens_total", "Generated tokens.", engine.generated_tokens);
  WriteCache(engine, out);
  WriteTiers(engine, out);
  WriteDrafts(engine, out);

  out->BeginCounter(kOurs, "engine_requests_total", "Requests that left the engine.");
  out->Sample(engine.finished, {{"outcome", "finished"}});
  out->Sample(engine.cancelled, {{"outcome", "cancelled"}});
  out->WriteCounter(kOurs, "steps_total", "Steps of the engine.", engine.steps);
  out->WriteCounter(kOurs, "step_device_seconds_total", "Time spent computing steps.", engine.device_seconds);
  out->WriteCounter(kOurs, "step_host_seconds_total", "Time spent planning steps and reading results.",
                    engine.host_seconds);
  out->BeginCounter(kOurs, "rows_total", "Rows computed, by the part of the model that they passed.");
  out->Sample(engine.encoder_rows, {{"kind", "encoder"}});
  out->Sample(engine.decoder_rows, {{"kind", "decoder"}});
  out->Sample(engine.logits_rows, {{"kind", "logits"}});
  out->Sample(engine.draft_rows, {{"kind", "draft"}});
}

Metrics::Metrics(MetricsOptions options)
    : options_(std::move(options)),
      first_token_(FirstTokenBounds()),
      inter_token_(OutputTokenBounds()),
      per_output_token_(OutputTokenBounds()),
      total_(RequestBounds()),
      queue_(RequestBounds()),
      inference_(RequestBounds()),
      prefill_(RequestBounds()),
      decode_(RequestBounds()),
      prompt_tokens_(OneTwoFiveBounds(options_.max_model_len)),
      completion_tokens_(OneTwoFiveBounds(options_.max_model_len)),
      max_tokens_(OneTwoFiveBounds(options_.max_model_len)),
      choices_({1, 2, 5, 10, 20}),
      preemptions_({0, 1, 2, 5, 10, 20}),
      accepted_per_step_({0, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8}) {}

void Metrics::ObserveRequest(const RequestObservation& request) {
  finished_[FinishedLabel(request.finish_reason)].Add();
  by_protocol_[static_cast<size_t>(request.protocol)].Add();
  reasoning_tokens_.Add(request.reasoning_tokens);
  prompt_tokens_.Observe(static_cast<double>(request.prompt_tokens));
  completion_tokens_.Observe(static_cast<double>(request.completion_tokens));
  if (request.max_tokens > 0) max_tokens_.Observe(static_cast<double>(request.max_tokens));
  choices_.Observe(static_cast<double>(request.choices));
  preemptions_.Observe(static_cast<double>(request.preemptions));
  total_.Observe(request.total_s);
  if (request.queue_s.has_value()) {
    queue_.Observe(*request.queue_s);
    inference_.Observe(request.total_s - *request.queue_s);
  }
  if (request.first_token_s.has_value()) {
    first_token_.Observe(*request.first_token_s);
    prefill_.Observe(*request.first_token_s - request.queue_s.value_or(0));
    const double decode = request.total_s - *request.first_token_s;
    decode_.Observe(decode);
    // Choices decode side by side.
    const int64_t further = request.completion_tokens / std::max<int64_t>(1, request.choices) - 1;
    if (further > 0) per_output_token_.Observe(decode / static_cast<double>(further));
  }
  if (request.drafts.drafted > 0) {
    accepted_per_step_.Observe(
        Ratio(static_cast<double>(request.drafts.accepted), static_cast<double>(request.drafts.steps)));
  }
}

void Metrics::ObserveHttp(std::string_view route, int status) { http_requests_.Add(route, std::to_string(status)); }

void Metrics::WriteRequests(ExpositionWriter* out) const {
  out->BeginCounter(kVllm, "request_success_total", "Requests that the engine ended, by reason.");
  for (size_t i = 0; i < finished_.size(); ++i) {
    out->Sample(finished_[i].value(), {{"finished_reason", kFinishedLabels[i]}});
  }
  out->WriteHistogram(kVllm, "time_to_first_token_seconds", "From arrival to the first token.", first_token_.counts());
  out->WriteHistogram(kVllm, "inter_token_latency_seconds", "Between two pieces of one stream.", inter_token_.counts());
  out->WriteHistogram(kVllm, "request_time_per_output_token_seconds",
                      "Mean time per token of a request after its first.", per_output_token_.counts());
  out->WriteHistogram(kVllm, "e2e_request_latency_seconds", "From arrival to the end.", total_.counts());
  out->WriteHistogram(kVllm, "request_queue_time_seconds", "From arrival to the first step.", queue_.counts());
  out->WriteHistogram(kVllm, "request_inference_time_seconds", "From the first step to the end.", inference_.counts());
  out->WriteHistogram(kVllm, "request_prefill_time_seconds", "From the first step to the first token.",
                      prefill_.counts());
  out->WriteHistogram(kVllm, "request_decode_time_seconds", "From the first token to the end.", decode_.counts());
  out->WriteHistogram(kVllm, "request_prompt_tokens", "Prompt tokens of a request.", prompt_tokens_.counts());
  out->WriteHistogram(kVllm, "request_generation_tokens", "Generated tokens of a request.",
                      completion_tokens_.counts());
  out->WriteHistogram(kVllm, "request_params_max_tokens", "The max_tokens of requests that gave one.",
                      max_tokens_.counts());
  out->WriteHistogram(kVllm, "request_params_n", "Choices of a request.", choices_.counts());
  out->WriteHistogram(kVllm, "request_num_preemptions", "How often a request was put back to wait.",
                      preemptions_.counts());
  out->WriteHistogram(kOurs, "request_accepted_drafts_per_step",
                      "Accepted drafts per decode step of a request with drafts.", accepted_per_step_.counts());
  out->WriteCounter(kOurs, "reasoning_tokens_total", "Generated tokens that were reasoning.",
                    reasoning_tokens_.value());
  out->BeginCounter(kOurs, "protocol_requests_total", "Requests that the engine ended, by protocol.");
  for (size_t i = 0; i < by_protocol_.size(); ++i) {
    out->Sample(by_protocol_[i].value(), {{"protocol", ProtocolName(static_cast<Protocol>(i))}});
  }
}

void Metrics::WriteServer(ExpositionWriter* out) const {
  out->WriteGauge(kVllm, "engine_healthy", "1 when the server takes requests, else 0.", healthy_.value());
  out->BeginGauge(kOurs, "build_info", "Always 1; the label says which version runs.");
  out->Sample(int64_t{1}, {{"version", options_.version}});
  out->BeginCounter(kOurs, "http_requests_total", "HTTP requests that were answered.");
  for (const auto& [key, count] : http_requests_.values()) {
    out->Sample(count, {{"path", key.first}, {"status", key.second}});
  }
  out->BeginCounter(kOurs, "rate_limited_requests_total", "Requests refused by a limit of their API key.");
  for (const auto& [key, count] : rate_limited_.values()) {
    out->Sample(count, {{"key", key.first}, {"limit", key.second}});
  }
  out->WriteGauge(kOurs, "open_connections", "Connections of clients.", open_connections.value());
  out->WriteGauge(kOurs, "open_streams", "Answers that are being sent as events.", open_streams.value());
  out->WriteCounter(kOurs, "slow_readers_dropped_total", "Connections closed because the client did not read.",
                    slow_readers_dropped.value());
  out->WriteCounter(kOurs, "client_disconnects_total", "Requests whose client left before the end.",
                    client_disconnects.value());
  out->WriteCounter(kOurs, "responses_not_stored_total", "Answers that the response store could not take.",
                    responses_not_stored.value());
}

std::string Metrics::Render(const EngineStatistics& engine) const {
  std::string text;
  const auto write = [&](const char* prefix, NameOrigin origin) {
    ExpositionWriter out(prefix, {"model_name", options_.model_name}, origin);
    WriteEngineMetrics(engine, &out);
    WriteRequests(&out);
    WriteServer(&out);
    text += out.TakeText();
  };
  write("deepinfer_", kOurs);
  if (options_.vllm_names) write("vllm:", kVllm);
  return text;
}

}  // namespace deepinfer
