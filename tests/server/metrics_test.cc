#include "server/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <thread>

#include "exposition_check.h"
#include "tests/app/temporary_folder.h"

namespace deepinfer {
namespace {

EngineStatistics SomeStatistics() {
  EngineStatistics engine;
  engine.running = 3;
  engine.waiting = 5;
  engine.steps = 1000;
  engine.finished = 40;
  engine.cancelled = 2;
  engine.preemptions = 1;
  engine.prompt_tokens = 9000;
  engine.cached_tokens = 4000;
  engine.replayed_tokens = 150;
  engine.generated_tokens = 1234;
  engine.encoder_rows = 7000;
  engine.decoder_rows = 6000;
  engine.logits_rows = 2000;
  engine.draft_rows = 500;
  engine.kv_blocks = 100;
  engine.kv_blocks_free = 60;
  engine.kv_blocks_cached = 15;
  engine.snapshots = 8;
  engine.snapshots_free = 6;
  engine.device_seconds = 12.5;
  engine.host_seconds = 0.25;
  engine.drafts = {.steps = 100, .drafted = 250, .verified = 200, .accepted = 120};
  engine.verified_by_position = {90, 70, 40};
  engine.accepted_by_position = {70, 40, 10};
  engine.verify_lengths = {10, 20, 30, 40};
  engine.calibration_error = 0.03;
  return engine;
}

/// The same with tiers, of which one is down.
EngineStatistics StatisticsWithTiers() {
  EngineStatistics engine = SomeStatistics();
  KvTierStatistics host;
  host.name = "host";
  host.cached_tokens = 640;
  KvTierStatistics disk;
  disk.name = "disk";
  disk.up = false;
  disk.reason = "/secret/place: no space";
  disk.failures = 2;
  disk.records = 300;
  disk.bytes = 17'000'000;
  disk.budget_bytes = 20'000'000;
  disk.cached_tokens = 1280;
  disk.hits = 41;
  disk.misses = 7;
  disk.corrupt = 3;
  disk.foreign = 4;
  disk.read_bytes = 2'300'000;
  disk.written = 500;
  disk.written_bytes = 28'000'000;
  disk.evicted = 150;
  disk.expired = 50;
  disk.copied_forward = 20;
  disk.dropped = 9;
  disk.queued_bytes = 57'000;
  disk.read_seconds = 0.5;
  disk.write_seconds = 1.5;
  engine.kv_tiers = {host, disk};
  engine.kv_transfers = {.fetches = 31,
                         .fetched_tokens = 1920,
                         .refused = 5,
                         .late = 2,
                         .short_reads = 1,
                         .persisted_tokens = 32'000,
                         .persisted_rings = 12};
  return engine;
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

Exposition Scrape(const Metrics& metrics, const EngineStatistics& engine) {
  Exposition page = ReadExposition(metrics.Render(engine));
  EXPECT_EQ(Joined(page.findings), "");
  return page;
}

/// The sample of this name with these labels beside the model's name, sorted.
double Value(const Exposition& page, const std::string& name, const std::string& labels = "model_name=\"nano\"") {
  const std::string whole = name.starts_with("vllm:") ? name : "deepinfer_" + name;
  const auto found = page.samples.find(whole + "{" + labels + "}");
  if (found != page.samples.end()) return found->second;
  ADD_FAILURE() << "no sample " << whole << "{" << labels << "}";
  return NAN;
}

/// The sample with one label more.
double ValueOf(const Exposition& page, const std::string& name, const std::string& label, const std::string& value) {
  const std::string one = label + "=\"" + value + "\"", two = "model_name=\"nano\"";
  return Value(page, name, std::min(one, two) + "," + std::max(one, two));
}

MetricsOptions Options() { return {.model_name = "nano", .version = "1.2.3", .max_model_len = 4096}; }

RequestObservation SomeRequest() {
  RequestObservation request;
  request.protocol = Protocol::kMessages;
  request.finish_reason = FinishReason::kLength;
  request.max_tokens = 21;
  request.prompt_tokens = 100;
  request.completion_tokens = 21;
  request.reasoning_tokens = 5;
  request.queue_s = 0.25;
  request.first_token_s = 1.25;
  request.total_s = 3.25;
  request.drafts = {.steps = 10, .drafted = 50, .verified = 30, .accepted = 12};
  return request;
}

TEST(Metrics, APageWithoutTrafficIsValid) {
  const Metrics metrics(Options());
  const Exposition page = Scrape(metrics, EngineStatistics());
  EXPECT_GT(page.types.size(), 50u);
  EXPECT_EQ(Value(page, "kv_cache_usage_perc"), 0);  // and not 0 / 0
  EXPECT_EQ(Value(page, "accepted_tokens_per_step"), 0);
  EXPECT_EQ(ValueOf(page, "build_info", "version", "1.2.3"), 1);
  for (const auto& [name, type] : page.types) EXPECT_TRUE(name.starts_with("deepinfer_")) << name;
}

TEST(Metrics, TheEnginesStatisticsAreExported) {
  const Exposition page = Scrape(Metrics(Options()), SomeStatistics());
  const std::pair<const char*, double> expected[] = {
      {"num_requests_running", 3},
      {"num_requests_waiting", 5},
      {"num_preemptions_total", 1},
      {"prompt_tokens_total", 9000},
      {"generation_tokens_total", 1234},
      {"kv_cache_usage_perc", 0.25},
      {"prefix_cache_queries_total", 9000},
      {"prefix_cache_hits_total", 4000},
      {"replay_tokens_total", 150},
      {"spec_decode_num_drafts_total", 90},
      {"spec_decode_num_draft_tokens_total", 200},
      {"spec_decode_num_accepted_tokens_total", 120},
      {"drafted_tokens_total", 250},
      {"decode_steps_total", 100},
      {"accepted_tokens_per_step", 1.2},
      {"confidence_calibration_error", 0.03},
      {"verify_length_sum", 200},
      {"verify_length_count", 100},
      {"steps_total", 1000},
      {"step_device_seconds_total", 12.5},
      {"step_host_seconds_total", 0.25},
  };
  for (const auto& [name, value] : expected) EXPECT_EQ(Value(page, name), value) << name;
  EXPECT_EQ(ValueOf(page, "prefix_cache_hit_tokens_total", "tier", "device"), 4000);
  EXPECT_EQ(ValueOf(page, "spec_decode_num_accepted_tokens_per_pos_total", "position", "2"), 10);
  EXPECT_EQ(ValueOf(page, "verified_drafts_per_position_total", "position", "0"), 90);
  EXPECT_EQ(ValueOf(page, "verify_length_bucket", "le", "0"), 10);
  EXPECT_EQ(ValueOf(page, "verify_length_bucket", "le", "2"), 60);
  EXPECT_EQ(ValueOf(page, "kv_blocks", "state", "used"), 25);
  EXPECT_EQ(ValueOf(page, "kv_blocks", "state", "cached"), 15);
  EXPECT_EQ(ValueOf(page, "kv_blocks", "state", "free"), 60);
  EXPECT_EQ(ValueOf(page, "snapshots", "state", "used"), 2);
  EXPECT_EQ(ValueOf(page, "rows_total", "kind", "encoder"), 7000);
  EXPECT_EQ(ValueOf(page, "rows_total", "kind", "draft"), 500);
  EXPECT_EQ(ValueOf(page, "engine_requests_total", "outcome", "cancelled"), 2);
}

TEST(Metrics, TiersAreExportedByName) {
  const Exposition page = Scrape(Metrics(Options()), StatisticsWithTiers());
  const auto disk = [&](const std::string& name) { return ValueOf(page, "kv_tier_" + name, "tier", "disk"); };
  const std::pair<const char*, double> of_disk[] = {
      {"up", 0},
      {"failures_total", 2},
      {"records", 300},
      {"bytes", 17e6},
      {"budget_bytes", 20e6},
      {"queued_bytes", 57'000},
      {"hits_total", 41},
      {"misses_total", 7},
      {"read_bytes_total", 2.3e6},
      {"read_seconds_total", 0.5},
      {"written_records_total", 500},
      {"written_bytes_total", 28e6},
      {"write_seconds_total", 1.5},
      {"dropped_records_total", 9},
      {"evicted_records_total", 150},
      {"expired_records_total", 50},
      {"copied_forward_records_total", 20},
      {"corrupt_records_total", 3},
      {"foreign_total", 4},
  };
  for (const auto& [name, value] : of_disk) EXPECT_EQ(disk(name), value) << name;
  EXPECT_EQ(ValueOf(page, "kv_tier_up", "tier", "host"), 1);
  EXPECT_EQ(ValueOf(page, "kv_tier_bytes", "tier", "host"), 0);
  const std::pair<const char*, double> transfers[] = {
      {"kv_fetches_total", 31},         {"kv_fetched_tokens_total", 1920}, {"kv_fetches_refused_total", 5},
      {"kv_fetches_late_total", 2},     {"kv_fetch_short_reads_total", 1}, {"kv_persisted_tokens_total", 32'000},
      {"kv_persisted_rings_total", 12},
  };
  for (const auto& [name, value] : transfers) EXPECT_EQ(Value(page, name), value) << name;
  // The cached tokens are those of the device and of the tiers together.
  EXPECT_EQ(ValueOf(page, "prefix_cache_hit_tokens_total", "tier", "device"), 2080);
  EXPECT_EQ(ValueOf(page, "prefix_cache_hit_tokens_total", "tier", "host"), 640);
  EXPECT_EQ(ValueOf(page, "prefix_cache_hit_tokens_total", "tier", "disk"), 1280);
  EXPECT_EQ(Value(page, "prefix_cache_hits_total"), 4000);
  EXPECT_EQ(Metrics(Options()).Render(StatisticsWithTiers()).find("secret"), std::string::npos);
}

TEST(Metrics, WithoutTiersNothingIsSaidOfThem) {
  for (const auto& [name, type] : Scrape(Metrics(Options()), SomeStatistics()).types) {
    EXPECT_FALSE(name.starts_with("deepinfer_kv_tier") || name.starts_with("deepinfer_kv_fetch")) << name;
  }
}

TEST(Metrics, ARequestIsObservedInItsParts) {
  Metrics metrics(Options());
  metrics.ObserveRequest(SomeRequest());
  const Exposition page = Scrape(metrics, EngineStatistics());
  const std::pair<const char*, double> sums[] = {
      {"time_to_first_token_seconds", 1.25},
      {"e2e_request_latency_seconds", 3.25},
      {"request_queue_time_seconds", 0.25},
      {"request_inference_time_seconds", 3},
      {"request_prefill_time_seconds", 1},
      {"request_decode_time_seconds", 2},
      {"request_time_per_output_token_seconds", 0.1},
      {"request_prompt_tokens", 100},
      {"request_generation_tokens", 21},
      {"request_params_max_tokens", 21},
      {"request_params_n", 1},
      {"request_num_preemptions", 0},
      {"request_accepted_drafts_per_step", 1.2},
  };
  for (const auto& [name, sum] : sums) {
    EXPECT_DOUBLE_EQ(Value(page, std::string(name) + "_sum"), sum) << name;
    EXPECT_EQ(Value(page, std::string(name) + "_count"), 1) << name;
  }
  EXPECT_EQ(ValueOf(page, "request_success_total", "finished_reason", "length"), 1);
  EXPECT_EQ(ValueOf(page, "request_success_total", "finished_reason", "stop"), 0);
  EXPECT_EQ(ValueOf(page, "protocol_requests_total", "protocol", "messages"), 1);
  EXPECT_EQ(Value(page, "reasoning_tokens_total"), 5);
  EXPECT_EQ(ValueOf(page, "e2e_request_latency_seconds_bucket", "le", "2.5"), 0);
  EXPECT_EQ(ValueOf(page, "e2e_request_latency_seconds_bucket", "le", "5"), 1);
}

TEST(Metrics, WhatDidNotHappenIsNotObserved) {
  Metrics metrics(Options());
  RequestObservation request;
  request.finish_reason = FinishReason::kCancelled;
  request.total_s = 2;
  metrics.ObserveRequest(request);
  request.queue_s = 1;
  request.first_token_s = 1.5;
  request.completion_tokens = 1;  // no token after the first
  metrics.ObserveRequest(request);
  const Exposition page = Scrape(metrics, EngineStatistics());
  EXPECT_EQ(ValueOf(page, "request_success_total", "finished_reason", "abort"), 2);
  EXPECT_EQ(Value(page, "e2e_request_latency_seconds_count"), 2);
  EXPECT_EQ(Value(page, "request_queue_time_seconds_count"), 1);
  EXPECT_EQ(Value(page, "time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(Value(page, "request_time_per_output_token_seconds_count"), 0);
  EXPECT_EQ(Value(page, "request_params_max_tokens_count"), 0);
  EXPECT_EQ(Value(page, "request_accepted_drafts_per_step_count"), 0);
}

TEST(Metrics, ChoicesShareTheTimeOfDecoding) {
  Metrics metrics(Options());
  RequestObservation request = SomeRequest();
  request.choices = 3;
  request.completion_tokens = 63;
  metrics.ObserveRequest(request);
  EXPECT_DOUBLE_EQ(Value(Scrape(metrics, {}), "request_time_per_output_token_seconds_sum"), 0.1);
}

TEST(Metrics, TheServersCountsAreExported) {
  Metrics metrics(Options());
  metrics.ObserveHttp("/v1/chat/completions", 200);
  metrics.ObserveHttp("/v1/chat/completions", 200);
  metrics.ObserveHttp("/v1/responses/{id}", 404);
  metrics.ObserveRateLimited("alice", RateLimit::kTokens);
  metrics.SetHealthy(true);
  metrics.open_connections.Add(3);
  metrics.open_connections.Add(-1);
  metrics.open_streams.Add(1);
  metrics.slow_readers_dropped.Add();
  metrics.client_disconnects.Add(4);
  metrics.ObserveInterToken(0.002);
  const Exposition page = Scrape(metrics, EngineStatistics());
  EXPECT_EQ(Value(page, "http_requests_total", "model_name=\"nano\",path=\"/v1/chat/completions\",status=\"200\""), 2);
  EXPECT_EQ(Value(page, "http_requests_total", "model_name=\"nano\",path=\"/v1/responses/{id}\",status=\"404\""), 1);
  EXPECT_EQ(Value(page, "rate_limited_requests_total", "key=\"alice\",limit=\"tokens_per_minute\",model_name=\"nano\""),
            1);
  EXPECT_EQ(Value(page, "engine_healthy"), 1);
  EXPECT_EQ(Value(page, "open_connections"), 2);
  EXPECT_EQ(Value(page, "open_streams"), 1);
  EXPECT_EQ(Value(page, "slow_readers_dropped_total"), 1);
  EXPECT_EQ(Value(page, "client_disconnects_total"), 4);
  EXPECT_EQ(ValueOf(page, "inter_token_latency_seconds_bucket", "le", "0.001"), 0);
  EXPECT_EQ(ValueOf(page, "inter_token_latency_seconds_bucket", "le", "0.0025"), 1);
}

TEST(Metrics, VllmsNamesAreRepeatedUnderItsPrefixWhenAskedFor) {
  MetricsOptions options = Options();
  options.vllm_names = true;
  Metrics metrics(options);
  metrics.ObserveRequest(SomeRequest());
  const Exposition page = Scrape(metrics, SomeStatistics());
  EXPECT_EQ(Value(page, "vllm:num_requests_running"), 3);
  EXPECT_EQ(Value(page, "vllm:e2e_request_latency_seconds_count"), 1);
  EXPECT_FALSE(page.types.contains("vllm:rows_total"));
  for (const auto& [name, type] : page.types) {
    if (!name.starts_with("vllm:")) continue;
    const auto ours = page.types.find("deepinfer_" + name.substr(5));
    ASSERT_NE(ours, page.types.end()) << name;
    EXPECT_EQ(ours->second, type);
  }
}

TEST(Metrics, OddModelNamesAreEscaped) {
  MetricsOptions options = Options();
  options.model_name = "a\"b\\c\nd\xFF";
  const Exposition page = Scrape(Metrics(options), EngineStatistics());
  EXPECT_EQ(Value(page, "engine_healthy", "model_name=\"a\\\"b\\\\c\\nd\xEF\xBF\xBD\""), 0);
}

// Debian's package prometheus has it; it is no package of tools/packages because it is large. Of vLLM's names, which
// --vllm-metrics adds, it may complain about the colon only.
TEST(Metrics, PromtoolAcceptsThePage) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "promtool is not installed; the rules are checked by exposition_check";
  }
  for (const bool vllm_names : {false, true}) {
    MetricsOptions options = Options();
    options.vllm_names = vllm_names;
    Metrics metrics(options);
    metrics.ObserveRequest(SomeRequest());
    metrics.ObserveHttp("/metrics", 200);
    metrics.ObserveRateLimited("alice", RateLimit::kTokens);
    const TemporaryFolder folder;
    const std::string page = (folder.path() / "page").string();
    std::ofstream(page) << metrics.Render(StatisticsWithTiers());
    std::string complaints;
    std::FILE* pipe = popen(("promtool check metrics <" + page + " 2>&1").c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    char line[512];
    while (std::fgets(line, sizeof(line), pipe) != nullptr) {
      if (std::string(line).find("metric names should not contain ':'") == std::string::npos) complaints += line;
    }
    const int status = pclose(pipe);
    EXPECT_EQ(complaints, "");
    EXPECT_EQ(WEXITSTATUS(status), vllm_names ? 3 : 0);  // 3: findings; 1 would be text that cannot be parsed
  }
}

TEST(Histogram, CountsEachValueInItsBucket) {
  Histogram histogram({1, 2, 5});
  for (double value : {0.0, 1.0, 1.5, 2.0, 5.0, 5.5, 1e300}) histogram.Observe(value);
  for (double value : {-1.0, std::nan("")}) histogram.Observe(value);
  const HistogramCounts counts = histogram.counts();
  EXPECT_EQ(counts.buckets, (std::vector<int64_t>{4, 2, 1, 2}));
  EXPECT_DOUBLE_EQ(counts.sum, 1e300);
}

TEST(Histogram, ThreadsLoseNothing) {
  Histogram histogram({1, 2, 5});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) histogram.Observe(i % 7);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const HistogramCounts counts = histogram.counts();
  int64_t total = 0;
  double sum = 0;
  for (int64_t bucket : counts.buckets) total += bucket;
  for (int i = 0; i < 10000; ++i) sum += 4 * (i % 7);
  EXPECT_EQ(total, 40000);
  EXPECT_EQ(counts.sum, sum);
}

TEST(Histogram, BoundsOfTokensAreVllms) {
  EXPECT_EQ(OneTwoFiveBounds(100), (std::vector<double>{1, 2, 5, 10, 20, 50, 100}));
  EXPECT_EQ(OneTwoFiveBounds(60), (std::vector<double>{1, 2, 5, 10, 20, 50}));
  EXPECT_EQ(OneTwoFiveBounds(0), std::vector<double>());
}

TEST(LabelledCounter, StaysSmall) {
  LabelledCounter counter(3);
  for (int i = 0; i < 100; ++i) counter.Add(std::to_string(i), "200");
  counter.Add("1", "200");
  const auto values = counter.values();
  EXPECT_EQ(values.size(), 4u);
  EXPECT_EQ(values.at({"1", "200"}), 2);
  EXPECT_EQ(values.at({"other", "200"}), 97);
}

// The checker finds what it looks for.
TEST(ExpositionCheck, FindsBrokenRules) {
  const std::string good = "# HELP a_total x\n# TYPE a_total counter\na_total{m=\"n\"} 1\n";
  const std::string histogram = "# HELP h x\n# TYPE h histogram\n";
  EXPECT_EQ(ReadExposition(good).findings.size(), 0u);
  const std::pair<std::string, std::string> cases[] = {
      {good + good, "HELP comes twice"},
      {good + "a_total{m=\"n\"} 2\n", "the series comes twice"},
      {good + "b_total{m=\"n\"} 2\n", "the sample is not of the family before it"},
      {"a_total{m=\"n\"} 1\n", "the sample is not of the family before it"},
      {"# TYPE a_total counter\n", "TYPE does not follow its HELP"},
      {"# HELP a x\n# TYPE a counter\n", "_total belongs to counters"},
      {"# HELP a-b x\n", "no legal HELP"},
      {"# HELP a x\n# TYPE a thing\n", "no legal TYPE"},
      {good + "a_total{m=\"x\"y\"} 1\n", "no legal labels"},
      {good + "a_total{m=\"x\"} NaN\n", "no legal sample"},
      {good + "a_total{m=\"x\"} -1\n", "it is negative"},
      {good + "\n", "no legal sample"},
      {"# HELP a x", "the text does not end with a line feed"},
      {histogram + "h_bucket{le=\"2\"} 1\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_count{} 1\n",
       "bounds do not rise"},
      {histogram + "h_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_count{} 1\n", "buckets do not accumulate"},
      {histogram + "h_bucket{le=\"1\"} 1\nh_count{} 1\n", "no bucket +Inf"},
      {histogram + "h_bucket{le=\"+Inf\"} 1\nh_count{} 2\n", "_count is not the last bucket"},
  };
  for (const auto& [text, rule] : cases) {
    const std::vector<std::string> findings = ReadExposition(text).findings;
    ASSERT_FALSE(findings.empty()) << text;
    EXPECT_TRUE(findings[0].starts_with(rule)) << findings[0];
  }
}

}  // namespace
}  // namespace deepinfer
