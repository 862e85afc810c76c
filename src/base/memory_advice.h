// What the system may know of how mapped memory will be read. Hints only: a kernel that refuses one serves the pages
// all the same.
//
// Thread-safety: any thread. Ownership: none.
#ifndef DEEPINFER_BASE_MEMORY_ADVICE_H_
#define DEEPINFER_BASE_MEMORY_ADVICE_H_

#include <cstdint>
#include <span>

namespace deepinfer {

/// These bytes are read in random order, so that a row gather does not read ahead.
void AdviseRandomAccess(std::span<const uint8_t> bytes);
/// Read what is not in memory yet 2 MiB at a time and keep it in large pages, where the file system has them, so that
/// reading through takes fewer misses of the TLB.
void AdviseReadThrough(std::span<const uint8_t> bytes);
/// Begin to read these bytes from the disk now, all of them, without waiting for it.
void AdviseWillNeed(std::span<const uint8_t> bytes);

}  // namespace deepinfer

#endif  // DEEPINFER_BASE_MEMORY_ADVICE_H_
