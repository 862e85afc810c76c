#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/thread_pool.h"
#include "deepinfer/engine.h"
#include "ops/device.h"

namespace deepinfer {
namespace {

constexpr int64_t kMostKvTtlSeconds = int64_t{365} * 86'400;

Status CheckAtLeast(const char* field, int64_t value, int64_t least, const char* meaning = "") {
  if (value >= least) return Status::Ok();
  return Status::InvalidArgument(fmt::format("{}: expected {} or more{}, found {}", field, least, meaning, value));
}

/// The value of a variable that is set and not empty.
std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

Result<int64_t> IntegerVariable(const char* name, int64_t low, int64_t high) {
  const std::string_view text = Variable(name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return Status::InvalidArgument(
        fmt::format("${}: expected a number of {} to {}, found '{}'", name, low, high, text));
  }
  return value;
}

/// However they are written: links, dots and a slash at the end.
bool IsSameFolder(const std::string& one, const std::string& other) {
  if (one.empty() || other.empty() || other.find("://") != other.npos) return false;
  std::error_code error;
  const auto whole = [&error](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, error) / "", error);
  };
  const std::filesystem::path whole_one = whole(one);
  return one == other || (!whole_one.empty() && whole_one == whole(other));
}

}  // namespace

std::string_view ReplayModeName(ReplayMode mode) { return mode == ReplayMode::kBounded ? "bounded" : "exact"; }

std::string_view EngramPlaceName(EngramPlace place) {
  switch (place) {
    case EngramPlace::kDisk:
      return "disk";
    case EngramPlace::kHost:
      return "host";
    case EngramPlace::kDevice:
      return "device";
  }
  return "";
}

Result<EngramPlace> ParseEngramPlace(std::string_view name) {
  for (const EngramPlace place : {EngramPlace::kDisk, EngramPlace::kHost, EngramPlace::kDevice}) {
    if (name == EngramPlaceName(place)) return place;
  }
  return Status::InvalidArgument(fmt::format("engram: expected disk, host or device, found '{}'", name));
}

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kStopSequence:
      return "stop_sequence";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

Status EngineOptions::Validate() const {
  DEEPINFER_RETURN_IF_ERROR(CheckDeviceName(device));
  DEEPINFER_RETURN_IF_ERROR(CheckAtLeast("threads", threads, 0, " (0: all)"));
  if (threads > kMostThreads) {
    return Status::InvalidArgument(fmt::format("threads: expected at most {}, found {}", kMostThreads, threads));
  }
  DEEPINFER_RETURN_IF_ERROR(CheckAtLeast("gpu_layers", gpu_layers, -1, " (-1: all)"));
  DEEPINFER_RETURN_IF_ERROR(CheckAtLeast("max_num_seqs", max_num_seqs, 1));
  if (max_num_seqs > 4096) {
    return Status::InvalidArgument(fmt::format("max_num_seqs: expected at most 4096, found {}", max_num_seqs));
  }
  DEEPINFER_RETURN_IF_ERROR(CheckAtLeast("max_num_batched_tokens", max_num_batched_tokens, 1));
  if (max_num_batched_tokens > 1 << 20) {
    return Status::InvalidArgument(
        fmt::format("max_num_batched_tokens: expected at most {}, found {}", 1 << 20, max_num_batched_tokens));
  }
  if (max_model_len != 0 && max_model_len < 2) {
    return Status::InvalidArgument(
        fmt::format("max_model_len: expected 2 or more, or 0 for the model's, found {}", max_model_len));
  }
  DEEPINFER_RETURN_IF_ERROR(CheckAtLeast("kv_memory_bytes", kv_memory_bytes, 0, " (0: chosen)"));
  DEEPINFER_RETURN_IF_ERROR(CheckAtLeast("snapshot_memory_bytes", snapshot_memory_bytes, 0, " (0: chosen)"));
  DEEPINFER_RETURN_IF_ERROR(CheckAtLeast("kv_host_bytes", kv_host_bytes, 0, " (0: none)"));
  DEEPINFER_RETURN_IF_ERROR(CheckAtLeast("kv_disk_bytes", kv_disk_bytes, 0, " (0: 16 GiB)"));
  DEEPINFER_RETURN_IF_ERROR(CheckAtLeast("kv_shared_bytes", kv_shared_bytes, 0, " (0: 64 GiB)"));
  DEEPINFER_RETURN_IF_ERROR(CheckAtLeast("kv_ttl_seconds", kv_ttl_seconds, 1));
  if (kv_ttl_seconds > kMostKvTtlSeconds) {
    return Status::InvalidArgument(fmt::format("kv_ttl_seconds: expected at most 365 d, found {} s", kv_ttl_seconds));
  }
  if (kv_disk_bytes > 0 && kv_disk.empty()) return Status::InvalidArgument("kv_disk_bytes: needs kv_disk, the folder");
  if (kv_shared_bytes > 0 && kv_shared.empty())
    return Status::InvalidArgument("kv_shared_bytes: needs kv_shared, the folder");
  if (!prefix_cache && (!kv_disk.empty() || !kv_shared.empty())) {
    return Status::InvalidArgument(
        fmt::format("{}: needs the prefix cache, which is off", kv_disk.empty() ? "kv_shared" : "kv_disk"));
  }
  if (!kv_key_file.empty() && kv_disk.empty() && kv_shared.empty()) {
    return Status::InvalidArgument("kv_key_file: needs kv_disk or kv_shared; host memory is not encrypted");
  }
  if (IsSameFolder(kv_disk, kv_shared)) {
    return Status::InvalidArgument("kv_shared: expected another folder than that of kv_disk");
  }
  DEEPINFER_RETURN_IF_ERROR(CheckAtLeast("kv_least_tokens", kv_least_tokens, 1));
  if (!kv_host_file.empty() && kv_host_bytes == 0) {
    return Status::InvalidArgument("kv_host_file: needs kv_host_bytes, the size of the file");
  }
  if (!(tpot_target_ms >= 0)) {
    return Status::InvalidArgument(fmt::format("tpot_target_ms: expected 0 or more, found {}", tpot_target_ms));
  }
  DEEPINFER_RETURN_IF_ERROR(CheckAtLeast("replay_keep", replay_keep, 0, " (0: window + 12)"));
  DEEPINFER_RETURN_IF_ERROR(CheckAtLeast("replay_grid", replay_grid, 1));
  return CheckAtLeast("draft_length", draft_length, 0, " (0: no speculation)");
}

Status EngineOptions::ApplyEnvironment() {
  if (!Variable("DEEPINFER_USE_NEXTN_DECODE").empty()) {
    DEEPINFER_ASSIGN_OR_RETURN(const int64_t value, IntegerVariable("DEEPINFER_USE_NEXTN_DECODE", 0, 1000));
    draft_length = static_cast<int>(value);
  }
  if (!Variable("DEEPINFER_ENABLE_MTP_VARLEN").empty()) {
    DEEPINFER_ASSIGN_OR_RETURN(const int64_t value, IntegerVariable("DEEPINFER_ENABLE_MTP_VARLEN", 0, 1));
    variable_drafts = value == 1;
  }
  const std::string_view truncation = Variable("DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE");
  if (truncation == "compact") {
    replay = ReplayMode::kBounded;
  } else if (truncation == "none" || truncation == "off") {
    replay = ReplayMode::kExact;
  } else if (!truncation.empty()) {
    return Status::InvalidArgument(
        fmt::format("$DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE: expected compact, none or off, found '{}'", truncation));
  }
  if (!Variable("DEEPINFER_YOCO_PREFILL_KEEP_TOKENS").empty()) {
    DEEPINFER_ASSIGN_OR_RETURN(replay_keep, IntegerVariable("DEEPINFER_YOCO_PREFILL_KEEP_TOKENS", 1, 1 << 20));
  }
  // Batch invariance is simply on; the variable is accepted so that scripts which set it run.
  if (!Variable("DEEPINFER_BATCH_INVARIANT").empty()) {
    DEEPINFER_RETURN_IF_ERROR(IntegerVariable("DEEPINFER_BATCH_INVARIANT", 0, 1).status());
  }
  return Status::Ok();
}

}  // namespace deepinfer
