#include "checkpoint/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace deepinfer {
namespace {

constexpr int64_t kWidth = int64_t{1} << 20;  // keeps every product of two widths far below 2^63
constexpr int64_t kTokens = int64_t{1} << 24;
constexpr int64_t kPositions = int64_t{1} << 31;
constexpr int64_t kHashColumns = 4096;

// Widths of 32 hold whole scale groups of the FP8 and FP4 formats.
constexpr auto kIntegerSettings = std::to_array<IntegerSetting>({
    {"vocab_size", &ModelConfig::vocab_size, 1, kTokens},
    {"hidden_size", &ModelConfig::hidden_size, 32, kWidth, 32},
    {"moe_intermediate_size", &ModelConfig::moe_intermediate_size, 32, kWidth, 32},
    {"num_hidden_layers", &ModelConfig::num_hidden_layers, 1, 1024},
    {"max_position_embeddings", &ModelConfig::max_position_embeddings, 1, kPositions},
    {"num_attention_heads", &ModelConfig::num_attention_heads, 1, 4096},
    {"head_dim", &ModelConfig::head_dim, 32, 4096, 32},
    {"qk_rope_head_dim", &ModelConfig::qk_rope_head_dim, 2, 4096, 2},
    {"q_lora_rank", &ModelConfig::q_lora_rank, 32, kWidth, 32},
    {"o_lora_rank", &ModelConfig::o_lora_rank, 32, kWidth, 32},
    {"o_groups", &ModelConfig::o_groups, 1, 4096},
    {"sliding_window", &ModelConfig::sliding_window, 1, kWidth},
    {"index_n_heads", &ModelConfig::index_n_heads, 1, 4096},
    {"index_head_dim", &ModelConfig::index_head_dim, 32, 4096, 32},
    {"index_topk", &ModelConfig::index_topk, 1, kWidth},
    {"candidate_source_layer_id", &ModelConfig::candidate_source_layer_id, -1, 1023},
    {"candidate_topk_blocks", &ModelConfig::candidate_topk_blocks, 1, kWidth},
    {"candidate_block_size", &ModelConfig::candidate_block_size, 1, kWidth},
    {"n_routed_experts", &ModelConfig::n_routed_experts, 1, 4096},
    {"num_experts_per_tok", &ModelConfig::num_experts_per_tok, 1, 4096},
    {"hc_mult", &ModelConfig::hc_mult, 1, 8},
    {"hc_sinkhorn_iters", &ModelConfig::hc_sinkhorn_iters, 1, 1000},
    {"engram_max_ngram_size", &ModelConfig::engram_max_ngram_size, 2, 8},
    {"engram_vocab_size", &ModelConfig::engram_vocab_size, 2, kPositions},
    {"engram_n_heads", &ModelConfig::engram_n_heads, 1, 64},
    {"engram_head_dim", &ModelConfig::engram_head_dim, 32, 4096, 32},
    {"engram_pad_token_id", &ModelConfig::engram_pad_token_id, 0, kTokens},
    {"engram_compressed_vocab_size", &ModelConfig::engram_compressed_vocab_size, 1, kTokens},
    {"num_nextn_predict_layers", &ModelConfig::num_nextn_predict_layers, 0, 64},
    {"dspark_block_size", &ModelConfig::dspark_block_size, 1, 64},
    {"dspark_noise_token_id", &ModelConfig::dspark_noise_token_id, 0, kTokens},
    {"dspark_markov_rank", &ModelConfig::dspark_markov_rank, 1, kWidth},
    {"dspark_n_routed_experts", &ModelConfig::dspark_n_routed_experts, 1, 4096},
    {"dspark_num_experts_per_tok", &ModelConfig::dspark_num_experts_per_tok, 1, 4096},
});

// Keys that only matter when the model has the mechanism.
bool Applies(const IntegerSetting& setting, const ModelConfig& config) {
  if (setting.key.starts_with("engram_")) return !config.engram_layer_ids.empty();
  if (setting.key.starts_with("dspark_")) return config.num_nextn_predict_layers > 0;
  return true;
}

template <typename Found>
Status Expected(std::string_view key, std::string_view expected, const Found& found) {
  return Status::InvalidArgument(fmt::format("{}: expected {}, found {}", key, expected, found));
}

Status CheckScalars(const ModelConfig& config) {
  for (const IntegerSetting& setting : kIntegerSettings) {
    if (!Applies(setting, config)) continue;
    const int64_t value = config.*setting.member;
    if (value >= setting.minimum && value <= setting.maximum && value % setting.multiple == 0) continue;
    const std::string unit = setting.multiple == 1 ? "an integer" : fmt::format("a multiple of {}", setting.multiple);
    return Expected(setting.key, fmt::format("{} from {} to {}", unit, setting.minimum, setting.maximum), value);
  }
  struct RealSetting {
    std::string_view key;
    double value, minimum, maximum;
  };
  // Epsilons are at least the smallest normal float: with 0 an all-zero row would become NaN.
  constexpr double kTiny = std::numeric_limits<float>::min();
  for (const RealSetting& setting : std::to_array<RealSetting>({
           {"rms_norm_eps", config.rms_norm_eps, kTiny, 1},
           {"hc_eps", config.hc_eps, kTiny, 1},
           {"rope_theta", config.rope_theta, 1, 1e15},
           {"compress_rope_theta", config.compress_rope_theta, 1, 1e15},
           {"routed_scaling_factor", config.routed_scaling_factor, kTiny, 1e6},
           {"swiglu_limit", config.swiglu_limit, 0, 1e6},
           {"rope_scaling.factor", config.rope_scaling.factor, 1, 1e6},
           {"rope_scaling.beta_fast", config.rope_scaling.beta_fast, kTiny, 1e6},
           {"rope_scaling.beta_slow", config.rope_scaling.beta_slow, kTiny, 1e6},
       })) {
    if (setting.value >= setting.minimum && setting.value <= setting.maximum) continue;
    return Expected(setting.key, fmt::format("a number from {} to {}", setting.minimum, setting.maximum),
                    setting.value);
  }
  const int64_t original = config.rope_scaling.original_max_position_embeddings;
  if (original < 0 || original > kPositions) {
    return Expected("rope_scaling.original_max_position_embeddings", fmt::format("an integer from 0 to {}", kPositions),
                    original);
  }
  return Status::Ok();
}

Status CheckPairs(const ModelConfig& config) {
  if (config.num_attention_heads % config.o_groups != 0) {
    return Expected("o_groups", fmt::format("a divisor of num_attention_heads ({})", config.num_attention_heads),
                    config.o_groups);
  }
  struct Limit {
    std::string_view key;
    int64_t value;
    std::string_view limit_key;
    int64_t limit;
    bool applies = true;
  };
  const bool engram = !config.engram_layer_ids.empty();
  const bool stages = config.num_nextn_predict_layers > 0;
  for (const Limit& limit : std::to_array<Limit>({
           {"qk_rope_head_dim", config.qk_rope_head_dim, "head_dim", config.head_dim},
           {"qk_rope_head_dim", config.qk_rope_head_dim, "index_head_dim", config.index_head_dim},
           {"num_experts_per_tok", config.num_experts_per_tok, "n_routed_experts", config.n_routed_experts},
           {"dspark_num_experts_per_tok", config.dspark_num_experts_per_tok, "dspark_n_routed_experts",
            config.dspark_n_routed_experts, stages},
           {"dspark_noise_token_id", config.dspark_noise_token_id, "vocab_size - 1", config.vocab_size - 1, stages},
           {"engram_pad_token_id", config.engram_pad_token_id, "vocab_size - 1", config.vocab_size - 1, engram},
           {"engram_compressed_vocab_size", config.engram_compressed_vocab_size, "vocab_size", config.vocab_size,
            engram},
       })) {
    if (!limit.applies || limit.value <= limit.limit) continue;
    return Expected(limit.key, fmt::format("at most {} ({})", limit.limit_key, limit.limit), limit.value);
  }
  return Status::Ok();
}

Status CheckLayerList(std::string_view key, const std::vector<int32_t>& ids, int64_t layers) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < layers && (i == 0 || ids[i] > ids[i - 1])) continue;
    return Expected(key, fmt::format("strictly ascending layer ids from 0 to {}", layers - 1), fmt::format("{}", ids));
  }
  return Status::Ok();
}

Status CheckSources(const ModelConfig& config) {
  const int64_t entries = config.num_hidden_layers + config.num_nextn_predict_layers;
  if (static_cast<int64_t>(config.compress_ratios.size()) != entries) {
    return Expected("compress_ratios",
                    fmt::format("{} entries (num_hidden_layers + num_nextn_predict_layers)", entries),
                    fmt::format("{} entries", config.compress_ratios.size()));
  }
  for (int layer = 0; layer < config.LayerCount(); ++layer) {
    const int ratio = config.ratio(layer);
    if (config.IsStage(layer) ? ratio == 0 : ratio >= 0 && ratio <= 2) continue;
    return Expected(fmt::format("compress_ratios[{}]", layer),
                    config.IsStage(layer) ? "0 for a DSpark stage" : "0, 1 or 2", ratio);
  }
  const int64_t layers = config.num_hidden_layers;
  DEEPINFER_RETURN_IF_ERROR(CheckLayerList("kv_source_layer_ids", config.kv_source_layer_ids, layers));
  DEEPINFER_RETURN_IF_ERROR(CheckLayerList("index_source_layer_ids", config.index_source_layer_ids, layers));
  if (config.kv_source_layer_ids.empty()) {
    return Expected("kv_source_layer_ids", "at least one layer id", "an empty list");
  }
  for (const int32_t id : config.index_source_layer_ids) {
    if (config.ratio(id) == 0) {
      return Expected("index_source_layer_ids", "layers with compress_ratios 1 or 2", fmt::format("layer {}", id));
    }
  }
  for (const int32_t id : config.kv_source_layer_ids) {
    if (!std::ranges::binary_search(config.index_source_layer_ids, id)) {
      return Expected("kv_source_layer_ids", "layers that index_source_layer_ids lists too",
                      fmt::format("layer {}", id));
    }
  }
  for (int layer = 0; layer < layers; ++layer) {
    if (config.ratio(layer) == 0) continue;
    const int source = config.KvSourceOf(layer);
    if (source < 0) {
      return Expected("kv_source_layer_ids",
                      fmt::format("a source at or below layer {}, which has ratio {}", layer, config.ratio(layer)),
                      fmt::format("{}", config.kv_source_layer_ids));
    }
    if (config.ratio(source) != config.ratio(layer)) {
      return Expected(fmt::format("compress_ratios[{}]", layer),
                      fmt::format("{}, the ratio of its kv source {}", config.ratio(source), source),
                      config.ratio(layer));
    }
  }
  return Status::Ok();
}

Status CheckCandidates(const ModelConfig& config) {
  const int source = static_cast<int>(config.candidate_source_layer_id);
  if (source < 0) return Status::Ok();
  if (!std::ranges::binary_search(config.index_source_layer_ids, source)) {
    return Expected("candidate_source_layer_id", "-1 or one of index_source_layer_ids", source);
  }
  for (const int32_t id : config.index_source_layer_ids) {
    if (id <= source || config.KvSourceOf(id) == config.KvSourceOf(source)) continue;
    return Expected(
        "candidate_source_layer_id",
        fmt::format("a layer with the kv source of the later index source {} ({})", id, config.KvSourceOf(id)),
        fmt::format("layer {} with kv source {}", source, config.KvSourceOf(source)));
  }
  return Status::Ok();
}

Status DeriveEngram(ModelConfig* config) {
  config->engram_hashes.clear();
  DEEPINFER_RETURN_IF_ERROR(CheckLayerList("engram_layer_ids", config->engram_layer_ids, config->num_hidden_layers));
  if (config->engram_layer_ids.empty()) {
    config->engram_num_embeddings.clear();
    return Status::Ok();
  }
  // Each column costs a search for a prime; the release has 48 in all.
  const int64_t columns = static_cast<int64_t>(config->engram_layer_ids.size()) * config->HashColumns();
  if (columns > kHashColumns) {
    return Expected("engram_layer_ids", fmt::format("at most {} hash columns in all layers", kHashColumns), columns);
  }
  config->engram_hashes = DeriveEngramHashes({.layers = config->engram_layer_ids,
                                              .max_ngram_size = config->engram_max_ngram_size,
                                              .heads = config->engram_n_heads,
                                              .vocab_size = config->engram_vocab_size,
                                              .compressed_vocab_size = config->engram_compressed_vocab_size});
  std::vector<int64_t> rows;
  for (const EngramHash& hash : config->engram_hashes) rows.push_back(hash.rows);
  if (config->engram_num_embeddings.empty()) config->engram_num_embeddings = rows;
  if (config->engram_num_embeddings != rows) {
    return Expected(
        "engram_num_embeddings",
        fmt::format("{}, the sums of the primes from engram_vocab_size {} on", rows, config->engram_vocab_size),
        fmt::format("{}", config->engram_num_embeddings));
  }
  return Status::Ok();
}

// The nearest listed id at or below the layer; -1 when there is none. `ids` ascend.
int NearestSource(const std::vector<int32_t>& ids, int layer) {
  const auto above = std::ranges::upper_bound(ids, layer);
  return above == ids.begin() ? -1 : *std::prev(above);
}

int SlotOf(const std::vector<int32_t>& ids, int layer) {
  const auto found = std::ranges::find(ids, layer);
  return found == ids.end() ? -1 : static_cast<int>(found - ids.begin());
}

}  // namespace

std::span<const IntegerSetting> IntegerSettings() { return kIntegerSettings; }

int ModelConfig::KvSourceOf(int layer) const {
  return IsStage(layer) || ratio(layer) == 0 ? -1 : NearestSource(kv_source_layer_ids, layer);
}

int ModelConfig::IndexSourceOf(int layer) const {
  return IsStage(layer) || ratio(layer) == 0 ? -1 : NearestSource(index_source_layer_ids, layer);
}

int ModelConfig::RoutedExperts(int layer) const {
  return static_cast<int>(IsStage(layer) ? dspark_n_routed_experts : n_routed_experts);
}

int ModelConfig::ExpertsPerToken(int layer) const {
  return static_cast<int>(IsStage(layer) ? dspark_num_experts_per_tok : num_experts_per_tok);
}

int ModelConfig::EngramSlot(int layer) const { return SlotOf(engram_layer_ids, layer); }

int ModelConfig::TapSlot(int layer) const { return SlotOf(dspark_target_layer_ids, layer); }

Status CheckModelConfig(ModelConfig* config) {
  DEEPINFER_RETURN_IF_ERROR(CheckScalars(*config));
  DEEPINFER_RETURN_IF_ERROR(CheckPairs(*config));
  DEEPINFER_RETURN_IF_ERROR(CheckSources(*config));
  DEEPINFER_RETURN_IF_ERROR(CheckCandidates(*config));
  if (config->num_nextn_predict_layers == 0) {
    config->dspark_target_layer_ids.clear();
  } else if (config->dspark_target_layer_ids.empty()) {
    return Expected("dspark_target_layer_ids", "at least one layer id (num_nextn_predict_layers is not 0)",
                    "an empty list");
  }
  DEEPINFER_RETURN_IF_ERROR(
      CheckLayerList("dspark_target_layer_ids", config->dspark_target_layer_ids, config->num_hidden_layers));
  return DeriveEngram(config);
}

}  // namespace deepinfer
