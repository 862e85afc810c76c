// The few functions of Highway that are not in its headers: which instruction sets this CPU has, and the chosen one.
//
// Debian ships Highway's library only as a shared object, and the program must run where only libc is
// (docs/architecture.md, "Libraries"); so these five functions are defined here, with the contracts of hwy/targets.h,
// and libhwy is not linked.
#include <hwy/base.h>
#include <hwy/targets.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace hwy {
namespace {

std::atomic<int64_t> g_supported_for_test{0};
std::atomic<int64_t> g_disabled{0};

int64_t DetectTargets() {
  int64_t targets = HWY_SCALAR;
#if HWY_ARCH_X86
  __builtin_cpu_init();
  // F16C has no name here in clang 14; every CPU with AVX2 has it.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
  const bool avx3 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  const bool avx3_dl = avx3 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi") &&
                       __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vpopcntdq") &&
                       __builtin_cpu_supports("avx512bitalg") && __builtin_cpu_supports("vpclmulqdq") &&
                       __builtin_cpu_supports("gfni");
  if (avx2) targets |= HWY_AVX2;
  if (avx3) targets |= HWY_AVX3;
  if (avx3_dl) targets |= HWY_AVX3_DL;
#elif HWY_ARCH_ARM_A64
  targets |= HWY_NEON;  // part of the architecture
#endif
  return targets;
}

}  // namespace

int64_t SupportedTargets() {
  static const int64_t detected = DetectTargets();
  const int64_t for_test = g_supported_for_test.load();
  const int64_t enabled = (for_test != 0 ? for_test : detected) & ~g_disabled.load();
  return enabled != 0 ? enabled : HWY_STATIC_TARGET;
}

void DisableTargets(int64_t disabled_targets) {
  g_disabled.store(disabled_targets & ~static_cast<int64_t>(HWY_STATIC_TARGET));
  GetChosenTarget().DeInit();
}

void SetSupportedTargetsForTest(int64_t targets) {
  g_supported_for_test.store(targets);
  GetChosenTarget().DeInit();
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

void Abort(const char* file, int line, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::fprintf(stderr, "%s:%d: ", file, line);
  std::vfprintf(stderr, format, arguments);  // NOLINT(clang-analyzer-valist.Uninitialized): va_start is above
  std::fprintf(stderr, "\n");
  va_end(arguments);
  std::abort();
}

}  // namespace hwy
