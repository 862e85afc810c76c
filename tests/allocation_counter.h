// Counts the allocations of a test program, for tests of the promise that a step makes none. A program that uses it
// lists tests/allocation_counter.cc among its sources, which replaces operator new.
//
// Thread-safety: any thread. Ownership: nothing.
#ifndef DEEPINFER_TESTS_ALLOCATION_COUNTER_H_
#define DEEPINFER_TESTS_ALLOCATION_COUNTER_H_

#include <cstdint>

namespace deepinfer::test {

/// False under a sanitizer, which brings its own operator new.
bool CountsAllocations();

/// Calls of operator new in this program so far, all threads.
int64_t AllocationCount();

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_ALLOCATION_COUNTER_H_
