// LoadWeights: the weights of a list to their places (weight_store.h), from the files at the speed of disk or bus.
//
// Thread-safety: the thread of the command list. Ownership: the store owns the copies. Errors: kResourceExhausted with
// the numbers.
#ifndef DEEPINFER_OPS_CUDA_LOAD_WEIGHTS_H_
#define DEEPINFER_OPS_CUDA_LOAD_WEIGHTS_H_

#include <span>

#include "deepinfer/status.h"
#include "ops/cuda/command_list.h"
#include "ops/cuda/weight_store.h"
#include "ops/weight_list.h"

namespace deepinfer::cuda {

Status LoadWeights(std::span<const ListedBytes> list, WeightStore& store, CommandList& commands,
                   const LoadProgress& progress);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_LOAD_WEIGHTS_H_
