// Devices by name: what --device takes.
//
// Thread-safety: pure functions. Ownership: the caller's.
#ifndef DEEPINFER_OPS_DEVICE_H_
#define DEEPINFER_OPS_DEVICE_H_

#include <memory>
#include <string>

#include "deepinfer/status.h"
#include "ops/ops.h"

namespace deepinfer {

/// kInvalidArgument naming `device`: it is none of "cpu", "auto", "cuda", "cuda:N".
Status CheckDeviceName(const std::string& device);

/// The number of the GPU that `device` names on this machine; -1: the CPU.
int GpuOfDevice(const std::string& device);

/// The Ops of a device: "cpu" on `threads` threads, "cuda:N" GPU number N, "cuda" the first one, "auto" that one where
/// this build and this machine have one, else the CPU. Errors: as CheckDeviceName; kUnsupported: a build without CUDA;
/// kNotFound: no such GPU.
Result<std::unique_ptr<Ops>> MakeOps(const std::string& device, int threads);

}  // namespace deepinfer

#endif  // DEEPINFER_OPS_DEVICE_H_
