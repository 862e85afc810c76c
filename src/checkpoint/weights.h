// Weights: every tensor of a checkpoint as typed views into the mapped files, and Checkpoint, which owns the mapping.
//
// Nothing is copied or converted: a view points at the bytes of the file, in the released format. Tensors may start at
// any byte offset, so BF16, F32 and E8M0 views are read with unaligned loads or memcpy.
//
// Shape symbols as in spec section (b): V vocabulary, D hidden_size, n residual streams, H heads, Dh head_dim, Rq, Ro
// ranks, G output groups, I moe_intermediate_size, E routed experts of the layer, Hi, Di index heads and their width, N
// rows of an Engram table, F = hash columns * engram_head_dim, M dspark_markov_rank. [outputs, inputs] everywhere.
//
// Thread-safety: Open() touches no global state; an open Checkpoint is immutable and may be read by any thread.
// Ownership: the Checkpoint owns the mapping, every view dies with it; it may be moved, views stay valid.
#ifndef DEEPINFER_CHECKPOINT_WEIGHTS_H_
#define DEEPINFER_CHECKPOINT_WEIGHTS_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/generated_weights.h"
#include "base/weight_matrix.h"
#include "checkpoint/model_config.h"
#include "checkpoint/safetensors.h"
#include "deepinfer/status.h"

namespace deepinfer {

/// One site (attention or feed-forward) of a layer's hyper-connections (c.3).
struct HyperConnectionWeights {
  WeightMatrix fn;     // [(2+n)n, n*D] F32 or BF16, column = stream*D + channel
  WeightVector base;   // [(2+n)n] F32: pre, post, comb row major
  WeightVector scale;  // [3] F32: pre, post, comb
};

/// kv sources only (c.6).
struct CompressorWeights {
  WeightMatrix wkv;    // [Dh, D] BF16
  WeightMatrix wgate;  // [Dh, D] BF16; ratio 2 only
  WeightVector norm;   // [Dh] BF16
};

/// Index sources only (c.6).
struct IndexerWeights {
  WeightMatrix wq_b;          // [Hi*Di, Rq] F8
  WeightMatrix weights_proj;  // [Hi, D] BF16
  WeightMatrix wk;            // [Di, Dh] BF16; kv sources only
  WeightVector k_norm;        // [Di] BF16; kv sources only
};

struct AttentionWeights {
  WeightMatrix wq_a;       // [Rq, D] F8
  WeightVector q_norm;     // [Rq] BF16
  WeightMatrix wq_b;       // [H*Dh, Rq] F8, row = head*Dh + channel
  WeightMatrix wkv;        // [Dh, D] F8
  WeightVector kv_norm;    // [Dh] BF16
  WeightVector attn_sink;  // [H] F32
  WeightMatrix wo_a;       // [G*Ro, H*Dh/G] F8, row = group*Ro + rank
  WeightMatrix wo_b;       // [D, G*Ro] F8
  std::optional<CompressorWeights> compressor;
  std::optional<IndexerWeights> indexer;
};

struct FeedForwardWeights {
  WeightMatrix gate;                   // [E, D] BF16
  WeightVector gate_bias;              // [E] F32, selection bias of text tokens
  WeightVector gate_bias_vl;           // [E] F32, selection bias of image tokens
  std::vector<ExpertWeights> experts;  // E of them; w1, w3 [I, D] F4, w2 [D, I] F4
  ExpertWeights shared_experts;        // w1, w3 [I, D] F8, w2 [D, I] F8
};

/// Engram layers only (c.8).
struct EngramWeights {
  WeightMatrix embed;     // [N, engram_head_dim] F8 with row scales; row gather only, never read through
  WeightMatrix wkv;       // [(n+1)*D, F] F8: n keys, then the value
  WeightVector q_weight;  // [n*D] BF16
  WeightVector k_weight;  // [n*D] BF16
};

/// A backbone layer or a DSpark stage.
struct LayerWeights {
  WeightVector attn_norm;  // [D] BF16
  WeightVector ffn_norm;   // [D] BF16
  HyperConnectionWeights hc_attn;
  HyperConnectionWeights hc_ffn;
  AttentionWeights attention;
  FeedForwardWeights ffn;
  std::optional<EngramWeights> engram;
};

/// The drafter (c.11); no stages: nothing here is present.
struct DraftWeights {
  WeightMatrix main_proj;            // [D, taps*D] F8 (mtp.0)
  WeightVector main_norm;            // [D] BF16 (mtp.0)
  std::vector<LayerWeights> stages;  // num_nextn_predict_layers
  WeightVector norm;                 // [D] BF16 (last stage)
  WeightMatrix markov_embed;         // [V, M] BF16 (last stage)
  WeightMatrix markov_head;          // [V, M] BF16 (last stage)
  WeightMatrix confidence_proj;      // [1, D+M] BF16 (last stage)
};

/// A tensor that is only kept by name (vision tower, aligner, image delimiters).
struct NamedTensor {
  std::string name;
  TensorInfo info;
  const uint8_t* data = nullptr;
};

struct Weights {
  WeightMatrix embed;                // [V, D] BF16
  std::vector<LayerWeights> layers;  // num_hidden_layers
  WeightVector norm;                 // [D] BF16
  WeightMatrix head;                 // [V, D] BF16
  DraftWeights mtp;
  std::vector<NamedTensor> vision;  // empty without vision_config
};

/// A weight of the text model, for whoever walks over all of them.
struct CheckpointWeight {
  static constexpr int kNoLayer = -1;

  WeightMatrix view;          ///< a vector is one row
  int layer = kNoLayer;       ///< of the backbone; kNoLayer: beside the layers (embedding, head, drafter)
  bool engram_table = false;  ///< read by rows, never as a whole
};

struct CheckpointOptions {
  /// Refuse scales of NaN (E8M0 byte 255). Reads every scale page except those of the Engram tables: 3 % of the bytes.
  bool check_scales = true;
};

class Checkpoint {
 public:
  /// Opens config.json and the shards of model.safetensors.index.json, or else model.safetensors, in `directory`.
  /// kNotFound: a file that should be there; kInvalidArgument, kUnsupported: config.json; kCorruption: files that do
  /// not hold exactly the tensors that config.json asks for. Messages name file, tensor, expected and found.
  static Result<Checkpoint> Open(const std::filesystem::path& directory, const CheckpointOptions& options = {});

  /// A checkpoint without files: weights that a GPU makes in its own memory (base/generated_weights.h); only the Engram
  /// tables can be read here. `name` stands for the directory, which does not exist. Bytes are a function of tensor
  /// name, shape and `seed`. kUnsupported: a vision tower; kResourceExhausted: no room for the tables.
  static Result<Checkpoint> Generate(const ModelConfig& config, const std::string& name, uint64_t seed);

  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;

  const std::filesystem::path& directory() const { return directory_; }
  const ModelConfig& config() const { return config_; }
  const Weights& weights() const { return weights_; }
  /// Every weight of weights() but the vision tower's, once.
  const std::vector<CheckpointWeight>& list() const { return list_; }
  /// The mapped files, in index order; none of a generated checkpoint.
  const std::vector<SafetensorsFile>& files() const { return files_; }
  int64_t tensor_count() const;
  /// Of all weights: the mapped files, or what is generated.
  int64_t bytes() const;

 private:
  Checkpoint() = default;

  std::filesystem::path directory_;
  ModelConfig config_;
  Weights weights_;
  std::vector<CheckpointWeight> list_;
  std::vector<SafetensorsFile> files_;
  std::unique_ptr<GeneratedWeights> generated_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CHECKPOINT_WEIGHTS_H_
