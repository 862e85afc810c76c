// Routing: the (token, pick) pairs of a step sorted by expert.
//
// A slot is token * K + k. Within an expert, slots ascend, so a token's place depends on nothing but the picks.
// Thread-safety: pure functions. Ownership: values.
#ifndef DEEPINFER_OPS_CUDA_ROUTING_H_
#define DEEPINFER_OPS_CUDA_ROUTING_H_

#include <cstdint>
#include <vector>

#include "base/tensor_view.h"

namespace deepinfer::cuda {

struct Routing {
  int per_token = 0;             // K
  std::vector<int32_t> offsets;  // [E + 1]: expert e has order[offsets[e] .. offsets[e + 1] - 1]
  std::vector<int32_t> order;    // [T * K] slots, by expert
  std::vector<int32_t> active;   // experts with a slot, ascending
  std::vector<float> weights;    // [T * K] routing weights, by slot
};

Routing SortByExpert(TensorView<const int32_t> picks, ConstFloatView weights, int64_t experts);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_ROUTING_H_
