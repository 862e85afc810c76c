// Workspace: every activation buffer of a step, planned once for the largest step (promise 5).
//
// Buffers of a phase (attention, feed-forward, Engram, head, draft context) share the same memory, because only one
// phase runs at a time; everything else has memory of its own. Views have the maximal number of rows; a step takes
// RowRange(0, T) of them.
//
// Shapes: T max_rows_per_step, R = max(T, S * b), S draft sequences, b DSpark block, n streams, D hidden size, other
// symbols as in ops.h. Thread-safety: as the Model that owns it. Ownership: owns its memory.
#ifndef DEEPINFER_MODEL_WORKSPACE_H_
#define DEEPINFER_MODEL_WORKSPACE_H_

#include <cstdint>
#include <vector>

#include "base/device_memory.h"
#include "base/tensor_view.h"
#include "checkpoint/model_config.h"
#include "deepinfer/status.h"
#include "ops/ops.h"
#include "ops/packed_rows.h"

namespace deepinfer {

struct WorkspaceLimits {
  int64_t rows = 0;             ///< tokens of one step
  int64_t logits_rows = 0;      ///< rows of one step that get logits
  int64_t draft_sequences = 1;  ///< sequences of one DraftBlocks()
};

/// Lives through a step.
struct StepBuffers {
  FloatView streams;             // [R, n*D]
  FloatView first_pre;           // [R, n], one-hot on stream 0: what layer 0 collapses with
  FloatView attention_mix;       // [R, (2+n)n]
  FloatView feed_forward_mix;    // [R, (2+n)n], also the pre of the next layer's attention
  FloatView input;               // [R, D] normalised input of a sublayer
  FloatView output;              // [R, D] output of a sublayer
  FloatView plain_rope;          // [R, rotary] cos, sin of window-only layers
  FloatView compressed_rope;     // [R, rotary] cos, sin of layers with compressed KV
  FloatView pair_rope;           // [T, rotary] cos, sin at the first positions of the pairs that this step closes
  TensorView<int32_t> selected;  // [T, index_topk]
  TensorView<int32_t> selected_counts;      // [T, 1]
  TensorView<int32_t> candidates;           // [T, candidate_topk_blocks]
  TensorView<int32_t> candidate_counts;     // [T, 1]
  TensorView<uint8_t> fresh;                // [R, bytes of a window row]
  std::vector<TensorView<int64_t>> hashes;  // per Engram layer [T, hash columns], host memory
};

/// Outputs that outlive the step, until the next Forward().
struct ResultBuffers {
  FloatView logits;  // [logits rows, V]
  FloatView taps;    // [T, taps * D]
};

struct AttentionBuffers {
  FloatView query_latent;   // [R, Rq]
  FloatView queries;        // [R, H*Dh]
  FloatView attended;       // [R, H*Dh]
  FloatView kv;             // [R, Dh]
  FloatView output_latent;  // [R, G*Ro]
  FloatView raw;            // [T, 2*Dh] kv ++ gate of a pooling compressor
  FloatView latent;         // [T, Dh]
  FloatView index_key;      // [T, Di]
  FloatView index_queries;  // [T, Hi*Di]
  FloatView head_weights;   // [T, Hi]
};

struct FeedForwardBuffers {
  TensorView<int32_t> picks;  // [R, K]
  FloatView weights;          // [R, K]
  FloatView gate;             // [R, I]
  FloatView up;               // [R, I]
  FloatView shared;           // [R, D]
};

/// Steps of few rows have `early` ones in memory that no other phase uses, since the layer before computes meanwhile.
struct EngramBuffers {
  FloatView embeddings;        // [T, hash columns * engram_head_dim]
  FloatView kv;                // [T, (n+1)*D]
  FloatView early_embeddings;  // [min(T, Ops::kMostRowsBeside), hash columns * engram_head_dim]
  FloatView early_kv;          // [the same rows, (n+1)*D]
};

struct HeadBuffers {
  FloatView streams;  // [logits rows, n*D] the rows that get logits
  FloatView pre;      // [logits rows, (2+n)n]
  FloatView normed;   // [logits rows, D]
};

/// Rows of a block of proposals are stored proposal-major from `proposals` on: row k * S + s is proposal k of sequence
/// s, so that each proposal of all sequences is one product with the Markov head.
struct DraftBuffers {
  FloatView taps;              // [T, taps * D] rows fed to the draft rings
  FloatView main;              // [T, D] projected taps
  FloatView kv;                // [T, Dh]
  FloatView normed;            // [S*b, D], sequence-major
  FloatView collapsed;         // [S*b, D], sequence-major
  FloatView proposals;         // [b*S, D] normed
  FloatView confidence_input;  // [b*S, D + M] collapsed row ++ Markov embedding
  FloatView confidence;        // [b*S, 1]
  FloatView bias;              // [S, V] Markov bias
  FloatView logits;            // [b*S, V]
};

class Workspace {
 public:
  /// Takes the memory from `ops`. kResourceExhausted when there is none.
  Status Allocate(const ModelConfig& config, const WorkspaceLimits& limits, Ops& ops);

  int64_t bytes() const { return memory_.bytes() + hashes_.bytes() + device_pages_.bytes(); }

  StepBuffers step;
  ResultBuffers result;
  AttentionBuffers attention;
  FeedForwardBuffers feed_forward;
  EngramBuffers engram;
  HeadBuffers head;
  DraftBuffers draft;

  /// Window rows of the step, one row a page: row r is the row of token r, so that one store serves all sequences and
  /// each sequence sees its own rows from `first_row` on.
  PackedRows FreshRows(int64_t first_row) const;

 private:
  class Planner;
  void Bind(const ModelConfig& config, const WorkspaceLimits& limits, Planner& planner, Planner& hashes);

  DeviceMemory memory_;
  DeviceMemory hashes_;                // host memory
  std::vector<uint8_t*> fresh_pages_;  // [R]
  DeviceMemory device_pages_;          // the same on a device with memory of its own
  int32_t head_dim_ = 0;
};

/// What the Ops of a model need as scratch.
ScratchLimits ScratchLimitsFor(const ModelConfig& config, const WorkspaceLimits& limits, int64_t max_context);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_WORKSPACE_H_
