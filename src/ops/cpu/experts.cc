#include "ops/cpu/experts.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "ops/cpu/linear_limits.h"
#include "ops/cpu/rows.h"

namespace deepinfer::cpu {
namespace {

// Tokens of one pass: enough that a popular expert fills row blocks, few enough that the pairs' buffers stay small.
constexpr int64_t kExpertTokens = 512;
// Outputs that a worker computes of one expert with kRowBlock pairs before it combines them.
constexpr int64_t kExpertTile = 256;

// Pairs of `rows` tokens sorted by expert, tokens ascending within one.
void SortPairs(TensorView<const int32_t> picks, ConstFloatView weights, int64_t experts, ExpertsScratch& scratch) {
  int32_t* first = scratch.first_pair.data();
  std::fill_n(first, experts + 1, 0);
  for (int64_t t = 0; t < picks.rows; ++t) {
    for (int64_t k = 0; k < picks.columns; ++k) ++first[picks.row(t)[k] + 1];
  }
  for (int64_t e = 0; e < experts; ++e) first[e + 1] += first[e];
  for (int64_t t = 0; t < picks.rows; ++t) {
    for (int64_t k = 0; k < picks.columns; ++k) {
      const int32_t pair = first[picks.row(t)[k]]++;
      scratch.pair_token[pair] = static_cast<int32_t>(t);
      scratch.pair_weight[pair] = weights.row(t)[k];
    }
  }
  for (int64_t e = experts; e > 0; --e) first[e] = first[e - 1];
  first[0] = 0;
}

// What the products of one pass share.
struct Pass {
  ThreadPool& pool;
  LinearScratch& linear;
  ExpertsScratch& scratch;
  std::span<const ExpertWeights> experts;
  ActivationFormat activation;

  // Calls body(expert, first pair, pair count) for every run of at most kRowBlock pairs of one expert.
  template <typename Body>
  void ForRuns(const Body& body) const {
    for (size_t e = 0; e < experts.size(); ++e) {
      const int64_t end = scratch.first_pair[static_cast<int64_t>(e) + 1];
      for (int64_t pair = scratch.first_pair[static_cast<int64_t>(e)]; pair < end; pair += kRowBlock) {
        body(experts[e], pair, std::min(kRowBlock, end - pair));
      }
    }
  }

  // Puts row source(pair) of every pair into dot order for a product with `columns` inputs.
  template <typename Source>
  void Order(int64_t pairs, int64_t columns, LinearPath path, const Source& source) const {
    const int64_t bytes = PaddedColumns(columns) * (path == LinearPath::kBf16Pairs ? 2 : 4);
    uint8_t* ordered = reinterpret_cast<uint8_t*>(scratch.ordered.data());
    ParallelRange(pool, pairs, pairs * columns < 1 << 15 ? pairs : 1, [&](int64_t begin, int64_t end) {
      for (int64_t pair = begin; pair < end; ++pair) {
        OrderActivations(source(pair), columns, activation, path, ordered + pair * bytes);
      }
    });
  }

  // Outputs in a row of a tile: the fewer pairs an expert has, the longer the run of its weights that is read at once.
  int64_t TileWidth() const {
    int64_t most = 1;
    ForRuns([&](const ExpertWeights&, int64_t, int64_t count) { most = std::max(most, count); });
    return kRowBlock * kExpertTile / most / kPanelRows * kPanelRows;
  }

  // Outputs begin..end of `weight` for a run of pairs into tile [pair][tile_width].
  void Multiply(int worker, const WeightMatrix& weight, LinearPath path, int64_t pair, int64_t pairs, int64_t begin,
                int64_t end, float* tile, int64_t tile_width) const {
    const int64_t stride = PaddedColumns(weight.columns);
    const int64_t element = path == LinearPath::kBf16Pairs ? 2 : 4;
    RunLinearSlice({.x = reinterpret_cast<const uint8_t*>(scratch.ordered.data()) + pair * stride * element,
                    .x_stride = stride,
                    .rows = pairs,
                    .weight = weight,
                    .begin = begin,
                    .end = end,
                    .out = tile - begin,
                    .out_stride = tile_width,
                    .panel = linear.panels.data() + worker * kPanelFloats,
                    .accumulators = linear.accumulators.data() + worker * kAccumulatorFloats},
                   path);
  }

  float* tile(int worker, int index) const {
    return scratch.tiles.data() + (2 * worker + index) * kRowBlock * kExpertTile;
  }
};

// One pass over at most kExpertTokens tokens.
void RunPass(const Pass& pass, ConstFloatView x, int64_t pairs, float limit, FloatView out) {
  const ExpertWeights& shape = pass.experts[0];
  const int64_t inner = shape.w1.rows;
  const int64_t width = shape.w2.rows;
  const LinearPath up_path = ChooseLinearPath(shape.w1.format, pass.activation);
  const LinearPath down_path = ChooseLinearPath(shape.w2.format, pass.activation);
  const ExpertsScratch& scratch = pass.scratch;
  const int64_t tile_width = pass.TileWidth();

  pass.Order(pairs, shape.w1.columns, up_path, [&](int64_t pair) { return x.row(scratch.pair_token[pair]); });
  pass.pool.Run([&](int worker) {
    const StaticRange range = SplitRange(inner, worker, pass.pool.workers(), kPanelRows);
    float* gate = pass.tile(worker, 0);
    float* up = pass.tile(worker, 1);
    pass.ForRuns([&](const ExpertWeights& expert, int64_t pair, int64_t count) {
      for (int64_t begin = range.begin; begin < range.end; begin += tile_width) {
        const int64_t end = std::min(range.end, begin + tile_width);
        pass.Multiply(worker, expert.w1, up_path, pair, count, begin, end, gate, tile_width);
        pass.Multiply(worker, expert.w3, up_path, pair, count, begin, end, up, tile_width);
        for (int64_t i = 0; i < count; ++i) {
          // The routing weight multiplies before w2 and its activation quantisation.
          SwiGluRow(gate + i * tile_width, up + i * tile_width, limit, scratch.pair_weight[pair + i],
                    scratch.hidden.data() + (pair + i) * inner + begin, end - begin);
        }
      }
    });
  });

  pass.Order(pairs, inner, down_path, [&](int64_t pair) { return scratch.hidden.data() + pair * inner; });
  pass.pool.Run([&](int worker) {
    const StaticRange range = SplitRange(width, worker, pass.pool.workers(), kPanelRows);
    float* tile = pass.tile(worker, 0);
    for (int64_t begin = range.begin; begin < range.end; begin += tile_width) {
      const int64_t end = std::min(range.end, begin + tile_width);
      for (int64_t t = 0; t < out.rows; ++t) std::fill(out.row(t) + begin, out.row(t) + end, 0.0f);
      pass.ForRuns([&](const ExpertWeights& expert, int64_t pair, int64_t count) {
        pass.Multiply(worker, expert.w2, down_path, pair, count, begin, end, tile, tile_width);
        for (int64_t i = 0; i < count; ++i) {
          AddRow(tile + i * tile_width, out.row(scratch.pair_token[pair + i]) + begin, end - begin);
        }
      });
    }
  });
}

}  // namespace

Status ExpertsScratch::Reserve(const ScratchLimits& limits, int workers) {
  max_tokens = std::min(std::max<int64_t>(limits.rows, 1), kExpertTokens);
  max_columns = PaddedColumns(limits.outputs);
  const int64_t pairs = max_tokens * limits.experts_per_token;
  if (!ordered.Allocate(pairs * max_columns) || !hidden.Allocate(pairs * limits.outputs) ||
      !tiles.Allocate(workers * 2 * kRowBlock * kExpertTile) || !first_pair.Allocate(limits.experts + 1) ||
      !pair_token.Allocate(pairs) || !pair_weight.Allocate(pairs)) {
    return Status::ResourceExhausted("no memory for the experts' scratch");
  }
  return Status::Ok();
}

void Experts(ThreadPool& pool, LinearScratch& linear, ExpertsScratch& scratch, ConstFloatView x,
             TensorView<const int32_t> picks, ConstFloatView weights, std::span<const ExpertWeights> experts,
             float limit, ActivationFormat activation, FloatView out) {
  assert(static_cast<int64_t>(experts.size()) < scratch.first_pair.size());
  const Pass pass{pool, linear, scratch, experts, activation};
  for (int64_t first = 0; first < x.rows; first += scratch.max_tokens) {
    const int64_t last = std::min(x.rows, first + scratch.max_tokens);
    assert((last - first) * picks.columns <= scratch.pair_token.size());
    SortPairs(picks.RowRange(first, last), weights.RowRange(first, last), static_cast<int64_t>(experts.size()),
              scratch);
    RunPass(pass, x.RowRange(first, last), (last - first) * picks.columns, limit, out.RowRange(first, last));
  }
}

}  // namespace deepinfer::cpu
