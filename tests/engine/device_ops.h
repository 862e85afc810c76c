// DeviceOps: the CPU's ops as those of a device with memory of its own, for tests of what crosses between the two.
// Whoever touches that memory while no op runs is killed (SIGSEGV), and so is who drives it from two threads at once.
//
// Memory of Allocate() is barred to the processor until an op begins, and again from where the driver waits for a
// result (Finish, ChooseTokens, AcceptDrafts, copies). Between the two it is open, so what another thread does during a
// step is not noticed; requests that run alone have no such moments.
#ifndef DEEPINFER_TESTS_ENGINE_DEVICE_OPS_H_
#define DEEPINFER_TESTS_ENGINE_DEVICE_OPS_H_

#include <atomic>
#include <memory>

#include "ops/ops.h"

namespace deepinfer::test {

/// Bytes that one of them gives at most.
inline constexpr int64_t kDeviceOpsBytes = int64_t{8} << 30;

/// `broken`: from when it is true the device has `error`, which is final; null: never.
std::unique_ptr<Ops> MakeDeviceOps(std::shared_ptr<const std::atomic<bool>> broken = nullptr,
                                   Status error = Status::Internal("the device is broken"));

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_ENGINE_DEVICE_OPS_H_
