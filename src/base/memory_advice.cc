#include "base/memory_advice.h"

#include <sys/mman.h>
#include <unistd.h>

namespace deepinfer {
namespace {

void Advise(std::span<const uint8_t> bytes, int advice) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  if (!bytes.empty()) madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

void AdviseRandomAccess(std::span<const uint8_t> bytes) {
  Advise(bytes, MADV_NOHUGEPAGE);
  Advise(bytes, MADV_RANDOM);
}

void AdviseReadThrough(std::span<const uint8_t> bytes) { Advise(bytes, MADV_HUGEPAGE); }

void AdviseWillNeed(std::span<const uint8_t> bytes) { Advise(bytes, MADV_WILLNEED); }

}  // namespace deepinfer
