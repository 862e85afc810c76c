#include "model/indexer.h"

#include <cmath>

#include "model/model.h"

namespace deepinfer {

SelectedRows SelectionOf(const StepContext& context) {
  const StepBuffers& buffers = context.workspace.step;
  return {context.Rows(buffers.selected), buffers.selected_counts.data};
}

void SelectCompressedRows(StepContext& context, int layer, const IndexerWeights& weights, ConstFloatView input,
                          ConstFloatView query_latent) {
  const ModelConfig& config = context.config;
  Ops& ops = context.ops;
  const AttentionBuffers& buffers = context.workspace.attention;
  const FloatView queries = context.Rows(buffers.index_queries);
  const FloatView head_weights = context.Rows(buffers.head_weights);
  const int heads = static_cast<int>(config.index_n_heads);

  ops.Linear(query_latent, weights.wq_b, context.activation, 1, queries);
  ops.Rope(queries, heads, context.RopeOf(layer), false);
  ops.Linear(input, weights.weights_proj, ActivationFormat::kExact, 1, head_weights);
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.index_head_dim * heads)));
  ops.Scale(scale, head_weights);

  context.step.index.clear();
  for (const StepItem& item : context.step.items()) {
    if (item.row_count == 0) continue;
    const int32_t source = item.sequence->layout().source_of_layer[static_cast<size_t>(layer)];
    context.step.index.push_back(
        {item.first_row, item.row_count, item.first_position, item.sequence->IndexKeys(source)});
  }
  IndexSettings settings;
  settings.heads = heads;
  settings.head_width = static_cast<int32_t>(config.index_head_dim);
  settings.ratio = config.ratio(layer);
  settings.topk = static_cast<int32_t>(config.index_topk);
  settings.block_size = static_cast<int32_t>(config.candidate_block_size);
  settings.topk_blocks = static_cast<int32_t>(config.candidate_topk_blocks);
  settings.publish_candidates = config.PublishesCandidates(layer);
  settings.restrict_to_candidates = config.RestrictedToCandidates(layer);
  const StepBuffers& step = context.workspace.step;
  const CandidateBlocks candidates{step.candidates, step.candidate_counts.data};
  ops.SelectRows(queries, head_weights, context.step.index, settings, candidates, SelectionOf(context));
  if (context.probe != nullptr) context.probe->OnSelection(layer, SelectionOf(context));
}

}  // namespace deepinfer
