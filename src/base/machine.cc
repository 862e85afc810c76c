#include "base/machine.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

namespace deepinfer {
namespace {

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The first "key : value" of a file such as /proc/cpuinfo.
std::string ReadField(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.find_first_not_of(" \t", key.size()) != colon) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return {};
}

/// The number at the start of `text`, 0 when there is none.
int64_t LeadingNumber(const std::string& text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// The folder of this process's control group (version 2), empty when unknown.
std::string ControlGroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + line.substr(3);
  }
  return {};
}

int64_t QuotaThreads() {
  // "max 100000" or "MICROSECONDS PERIOD".
  std::istringstream quota(ReadLine(ControlGroup() + "/cpu.max"));
  int64_t allowed = 0, period = 0;
  if (!(quota >> allowed >> period) || allowed <= 0 || period <= 0) return 0;
  return (allowed + period - 1) / period;
}

}  // namespace

int AvailableThreads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int64_t threads = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
  const int64_t quota = QuotaThreads();
  if (quota > 0) threads = std::min(threads, quota);
  return static_cast<int>(std::max<int64_t>(threads, 1));
}

Processor FindProcessor() {
  Processor processor;
  processor.name = ReadField("/proc/cpuinfo", "model name");
  if (processor.name.empty()) {
    utsname system;
    if (uname(&system) == 0) processor.name = system.machine;
  }
  processor.cores_online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  processor.threads_allowed = AvailableThreads();
  std::string flags = ReadField("/proc/cpuinfo", "flags");
  if (flags.empty()) flags = ReadField("/proc/cpuinfo", "Features");  // Arm
  std::istringstream words(flags);
  const std::vector<std::string> relevant = {"avx2",     "fma",         "f16c",        "avx512f",     "avx512bw",
                                             "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile",
                                             "amx_int8", "amx_bf16",    "asimd",       "asimdhp",     "bf16",
                                             "i8mm",     "sve",         "sve2"};
  for (std::string word; words >> word;) {
    if (std::find(relevant.begin(), relevant.end(), word) != relevant.end()) processor.features.push_back(word);
  }
  return processor;
}

MemorySize FindMemory() {
  MemorySize memory;
  memory.total = LeadingNumber(ReadField("/proc/meminfo", "MemTotal")) * 1024;
  memory.available = LeadingNumber(ReadField("/proc/meminfo", "MemAvailable")) * 1024;
  memory.limit = LeadingNumber(ReadLine(ControlGroup() + "/memory.max"));
  if (memory.limit > 0) memory.available = std::min(memory.available, memory.limit);
  return memory;
}

std::vector<Gpu> FindGpus() {
  // The driver's own library, opened by name: the program does not depend on it.
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return {};
  const auto find = [driver]<typename Function>(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(driver, name));
    return *function != nullptr;
  };
  int (*init)(unsigned);
  int (*count_devices)(int*);
  int (*get_device)(int*, int);
  int (*get_name)(char*, int, int);
  int (*get_bytes)(size_t*, int);
  int (*get_attribute)(int*, int, int);
  constexpr int kMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
  constexpr int kMinor = 76;
  std::vector<Gpu> gpus;
  int count = 0;
  if (find("cuInit", &init) && find("cuDeviceGetCount", &count_devices) && find("cuDeviceGet", &get_device) &&
      find("cuDeviceGetName", &get_name) && find("cuDeviceTotalMem_v2", &get_bytes) &&
      find("cuDeviceGetAttribute", &get_attribute) && init(0) == 0 && count_devices(&count) == 0) {
    for (int i = 0; i < count; ++i) {
      int device = 0;
      char name[256] = {};
      size_t bytes = 0;
      Gpu gpu;
      if (get_device(&device, i) != 0 || get_name(name, sizeof name - 1, device) != 0 ||
          get_bytes(&bytes, device) != 0 || get_attribute(&gpu.major, kMajor, device) != 0 ||
          get_attribute(&gpu.minor, kMinor, device) != 0) {
        continue;
      }
      gpu.name = name;
      gpu.bytes = static_cast<int64_t>(bytes);
      gpus.push_back(gpu);
    }
  }
  // Never closed: the driver leaves threads behind.
  return gpus;
}

std::string HumanBytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace deepinfer
