// The small per-row ops (ops/ops.h): one block a row, threads over columns.
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/fp4_pairs.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/rms_norm.cuh"
#include "ops/cuda/rope.cuh"
#include "ops/cuda/row_forms.cuh"

namespace deepinfer::cuda {
namespace {

/// One value of a stored weight with its scale.
__device__ float LoadWeight(const WeightMatrix& weight, int64_t row, int64_t column) {
  switch (weight.format) {
    case WeightFormat::kF32:
      return reinterpret_cast<const float*>(weight.data)[row * weight.columns + column];
    case WeightFormat::kBF16:
      return Bf16ToFloat(reinterpret_cast<const uint16_t*>(weight.data)[row * weight.columns + column]);
    case WeightFormat::kF8Block32:
    case WeightFormat::kF8Row32: {
      const int64_t scale_row = weight.format == WeightFormat::kF8Block32 ? row / 32 : row;
      return E4m3ToFloat(weight.data[row * weight.columns + column]) *
             E8m0ToFloat(weight.scale[scale_row * (weight.columns / 32) + column / 32]);
    }
    case WeightFormat::kF4Row32: {
      const uint32_t word = reinterpret_cast<const uint32_t*>(weight.data)[(row * weight.columns + column) / 8];
      return E2m1ToFloat(FromPairOrder(word) >> (4 * (column % 8))) *
             E8m0ToFloat(weight.scale[row * (weight.columns / 32) + column / 32]);
    }
  }
  return 0;
}

__global__ void EmbedKernel(WeightMatrix table, const int32_t* ids, FloatView out) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t t = blockIdx.x;
  for (int64_t c = OwnColumn(); c < out.columns; c += ColumnStep()) RowOf(out, t)[c] = LoadWeight(table, ids[t], c);
}

template <bool kVector>
__global__ void __launch_bounds__(kMostNormThreads)
    RmsNormKernel(ConstFloatView x, WeightVector weight, float eps, FloatView out, RowForms forms) {
  StartKernelBehind();
  extern __shared__ float partials[];
  const float* const row = RowOf(x, blockIdx.x);
  NormRow<kVector>(
      x.columns, [&](int64_t c, float(&values)[kDotLaneColumns]) { LoadColumns<kVector>(row, c, x.columns, values); },
      weight, eps, partials, RowOf(out, blockIdx.x), forms, blockIdx.x);
}

__global__ void RopeTableKernel(const int64_t* positions, const float* frequencies, FloatView cos_sin) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t pairs = cos_sin.columns / 2;
  for (int64_t i = threadIdx.x; i < pairs; i += blockDim.x) {
    const float angle = static_cast<float>(positions[blockIdx.x]) * frequencies[i];
    float sine, cosine;
    sincosf(angle, &sine, &cosine);
    RowOf(cos_sin, blockIdx.x)[i] = cosine;
    RowOf(cos_sin, blockIdx.x)[pairs + i] = sine;
  }
}

__global__ void RopeKernel(FloatView x, int heads, ConstFloatView cos_sin, bool inverse) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t pairs = cos_sin.columns / 2;
  const int64_t width = x.columns / heads;
  const float* cosine = RowOf(cos_sin, blockIdx.x);
  for (int64_t at = OwnColumn(); at < heads * pairs; at += ColumnStep()) {
    const int64_t i = at % pairs;
    float* const pair = RowOf(x, blockIdx.x) + (at / pairs + 1) * width - 2 * pairs + 2 * i;
    RotatePair(pair[0], pair[1], cosine, pairs, i, inverse);
  }
}

// The same with forms of the whole row, four columns a thread.
__global__ void RopeWithFormsKernel(FloatView x, int heads, ConstFloatView cos_sin, bool inverse, RowForms forms) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t t = blockIdx.x;
  const int64_t c = 4 * OwnColumn();
  if (c >= x.columns) return;
  const int64_t width = x.columns / heads;
  float4* const at = reinterpret_cast<float4*>(RowOf(x, t) + c);
  const float4 before = *at;
  float values[4] = {before.x, before.y, before.z, before.w};
  RotateFour(values, c % width, width, RowOf(cos_sin, t), cos_sin.columns / 2, inverse);
  *at = make_float4(values[0], values[1], values[2], values[3]);
  StoreForms(forms, values, t, c, x.columns);
}

__global__ void SwiGluKernel(ConstFloatView gate, ConstFloatView up, const float* weights, float limit,
                             FloatView hidden, RowForms forms) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t t = blockIdx.x;
  for (int64_t c = OwnColumn(); c < hidden.columns; c += ColumnStep()) {
    const float value = SwiGluValue(RowOf(gate, t)[c], RowOf(up, t)[c], limit);
    RowOf(hidden, t)[c] = weights == nullptr ? value : value * weights[t];
    if (weights == nullptr) StoreForms(forms, value, t, c, hidden.columns);
  }
}

__global__ void AddKernel(ConstFloatView y, FloatView out) {
  WaitForKernelAhead();
  StartKernelBehind();
  for (int64_t c = OwnColumn(); c < out.columns; c += ColumnStep())
    RowOf(out, blockIdx.x)[c] += RowOf(y, blockIdx.x)[c];
}

__global__ void ScaleKernel(float factor, FloatView x) {
  WaitForKernelAhead();
  StartKernelBehind();
  for (int64_t c = OwnColumn(); c < x.columns; c += ColumnStep()) RowOf(x, blockIdx.x)[c] *= factor;
}

__global__ void GatherTableKernel(WeightMatrix table, const int64_t* rows, int64_t columns, FloatView out) {
  WaitForKernelAhead();
  StartKernelBehind();
  for (int64_t c = OwnColumn(); c < columns * table.columns; c += ColumnStep()) {
    const int64_t place = blockIdx.x * columns + c / table.columns;
    RowOf(out, blockIdx.x)[c] = LoadWeight(table, rows == nullptr ? place : rows[place], c % table.columns);
  }
}

__global__ void GatherFloatKernel(ConstFloatView x, const int32_t* rows, FloatView out) {
  WaitForKernelAhead();
  StartKernelBehind();
  for (int64_t c = OwnColumn(); c < out.columns; c += ColumnStep()) {
    RowOf(out, blockIdx.x)[c] = RowOf(x, rows[blockIdx.x])[c];
  }
}

__global__ void SumPartsKernel(ConstFloatView parts, const int32_t* slots, int per_token, FloatView out) {
  WaitForKernelAhead();
  StartKernelBehind();
  for (int64_t c = OwnColumn(); c < out.columns; c += ColumnStep()) {
    float sum = 0;
    for (int k = 0; k < per_token; ++k) sum += RowOf(parts, slots[int64_t{blockIdx.x} * per_token + k])[c];
    RowOf(out, blockIdx.x)[c] = sum;
  }
}

unsigned Grid(int64_t rows) { return static_cast<unsigned>(rows); }

}  // namespace

void Embed(cudaStream_t stream, const WeightMatrix& table, const int32_t* ids, FloatView out) {
  if (out.rows > 0) LaunchEarly(stream, ColumnGrid(out.rows, out.columns), kThreads, 0, EmbedKernel, table, ids, out);
}

void RmsNorm(cudaStream_t stream, ConstFloatView x, const WeightVector& weight, float eps, FloatView out,
             const RowForms& forms) {
  if (out.rows == 0) return;
  const bool vectors = TakesVectors(x) && TakesVectors(out) && TakesVectors(weight);
  LaunchEarly(stream, Grid(out.rows), RowDotThreads(x.columns, kMostNormThreads), RowDotBytes(x.columns),
              vectors ? &RmsNormKernel<true> : &RmsNormKernel<false>, x, weight, eps, out, forms);
}

void RopeTable(cudaStream_t stream, const int64_t* positions, const float* frequencies, FloatView cos_sin) {
  if (cos_sin.rows > 0)
    LaunchEarly(stream, Grid(cos_sin.rows), 32, 0, RopeTableKernel, positions, frequencies, cos_sin);
}

void Rope(cudaStream_t stream, FloatView x, int heads, ConstFloatView cos_sin, bool inverse) {
  if (x.rows > 0)
    LaunchEarly(stream, ColumnGrid(x.rows, heads * cos_sin.columns / 2), kThreads, 0, RopeKernel, x, heads, cos_sin,
                inverse);
}

bool RopeWithFormsFits(ConstFloatView x, int heads, ConstFloatView cos_sin) {
  return TakesVectors(x) && x.columns / heads % 4 == 0 && cos_sin.columns % 4 == 0;
}

void RopeWithForms(cudaStream_t stream, FloatView x, int heads, ConstFloatView cos_sin, bool inverse,
                   const RowForms& forms) {
  if (x.rows > 0)
    LaunchEarly(stream, ColumnGrid(x.rows, x.columns / 4), kThreads, 0, RopeWithFormsKernel, x, heads, cos_sin, inverse,
                forms);
}

void SwiGlu(cudaStream_t stream, ConstFloatView gate, ConstFloatView up, float limit, FloatView hidden,
            const RowForms& forms) {
  if (hidden.rows == 0) return;
  LaunchEarly(stream, ColumnGrid(hidden.rows, hidden.columns), kThreads, 0, SwiGluKernel, gate, up, nullptr, limit,
              hidden, forms);
}

void WeightedSwiGlu(cudaStream_t stream, ConstFloatView gate, ConstFloatView up, const float* weights, float limit,
                    FloatView hidden) {
  if (hidden.rows == 0) return;
  LaunchEarly(stream, ColumnGrid(hidden.rows, hidden.columns), kThreads, 0, SwiGluKernel, gate, up, weights, limit,
              hidden, RowForms());
}

void Add(cudaStream_t stream, ConstFloatView y, FloatView out) {
  if (out.rows > 0) LaunchEarly(stream, ColumnGrid(out.rows, out.columns), kThreads, 0, AddKernel, y, out);
}

void Scale(cudaStream_t stream, float factor, FloatView x) {
  if (x.rows > 0) LaunchEarly(stream, ColumnGrid(x.rows, x.columns), kThreads, 0, ScaleKernel, factor, x);
}

void GatherTableRows(cudaStream_t stream, const WeightMatrix& table, const int64_t* rows, int64_t columns,
                     FloatView out) {
  if (out.rows > 0)
    LaunchEarly(stream, ColumnGrid(out.rows, out.columns), kThreads, 0, GatherTableKernel, table, rows, columns, out);
}

void GatherFloatRows(cudaStream_t stream, ConstFloatView x, const int32_t* rows, FloatView out) {
  if (out.rows > 0)
    LaunchEarly(stream, ColumnGrid(out.rows, out.columns), kThreads, 0, GatherFloatKernel, x, rows, out);
}

void SumParts(cudaStream_t stream, ConstFloatView parts, const int32_t* slots, int per_token, FloatView out) {
  if (out.rows > 0)
    LaunchEarly(stream, ColumnGrid(out.rows, out.columns), kThreads, 0, SumPartsKernel, parts, slots, per_token, out);
}

}  // namespace deepinfer::cuda
