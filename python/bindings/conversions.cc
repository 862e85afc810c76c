#include "conversions.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <map>
#include <vector>

#include "status_error.h"
#include "text/conversation.h"

namespace py = pybind11;

namespace deepinfer::python {
namespace {

/// What stands in an error for the value that was found: its repr, shortened.
std::string Shown(py::handle value) {
  constexpr size_t kLongest = 80;
  std::string text = py::repr(value).cast<std::string>();
  if (text.size() <= kLongest) return text;
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

[[noreturn]] void RaiseExpected(const char* field, const char* expected, py::handle found) {
  throw StatusError(Status::InvalidArgument(fmt::format("{}: expected {}, found {}", field, expected, Shown(found))));
}

template <typename T>
void Read(py::handle value, const char* field, const char* expected, T* to) {
  try {
    *to = value.cast<T>();
  } catch (const py::cast_error&) {
    RaiseExpected(field, expected, value);
  }
}

constexpr char kInteger[] = "an integer";
constexpr char kNumber[] = "a number";
constexpr char kBool[] = "True or False";
constexpr char kTexts[] = "a list of texts";

SpeculationRule SpeculationRuleFrom(const std::string& name) {
  if (name == "coupled") return SpeculationRule::kCoupled;
  if (name == "rejection") return SpeculationRule::kRejection;
  throw StatusError(
      Status::InvalidArgument(fmt::format("speculation_rule: expected coupled or rejection, found '{}'", name)));
}

/// Entries of a dictionary, each read once; what is left over is a mistake of the caller.
class Entries {
 public:
  explicit Entries(const py::dict& given) : given_(given) {}

  template <typename T>
  void Read(const char* name, const char* expected, T* to) {
    if (!given_.contains(name)) return;
    ++read_;
    python::Read(given_[name], name, expected, to);
  }

  void CheckAllRead() const {
    if (read_ != given_.size()) throw py::type_error("an engine option that does not exist");
  }

 private:
  const py::dict& given_;
  size_t read_ = 0;
};

}  // namespace

ReplayMode ReplayModeFrom(const std::string& name) {
  if (name == "bounded") return ReplayMode::kBounded;
  if (name == "exact") return ReplayMode::kExact;
  throw StatusError(Status::InvalidArgument(fmt::format("replay: expected bounded or exact, found '{}'", name)));
}

EngineOptions EngineOptionsFrom(const py::dict& given) {
  EngineOptions options;
  RaiseIf(options.ApplyEnvironment());
  Entries entries(given);
  entries.Read("model", "a path", &options.model);
  entries.Read("device", "a text", &options.device);
  entries.Read("threads", kInteger, &options.threads);
  entries.Read("gpu_layers", kInteger, &options.gpu_layers);
  std::string engram(EngramPlaceName(options.engram));
  entries.Read("engram", "disk, host or device", &engram);
  options.engram = ValueOrRaise(ParseEngramPlace(engram));
  entries.Read("exact_activations", kBool, &options.exact_activations);
  entries.Read("max_num_seqs", kInteger, &options.max_num_seqs);
  entries.Read("max_num_batched_tokens", kInteger, &options.max_num_batched_tokens);
  entries.Read("max_model_len", kInteger, &options.max_model_len);
  entries.Read("kv_memory_bytes", kInteger, &options.kv_memory_bytes);
  entries.Read("snapshot_memory_bytes", kInteger, &options.snapshot_memory_bytes);
  entries.Read("tpot_target_ms", kNumber, &options.tpot_target_ms);
  entries.Read("prefix_cache", kBool, &options.prefix_cache);
  entries.Read("kv_host_bytes", kInteger, &options.kv_host_bytes);
  entries.Read("kv_host_file", "a path", &options.kv_host_file);
  entries.Read("kv_disk", "a path", &options.kv_disk);
  entries.Read("kv_disk_bytes", kInteger, &options.kv_disk_bytes);
  entries.Read("kv_shared", "a path or redis://...", &options.kv_shared);
  entries.Read("kv_shared_bytes", kInteger, &options.kv_shared_bytes);
  entries.Read("kv_ttl_seconds", kInteger, &options.kv_ttl_seconds);
  entries.Read("kv_key_file", "a path", &options.kv_key_file);
  entries.Read("kv_least_tokens", kInteger, &options.kv_least_tokens);
  entries.Read("asynchronous", kBool, &options.asynchronous);
  std::string replay(ReplayModeName(options.replay));
  entries.Read("replay", "bounded or exact", &replay);
  options.replay = ReplayModeFrom(replay);
  entries.Read("replay_keep", kInteger, &options.replay_keep);
  entries.Read("replay_grid", kInteger, &options.replay_grid);
  entries.Read("draft_length", kInteger, &options.draft_length);
  entries.Read("variable_drafts", kBool, &options.variable_drafts);
  std::string rule = options.speculation_rule == SpeculationRule::kCoupled ? "coupled" : "rejection";
  entries.Read("speculation_rule", "coupled or rejection", &rule);
  options.speculation_rule = SpeculationRuleFrom(rule);
  entries.Read("profile_steps", kBool, &options.profile_steps);
  entries.CheckAllRead();
  RaiseIf(options.Validate());
  return options;
}

py::dict EngineOptionsDict(const EngineOptions& options) {
  py::dict dict;
  dict["model"] = options.model;
  dict["device"] = options.device;
  dict["threads"] = options.threads;
  dict["gpu_layers"] = options.gpu_layers;
  dict["engram"] = std::string(EngramPlaceName(options.engram));
  dict["exact_activations"] = options.exact_activations;
  dict["max_num_seqs"] = options.max_num_seqs;
  dict["max_num_batched_tokens"] = options.max_num_batched_tokens;
  dict["max_model_len"] = options.max_model_len;
  dict["kv_memory_bytes"] = options.kv_memory_bytes;
  dict["snapshot_memory_bytes"] = options.snapshot_memory_bytes;
  dict["tpot_target_ms"] = options.tpot_target_ms;
  dict["prefix_cache"] = options.prefix_cache;
  dict["kv_host_bytes"] = options.kv_host_bytes;
  dict["kv_host_file"] = options.kv_host_file;
  dict["kv_disk"] = options.kv_disk;
  dict["kv_disk_bytes"] = options.kv_disk_bytes;
  dict["kv_shared"] = options.kv_shared;
  dict["kv_shared_bytes"] = options.kv_shared_bytes;
  dict["kv_ttl_seconds"] = options.kv_ttl_seconds;
  dict["kv_key_file"] = options.kv_key_file;
  dict["kv_least_tokens"] = options.kv_least_tokens;
  dict["asynchronous"] = options.asynchronous;
  dict["replay"] = std::string(ReplayModeName(options.replay));
  dict["replay_keep"] = options.replay_keep;
  dict["replay_grid"] = options.replay_grid;
  dict["draft_length"] = options.draft_length;
  dict["variable_drafts"] = options.variable_drafts;
  dict["speculation_rule"] = options.speculation_rule == SpeculationRule::kCoupled ? "coupled" : "rejection";
  dict["profile_steps"] = options.profile_steps;
  return dict;
}

SamplingParams SamplingParamsFrom(const py::object& given) {
  SamplingParams params;
  const auto read = [&given](const char* name, const char* expected, auto* to) {
    Read(given.attr(name), name, expected, to);
  };
  // None stands for "no limit" and "none asked for".
  const auto read_optional = [&given](const char* name, auto* to) {
    const py::object value = given.attr(name);
    if (!value.is_none()) Read(value, name, "an integer or None", to);
  };
  read("bad_words", kTexts, &params.bad_words);
  std::map<int32_t, float> biases;
  read("logit_bias", "a dictionary of token ids and numbers", &biases);
  for (const auto& [id, bias] : biases) params.logit_bias.push_back({id, bias});
  read("repetition_penalty", kNumber, &params.repetition_penalty);
  read("frequency_penalty", kNumber, &params.frequency_penalty);
  read("presence_penalty", kNumber, &params.presence_penalty);
  read("temperature", kNumber, &params.temperature);
  read("top_k", kInteger, &params.top_k);
  read("top_p", kNumber, &params.top_p);
  read("min_p", kNumber, &params.min_p);
  read_optional("seed", &params.seed);
  read("n", kInteger, &params.n);
  read_optional("max_tokens", &params.max_tokens);
  read("min_tokens", kInteger, &params.min_tokens);
  read("stop", kTexts, &params.stops);
  read("include_stop_str_in_output", kBool, &params.include_stop_str_in_output);
  read("stop_token_ids", "a list of token ids", &params.stop_token_ids);
  read("ignore_eos", kBool, &params.ignore_eos);
  read_optional("logprobs", &params.logprobs);
  read_optional("prompt_logprobs", &params.prompt_logprobs);
  if (const py::object form = given.attr("so_args"); !form.is_none()) {
    const auto text = [&form](const char* key) { return form[key].cast<std::string>(); };
    Result<StructuredOutput> wanted = StructuredOutput::Of(text("schema_type"), text("schema"));
    RaiseIf(wanted.status());
    params.structured_output = std::move(*wanted);
  }
  RaiseIf(params.Validate());
  return params;
}

int EffortFrom(const py::object& given) {
  if (given.is_none()) return kDefaultEffort;
  constexpr char kExpected[] = "low, medium, high, max or 1 to 100";
  if (py::isinstance<py::str>(given)) {
    const std::optional<int> by_name = EffortByName(given.cast<std::string>());
    if (!by_name.has_value()) RaiseExpected("effort", kExpected, given);
    return *by_name;
  }
  int effort = 0;
  Read(given, "effort", kExpected, &effort);
  if (effort < kMinEffort || effort > kMaxEffort) RaiseExpected("effort", kExpected, given);
  return effort;
}

py::dict TierDict(const KvTierStatistics& tier) {
  py::dict dict;
  dict["name"] = tier.name;
  dict["up"] = tier.up;
  dict["reason"] = tier.reason;
  dict["failures"] = tier.failures;
  dict["records"] = tier.records;
  dict["bytes"] = tier.bytes;
  dict["budget_bytes"] = tier.budget_bytes;
  dict["cached_tokens"] = tier.cached_tokens;
  dict["hits"] = tier.hits;
  dict["misses"] = tier.misses;
  dict["corrupt"] = tier.corrupt;
  dict["foreign"] = tier.foreign;
  dict["read_bytes"] = tier.read_bytes;
  dict["written"] = tier.written;
  dict["written_bytes"] = tier.written_bytes;
  dict["evicted"] = tier.evicted;
  dict["expired"] = tier.expired;
  dict["copied_forward"] = tier.copied_forward;
  dict["dropped"] = tier.dropped;
  dict["queued_bytes"] = tier.queued_bytes;
  dict["read_seconds"] = tier.read_seconds;
  dict["write_seconds"] = tier.write_seconds;
  return dict;
}

py::dict TransfersDict(const KvTransferCounts& transfers) {
  py::dict dict;
  dict["fetches"] = transfers.fetches;
  dict["fetched_tokens"] = transfers.fetched_tokens;
  dict["refused"] = transfers.refused;
  dict["late"] = transfers.late;
  dict["short_reads"] = transfers.short_reads;
  dict["persisted_tokens"] = transfers.persisted_tokens;
  dict["persisted_rings"] = transfers.persisted_rings;
  return dict;
}

py::dict StatisticsDict(const EngineStatistics& statistics) {
  py::dict dict;
  dict["running"] = statistics.running;
  dict["waiting"] = statistics.waiting;
  dict["steps"] = statistics.steps;
  dict["finished"] = statistics.finished;
  dict["cancelled"] = statistics.cancelled;
  dict["preemptions"] = statistics.preemptions;
  dict["prompt_tokens"] = statistics.prompt_tokens;
  dict["cached_tokens"] = statistics.cached_tokens;
  dict["replayed_tokens"] = statistics.replayed_tokens;
  dict["generated_tokens"] = statistics.generated_tokens;
  dict["encoder_rows"] = statistics.encoder_rows;
  dict["decoder_rows"] = statistics.decoder_rows;
  dict["logits_rows"] = statistics.logits_rows;
  dict["draft_rows"] = statistics.draft_rows;
  dict["kv_blocks"] = statistics.kv_blocks;
  dict["kv_blocks_free"] = statistics.kv_blocks_free;
  dict["kv_blocks_cached"] = statistics.kv_blocks_cached;
  dict["snapshots"] = statistics.snapshots;
  dict["snapshots_free"] = statistics.snapshots_free;
  py::list tiers;
  for (const KvTierStatistics& tier : statistics.kv_tiers) tiers.append(TierDict(tier));
  dict["kv_tiers"] = tiers;
  dict["kv_transfers"] = TransfersDict(statistics.kv_transfers);
  dict["device_seconds"] = statistics.device_seconds;
  dict["host_seconds"] = statistics.host_seconds;
  dict["drafted"] = statistics.drafts.drafted;
  dict["verified"] = statistics.drafts.verified;
  dict["accepted"] = statistics.drafts.accepted;
  return dict;
}

}  // namespace deepinfer::python
