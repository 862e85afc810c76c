#include "checkpoint/synthetic_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

namespace deepinfer {
namespace {

constexpr int64_t kFewestLayers = 4;  // two window-only layers, one with ratio 2, one with ratio 1

// The release's pattern for any number of layers: two window-only layers, an encoder with ratio 2 and a decoder with
// ratio 1, one kv source each; the decoder re-selects every fourth layer; the last three layers feed the drafter.
void DeriveStructure(ModelConfig* config) {
  const int32_t layers = static_cast<int32_t>(config->num_hidden_layers);
  const int32_t encoder = 2;
  const int32_t decoder = encoder + (layers - encoder + 1) / 2;
  config->compress_ratios.clear();
  for (int32_t layer = 0; layer < layers; ++layer) {
    config->compress_ratios.push_back(layer < encoder ? 0 : layer < decoder ? 2 : 1);
  }
  config->compress_ratios.insert(config->compress_ratios.end(), static_cast<size_t>(config->num_nextn_predict_layers),
                                 0);
  config->kv_source_layer_ids = {encoder, decoder};
  config->index_source_layer_ids = {encoder, decoder};
  for (int32_t layer = decoder + 2; layer < layers; layer += 4) config->index_source_layer_ids.push_back(layer);
  config->candidate_source_layer_id = decoder;
  config->engram_layer_ids = {1, decoder - 1};
  config->dspark_target_layer_ids = {layers - 3, layers - 2, layers - 1};
}

// The release's layers at another depth: the shares of its layers that are window only (2 of 40), kv sources of ratio 2
// (3) and Engram (2) are rounded, at least one each; the upper half is the decoder, which re-selects every fourth
// layer. For 40 layers that is the release.
void DeriveReleaseStructure(ModelConfig* config) {
  const auto layers = static_cast<int32_t>(config->num_hidden_layers);
  const auto share = [layers](int32_t of_release) {
    constexpr int32_t kReleaseLayers = 40;
    return std::max(1, (2 * layers * of_release + kReleaseLayers) / (2 * kReleaseLayers));
  };
  const int32_t encoder = share(2);
  const int32_t decoder = layers / 2;
  const int32_t sources = share(3);
  config->compress_ratios.clear();
  for (int32_t layer = 0; layer < layers; ++layer) {
    config->compress_ratios.push_back(layer < encoder ? 0 : layer < decoder ? 2 : 1);
  }
  config->compress_ratios.insert(config->compress_ratios.end(), static_cast<size_t>(config->num_nextn_predict_layers),
                                 0);
  config->kv_source_layer_ids.clear();
  for (int32_t i = 0; i < sources; ++i) {
    config->kv_source_layer_ids.push_back(encoder + i * (decoder - encoder) / sources);
  }
  config->engram_layer_ids = {1};
  if (share(2) > 1) config->engram_layer_ids.push_back(config->kv_source_layer_ids.back());
  config->kv_source_layer_ids.push_back(decoder);
  config->index_source_layer_ids = config->kv_source_layer_ids;
  for (int32_t layer = decoder + 4; layer < layers; layer += 4) config->index_source_layer_ids.push_back(layer);
  config->candidate_source_layer_id = decoder;
  config->dspark_target_layer_ids = {layers - 3, layers - 2, layers - 1};
}

// What belongs to the Nano tokenizer.
ModelConfig NanoVocabulary() {
  ModelConfig config;
  config.vocab_size = 8192;
  config.engram_compressed_vocab_size = 6661;
  config.engram_pad_token_id = 2;
  config.dspark_noise_token_id = 3;
  config.eos_token_ids = {1};
  config.max_position_embeddings = 65536;
  return config;
}

ModelConfig MidConfig() {
  ModelConfig config = NanoVocabulary();
  config.hidden_size = 2560;
  config.moe_intermediate_size = 1152;
  config.num_hidden_layers = 8;
  config.num_attention_heads = 32;
  config.q_lora_rank = 640;
  config.o_lora_rank = 512;
  config.rope_scaling = {.factor = 16, .original_max_position_embeddings = 4096};
  config.index_n_heads = 16;
  config.n_routed_experts = 32;  // with the Engram tables this makes about 4 GB
  config.engram_vocab_size = 160000;
  config.dspark_n_routed_experts = 16;
  return config;
}

ModelConfig SmokeConfig() {
  ModelConfig config = NanoVocabulary();
  config.hidden_size = 64;
  config.moe_intermediate_size = 32;
  config.num_hidden_layers = 8;
  config.num_attention_heads = 4;
  config.head_dim = 64;
  config.qk_rope_head_dim = 16;
  config.q_lora_rank = 32;
  config.o_lora_rank = 32;
  config.o_groups = 2;
  config.rope_scaling = {.factor = 16, .original_max_position_embeddings = 64};
  config.sliding_window = 16;
  config.index_n_heads = 4;
  config.index_head_dim = 32;
  config.index_topk = 16;
  config.candidate_topk_blocks = 8;
  config.candidate_block_size = 4;
  config.n_routed_experts = 8;
  config.num_experts_per_tok = 2;
  config.engram_vocab_size = 200;
  config.engram_n_heads = 2;
  config.engram_head_dim = 32;
  config.dspark_markov_rank = 32;
  config.dspark_n_routed_experts = 8;
  config.dspark_num_experts_per_tok = 2;
  return config;
}

// The release, but for the depth, the drafter and the size of the Engram tables, which live in host memory.
ModelConfig ReleaseConfig() {
  ModelConfig config;
  config.num_hidden_layers = 12;  // fits one GPU of 141 GB
  config.rope_scaling = {.factor = 16, .original_max_position_embeddings = 65536};
  config.engram_vocab_size = 160000;
  config.num_nextn_predict_layers = 0;
  config.eos_token_ids = {1};
  return config;
}

constexpr auto kShortForms = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"layers", "num_hidden_layers"},
    {"experts", "n_routed_experts"},
    {"hidden", "hidden_size"},
    {"intermediate", "moe_intermediate_size"},
    {"heads", "num_attention_heads"},
    {"window", "sliding_window"},
});

// Fixed by the tokenizer that every spec shares.
constexpr auto kTokenizerKeys = std::to_array<std::string_view>(
    {"vocab_size", "engram_compressed_vocab_size", "engram_pad_token_id", "dspark_noise_token_id"});

const IntegerSetting* FindSetting(std::string_view key) {
  for (const auto& [short_form, full] : kShortForms) {
    if (key == short_form) key = full;
  }
  if (std::ranges::find(kTokenizerKeys, key) != kTokenizerKeys.end()) return nullptr;
  const auto found = std::ranges::find(IntegerSettings(), key, &IntegerSetting::key);
  return found == IntegerSettings().end() ? nullptr : &*found;
}

std::string KnownKeys() {
  std::vector<std::string_view> keys;
  for (const auto& form : kShortForms) keys.push_back(form.first);
  for (const IntegerSetting& setting : IntegerSettings()) {
    if (FindSetting(setting.key) != nullptr) keys.push_back(setting.key);
  }
  return fmt::format("{}", fmt::join(keys, ", "));
}

struct Override {
  std::string key;  // as written
  const IntegerSetting* setting;
  int64_t value;
};

Result<Override> ParseOverride(std::string_view item) {
  const size_t equals = item.find('=');
  const std::string_view key = item.substr(0, equals);
  const IntegerSetting* setting = FindSetting(key);
  if (setting == nullptr) {
    return Status::InvalidArgument(
        fmt::format("synthetic spec: unknown key '{}', expected one of {}", key, KnownKeys()));
  }
  const std::string_view digits = equals == std::string_view::npos ? "" : item.substr(equals + 1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return Status::InvalidArgument(fmt::format("synthetic spec: {}: expected {}=INTEGER, found '{}'", key, key, item));
  }
  return Override{std::string(key), setting, value};
}

}  // namespace

Result<SyntheticSpec> ParseSyntheticSpec(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  SyntheticSpec spec;
  if (name == "mid") {
    spec.config = MidConfig();
  } else if (name == "smoke") {
    spec.config = SmokeConfig();
    spec.shard_bytes = 2 << 20;  // several files also in a small checkpoint
  } else if (name == "v41-flash") {
    spec.config = ReleaseConfig();
    spec.generated = true;
  } else {
    return Status::InvalidArgument(fmt::format("synthetic spec: expected mid, smoke or v41-flash, found '{}'", name));
  }

  std::vector<Override> overrides;
  std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    std::string setting(rest.substr(0, comma));
    // v41-flash:12 is v41-flash:layers=12.
    if (spec.generated && overrides.empty() && setting.find('=') == std::string::npos) setting.insert(0, "layers=");
    DEEPINFER_ASSIGN_OR_RETURN(const Override item, ParseOverride(setting));
    overrides.push_back(item);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  // The structure follows from the counts, and an explicit source follows the structure, whatever the order of keys.
  for (const bool counts : {true, false}) {
    for (const Override& item : overrides) {
      const bool is_count = item.setting->member == &ModelConfig::num_hidden_layers ||
                            item.setting->member == &ModelConfig::num_nextn_predict_layers;
      if (is_count != counts) continue;
      const int64_t minimum =
          item.setting->member == &ModelConfig::num_hidden_layers ? kFewestLayers : item.setting->minimum;
      if (item.value < minimum || item.value > item.setting->maximum) {
        return Status::InvalidArgument(fmt::format("synthetic spec: {}: expected an integer from {} to {}, found {}",
                                                   item.key, minimum, item.setting->maximum, item.value));
      }
      spec.config.*item.setting->member = item.value;
    }
    if (counts) (spec.generated ? DeriveReleaseStructure : DeriveStructure)(&spec.config);
  }
  const Status status = CheckModelConfig(&spec.config);
  if (!status.ok()) return Status::InvalidArgument("synthetic spec: " + status.message());
  return spec;
}

}  // namespace deepinfer
