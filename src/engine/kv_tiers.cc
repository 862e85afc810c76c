#include "engine/kv_tiers.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace deepinfer {
namespace {

int64_t SystemClock() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string HashOfFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

}  // namespace

KvNamespace NamespaceOf(const ModelFiles& files, std::string_view fingerprint, const EnginePlan& plan) {
  nlohmann::ordered_json description;
  description["checkpoint"] = fingerprint;
  description["tokenizer"] = HashOfFile(files.checkpoint->directory() / "tokenizer.json");
  description["token_map"] =
      fmt::format("{:016x}", XXH3_64bits(files.token_map.data(), files.token_map.size() * sizeof(files.token_map[0])));
  description["activations"] = plan.model.activation == ActivationFormat::kExact ? "f32" : "fp8";
  description["block_tokens"] = kKvBlockTokens;
  description["numerics"] = kNumericsVersion;
  return KvNamespace::Make(description.dump(), plan.kv.block_bytes, plan.kv.snapshot_bytes);
}

KvScope ScopeOf(const KvNamespace& name_space, const ReplaySettings& settings, std::string_view salt) {
  const std::string mode = settings.bounded
                               ? fmt::format("bounded:{}:{}:{}", settings.keep, settings.grid, settings.replay)
                               : std::string("exact");
  return KvScope::Make(name_space, mode, salt);
}

Result<KvTiers> MakeKvTiers(const EngineOptions& options, const KvNamespace& name_space) {
  KvTiers tiers;
  tiers.transfers.clock = SystemClock;
  (void)options;
  (void)name_space;
  return tiers;
}

std::vector<KvTierStatistics> StatisticsOf(const std::vector<TierReport>& reports) {
  std::vector<KvTierStatistics> all;
  for (const TierReport& report : reports) {
    const KvTierCounts& counts = report.counts;
    KvTierStatistics one;
    one.name = report.name;
    one.up = report.up;
    one.reason = report.reason;
    one.failures = report.failures;
    one.records = counts.records;
    one.bytes = counts.bytes;
    one.budget_bytes = counts.budget_bytes;
    one.hits = counts.hits;
    one.misses = counts.misses;
    one.corrupt = counts.corrupt;
    one.foreign = counts.foreign;
    one.read_bytes = counts.read_bytes;
    one.written = counts.written;
    one.written_bytes = counts.written_bytes;
    one.evicted = counts.evicted;
    one.expired = counts.expired;
    one.copied_forward = counts.copied_forward;
    one.dropped = report.dropped;
    one.queued_bytes = report.queued_bytes;
    one.read_seconds = report.read_seconds;
    one.write_seconds = report.write_seconds;
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace deepinfer
