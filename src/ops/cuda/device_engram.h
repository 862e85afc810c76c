// DeviceEngram: rows of an Engram table, which lies on the GPU or on the host.
//
// Thread-safety, ownership: as Staging. Errors: the staging's.
#ifndef DEEPINFER_OPS_CUDA_DEVICE_ENGRAM_H_
#define DEEPINFER_OPS_CUDA_DEVICE_ENGRAM_H_

#include <cstdint>
#include <vector>

#include "base/tensor_view.h"
#include "base/weight_matrix.h"
#include "ops/cuda/staging.h"

namespace deepinfer::cuda {

/// Ops::GatherRows. A table on no list stays where it is, in host memory: it is larger than everything else, and a step
/// reads few rows. `gathered` is scratch. rows: host memory; out: on the device.
void GatherHostRows(Staging& s, const WeightMatrix& table, TensorView<const int64_t> rows,
                    std::vector<uint8_t>& gathered, FloatView out);

/// The same where the list of weights has the table (Staging::Holds).
void GatherHeldRows(Staging& s, const WeightMatrix& table, TensorView<const int64_t> rows,
                    std::vector<uint8_t>& gathered, FloatView out);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_DEVICE_ENGRAM_H_
