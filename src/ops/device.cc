#include "ops/device.h"

#include <charconv>
#include <string_view>

#include "ops/cuda/cuda_ops.h"

namespace deepinfer {
namespace {

constexpr std::string_view kCuda = "cuda";

// The number of "cuda" or "cuda:N"; -1: another name.
int GpuNumber(std::string_view device) {
  if (!device.starts_with(kCuda)) return -1;
  if (device == kCuda) return 0;
  const std::string_view digits = device.substr(kCuda.size());
  int number = -1;
  if (digits.front() != ':') return -1;
  const auto [end, error] = std::from_chars(digits.data() + 1, digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? number : -1;
}

}  // namespace

Status CheckDeviceName(const std::string& device) {
  if (device == "cpu" || device == "auto" || GpuNumber(device) >= 0) return Status::Ok();
  return Status::InvalidArgument("device: expected cpu, auto, cuda or cuda:N, found '" + device + "'");
}

int GpuOfDevice(const std::string& device) {
  if (device != "auto" || CountCudaDevices() == 0) return GpuNumber(device);
  int number = 0;
  while (!IsUsableCudaDevice(number)) ++number;
  return number;
}

Result<std::unique_ptr<Ops>> MakeOps(const std::string& device, int threads) {
  DEEPINFER_RETURN_IF_ERROR(CheckDeviceName(device));
  const int number = GpuOfDevice(device);
  if (number < 0) return MakeCpuOps(threads);
  CudaOptions options;
  options.device = number;
  options.device_memory = true;
  return MakeCudaOps(options);
}

}  // namespace deepinfer
