// The experts op from device routing (experts.h): the products (skinny_experts.cu, wgmma_wide.cu), sum.
#include <algorithm>

#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/experts.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/row_dot.cuh"
#include "ops/cuda/row_forms.cuh"
#include "ops/cuda/skinny_plan.h"
#include "ops/cuda/spread.cuh"

namespace deepinfer::cuda {
namespace {

// Row t of x, in the order of the wide products, to the rows places[t * per_token ..]; eight columns a thread.
template <bool kVector>
__global__ void QuantiseSlotsKernel(ConstFloatView x, const int32_t* places, int per_token, Bf16Rows out) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t t = blockIdx.x;
  const int64_t c = OwnColumn() * kDotLaneColumns;
  if (c >= x.columns) return;
  float values[kDotLaneColumns];
  LoadColumns<kVector>(RowOf(x, t), c, x.columns, values);
  uint16_t bits[kDotLaneColumns];
  QuantiseColumns(values, bits);
  for (int k = 0; k < per_token; ++k) {
    StoreInOrder<ColumnOrder::kFp4Wide>(bits, out.values + places[t * per_token + k] * out.columns, c);
  }
}

template <bool kSpreads>
__global__ void SumSlotsKernel(ConstFloatView parts, const int32_t* places, int per_token, FloatView out,
                               SublayerEnd end) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= out.columns) return;
  const int64_t t = blockIdx.y;
  const int64_t slot = t * per_token;
  [[maybe_unused]] float source[kMostStreams], shared;
  if constexpr (kSpreads) {
    LoadStreams(RowOf(end.streams, t) + c, end.n, out.columns, source);
    shared = RowOf(end.shared, t)[c];
  }
  constexpr int kAtOnce = 8;  // loads under way
  float sum = 0;
  for (int first = 0; first < per_token; first += kAtOnce) {
    float values[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (first + k >= per_token) break;
      values[k] = RowOf(parts, places == nullptr ? slot + first + k : places[slot + first + k])[c];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (first + k < per_token) sum += values[k];
    }
  }
  if constexpr (kSpreads) {
    sum += shared;
    SpreadColumn(sum, RowOf(end.mix, t) + end.n, end.n, out.columns, source, RowOf(end.streams, t) + c);
  }
  RowOf(out, t)[c] = sum;
}

void QuantiseSlots(cudaStream_t stream, ConstFloatView x, const int32_t* places, int per_token, const Bf16Rows& out) {
  LaunchEarly(stream, ColumnGrid(x.rows, x.columns / kDotLaneColumns), kThreads, 0,
              TakesVectors(x) ? &QuantiseSlotsKernel<true> : &QuantiseSlotsKernel<false>, x, places, per_token, out);
}

/// Hands out pieces of device memory, 256-byte aligned; with a null start it only counts.
class Pieces {
 public:
  explicit Pieces(void* start) : start_(static_cast<uint8_t*>(start)) {}
  template <typename T>
  T* Take(int64_t count) {
    T* piece = start_ == nullptr ? nullptr : reinterpret_cast<T*>(start_ + bytes_);
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    return piece;
  }
  int64_t bytes() const { return bytes_; }

 private:
  uint8_t* start_;
  int64_t bytes_ = 0;
};

DeviceRouting TakeRouting(Pieces& pieces, int64_t rows, int per_token, int64_t experts) {
  DeviceRouting routing;
  routing.rows = rows;
  routing.per_token = per_token;
  routing.experts = experts;
  const int64_t slots = routing.slots();
  routing.active_count = static_cast<int>(std::min(experts, slots));
  routing.tile_count = static_cast<int>(slots / kWideTileRows) + routing.active_count;
  routing.offsets = pieces.Take<int32_t>(experts + 1);
  routing.order = pieces.Take<int32_t>(slots);
  routing.places = pieces.Take<int32_t>(slots);
  routing.active = pieces.Take<int32_t>(routing.active_count);
  routing.weights = pieces.Take<float>(slots);
  routing.placed_weights = pieces.Take<float>(slots);
  routing.tiles = pieces.Take<ExpertTile>(routing.tile_count);
  return routing;
}

struct SkinnyScratch {
  SkinnyScratch(Pieces& pieces, int64_t rows, int per_token, int64_t columns, int64_t inner)
      : hidden{pieces.Take<uint16_t>(rows * per_token * inner), inner},
        parts(pieces.Take<float>(rows * per_token * columns), rows * per_token, columns) {}
  Bf16Rows hidden;
  FloatView parts;
};

struct WideScratch {
  WideScratch(Pieces& pieces, int64_t slots, int64_t columns, int64_t inner)
      : hidden{pieces.Take<uint16_t>(slots * inner), inner} {
    Pieces late = pieces;  // parts are written when x, gate and up have been read
    x = {pieces.Take<uint16_t>(slots * columns), columns};
    gate = FloatView(pieces.Take<float>(slots * inner), slots, inner);
    up = FloatView(pieces.Take<float>(slots * inner), slots, inner);
    parts = FloatView(late.Take<float>(slots * columns), slots, columns);
    if (late.bytes() > pieces.bytes()) pieces = late;
  }
  Bf16Rows hidden, x;
  FloatView gate, up, parts;
};

}  // namespace

int64_t RoutingBytes(int64_t rows, int per_token, int64_t experts) {
  Pieces pieces(nullptr);
  TakeRouting(pieces, rows, per_token, experts);
  return pieces.bytes();
}

DeviceRouting PlaceRouting(void* memory, int64_t rows, int per_token, int64_t experts) {
  Pieces pieces(memory);
  return TakeRouting(pieces, rows, per_token, experts);
}

ExpertsPlan PlanOf(const DeviceRouting& routing, const DeviceExpert* experts, int64_t columns, int64_t inner,
                   float limit) {
  ExpertsPlan plan;
  plan.experts = experts;
  plan.active = routing.active;
  plan.active_count = routing.active_count;
  plan.most_rows = LikelyRowsOfExpert(routing.rows, routing.per_token, routing.experts);
  plan.offsets = routing.offsets;
  plan.order = routing.order;
  plan.weights = routing.weights;
  plan.per_token = routing.per_token;
  plan.columns = columns;
  plan.inner = inner;
  plan.limit = limit;
  return plan;
}

int64_t SkinnyExpertsScratchBytes(int64_t rows, int per_token, int64_t columns, int64_t inner) {
  Pieces pieces(nullptr);
  SkinnyScratch(pieces, rows, per_token, columns, inner);
  return pieces.bytes();
}

void SkinnyExpertsProducts(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const ExpertsPlan& plan,
                           void* scratch) {
  if (rows == 0) return;
  Pieces pieces(scratch);
  const SkinnyScratch s(pieces, rows, plan.per_token, plan.columns, plan.inner);
  SkinnyExperts(stream, plan, x, s.hidden, s.parts);
}

ConstFloatView SkinnyExpertsParts(const ExpertsPlan& plan, int64_t rows, void* scratch) {
  Pieces pieces(scratch);
  return SkinnyScratch(pieces, rows, plan.per_token, plan.columns, plan.inner).parts;
}

int64_t WideExpertsScratchBytes(int64_t rows, int per_token, int64_t columns, int64_t inner) {
  Pieces pieces(nullptr);
  WideScratch(pieces, rows * per_token, columns, inner);
  return pieces.bytes();
}

bool WideExpertsProducts(cudaStream_t stream, ConstFloatView x, const DeviceRouting& routing, const ExpertsPlan& plan,
                         void* scratch) {
  if (x.rows == 0) return true;
  const int64_t slots = routing.slots();
  Pieces pieces(scratch);
  const WideScratch s(pieces, slots, plan.columns, plan.inner);
  QuantiseSlots(stream, x, routing.places, routing.per_token, s.x);
  constexpr int kStep = sizeof(DeviceExpert) / sizeof(const uint8_t*);
  static_assert(kStep == 6, "w1, w3, w2: values and scales of each");
  const auto product = [&](int matrix, const Bf16Rows& from, FloatView to) {
    WideExperts experts;
    experts.values = reinterpret_cast<const uint8_t* const*>(plan.experts) + 2 * matrix;
    experts.scales = experts.values + 1;
    experts.pointer_step = kStep;
    experts.near = plan.experts;
    experts.offsets = routing.offsets;
    experts.tiles = routing.tiles;
    experts.tile_count = routing.tile_count;
    experts.outputs = to.columns;
    experts.columns = from.columns;
    return WideExpertsProduct(stream, from, slots, experts, to);
  };
  if (!product(0, s.x, s.gate) || !product(1, s.x, s.up)) return false;
  SwiGluQuantise(stream, s.gate, s.up, routing.placed_weights, plan.limit, s.hidden);
  return product(2, s.hidden, s.parts);
}

ConstFloatView WideExpertsParts(const ExpertsPlan& plan, int64_t rows, void* scratch) {
  Pieces pieces(scratch);
  return WideScratch(pieces, rows * plan.per_token, plan.columns, plan.inner).parts;
}

void SumSlots(cudaStream_t stream, ConstFloatView parts, const int32_t* places, int per_token, FloatView out,
              const SublayerEnd& end) {
  if (out.rows == 0) return;
  LaunchEarly(stream, dim3(Blocks(out.columns, kThreads), static_cast<unsigned>(out.rows)), kThreads, 0,
              end.n > 0 ? &SumSlotsKernel<true> : &SumSlotsKernel<false>, parts, places, per_token, out, end);
}

}  // namespace deepinfer::cuda
