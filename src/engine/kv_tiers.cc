#include "engine/kv_tiers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache/disk_tier.h"
#include "cache/file_system.h"
#include "cache/host_tier.h"
#include "cache/redis_tier.h"
#include "checkpoint/fingerprint.h"

namespace deepinfer {
namespace {

constexpr int64_t kDiskBytes = int64_t{16} << 30;
constexpr int64_t kSharedBytes = int64_t{64} << 30;
constexpr size_t kMostSecretBytes = 128;

int64_t SystemClock() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string HashOfFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

std::string ModeText(const ReplaySettings& settings) {
  if (!settings.bounded) return "exact";
  return fmt::format("bounded:{}:{}:{}", settings.keep, settings.grid, settings.replay);
}

std::string NameOfKey(const KvKey& secret) {
  return ToHex(KvNamespace::Make("name of the key " + ToHex(secret), 0, 0).fingerprint, 8);
}

int64_t BytesOr(int64_t given, int64_t otherwise) { return given > 0 ? given : otherwise; }

/// The machine, for the names of files in shared folders.
std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

/// Lives as long as the program: operations that a disk never ends may outlive their tier.
FileSystem* Files() {
  static FileSystem* const files = MakePosixFileSystem().release();
  return files;
}

template <typename Tier>
Status Add(const char* option, Result<std::unique_ptr<Tier>> tier, KvTiers* tiers) {
  if (!tier.ok()) {
    // A budget is an option of its own.
    const bool budget = tier.status().message().find("budget") != std::string::npos && option[0] != '\0';
    const std::string suffix = budget && !std::string_view(option).ends_with("_bytes") ? "_bytes: " : ": ";
    return Status(tier.status().code(), option + suffix + tier.status().message());
  }
  tiers->nearest_first.push_back(std::move(*tier));
  return Status::Ok();
}

Status AddFolder(const char* name, const char* option, const std::string& folder, int64_t budget_bytes,
                 const KvRecordCodec& codec, KvTiers* tiers) {
  DiskTierOptions disk;
  disk.name = name;
  disk.folder = folder;
  disk.budget_bytes = budget_bytes;
  disk.host = HostName();
  disk.clock = SystemClock;
  return Add(option, DiskTier::Create(std::move(disk), codec, Files()), tiers);
}

}  // namespace

Result<KvKey> ReadKvSecret(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.good()) return Status::NotFound(fmt::format("kv_key_file: '{}' cannot be read", path));
  std::string text(kMostSecretBytes, '\0');
  file.read(text.data(), std::ssize(text));
  text.resize(static_cast<size_t>(file.gcount()));
  KvKey secret;
  if (text.size() == secret.bytes.size()) {
    std::copy(text.begin(), text.end(), secret.bytes.begin());
    return secret;
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (FromHex(text, &secret)) return secret;
  return Status::InvalidArgument(
      fmt::format("kv_key_file: expected 32 bytes or 64 lower-case hexadecimal digits in '{}'", path));
}

KvNamespace NamespaceOf(const ModelFiles& files, std::string_view fingerprint, const EnginePlan& plan,
                        std::string_view numerics, const std::optional<KvKey>& secret) {
  nlohmann::ordered_json description;
  description["checkpoint"] = fingerprint;
  description["weights"] = ContentFingerprint(*files.checkpoint);
  description["tokenizer"] = HashOfFile(files.checkpoint->directory() / "tokenizer.json");
  description["token_map"] =
      fmt::format("{:016x}", XXH3_64bits(files.token_map.data(), files.token_map.size() * sizeof(files.token_map[0])));
  description["backend"] = numerics;
  description["activations"] = plan.model.activation == ActivationFormat::kExact ? "f32" : "fp8";
  description["block_tokens"] = kKvBlockTokens;
  description["numerics"] = kNumericsVersion;
  description["replay_modes"] = {ModeText(plan.exact), ModeText(plan.bounded)};
  // Engines with other keys, or none, do not get in one another's way.
  if (secret.has_value()) {
    description["key"] = NameOfKey(*secret);
  }
  return KvNamespace::Make(description.dump(), plan.kv.block_bytes, plan.kv.snapshot_bytes);
}

bool MayBeEncryptedWith(const KvKey& secret, const KvNamespace& name_space) {
  const nlohmann::ordered_json description = nlohmann::ordered_json::parse(name_space.description, nullptr, false);
  if (!description.is_object() || !description.contains("key")) return true;
  return description["key"] == NameOfKey(secret);
}

KvScope ScopeOf(const KvNamespace& name_space, const ReplaySettings& settings, std::string_view salt) {
  return KvScope::Make(name_space, ModeText(settings), salt);
}

Result<KvTiers> MakeKvTiers(const EngineOptions& options, const KvNamespace& name_space,
                            const std::optional<KvKey>& secret) {
  KvTiers tiers;
  tiers.transfers.clock = SystemClock;
  const KvRecordCodec codec(name_space, secret);
  if (options.kv_host_bytes > 0) {
    HostTierOptions host;
    host.budget_bytes = options.kv_host_bytes;
    host.block_tokens = kKvBlockTokens;
    host.file = options.kv_host_file;
    host.clock = SystemClock;
    Result<std::unique_ptr<HostTier>> tier = HostTier::Create(name_space, std::move(host));
    DEEPINFER_RETURN_IF_ERROR(
        Add(options.kv_host_file.empty() ? "kv_host_bytes" : "kv_host_file", std::move(tier), &tiers));
  }
  if (!options.kv_disk.empty()) {
    DEEPINFER_RETURN_IF_ERROR(
        AddFolder("disk", "kv_disk", options.kv_disk, BytesOr(options.kv_disk_bytes, kDiskBytes), codec, &tiers));
  }
  if (options.kv_shared.find("://") != std::string::npos) {
    RedisTierOptions redis;
    redis.url = options.kv_shared;
    redis.clock = SystemClock;
    DEEPINFER_RETURN_IF_ERROR(Add("kv_shared", RedisTier::Create(codec, std::move(redis)), &tiers));
  } else if (!options.kv_shared.empty()) {
    DEEPINFER_RETURN_IF_ERROR(AddFolder("shared", "kv_shared", options.kv_shared,
                                        BytesOr(options.kv_shared_bytes, kSharedBytes), codec, &tiers));
  }
  return tiers;
}

std::string TierDownText(std::string_view tier, std::string_view reason) {
  std::string_view check;
  if (tier == "disk") check = "; check the folder of kv_disk, its rights and its space";
  if (tier == "shared") check = "; check the folder of kv_shared, its mount, rights and space";
  if (tier == "redis") check = "; check the server of kv_shared";
  if (tier == "host") check = "; check kv_host_file and who else uses it";
  return fmt::format("the KV tier '{}' does not work and is tried again: {}{}", tier, reason, check);
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
