// ModelConfig: config.json of a DeepSeek-V4.1 checkpoint, checked, with what follows from it.
//
// Fields keep the names of config.json; their defaults are the released model's and stand in for absent optional keys.
// Layer numbers count the backbone first: DSpark stage s is layer num_hidden_layers + s wherever a function takes a
// `layer`. Invariants 1-5 hold for every ModelConfig that ParseModelConfig or CheckModelConfig accepted:
//  1. hidden_size, moe_intermediate_size, q_lora_rank, o_lora_rank, head_dim, index_head_dim, engram_head_dim are
//     multiples of 32; num_attention_heads is one of o_groups; qk_rope_head_dim is even and fits both head widths;
//  2. compress_ratios has one entry (0, 1 or 2) per layer and stage, 0 for stages;
//  3. id lists ascend strictly; each kv source is an index source; a layer with ratio > 0 has a kv source at or below
//     it with the same ratio;
//  4. candidate_source_layer_id is -1 or an index source, and every later index source reads the same kv source;
//  5. engram_hashes has one entry per engram_layer_ids, and engram_num_embeddings are their row counts.
//
// Thread-safety: a value. Source: spec sections (a), c.5, c.6, c.8.
#ifndef DEEPINFER_CHECKPOINT_MODEL_CONFIG_H_
#define DEEPINFER_CHECKPOINT_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/engram_hash.h"
#include "deepinfer/status.h"

namespace deepinfer {

/// rope_scaling of type yarn (spec c.4).
struct RopeScaling {
  double factor = 1;
  double beta_fast = 32;                         ///< turns over the original length
  double beta_slow = 1;                          ///< turns over the original length
  int64_t original_max_position_embeddings = 0;  ///< positions; 0: no YaRN
};

/// vision_config (spec c.10).
struct VisionConfig {
  int64_t num_hidden_layers = 32;
  int64_t hidden_size = 1024;  ///< channels
  int64_t num_attention_heads = 16;
  int64_t intermediate_size = 2816;  ///< channels of the gated hidden layer
  int64_t patch_size = 14;           ///< pixels
  double rope_theta = 10000;
  int64_t downsample_ratio = 3;  ///< patches per token and axis
  int64_t max_image_tokens = 1024;
  int64_t min_pixels = 295936;
  std::optional<double> max_wh_ratio;
};

struct ModelConfig {
  // Widths, in elements.
  int64_t vocab_size = 129280;           ///< V
  int64_t hidden_size = 5120;            ///< D
  int64_t moe_intermediate_size = 2304;  ///< I
  int64_t num_hidden_layers = 40;        ///< L
  int64_t max_position_embeddings = 1048576;

  // Attention (c.5).
  int64_t num_attention_heads = 64;  ///< H
  int64_t head_dim = 512;            ///< Dh
  int64_t qk_rope_head_dim = 64;     ///< R: the last R channels of a head are rotated
  int64_t q_lora_rank = 1280;        ///< Rq
  int64_t o_lora_rank = 1024;        ///< Ro, per output group
  int64_t o_groups = 8;              ///< G
  int64_t sliding_window = 128;      ///< W, positions including the query's own
  double rms_norm_eps = 1e-20;
  double rope_theta = 10000;             ///< layers with ratio 0
  double compress_rope_theta = 160000;   ///< layers with ratio 1 or 2
  RopeScaling rope_scaling;              ///< layers with ratio 1 or 2
  std::vector<int32_t> compress_ratios;  ///< [L + stages], tokens per compressed row; 0: window only

  // Compressed KV and its two-level indexer (c.6).
  std::vector<int32_t> kv_source_layer_ids;
  std::vector<int32_t> index_source_layer_ids;
  int64_t index_n_heads = 32;              ///< Hi
  int64_t index_head_dim = 128;            ///< Di
  int64_t index_topk = 512;                ///< compressed rows a query attends
  int64_t candidate_source_layer_id = 20;  ///< -1: none
  int64_t candidate_topk_blocks = 2048;    ///< blocks
  int64_t candidate_block_size = 8;        ///< rows per block

  // Experts (c.9).
  int64_t n_routed_experts = 384;  ///< E of a backbone layer
  int64_t num_experts_per_tok = 6;
  bool norm_topk_prob = true;
  double routed_scaling_factor = 1.5;
  double swiglu_limit = 10;  ///< 0: no clamp

  // Hyper-connections (c.3).
  int64_t hc_mult = 4;             ///< n residual streams
  int64_t hc_sinkhorn_iters = 20;  ///< column normalisations
  double hc_eps = 1e-6;

  // Engram (c.8); no layers: the model has none.
  std::vector<int32_t> engram_layer_ids;
  std::vector<int64_t> engram_num_embeddings;  ///< rows of each table
  int64_t engram_max_ngram_size = 4;
  int64_t engram_vocab_size = 16000000;  ///< smallest number of rows of a hash column
  int64_t engram_n_heads = 8;            ///< hash columns per n-gram order
  int64_t engram_head_dim = 256;         ///< channels of a table row
  int64_t engram_pad_token_id = 2;
  int64_t engram_compressed_vocab_size = 99092;
  std::vector<EngramHash> engram_hashes;  ///< derived

  // DSpark (c.11); 0 stages: the model has none.
  int64_t num_nextn_predict_layers = 3;  ///< stages
  int64_t dspark_block_size = 5;         ///< drafts per block
  int64_t dspark_noise_token_id = 128799;
  std::vector<int32_t> dspark_target_layer_ids;  ///< taps: layers whose input feeds the drafter
  int64_t dspark_markov_rank = 256;
  int64_t dspark_n_routed_experts = 128;  ///< E of a stage
  int64_t dspark_num_experts_per_tok = 3;

  // Outside text_config.
  int64_t bos_token_id = 0;
  std::vector<int64_t> eos_token_ids;  ///< at least one
  int64_t pad_token_id = 2;
  int64_t image_token_id = -1;  ///< -1: none
  std::optional<VisionConfig> vision;

  /// Backbone layers plus DSpark stages.
  int LayerCount() const { return static_cast<int>(num_hidden_layers + num_nextn_predict_layers); }
  bool IsStage(int layer) const { return layer >= num_hidden_layers; }
  int ratio(int layer) const { return compress_ratios[static_cast<size_t>(layer)]; }

  /// The nearest kv source at or below the layer; -1 for layers without compressed KV.
  int KvSourceOf(int layer) const;
  bool IsKvSource(int layer) const { return KvSourceOf(layer) == layer; }
  /// The nearest index source at or below the layer; -1 for layers without compressed KV.
  int IndexSourceOf(int layer) const;
  bool IsIndexSource(int layer) const { return IndexSourceOf(layer) == layer; }
  /// The kv source of the decoder: layers below it form the encoder (c.12). -1 when there is none.
  int LastKvSource() const { return kv_source_layer_ids.empty() ? -1 : kv_source_layer_ids.back(); }

  bool PublishesCandidates(int layer) const { return layer == candidate_source_layer_id; }
  /// An index source whose choice is limited to the candidate source's blocks.
  bool RestrictedToCandidates(int layer) const {
    return candidate_source_layer_id >= 0 && layer > candidate_source_layer_id && IsIndexSource(layer);
  }

  /// Routed experts of a layer or stage, and how many of them work on a token.
  int RoutedExperts(int layer) const;
  int ExpertsPerToken(int layer) const;

  /// Rows read per token from each Engram table.
  int HashColumns() const { return static_cast<int>((engram_max_ngram_size - 1) * engram_n_heads); }
  /// Index into engram_hashes, -1 when the layer has no Engram.
  int EngramSlot(int layer) const;
  /// Index into dspark_target_layer_ids, -1 when the layer is not tapped.
  int TapSlot(int layer) const;

  /// Outputs of a hyper-connection projection: pre, post and comb coefficients.
  int64_t MixCoefficients() const { return (2 + hc_mult) * hc_mult; }
};

/// Reads config.json: text_config, vision_config and quantization_config nested, or the text keys at top level. Unknown
/// keys are ignored; absent optional keys take the release's values (rope_scaling: no YaRN). kInvalidArgument: not
/// JSON, a wrong type, range or combination; kUnsupported: a well-formed setting that this program cannot run. Messages
/// start with the key and say what was expected and found.
Result<ModelConfig> ParseModelConfig(std::string_view json);

/// Checks the invariants of a config that was filled by hand, and derives engram_hashes and engram_num_embeddings (the
/// latter only if empty, otherwise they are compared).
Status CheckModelConfig(ModelConfig* config);

/// config.json text that ParseModelConfig reads back to the same values.
std::string WriteModelConfig(const ModelConfig& config);

/// A scalar key of text_config with its admissible values.
struct IntegerSetting {
  std::string_view key;
  int64_t ModelConfig::*member;
  int64_t minimum;
  int64_t maximum;
  int64_t multiple = 1;
};
std::span<const IntegerSetting> IntegerSettings();

}  // namespace deepinfer

#endif  // DEEPINFER_CHECKPOINT_MODEL_CONFIG_H_
