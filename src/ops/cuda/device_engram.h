// DeviceEngram: rows of an Engram table that lies on the GPU.
//
// Thread-safety, ownership: as Staging. Errors: the staging's.
#ifndef DEEPINFER_OPS_CUDA_DEVICE_ENGRAM_H_
#define DEEPINFER_OPS_CUDA_DEVICE_ENGRAM_H_

#include "base/tensor_view.h"
#include "base/weight_matrix.h"
#include "ops/cuda/staging.h"

namespace deepinfer::cuda {

/// Ops::GatherRows where the list of weights has the table (Staging::Holds). rows: host memory; out: on the device.
void GatherHeldRows(Staging& s, const WeightMatrix& table, TensorView<const int64_t> rows, FloatView out);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_DEVICE_ENGRAM_H_
