#include "checkpoint/weight_layout.h"

#include <fmt/format.h>

#include <cassert>
#include <string_view>
#include <utility>

namespace deepinfer {
namespace {

class LayoutBuilder {
 public:
  LayoutBuilder(const ModelConfig& config, Weights* weights) : config_(config), weights_(*weights) {}

  std::vector<WeightSlot> Build() {
    const int64_t vocabulary = config_.vocab_size;
    const int64_t hidden = config_.hidden_size;
    weights_ = {};
    weights_.layers.resize(static_cast<size_t>(config_.num_hidden_layers));
    weights_.mtp.stages.resize(static_cast<size_t>(config_.num_nextn_predict_layers));
    AddMatrix("embed.weight", ModelPart::kEmbedding, WeightFormat::kBF16, vocabulary, hidden, &weights_.embed)
        .active_rows = 1;
    AddVector("norm.weight", ModelPart::kNorms, WeightFormat::kBF16, hidden, &weights_.norm);
    AddMatrix("head.weight", ModelPart::kHead, WeightFormat::kBF16, vocabulary, hidden, &weights_.head);
    for (int layer = 0; layer < config_.num_hidden_layers; ++layer) {
      prefix_ = fmt::format("layers.{}.", layer);
      layer_ = layer;
      AddLayer(layer, &weights_.layers[static_cast<size_t>(layer)]);
    }
    layer_ = CheckpointWeight::kNoLayer;
    for (int stage = 0; stage < config_.num_nextn_predict_layers; ++stage) {
      prefix_ = fmt::format("mtp.{}.", stage);
      const size_t first = slots_.size();
      AddLayer(static_cast<int>(config_.num_hidden_layers) + stage, &weights_.mtp.stages[static_cast<size_t>(stage)]);
      AddStageExtras(stage, &weights_.mtp);
      for (size_t i = first; i < slots_.size(); ++i) slots_[i].part = ModelPart::kDraft;
    }
    prefix_.clear();
    if (config_.vision) AddVision(*config_.vision);
    return std::move(slots_);
  }

 private:
  WeightSlot& Add(std::string_view name, ModelPart part, WeightFormat format, std::vector<int64_t> shape) {
    WeightSlot& slot = slots_.emplace_back();
    slot.name = prefix_;
    slot.name += name;
    slot.part = part;
    slot.layer = layer_;
    slot.format = format;
    slot.shape = std::move(shape);
    slot.active_rows = slot.rows();
    return slot;
  }

  WeightSlot& AddMatrix(std::string_view name, ModelPart part, WeightFormat format, int64_t rows, int64_t columns,
                        WeightMatrix* matrix) {
    WeightSlot& slot = Add(name, part, format, {rows, columns});
    slot.matrix = matrix;
    return slot;
  }

  WeightSlot& AddVector(std::string_view name, ModelPart part, WeightFormat format, int64_t size,
                        WeightVector* vector) {
    WeightSlot& slot = Add(name, part, format, {size});
    slot.vector = vector;
    return slot;
  }

  void AddF8(std::string_view name, ModelPart part, int64_t rows, int64_t columns, WeightMatrix* matrix) {
    AddMatrix(name, part, WeightFormat::kF8Block32, rows, columns, matrix);
  }
  void AddBf16(std::string_view name, ModelPart part, int64_t rows, int64_t columns, WeightMatrix* matrix) {
    AddMatrix(name, part, WeightFormat::kBF16, rows, columns, matrix);
  }
  void AddNorm(std::string_view name, ModelPart part, int64_t size, WeightVector* vector) {
    AddVector(name, part, WeightFormat::kBF16, size, vector);
  }
  void AddF32(std::string_view name, ModelPart part, int64_t size, WeightVector* vector) {
    AddVector(name, part, WeightFormat::kF32, size, vector);
  }

  void AddLayer(int layer, LayerWeights* weights) {
    AddNorm("attn_norm.weight", ModelPart::kNorms, config_.hidden_size, &weights->attn_norm);
    AddNorm("ffn_norm.weight", ModelPart::kNorms, config_.hidden_size, &weights->ffn_norm);
    AddHyperConnection("hc_attn", &weights->hc_attn);
    AddHyperConnection("hc_ffn", &weights->hc_ffn);
    AddAttention(layer, &weights->attention);
    AddFeedForward(layer, &weights->ffn);
    const int slot = config_.EngramSlot(layer);
    if (slot >= 0) AddEngram(config_.engram_num_embeddings[static_cast<size_t>(slot)], &weights->engram.emplace());
  }

  void AddHyperConnection(const std::string& site, HyperConnectionWeights* weights) {
    constexpr ModelPart kPart = ModelPart::kHyperConnections;
    const int64_t mixes = config_.MixCoefficients();
    // Headers of the release are quoted with F32 and with BF16 (spec e.8).
    AddMatrix(site + "_fn", kPart, WeightFormat::kF32, mixes, config_.hc_mult * config_.hidden_size, &weights->fn)
        .either_float = true;
    AddF32(site + "_base", kPart, mixes, &weights->base);
    AddF32(site + "_scale", kPart, 3, &weights->scale);
  }

  void AddAttention(int layer, AttentionWeights* weights) {
    constexpr ModelPart kPart = ModelPart::kAttention;
    const int64_t hidden = config_.hidden_size;
    const int64_t head = config_.head_dim;
    const int64_t heads_width = config_.num_attention_heads * head;
    const int64_t output_rank = config_.o_groups * config_.o_lora_rank;
    AddF8("attn.wq_a.weight", kPart, config_.q_lora_rank, hidden, &weights->wq_a);
    AddNorm("attn.q_norm.weight", kPart, config_.q_lora_rank, &weights->q_norm);
    AddF8("attn.wq_b.weight", kPart, heads_width, config_.q_lora_rank, &weights->wq_b);
    AddF8("attn.wkv.weight", kPart, head, hidden, &weights->wkv);
    AddNorm("attn.kv_norm.weight", kPart, head, &weights->kv_norm);
    AddF32("attn.attn_sink", kPart, config_.num_attention_heads, &weights->attn_sink);
    AddF8("attn.wo_a.weight", kPart, output_rank, heads_width / config_.o_groups, &weights->wo_a);
    AddF8("attn.wo_b.weight", kPart, hidden, output_rank, &weights->wo_b);
    if (config_.IsKvSource(layer)) {
      CompressorWeights& compressor = weights->compressor.emplace();
      AddBf16("attn.compressor.wkv.weight", kPart, head, hidden, &compressor.wkv);
      if (config_.ratio(layer) > 1) AddBf16("attn.compressor.wgate.weight", kPart, head, hidden, &compressor.wgate);
      AddNorm("attn.compressor.norm.weight", kPart, head, &compressor.norm);
    }
    if (config_.IsIndexSource(layer)) {
      IndexerWeights& indexer = weights->indexer.emplace();
      const int64_t width = config_.index_head_dim;
      AddF8("attn.indexer.wq_b.weight", kPart, config_.index_n_heads * width, config_.q_lora_rank, &indexer.wq_b);
      AddBf16("attn.indexer.weights_proj.weight", kPart, config_.index_n_heads, hidden, &indexer.weights_proj);
      if (config_.IsKvSource(layer)) {
        AddBf16("attn.indexer.wk.weight", kPart, width, head, &indexer.wk);
        AddNorm("attn.indexer.k_norm.weight", kPart, width, &indexer.k_norm);
      }
    }
  }

  void AddFeedForward(int layer, FeedForwardWeights* weights) {
    const int64_t hidden = config_.hidden_size;
    const int experts = config_.RoutedExperts(layer);
    AddBf16("ffn.gate.weight", ModelPart::kRouter, experts, hidden, &weights->gate);
    AddF32("ffn.gate.bias", ModelPart::kRouter, experts, &weights->gate_bias);
    AddF32("ffn.gate.bias_vl", ModelPart::kRouter, experts, &weights->gate_bias_vl);
    weights->experts.resize(static_cast<size_t>(experts));
    for (int expert = 0; expert < experts; ++expert) {
      // Which experts a token picks does not matter to a count, so the first ones stand for the picked ones.
      AddExpert(fmt::format("ffn.experts.{}.", expert), ModelPart::kRoutedExperts, WeightFormat::kF4Row32,
                expert < config_.ExpertsPerToken(layer), &weights->experts[static_cast<size_t>(expert)]);
    }
    AddExpert("ffn.shared_experts.", ModelPart::kSharedExperts, WeightFormat::kF8Block32, true,
              &weights->shared_experts);
  }

  void AddExpert(const std::string& name, ModelPart part, WeightFormat format, bool active, ExpertWeights* weights) {
    const int64_t hidden = config_.hidden_size;
    const int64_t inner = config_.moe_intermediate_size;
    const size_t first = slots_.size();
    AddMatrix(name + "w1.weight", part, format, inner, hidden, &weights->w1);
    AddMatrix(name + "w2.weight", part, format, hidden, inner, &weights->w2);
    AddMatrix(name + "w3.weight", part, format, inner, hidden, &weights->w3);
    if (active) return;
    for (size_t i = first; i < slots_.size(); ++i) slots_[i].active_rows = 0;
  }

  void AddEngram(int64_t rows, EngramWeights* weights) {
    constexpr ModelPart kPart = ModelPart::kEngramProjections;
    const int64_t streams = config_.hc_mult;
    const int64_t hidden = config_.hidden_size;
    AddMatrix("engram.embed.weight", ModelPart::kEngramTables, WeightFormat::kF8Row32, rows, config_.engram_head_dim,
              &weights->embed)
        .active_rows = config_.HashColumns();
    AddF8("engram.wkv.weight", kPart, (streams + 1) * hidden, config_.HashColumns() * config_.engram_head_dim,
          &weights->wkv);
    // [n, D] in the file, used as one vector of n*D.
    Add("engram.q_weight", kPart, WeightFormat::kBF16, {streams, hidden}).vector = &weights->q_weight;
    Add("engram.k_weight", kPart, WeightFormat::kBF16, {streams, hidden}).vector = &weights->k_weight;
  }

  void AddStageExtras(int stage, DraftWeights* weights) {
    constexpr ModelPart kPart = ModelPart::kDraft;
    const int64_t hidden = config_.hidden_size;
    const int64_t vocabulary = config_.vocab_size;
    const int64_t rank = config_.dspark_markov_rank;
    if (stage == 0) {
      const int64_t taps = static_cast<int64_t>(config_.dspark_target_layer_ids.size());
      AddF8("main_proj.weight", kPart, hidden, taps * hidden, &weights->main_proj);
      AddNorm("main_norm.weight", kPart, hidden, &weights->main_norm);
    }
    if (stage == config_.num_nextn_predict_layers - 1) {
      AddNorm("norm.weight", kPart, hidden, &weights->norm);
      AddMatrix("markov_head.embed.weight", kPart, WeightFormat::kBF16, vocabulary, rank, &weights->markov_embed)
          .active_rows = std::min(vocabulary, config_.dspark_block_size);
      AddBf16("markov_head.head.weight", kPart, vocabulary, rank, &weights->markov_head);
      AddBf16("confidence_head.proj.weight", kPart, 1, hidden + rank, &weights->confidence_proj);
    }
  }

  void AddVision(const VisionConfig& vision) {
    const int64_t width = vision.hidden_size;
    const int64_t hidden = config_.hidden_size;
    const auto add = [this](std::string_view name, std::vector<int64_t> shape) -> WeightSlot& {
      WeightSlot& slot = Add(name, ModelPart::kVision, WeightFormat::kBF16, std::move(shape));
      slot.active_rows = 0;
      return slot;
    };
    add("vision.patch_embed.proj.weight", {width, 3 * vision.patch_size * vision.patch_size});
    add("vision.patch_embed.proj.bias", {width});
    for (int64_t block = 0; block < vision.num_hidden_layers; ++block) {
      const std::string prefix = fmt::format("vision.blocks.{}.", block);
      // Norm weights are quoted as BF16, the official run time keeps them in F32 (spec e.9).
      add(prefix + "norm1.weight", {width}).either_float = true;
      add(prefix + "norm2.weight", {width}).either_float = true;
      add(prefix + "attn.wqkv.weight", {3 * width, width});
      add(prefix + "attn.wqkv.bias", {3 * width});
      add(prefix + "attn.wo.weight", {width, width});
      add(prefix + "attn.wo.bias", {width});
      add(prefix + "mlp.w1.weight", {2 * vision.intermediate_size, width});
      add(prefix + "mlp.w2.weight", {width, vision.intermediate_size});
    }
    add("vision.norm.weight", {width}).either_float = true;
    add("aligner.w1.weight", {hidden, width * vision.downsample_ratio * vision.downsample_ratio});
    add("aligner.w1.bias", {hidden});
    add("aligner.w2.weight", {hidden, hidden});
    add("aligner.w2.bias", {hidden});
    for (const char* name : {"image_start", "image_end", "image_newline"}) add(name, {hidden});
  }

  const ModelConfig& config_;
  Weights& weights_;
  std::string prefix_;
  int layer_ = CheckpointWeight::kNoLayer;
  std::vector<WeightSlot> slots_;
};

}  // namespace

std::string ModelPartName(ModelPart part) {
  switch (part) {
    case ModelPart::kEmbedding:
      return "embedding";
    case ModelPart::kHead:
      return "head";
    case ModelPart::kNorms:
      return "norms";
    case ModelPart::kAttention:
      return "attention";
    case ModelPart::kHyperConnections:
      return "hyper-connections";
    case ModelPart::kRouter:
      return "router";
    case ModelPart::kRoutedExperts:
      return "routed experts";
    case ModelPart::kSharedExperts:
      return "shared experts";
    case ModelPart::kEngramTables:
      return "Engram tables";
    case ModelPart::kEngramProjections:
      return "Engram projections";
    case ModelPart::kDraft:
      return "DSpark";
    case ModelPart::kVision:
      return "vision";
  }
  return "?";
}

std::vector<WeightSlot> LayOutWeights(const ModelConfig& config, Weights* weights) {
  return LayoutBuilder(config, weights).Build();
}

CheckpointWeight ListedWeight(const WeightSlot& slot, const WeightMatrix& view) {
  return {view, slot.layer, slot.part == ModelPart::kEngramTables};
}

TensorShape ValueTensor(const WeightSlot& slot) {
  TensorShape tensor{slot.name, DType::kF32, slot.shape};
  switch (slot.format) {
    case WeightFormat::kF32:
      break;
    case WeightFormat::kBF16:
      tensor.dtype = DType::kBF16;
      break;
    case WeightFormat::kF8Block32:
    case WeightFormat::kF8Row32:
      tensor.dtype = DType::kF8E4M3;
      break;
    case WeightFormat::kF4Row32:
      tensor.dtype = DType::kI8;
      tensor.shape.back() /= 2;
      break;
  }
  return tensor;
}

bool HasScale(const WeightSlot& slot) { return slot.View().scale_row_bytes() > 0; }

TensorShape ScaleTensor(const WeightSlot& slot) {
  constexpr std::string_view kValues = "weight";
  assert(slot.name.ends_with(kValues));
  const int64_t rows = slot.format == WeightFormat::kF8Block32 ? (slot.rows() + 31) / 32 : slot.rows();
  return {slot.name.substr(0, slot.name.size() - kValues.size()) + "scale", DType::kE8M0, {rows, slot.columns() / 32}};
}

}  // namespace deepinfer
