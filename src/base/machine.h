// What this machine offers: processor, cores, memory, GPUs.
//
// Thread-safety: functions that read the system; no state. Errors: what cannot be found out is empty or 0.
#ifndef DEEPINFER_BASE_MACHINE_H_
#define DEEPINFER_BASE_MACHINE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace deepinfer {

struct Processor {
  std::string name;
  int cores_online = 0;
  int threads_allowed = 1;            ///< by the affinity mask and the control group's quota
  std::vector<std::string> features;  ///< the instruction sets that the kernels care about
};
Processor FindProcessor();

/// Threads that this process may keep busy: the affinity mask, cut by the control group's quota. At least 1.
int AvailableThreads();

struct MemorySize {
  int64_t total = 0;      ///< bytes of the machine
  int64_t available = 0;  ///< bytes that can be used now, without the page cache being in the way
  int64_t limit = 0;      ///< bytes that the control group allows, 0: no limit
};
MemorySize FindMemory();

struct Gpu {
  std::string name;
  int64_t bytes = 0;
  int major = 0;  ///< compute capability
  int minor = 0;
};
/// NVIDIA GPUs that the driver offers; empty without a driver.
std::vector<Gpu> FindGpus();

/// 123456789 -> "117.7 MiB".
std::string HumanBytes(int64_t bytes);

}  // namespace deepinfer

#endif  // DEEPINFER_BASE_MACHINE_H_
