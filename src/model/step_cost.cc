#include "model/step_cost.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/parameter_summary.h"
#include "ops/packed_rows.h"

namespace deepinfer {
namespace {

// Attention and index scores of one token over all backbone layers.
StepCost AttentionCost(const ModelConfig& config, int64_t position) {
  const double window_row = static_cast<double>(PackedRowBytes(RowFormat::kWindowFp8, config.head_dim).total());
  const double compressed_row = static_cast<double>(PackedRowBytes(RowFormat::kCompressedFp4, config.head_dim).total());
  const double index_row = static_cast<double>(PackedRowBytes(RowFormat::kIndexFp4, config.index_head_dim).total());
  const double row_flops = 4.0 * static_cast<double>(config.num_attention_heads * config.head_dim);
  const double window = static_cast<double>(std::min(config.sliding_window, position + 1));
  StepCost cost;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    cost.bytes += window * window_row;
    cost.flops += window * row_flops;
    const int ratio = config.ratio(layer);
    if (ratio == 0) continue;
    const int64_t visible = (position + 1) / ratio;
    const double selected = static_cast<double>(std::min(config.index_topk, visible));
    cost.bytes += selected * compressed_row;
    cost.flops += selected * row_flops;
    if (!config.IsIndexSource(layer) || visible <= config.index_topk) continue;
    const int64_t scored = config.RestrictedToCandidates(layer)
                               ? std::min(visible, config.candidate_topk_blocks * config.candidate_block_size)
                               : visible;
    cost.bytes += static_cast<double>(scored) * index_row;
    cost.flops += 2.0 * static_cast<double>(scored * config.index_n_heads * config.index_head_dim);
  }
  return cost;
}

// Parameters that are multiplied for every token, the head apart.
double BodyParameters(const ParameterSummary& summary) {
  return static_cast<double>(summary.total.active_parameters - summary.part(ModelPart::kEmbedding).active_parameters -
                             summary.part(ModelPart::kEngramTables).active_parameters -
                             summary.part(ModelPart::kHead).active_parameters);
}

}  // namespace

StepCost DecodeCost(const ModelConfig& config, int64_t position) { return DecodeCost(config, 1, {&position, 1}); }

StepCost DecodeCost(const ModelConfig& config, int64_t rows, std::span<const int64_t> positions) {
  const ParameterSummary summary = SummariseParameters(config);
  const auto row_count = static_cast<double>(rows);
  StepCost cost;
  for (const int64_t position : positions) {
    const StepCost attention = AttentionCost(config, position);
    cost.bytes += attention.bytes;
    cost.flops += attention.flops * row_count / static_cast<double>(positions.size());
  }
  const ParameterCount& experts = summary.part(ModelPart::kRoutedExperts);
  const double looked_up = static_cast<double>(summary.part(ModelPart::kEmbedding).active_bytes +
                                               summary.part(ModelPart::kEngramTables).active_bytes);
  const double dense = static_cast<double>(summary.total.active_bytes - experts.active_bytes) - looked_up;
  const double share = config.n_routed_experts > 0 ? static_cast<double>(config.num_experts_per_tok) /
                                                         static_cast<double>(config.n_routed_experts)
                                                   : 0;
  const double distinct = 1 - std::pow(1 - share, row_count);
  cost.bytes += dense + looked_up * row_count + static_cast<double>(experts.bytes) * distinct;
  cost.flops +=
      2 * row_count * (BodyParameters(summary) + static_cast<double>(summary.part(ModelPart::kHead).active_parameters));
  return cost;
}

StepCost PrefillCost(const ModelConfig& config, int64_t first_position, int64_t count) {
  const ParameterSummary summary = SummariseParameters(config);
  StepCost cost;
  for (int64_t i = 0; i < count; ++i) cost.flops += AttentionCost(config, first_position + i).flops;
  cost.flops += 2 * (BodyParameters(summary) * static_cast<double>(count) +
                     static_cast<double>(summary.part(ModelPart::kHead).active_parameters));
  cost.bytes = static_cast<double>(summary.total.active_bytes);
  return cost;
}

}  // namespace deepinfer
