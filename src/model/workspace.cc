#include "model/workspace.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ops/dot_order.h"

namespace deepinfer {
// Hands out pieces of one block; run first without a block to learn its size, then again to bind.
class Workspace::Planner {
 public:
  explicit Planner(uint8_t* base) : base_(base) {}

  template <typename T>
  void Take(int64_t rows, int64_t columns, TensorView<T>* view) {
    *view = TensorView<T>(base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + position_), rows, columns, columns);
    position_ += (rows * columns * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    size_ = std::max(size_, position_);
  }

  int64_t position() const { return position_; }
  void Rewind(int64_t position) { position_ = position; }
  int64_t size() const { return size_; }

 private:
  uint8_t* base_;
  int64_t position_ = 0;
  int64_t size_ = 0;
};

void Workspace::Bind(const ModelConfig& config, const WorkspaceLimits& limits, Planner& planner,
                     Planner& hash_planner) {
  const bool drafts = config.num_nextn_predict_layers > 0;
  const bool compressed = !config.kv_source_layer_ids.empty();
  const int64_t block = drafts ? limits.draft_sequences * config.dspark_block_size : 0;
  const int64_t tokens = limits.rows;
  const int64_t rows = std::max(tokens, block);
  const int64_t compressed_tokens = compressed ? tokens : 0;
  const int64_t hidden = config.hidden_size;
  const int64_t wide = config.hc_mult * hidden;
  const int64_t rotary = config.qk_rope_head_dim;
  const int64_t taps = std::ssize(config.dspark_target_layer_ids);

  planner.Take(rows, wide, &step.streams);
  planner.Take(rows, config.hc_mult, &step.first_pre);
  planner.Take(rows, config.MixCoefficients(), &step.attention_mix);
  planner.Take(rows, config.MixCoefficients(), &step.feed_forward_mix);
  planner.Take(rows, hidden, &step.input);
  planner.Take(rows, hidden, &step.output);
  planner.Take(rows, rotary, &step.plain_rope);
  planner.Take(rows, rotary, &step.compressed_rope);
  planner.Take(compressed_tokens, rotary, &step.pair_rope);
  planner.Take(compressed_tokens, config.index_topk, &step.selected);
  planner.Take(compressed_tokens, 1, &step.selected_counts);
  const bool candidates = config.candidate_source_layer_id >= 0;
  planner.Take(candidates ? tokens : 0, config.candidate_topk_blocks, &step.candidates);
  planner.Take(candidates ? tokens : 0, 1, &step.candidate_counts);
  planner.Take(rows, PackedRowBytes(RowFormat::kWindowFp8, config.head_dim).total(), &step.fresh);
  step.hashes.resize(config.engram_layer_ids.size());
  for (TensorView<int64_t>& hashes : step.hashes) hash_planner.Take(tokens, config.HashColumns(), &hashes);
  planner.Take(limits.logits_rows, config.vocab_size, &result.logits);
  planner.Take(tokens, taps * hidden, &result.taps);
  const int64_t engram_tokens = config.engram_layer_ids.empty() ? 0 : tokens;
  const int64_t early_tokens = std::min(engram_tokens, Ops::kMostRowsBeside);
  planner.Take(early_tokens, config.HashColumns() * config.engram_head_dim, &engram.early_embeddings);
  planner.Take(early_tokens, wide + hidden, &engram.early_kv);

  const int64_t phase = planner.position();
  const int64_t heads = config.num_attention_heads * config.head_dim;
  planner.Take(rows, config.q_lora_rank, &attention.query_latent);
  planner.Take(rows, heads, &attention.queries);
  planner.Take(rows, heads, &attention.attended);
  planner.Take(rows, config.head_dim, &attention.kv);
  planner.Take(rows, config.o_groups * config.o_lora_rank, &attention.output_latent);
  planner.Take(compressed_tokens, 2 * config.head_dim, &attention.raw);
  planner.Take(compressed_tokens, config.head_dim, &attention.latent);
  planner.Take(compressed_tokens, config.index_head_dim, &attention.index_key);
  planner.Take(compressed_tokens, config.index_n_heads * config.index_head_dim, &attention.index_queries);
  planner.Take(compressed_tokens, config.index_n_heads, &attention.head_weights);

  planner.Rewind(phase);
  const int64_t picks = std::max(config.num_experts_per_tok, drafts ? config.dspark_num_experts_per_tok : int64_t{0});
  planner.Take(rows, picks, &feed_forward.picks);
  planner.Take(rows, picks, &feed_forward.weights);
  planner.Take(rows, config.moe_intermediate_size, &feed_forward.gate);
  planner.Take(rows, config.moe_intermediate_size, &feed_forward.up);
  planner.Take(rows, hidden, &feed_forward.shared);

  planner.Rewind(phase);
  planner.Take(engram_tokens, config.HashColumns() * config.engram_head_dim, &engram.embeddings);
  planner.Take(engram_tokens, wide + hidden, &engram.kv);

  planner.Rewind(phase);
  planner.Take(limits.logits_rows, wide, &head.streams);
  planner.Take(limits.logits_rows, config.MixCoefficients(), &head.pre);
  planner.Take(limits.logits_rows, hidden, &head.normed);

  planner.Rewind(phase);
  const int64_t sequences = drafts ? limits.draft_sequences : 0;
  planner.Take(drafts ? tokens : 0, taps * hidden, &draft.taps);
  planner.Take(drafts ? tokens : 0, hidden, &draft.main);
  planner.Take(drafts ? tokens : 0, config.head_dim, &draft.kv);
  planner.Rewind(phase);
  planner.Take(block, hidden, &draft.normed);
  planner.Take(block, hidden, &draft.collapsed);
  planner.Take(block, hidden, &draft.proposals);
  planner.Take(block, hidden + config.dspark_markov_rank, &draft.confidence_input);
  planner.Take(block, 1, &draft.confidence);
  planner.Take(sequences, config.vocab_size, &draft.bias);
  planner.Take(block, config.vocab_size, &draft.logits);
}

Status Workspace::Allocate(const ModelConfig& config, const WorkspaceLimits& limits, Ops& ops) {
  Planner measure(nullptr);
  Planner measure_hashes(nullptr);
  Bind(config, limits, measure, measure_hashes);
  Result<DeviceMemory> memory = ops.Allocate(measure.size());
  Result<DeviceMemory> hashes = DeviceMemory::OnHost(measure_hashes.size());
  if (!memory.ok() || !hashes.ok()) {
    return Status::ResourceExhausted("no memory for the activations of " + std::to_string(limits.rows) +
                                     " rows per step: " + std::to_string(measure.size()) +
                                     " bytes needed; lower max_rows_per_step");
  }
  memory_ = std::move(*memory);
  hashes_ = std::move(*hashes);
  Planner bind(memory_.data());
  Planner bind_hashes(hashes_.data());
  Bind(config, limits, bind, bind_hashes);

  head_dim_ = static_cast<int32_t>(config.head_dim);
  fresh_pages_.resize(static_cast<size_t>(step.fresh.rows));
  for (int64_t row = 0; row < step.fresh.rows; ++row) fresh_pages_[static_cast<size_t>(row)] = step.fresh.row(row);
  std::vector<float> first_pre(static_cast<size_t>(step.first_pre.rows * step.first_pre.columns));
  for (int64_t row = 0; row < step.first_pre.rows; ++row) {
    first_pre[static_cast<size_t>(row * step.first_pre.columns)] = 1.0f;
  }
  ops.CopyIn(first_pre.data(), step.first_pre.data, static_cast<int64_t>(first_pre.size() * sizeof(float)));
  if (!ops.computes_on_host_memory()) {
    const auto bytes = static_cast<int64_t>(fresh_pages_.size() * sizeof(uint8_t*));
    DEEPINFER_ASSIGN_OR_RETURN(device_pages_, ops.Allocate(bytes));
    ops.CopyIn(fresh_pages_.data(), device_pages_.data(), bytes);
  }
  return Status::Ok();
}

PackedRows Workspace::FreshRows(int64_t first_row) const {
  PackedRows rows{fresh_pages_.data() + first_row, 1, RowFormat::kWindowFp8, head_dim_};
  if (device_pages_.data() != nullptr) {
    rows.device_pages = reinterpret_cast<uint8_t* const*>(device_pages_.data()) + first_row;
  }
  return rows;
}

ScratchLimits ScratchLimitsFor(const ModelConfig& config, const WorkspaceLimits& limits, int64_t max_context) {
  const bool drafts = config.num_nextn_predict_layers > 0;
  const int64_t block = drafts ? config.dspark_block_size : 0;
  ScratchLimits scratch;
  scratch.rows = std::max({limits.rows, limits.logits_rows, limits.draft_sequences * block});
  // wo_a reads its input in o_groups pieces, each of which is padded to whole chunks of the dot order.
  const int64_t group_width = config.num_attention_heads * config.head_dim / config.o_groups;
  const int64_t grouped_input = config.o_groups * ((group_width + kDotChunk - 1) / kDotChunk * kDotChunk);
  scratch.columns = std::max({config.hc_mult * config.hidden_size, config.q_lora_rank, grouped_input,
                              config.o_groups * config.o_lora_rank, config.moe_intermediate_size,
                              config.HashColumns() * config.engram_head_dim,
                              std::ssize(config.dspark_target_layer_ids) * config.hidden_size,
                              config.hidden_size + config.dspark_markov_rank});
  scratch.outputs = std::max({config.moe_intermediate_size, config.hidden_size, config.MixCoefficients(),
                              config.n_routed_experts, drafts ? config.dspark_n_routed_experts : int64_t{0}});
  scratch.experts_per_token =
      std::max(config.num_experts_per_tok, drafts ? config.dspark_num_experts_per_tok : int64_t{0});
  scratch.experts = std::max(config.n_routed_experts, drafts ? config.dspark_n_routed_experts : int64_t{0});
  scratch.heads = std::max(config.num_attention_heads, config.index_n_heads);
  scratch.head_width = std::max(config.head_dim, config.index_head_dim);
  scratch.attended_rows = config.sliding_window + block + config.index_topk;
  scratch.candidate_blocks = config.candidate_topk_blocks;
  scratch.vocabulary = config.vocab_size;
  for (const int32_t source : config.kv_source_layer_ids) {
    scratch.index_rows = std::max(scratch.index_rows, max_context / std::max(config.ratio(source), 1));
  }
  return scratch;
}

}  // namespace deepinfer
