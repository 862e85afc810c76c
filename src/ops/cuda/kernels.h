// Launchers of the CUDA kernels: the ops of ops/ops.h on device memory.
//
// Every pointer inside an argument is a device pointer, unless said otherwise. A launcher enqueues on `stream` and
// returns; errors show in cudaGetLastError(). Activations are F32. FP4 weights are in pair order (fp4_pairs.h). Promise
// 1 holds for each: an output row is a function of its inputs, in an order that shapes and positions fix.
//
// Two families of products: the canonical ones (ops/dot_order.h, to the bit) take every shape and format; the tensor
// core ones (skinny.h, exact_linear.h, wide.h) take released shapes and have a fixed order of their own.
// Thread-safety: any thread; order is the stream's. Ownership: none.
#ifndef DEEPINFER_OPS_CUDA_KERNELS_H_
#define DEEPINFER_OPS_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/tensor_view.h"
#include "base/weight_matrix.h"
#include "ops/cuda/row_forms.h"
#include "ops/packed_rows.h"

namespace deepinfer::cuda {

/// Keys of one sequence on the device: as AttentionSequence, with device pages.
struct DeviceSequence {
  int32_t first_row = 0;
  int32_t row_count = 0;
  int64_t first_position = 0;
  PackedRows ring;
  PackedRows fresh;
  PackedRows compressed;
  int64_t window_start = 0;
  int32_t ring_slots = 0;
  bool whole_block = false;
};

struct DeviceIndexSequence {
  int32_t first_row = 0;
  int32_t row_count = 0;
  int64_t first_position = 0;
  PackedRows keys;
};

/// Rows of an index source, on the device.
struct DeviceLists {
  int32_t* rows = nullptr;  // [T, stride]
  int64_t stride = 0;
  int32_t* counts = nullptr;  // [T]
};

// rows.cu
void Embed(cudaStream_t stream, const WeightMatrix& table, const int32_t* ids, FloatView out);
/// Every launcher that takes `forms` writes the rows of its output so, too (row_forms.h).
void RmsNorm(cudaStream_t stream, ConstFloatView x, const WeightVector& weight, float eps, FloatView out,
             const RowForms& forms);
void RopeTable(cudaStream_t stream, const int64_t* positions, const float* frequencies, FloatView cos_sin);
void Rope(cudaStream_t stream, FloatView x, int heads, ConstFloatView cos_sin, bool inverse);
/// Rope with forms of the result, where it fits: head and rotated channels in fours, rows of x at multiples of 16
/// bytes.
bool RopeWithFormsFits(ConstFloatView x, int heads, ConstFloatView cos_sin);
void RopeWithForms(cudaStream_t stream, FloatView x, int heads, ConstFloatView cos_sin, bool inverse,
                   const RowForms& forms);
void SwiGlu(cudaStream_t stream, ConstFloatView gate, ConstFloatView up, float limit, FloatView hidden,
            const RowForms& forms);
/// hidden = silu * up * weights[row].
void WeightedSwiGlu(cudaStream_t stream, ConstFloatView gate, ConstFloatView up, const float* weights, float limit,
                    FloatView hidden);
void Add(cudaStream_t stream, ConstFloatView y, FloatView out);
void Scale(cudaStream_t stream, float factor, FloatView x);
void GatherTableRows(cudaStream_t stream, const WeightMatrix& table, const int64_t* rows, int64_t columns,
                     FloatView out);
/// out.row(i) = x.row(rows[i]).
void GatherFloatRows(cudaStream_t stream, ConstFloatView x, const int32_t* rows, FloatView out);
/// out.row(t) = sum over k of parts.row(slots[t * per_token + k]), k ascending, starting from 0.
void SumParts(cudaStream_t stream, ConstFloatView parts, const int32_t* slots, int per_token, FloatView out);

// mix_streams.cu; the projection of MixStreams is a CanonicalLinear into `out` before
/// squares: [T] what LinearAndSquares gave, or null: FinishMix reads the streams again.
void FinishMix(cudaStream_t stream, ConstFloatView streams, const float* squares, int n, const WeightVector& base,
               const WeightVector& scale, int sinkhorn_iterations, float hc_eps, float rms_eps, FloatView out);
void CollapseNorm(cudaStream_t stream, ConstFloatView streams, int n, ConstFloatView pre, const WeightVector& weight,
                  float eps, FloatView normed, FloatView collapsed, const RowForms& forms);
/// LinearAndSquares beside collapsed = sum_j pre[j] * streams[j], for few rows, with the bits of the two. FinishMix and
/// RmsNorm end MixAndCollapse.
void ProjectAndCollapse(cudaStream_t stream, ConstFloatView streams, const WeightMatrix& fn, FloatView mix,
                        float* squares, int n, ConstFloatView pre, FloatView collapsed);

// streams.cu
void SpreadStreams(cudaStream_t stream, ConstFloatView y, ConstFloatView mix, int n, FloatView streams);
void MeanStreams(cudaStream_t stream, ConstFloatView streams, int n, FloatView out);
void EngramInject(cudaStream_t stream, ConstFloatView kv, const WeightVector& q_weight, const WeightVector& k_weight,
                  int n, float eps, FloatView streams);

// canonical_linear.cu
/// x through E4M3 in groups of 32, back to F32 (spec c.1).
void QuantiseActivations(cudaStream_t stream, ConstFloatView x, FloatView out);
/// CanonicalLinear of plain weights with few outputs, and squares[t] = x.row(t) times itself.
void LinearAndSquares(cudaStream_t stream, ConstFloatView x, const WeightMatrix& weight, FloatView out, float* squares);
/// The same for many rows, where it fits: F32 weights of at most 24 outputs, columns a multiple of 128; rows of x and
/// the weight start at multiples of 16 bytes (many_rows.cu).
bool LinearAndSquaresOfManyFits(ConstFloatView x, const WeightMatrix& weight);
void LinearAndSquaresOfMany(cudaStream_t stream, ConstFloatView x, const WeightMatrix& weight, FloatView out,
                            float* squares);
void CanonicalLinear(cudaStream_t stream, ConstFloatView x, const WeightMatrix& weight, int groups, FloatView out);

// cache_rows.cu
/// Ops::PoolPairs; both lists hold device addresses.
void PoolPairs(cudaStream_t stream, const float* const* first, const float* const* second, FloatView out);
/// Where a packed row lies.
struct RowPlace {
  uint8_t* values;
  uint8_t* scales;
};
/// Row t of x, quantised, to places[t].
void StoreRows(cudaStream_t stream, ConstFloatView x, RowFormat format, const RowPlace* places);
/// Ops::FinishQueriesAndKeys in one launch.
void FinishQueriesAndKeys(cudaStream_t stream, FloatView queries, int heads, FloatView kv, const WeightVector& norm,
                          float eps, ConstFloatView cos_sin, RowFormat format, const RowPlace* places);
/// No row is written twice, nor read and written.
void CopyRows(cudaStream_t stream, const RowPlace* from, const RowPlace* to, int64_t count, RowBytes bytes);
/// Device to device.
void CopyBytes(cudaStream_t stream, const void* from, void* to, int64_t bytes);
/// `columns` floats from each from[i] to to[i].
void CopyFloats(cudaStream_t stream, const float* const* from, int64_t count, int64_t columns, float* const* to);
/// x.row(i) = x.row(rows[i]) in place, rows ascending.
void KeepRows(cudaStream_t stream, const int32_t* rows, int64_t count, FloatView x);

// attention.cu
/// row_sequence[t]: index of the sequence of row t. Rows may attend at most `most_keys` keys.
void Attention(cudaStream_t stream, ConstFloatView q, int heads, const DeviceSequence* sequences,
               const int32_t* row_sequence, int window, const DeviceLists& selected, const WeightVector& sink,
               float scale, int most_keys, FloatView out);

// sparse_attention.cu
/// Whether SparseAttention takes these heads: 512 channels, a multiple of 16 heads up to 128, SM90.
bool SparseAttentionFits(int heads, int64_t width);
/// Bytes that `scratch` needs, at a multiple of 16; 0 for many rows.
int64_t SparseAttentionScratchBytes(int64_t rows, int heads, int most_keys);
/// Attention on the tensor cores, in an order of sums of its own: Attention within 1e-5 of the largest output of a row.
/// Rows of q start at multiples of 16 bytes, rows of out at multiples of 8, pages of keys at multiples of 16. Where
/// there is scratch, out may be rotated back (Rope, inverse) by `rotation`, whose columns are a multiple of 4, and
/// stored in forms, too.
void SparseAttention(cudaStream_t stream, ConstFloatView q, int heads, const DeviceSequence* sequences,
                     const int32_t* row_sequence, int window, const DeviceLists& selected, const WeightVector& sink,
                     float scale, int most_keys, void* scratch, FloatView out, ConstFloatView rotation = {},
                     const RowForms& forms = {});

// index.cu
struct IndexArguments {
  int32_t heads = 0, head_width = 0, ratio = 1;
  int32_t topk = 0, block_size = 0, topk_blocks = 0;
  bool publish = false;
  bool restrict_to_candidates = false;
};
/// scores [rows, most_visible] and block_scores [rows, ceil(most_visible / block_size)] are scratch for the rows
/// first_row .. first_row + rows - 1.
void SelectRows(cudaStream_t stream, ConstFloatView q, ConstFloatView head_weights,
                const DeviceIndexSequence* sequences, const int32_t* row_sequence, int64_t first_row, int64_t rows,
                const IndexArguments& arguments, const DeviceLists& candidates, const DeviceLists& selected,
                float* scores, int64_t most_visible, float* block_scores);

/// Whether SelectInParts takes these: published blocks that 8192 is a multiple of.
bool SelectInPartsFits(const IndexArguments& arguments);
int64_t SelectInPartsScratchBytes(int64_t rows, const IndexArguments& arguments, int64_t most_visible);
/// SelectRows for all rows, with the same result: long rows by several blocks, scores on the tensor cores where
/// IndexScores takes them. `scratch` is at a multiple of 4.
void SelectInParts(cudaStream_t stream, ConstFloatView q, ConstFloatView head_weights,
                   const DeviceIndexSequence* sequences, const int32_t* row_sequence, const IndexArguments& arguments,
                   const DeviceLists& candidates, const DeviceLists& selected, int64_t most_visible, void* scratch);

// index_scores.cu
/// Whether IndexScores takes these: 16 or 32 heads of 128 channels.
bool IndexScoresFit(const IndexArguments& arguments);
/// The scores of SelectRows on the tensor cores, the same bits. Restricted: those of the candidates only; the others
/// keep their value. Rows of q start at multiples of 16 bytes, pages of keys too.
void IndexScores(cudaStream_t stream, ConstFloatView q, ConstFloatView head_weights,
                 const DeviceIndexSequence* sequences, const int32_t* row_sequence, int64_t first_row, int64_t rows,
                 const IndexArguments& arguments, const DeviceLists& candidates, float* scores, int64_t most_visible);

// route.cu; the gate is a linear into `logits` [T, E] before, which may be overwritten
void FinishRoute(cudaStream_t stream, FloatView logits, const WeightVector& bias, bool normalise, float scaling,
                 int32_t* picks, int64_t picks_stride, int per_token, FloatView weights);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_KERNELS_H_
