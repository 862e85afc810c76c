// Ops: the interface between the model and a device. The model is written once against it; ops/reference (readable
// scalar code, the oracle of every op test), ops/cpu (SIMD) and ops/cuda implement it.
//
// Contract of every op:
//  1. Row independence (promise 1): an output row is a pure function of that row's inputs and the weights; reductions
//     run in an order fixed by shapes and absolute positions, never by the batch or the thread count.
//  2. No allocation, no exceptions; scratch comes from Reserve(), but a GPU takes temporaries and copies of
//     weights when a size or a weight is first used. Shapes are the caller's invariant (asserted).
//  3. T may be 0. Outputs may not alias inputs unless the op says "in place".
//  4. Views, packed pages and lists in views (picks, selections) lie in memory of Allocate(), or all of them in host
//     memory; spans lie in host memory and are read before the op returns, but for GatherRows' row lists, which are
//     host memory too. A device may run ops later, in their order: results are there after Finish(), ChooseTokens() and
//     AcceptDrafts() wait for theirs.
// Thread-safety: one thread drives an Ops object; it spreads work over its own pool. Ownership: views only.
//
// Shape symbols: T rows (tokens) of this step, D hidden size, n residual streams, H heads, Dh head width, R rotary
// width, W window, K experts per token, V vocabulary. Activations are F32; "x.row(t)" is token t.
#ifndef DEEPINFER_OPS_OPS_H_
#define DEEPINFER_OPS_OPS_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "base/device_memory.h"
#include "base/tensor_view.h"
#include "base/weight_matrix.h"
#include "deepinfer/status.h"
#include "ops/packed_rows.h"
#include "ops/sampling.h"
#include "ops/weight_list.h"

namespace deepinfer {

/// What stands in front of an FP8 or FP4 weight (spec c.1).
enum class ActivationFormat : uint8_t {
  kExact,        ///< F32 as it is
  kFp8Groups32,  ///< through E4M3 with one power-of-two scale per 32 channels
};

/// Upper bounds that the scratch of an Ops object is reserved for.
struct ScratchLimits {
  int64_t rows = 0;               ///< T
  int64_t columns = 0;            ///< widest input of any linear, each group padded to a multiple of 128
  int64_t outputs = 0;            ///< widest input or output inside an op: hidden size, expert width, mHC coefficients
  int64_t experts_per_token = 0;  ///< K
  int64_t experts = 0;            ///< routed experts of a layer
  int64_t heads = 0;              ///< max of attention and index heads
  int64_t head_width = 0;         ///< max of Dh and the index head width
  int64_t attended_rows = 0;      ///< most keys one query attends: window + block + index_topk
  int64_t index_rows = 0;         ///< most index keys of one sequence
  int64_t candidate_blocks = 0;   ///< most candidate_topk_blocks of an index source
  int64_t vocabulary = 0;         ///< V of the rows that tokens are chosen from
};

/// The keys of one sequence for the rows first_row .. first_row + row_count - 1 of the batch, which stand at positions
/// first_position, first_position + 1, ...
struct AttentionSequence {
  int32_t first_row = 0;
  int32_t row_count = 0;
  int64_t first_position = 0;
  PackedRows ring;  ///< window rows of positions before first_position; row index = position % ring_slots
  int32_t ring_slots = 0;
  PackedRows fresh;          ///< window rows of this step: row index = position - first_position
  PackedRows compressed;     ///< global rows of the kv source; unused when the layer has no selection
  int64_t window_start = 0;  ///< no window row before this position is seen (bounded replay)
  bool whole_block = false;  ///< DSpark: every row sees ring positions first_position - W .. first_position - 1 and all
                             ///< fresh rows, instead of the causal window of W positions ending at itself
};

/// Rows picked by an index source for each token, ascending; shared by the layers that reuse them.
struct SelectedRows {
  TensorView<int32_t> rows;   // [T, index_topk]
  int32_t* counts = nullptr;  // [T]
};

/// First level of the two-level indexer: kept blocks of each token, ascending.
struct CandidateBlocks {
  TensorView<int32_t> blocks;  // [T, candidate_topk_blocks]
  int32_t* counts = nullptr;   // [T]
};

/// What one index source does for the rows of one sequence (spec c.6).
struct IndexSequence {
  int32_t first_row = 0;
  int32_t row_count = 0;
  int64_t first_position = 0;
  PackedRows keys;  ///< kIndexFp4 rows of the kv source
};

struct IndexSettings {
  int32_t heads = 0;        ///< Hi
  int32_t head_width = 0;   ///< Di
  int32_t ratio = 1;        ///< row j is visible at position p when j < (p + 1) / ratio
  int32_t topk = 0;         ///< index_topk
  int32_t block_size = 0;   ///< candidate_block_size
  int32_t topk_blocks = 0;  ///< candidate_topk_blocks
  bool publish_candidates = false;
  bool restrict_to_candidates = false;
};

class Ops {
 public:
  virtual ~Ops() = default;

  /// "reference", "cpu (AVX3_DL)", ...
  virtual std::string_view name() const = 0;
  /// What the bits of results depend on: Ops of equal numerics compute equal ones. "cpu" for all of the CPU.
  virtual std::string_view numerics() const { return "cpu"; }

  /// Allocates scratch for these limits; call once before the first op, again to grow.
  virtual Status Reserve(const ScratchLimits& limits) = 0;

  /// Bytes of scratch held, and those of them in memory of the device's own.
  virtual int64_t scratch_bytes() const = 0;
  virtual int64_t device_scratch_bytes() const { return 0; }

  /// Zero-filled memory that ops compute on. kResourceExhausted: the device has none left.
  virtual Result<DeviceMemory> Allocate(int64_t bytes) { return DeviceMemory::OnHost(bytes); }
  /// Brings the weights of a model to their places before the first op that reads them; a weight that is on no list
  /// comes at its first use. One list for the life of an Ops. kResourceExhausted: no room, with the numbers.
  virtual Status LoadWeights(std::span<const ListedBytes> list, const LoadProgress& progress) {
    (void)list;
    (void)progress;
    return Status::Ok();
  }
  /// Bytes that Allocate() could still give, weights that are not on the device yet not counted; 0: as the system, or
  /// the device does not say.
  virtual int64_t free_bytes() const { return 0; }
  /// Whether that memory can be read and written by the host.
  virtual bool computes_on_host_memory() const { return true; }
  /// Copies into memory of Allocate(), in the order of the ops; `host` may change after the call.
  virtual void CopyIn(const void* host, void* to, int64_t bytes) { std::memcpy(to, host, static_cast<size_t>(bytes)); }
  /// Copies from memory of Allocate() and waits for it.
  virtual void CopyOut(const void* from, void* host, int64_t bytes) {
    std::memcpy(host, from, static_cast<size_t>(bytes));
  }
  /// Host memory that pieces are copied from and to the fastest; a GPU has it page-locked.
  virtual Result<DeviceMemory> AllocateStaging(int64_t bytes) { return DeviceMemory::OnHost(bytes); }
  /// CopyIn and CopyOut of every piece, waiting once. An error of the device is final: nothing was copied.
  virtual Status CopyPiecesIn(std::span<const MemoryPiece> pieces) {
    for (const MemoryPiece& piece : pieces) CopyIn(piece.from, piece.to, piece.bytes);
    return Finish();
  }
  virtual Status CopyPiecesOut(std::span<const MemoryPiece> pieces) {
    for (const MemoryPiece& piece : pieces) CopyOut(piece.from, piece.to, piece.bytes);
    return Finish();
  }
  /// Waits for all ops so far. An error of the device is final: outputs since then mean nothing.
  virtual Status Finish() { return Status::Ok(); }

  /// Ops of more rows fill a device by themselves: nothing is computed beside them.
  static constexpr int64_t kMostRowsBeside = 64;
  /// Ops until EndBeside() come after those before them, but a device may compute ops behind them at the same time,
  /// until one reads what they write or writes what they read. Views alone tell it so: ops that take packed rows or
  /// host lists of addresses do not belong between the two, and packed rows are not what ops between them write. rows:
  /// T of these ops.
  virtual void BeginBeside(int64_t rows) { (void)rows; }
  virtual void EndBeside() {}

  /// out.row(t) = table row ids[t]. table BF16 or F32 [V, D]; out [T, D].
  virtual void Embed(const WeightMatrix& table, std::span<const int32_t> ids, FloatView out) = 0;

  /// y = W x for each row (spec c.1). x [T, columns * groups], out [T, W.rows]. Output o reads the input columns of
  /// group o / (W.rows / groups). `activation` applies to kF8Block32 and kF4Row32 weights only; BF16 and F32 weights
  /// take F32 activations.
  virtual void Linear(ConstFloatView x, const WeightMatrix& weight, ActivationFormat activation, int groups,
                      FloatView out) = 0;

  /// Linear of the same rows by two weights, without groups: a device may compute them side by side, with the same
  /// bits. Neither output is x, nor the other.
  virtual void LinearPair(ConstFloatView x, const WeightMatrix& first, const WeightMatrix& second,
                          ActivationFormat activation, FloatView first_out, FloatView second_out) {
    Linear(x, first, activation, 1, first_out);
    Linear(x, second, activation, 1, second_out);
  }

  /// out = weight * x * rsqrt(mean(x^2) + eps) per row of `width` columns each (spec c, "Notation"). x may be out (in
  /// place). weight [columns].
  virtual void RmsNorm(ConstFloatView x, const WeightVector& weight, float eps, FloatView out) = 0;

  /// cos_sin.row(t) = cos then sin of float(positions[t]) * frequencies[i], i < R/2, angles rounded to F32 (spec c.4).
  virtual void RopeTable(std::span<const int64_t> positions, std::span<const float> frequencies, FloatView cos_sin) = 0;

  /// Rotates, in place, the last R channels of each of `heads` vectors of a row as adjacent pairs. x [T, heads *
  /// width], cos_sin [T, R]. inverse: conjugate rotation.
  virtual void Rope(FloatView x, int heads, ConstFloatView cos_sin, bool inverse) = 0;

  /// Hyper-connection coefficients (spec c.3 `mixes`). streams [T, n*D]; fn [(2+n)n, n*D]; base [(2+n)n] F32, scale [3]
  /// F32; out [T, n + n + n*n] = pre, post, comb (row major, first index the source stream).
  virtual void MixStreams(ConstFloatView streams, int n, const WeightMatrix& fn, const WeightVector& base,
                          const WeightVector& scale, int sinkhorn_iterations, float hc_eps, float rms_eps,
                          FloatView out) = 0;

  /// collapsed = sum_j pre[j] * streams[j]; normed = rms(collapsed, weight). streams [T, n*D], pre [T, >= n] (first n
  /// columns used), normed [T, D]; collapsed [T, D] or an empty view when it is not wanted.
  virtual void CollapseNorm(ConstFloatView streams, int n, ConstFloatView pre, const WeightVector& weight, float eps,
                            FloatView normed, FloatView collapsed) = 0;

  /// MixStreams into `mix`, and CollapseNorm with `pre`, which `mix` is not, into `normed`: two results of the same
  /// streams that do not need one another, so a device may compute them side by side. The bits are those of the two
  /// ops.
  virtual void MixAndCollapse(ConstFloatView streams, int n, const WeightMatrix& fn, const WeightVector& base,
                              const WeightVector& scale, int sinkhorn_iterations, float hc_eps, float rms_eps,
                              FloatView mix, ConstFloatView pre, const WeightVector& norm, FloatView normed) {
    MixStreams(streams, n, fn, base, scale, sinkhorn_iterations, hc_eps, rms_eps, mix);
    CollapseNorm(streams, n, pre, norm, rms_eps, normed, FloatView());
  }

  /// streams[j] = post[j] * y + sum_i comb[i, j] * streams[i], in place (spec c.3 `post`). y [T, D], mix as MixStreams
  /// writes it.
  virtual void SpreadStreams(ConstFloatView y, ConstFloatView mix, int n, FloatView streams) = 0;

  /// out = mean over the n streams. streams [T, n*D], out [T, D].
  virtual void MeanStreams(ConstFloatView streams, int n, FloatView out) = 0;

  /// Quantises row t of x [T, rows.channels] and stores it as packed row destination[t] (spec c.7).
  virtual void StoreRows(ConstFloatView x, const PackedRows& rows, std::span<const int64_t> destination) = 0;

  /// Rope of `queries`; RmsNorm, Rope and StoreRows of `kv`, in place: what attention does with a step's rows before
  /// it. One op, as a device may do it in one launch; the bits are those of the ops.
  virtual void FinishQueriesAndKeys(FloatView queries, int heads, FloatView kv, const WeightVector& kv_norm, float eps,
                                    ConstFloatView cos_sin, const PackedRows& rows,
                                    std::span<const int64_t> destination) {
    Rope(queries, heads, cos_sin, false);
    RmsNorm(kv, kv_norm, eps, kv);
    Rope(kv, 1, cos_sin, false);
    StoreRows(kv, rows, destination);
  }

  /// Copies packed rows byte for byte: to row destination[i] from row source[i]. Same format and channels.
  virtual void CopyRows(const PackedRows& from, std::span<const int64_t> source, const PackedRows& to,
                        std::span<const int64_t> destination) = 0;

  /// Copies `columns` floats from each address of `from` to the same element of `to`.
  virtual void CopyFloats(std::span<const float* const> from, int64_t columns, std::span<float* const> to) = 0;

  /// x.row(i) = x.row(rows[i]), in place: keeps some rows of a step. rows strictly ascending; x has more rows than
  /// that.
  virtual void KeepRows(std::span<const int32_t> rows, FloatView x) = 0;

  /// Window plus selected compressed rows, one shared key = value vector per row, sink in the denominator (spec c.5).
  /// q [T, H*Dh] rotated; sink [H]; out [T, H*Dh]. Keys in order: window positions ascending, then selected rows
  /// ascending. selected.counts == nullptr: window only.
  virtual void Attention(ConstFloatView q, int heads, std::span<const AttentionSequence> sequences, int window,
                         const SelectedRows& selected, const WeightVector& sink, float scale, FloatView out) = 0;

  /// Attention, then the inverse Rope of `out`: a device that joins parts of a row may rotate there. The bits are those
  /// of the two ops.
  virtual void AttentionRotatedBack(ConstFloatView q, int heads, std::span<const AttentionSequence> sequences,
                                    int window, const SelectedRows& selected, const WeightVector& sink, float scale,
                                    ConstFloatView cos_sin, FloatView out) {
    Attention(q, heads, sequences, window, selected, sink, scale, out);
    Rope(out, heads, cos_sin, true);
  }

  /// Ratio-2 compressor pooling (spec c.6): per channel, softmax over the two gates, weighted sum of the two kv.
  /// first[i], second[i] point to raw rows kv (Dh) ++ gate (Dh), F32; out [count, Dh].
  virtual void PoolPairs(std::span<const float* const> first, std::span<const float* const> second, FloatView out) = 0;

  /// Index scores and top-k (spec c.6). q [T, Hi*Di] rotated, quantised here to E2M1/32; head_weights [T, Hi] already
  /// scaled by (Di*Hi)^-0.5. Score of row j: sum_h w[h] * relu(<q_h, key_j>); equal scores: the earliest row wins.
  /// Writes selected; writes candidates when publish_candidates, reads them when restrict_to_candidates.
  virtual void SelectRows(ConstFloatView q, ConstFloatView head_weights, std::span<const IndexSequence> sequences,
                          const IndexSettings& settings, const CandidateBlocks& candidates,
                          const SelectedRows& selected) = 0;

  /// sqrt-softplus router (spec c.9): scores = sqrt(softplus(gate x)); picks the K best of score + bias (equal: lowest
  /// id), listed by ascending id; weights = score, normalised over the picks when `normalise`, times `scaling`.
  /// x [T, D], gate BF16 [E, D], bias [E]; picks [T, K], weights [T, K].
  virtual void Route(ConstFloatView x, const WeightMatrix& gate, const WeightVector& bias, bool normalise,
                     float scaling, TensorView<int32_t> picks, FloatView weights) = 0;

  /// out.row(t) = sum over k, in the order of picks, of w2(clamped silu(w1 x) * (w3 x) * weights[t, k]) (spec c.9).
  /// x [T, D], out [T, D]; the picks of a token are distinct and ascending, as Route lists them. limit <= 0: no clamp.
  virtual void Experts(ConstFloatView x, TensorView<const int32_t> picks, ConstFloatView weights,
                       std::span<const ExpertWeights> experts, float limit, ActivationFormat activation,
                       FloatView out) = 0;

  /// Experts into `out`, then Add(shared, out) and SpreadStreams(out, mix, n, streams): the end of a sublayer, which a
  /// device may do in the launch that adds a token's experts. The bits are those of the ops. `out` is neither x nor
  /// shared, and streams are none of the three.
  virtual void ExpertsAndSpread(ConstFloatView x, TensorView<const int32_t> picks, ConstFloatView weights,
                                std::span<const ExpertWeights> experts, float limit, ActivationFormat activation,
                                ConstFloatView shared, FloatView out, ConstFloatView mix, int n, FloatView streams) {
    Experts(x, picks, weights, experts, limit, activation, out);
    Add(shared, out);
    SpreadStreams(out, mix, n, streams);
  }

  /// hidden = silu(min(gate, limit)) * clamp(up, -limit, limit). gate, up, hidden [T, I]; hidden may be gate.
  virtual void SwiGlu(ConstFloatView gate, ConstFloatView up, float limit, FloatView hidden) = 0;

  /// x *= factor, in place.
  virtual void Scale(float factor, FloatView x) = 0;

  /// out += y. Same shape.
  virtual void Add(ConstFloatView y, FloatView out) = 0;

  /// De-quantised table rows side by side: out.row(t) = table[rows[t, 0]], table[rows[t, 1]], ... (spec c.8).
  /// table kF8Row32 [N, width]; rows [T, hash columns]; out [T, hash columns * width].
  virtual void GatherRows(const WeightMatrix& table, TensorView<const int64_t> rows, FloatView out) = 0;

  /// Engram gate and residual (spec c.8), in place on streams [T, n*D]. kv [T, (n+1)*D]: n keys, then the value.
  /// q_weight, k_weight [n*D].
  virtual void EngramInject(ConstFloatView kv, const WeightVector& q_weight, const WeightVector& k_weight, int n,
                            float eps, FloatView streams) = 0;

  /// choices[t] = the token of row t under rules[t], and its log probabilities (ops/sampling.h). logits [T, V].
  virtual void ChooseTokens(ConstFloatView logits, std::span<const TokenRule> rules,
                            std::span<TokenChoice> choices) = 0;

  /// verdicts[i] = how many drafts of sequence i stand, and the token after them, by rejection sampling: the emitted
  /// tokens follow the target's distributions exactly. Uniform numbers of draft k have the key (seed, position) of
  /// target_rules[k], lane 0, purposes kAccept and kResidual. After the last draft, and where the residual is nothing
  /// but rounding, the token is that of ChooseTokens for this row.
  virtual void AcceptDrafts(std::span<const DraftCheck> checks, std::span<DraftVerdict> verdicts) = 0;
};

/// Readable scalar implementation, single threaded.
std::unique_ptr<Ops> MakeReferenceOps();

/// SIMD implementation for the best instruction set of this machine, on `threads` threads (>= 1).
std::unique_ptr<Ops> MakeCpuOps(int threads);

}  // namespace deepinfer

#endif  // DEEPINFER_OPS_OPS_H_
