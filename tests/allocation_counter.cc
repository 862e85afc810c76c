#include "tests/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DEEPINFER_COUNTS_ALLOCATIONS 1
// Not inlined: the compiler would see malloc here and delete there and call it a mismatch.
__attribute__((noinline)) void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace deepinfer::test {

bool CountsAllocations() {
#ifdef DEEPINFER_COUNTS_ALLOCATIONS
  return true;
#else
  return false;
#endif
}

int64_t AllocationCount() { return allocations; }

}  // namespace deepinfer::test
