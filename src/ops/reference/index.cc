#include "ops/reference/index.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "ops/reference/dot.h"
#include "ops/reference/quantise.h"
#include "ops/reference/top_k.h"
#include "ops/reference/unpack.h"

namespace deepinfer::reference {
namespace {

// I[j] = sum_h w[h] * relu(<q_h, key_j>) for the rows j < visible, heads ascending.
std::vector<float> ScoreRows(const float* q, const float* head_weights, const PackedRows& keys, int64_t visible,
                             const IndexSettings& settings) {
  const int64_t width = settings.head_width;
  std::vector<float> query(static_cast<size_t>(settings.heads * width));
  QuantiseIndexQuery(q, static_cast<int64_t>(query.size()), query.data());

  std::vector<float> key(static_cast<size_t>(width));
  std::vector<float> scores(static_cast<size_t>(visible), 0.0f);
  for (int64_t j = 0; j < visible; ++j) {
    UnpackRow(keys, j, key.data());
    for (int32_t h = 0; h < settings.heads; ++h) {
      const float product = Dot(key.data(), nullptr, query.data() + h * width, width);
      scores[static_cast<size_t>(j)] += head_weights[h] * std::max(product, 0.0f);
    }
  }
  return scores;
}

// The kept blocks: best rows first, the block of the newest visible row always. Blocks without a visible row do not
// exist here.
std::vector<int32_t> KeepBlocks(const std::vector<float>& scores, const IndexSettings& settings) {
  if (scores.empty()) return {};
  const size_t size = static_cast<size_t>(settings.block_size);
  std::vector<float> block_scores((scores.size() + size - 1) / size, -std::numeric_limits<float>::infinity());
  for (size_t j = 0; j < scores.size(); ++j) block_scores[j / size] = std::max(block_scores[j / size], scores[j]);
  block_scores.back() = std::numeric_limits<float>::infinity();
  return TopK(block_scores, settings.topk_blocks);
}

}  // namespace

void SelectRows(ConstFloatView q, ConstFloatView head_weights, std::span<const IndexSequence> sequences,
                const IndexSettings& settings, const CandidateBlocks& candidates, const SelectedRows& selected) {
  for (const IndexSequence& sequence : sequences) {
    for (int64_t t = sequence.first_row; t < sequence.first_row + sequence.row_count; ++t) {
      const int64_t position = sequence.first_position + (t - sequence.first_row);
      const int64_t visible = (position + 1) / settings.ratio;
      const std::vector<float> scores = ScoreRows(q.row(t), head_weights.row(t), sequence.keys, visible, settings);

      if (settings.publish_candidates) {
        const std::vector<int32_t> kept = KeepBlocks(scores, settings);
        std::copy(kept.begin(), kept.end(), candidates.blocks.row(t));
        candidates.counts[t] = static_cast<int32_t>(kept.size());
      }

      // The rows that may be chosen, ascending: all visible ones, or those inside the candidate blocks. The publisher
      // itself is not restricted.
      std::vector<int32_t> allowed;
      if (settings.restrict_to_candidates && !settings.publish_candidates) {
        for (int32_t i = 0; i < candidates.counts[t]; ++i) {
          const int64_t begin = int64_t{candidates.blocks.row(t)[i]} * settings.block_size;
          for (int64_t j = begin; j < std::min(begin + settings.block_size, visible); ++j) {
            allowed.push_back(static_cast<int32_t>(j));
          }
        }
      } else {
        for (int64_t j = 0; j < visible; ++j) allowed.push_back(static_cast<int32_t>(j));
      }
      std::vector<float> allowed_scores;
      for (const int32_t j : allowed) allowed_scores.push_back(scores[static_cast<size_t>(j)]);
      const std::vector<int32_t> best = TopK(allowed_scores, settings.topk);
      for (size_t i = 0; i < best.size(); ++i) selected.rows.row(t)[i] = allowed[static_cast<size_t>(best[i])];
      selected.counts[t] = static_cast<int32_t>(best.size());
    }
  }
}

}  // namespace deepinfer::reference
