// The experts op on device memory, from the router's picks to the sum over a token's picks, without a host read.
//
// A slot is token * K + k (routing.h); its place is where it lies once slots are sorted by expert and ascending within
// one. What the host knows of a step are T, K and E, so counts of lists are upper bounds and lists end in -1. Limits:
// T * K <= 65536, E <= 512, picks in 0 .. E - 1. Thread-safety, ownership: as kernels.h.
#ifndef DEEPINFER_OPS_CUDA_EXPERTS_H_
#define DEEPINFER_OPS_CUDA_EXPERTS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/tensor_view.h"
#include "base/weight_matrix.h"
#include "ops/cuda/skinny.h"
#include "ops/cuda/wide.h"

namespace deepinfer::cuda {

/// The sorted slots of a step: cuda::Routing on the device.
struct DeviceRouting {
  int64_t rows = 0;  // T
  int per_token = 0;
  int64_t experts = 0;
  int active_count = 0;  ///< most experts that can have a slot
  int tile_count = 0;
  int32_t* offsets = nullptr;       // [E + 1]
  int32_t* order = nullptr;         // [T * K] slot at each place
  int32_t* places = nullptr;        // [T * K] place of each slot
  int32_t* active = nullptr;        // [active_count] experts with a slot, ascending, then -1
  float* weights = nullptr;         // [T * K] by slot
  float* placed_weights = nullptr;  // [T * K] by place
  ExpertTile* tiles = nullptr;      // [tile_count] kWideTileRows places of an expert each, then -1

  constexpr int64_t slots() const { return rows * per_token; }
};

/// Device memory that PlaceRouting needs.
int64_t RoutingBytes(int64_t rows, int per_token, int64_t experts);
/// `memory`: RoutingBytes, 256-byte aligned.
DeviceRouting PlaceRouting(void* memory, int64_t rows, int per_token, int64_t experts);

/// Fills `routing` from picks [T, K] and weights [T, K].
void SortByExpert(cudaStream_t stream, TensorView<const int32_t> picks, ConstFloatView weights,
                  const DeviceRouting& routing);

/// What the layers below take. experts: [E] on the device; the weights have kF4Row32.
ExpertsPlan PlanOf(const DeviceRouting& routing, const DeviceExpert* experts, int64_t columns, int64_t inner,
                   float limit);

/// What the launch of the sums may do with them: out += shared, then SpreadStreams(out, mix, n, streams).
struct SublayerEnd {
  ConstFloatView shared;
  ConstFloatView mix;
  int n = 0;  ///< streams, at most 8; 0: nothing
  FloatView streams;
};

/// Few rows (SkinnyExpertsFit): the results of `rows` rows' slots, in the rows of SkinnyExpertsParts. x: QuantiseRows
/// in ColumnOrder::kFp4. scratch: 256-byte aligned.
int64_t SkinnyExpertsScratchBytes(int64_t rows, int per_token, int64_t columns, int64_t inner);
void SkinnyExpertsProducts(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const ExpertsPlan& plan,
                           void* scratch);
/// [rows * K, columns] in `scratch`, by slot: SumSlots adds them without places.
ConstFloatView SkinnyExpertsParts(const ExpertsPlan& plan, int64_t rows, void* scratch);

/// The same for many rows, with the same bits; SM90 only (WideFits). False when a launch could not be made.
int64_t WideExpertsScratchBytes(int64_t rows, int per_token, int64_t columns, int64_t inner);
bool WideExpertsProducts(cudaStream_t stream, ConstFloatView x, const DeviceRouting& routing, const ExpertsPlan& plan,
                         void* scratch);
/// By place: SumSlots adds them with routing.places.
ConstFloatView WideExpertsParts(const ExpertsPlan& plan, int64_t rows, void* scratch);

/// out.row(t) = sum over k of parts.row(place of slot t * K + k), k ascending, from 0; places null: the slot itself.
void SumSlots(cudaStream_t stream, ConstFloatView parts, const int32_t* places, int per_token, FloatView out,
              const SublayerEnd& end = {});

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_EXPERTS_H_
