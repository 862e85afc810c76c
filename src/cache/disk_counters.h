// DiskCounters: what happened in a disk tier since its start (KvTierCounts).
//
// Thread-safety: any thread. Ownership: none.
#ifndef DEEPINFER_CACHE_DISK_COUNTERS_H_
#define DEEPINFER_CACHE_DISK_COUNTERS_H_

#include <atomic>
#include <cstdint>

namespace deepinfer {

struct DiskCounters {
  std::atomic<int64_t> used_bytes{0};  ///< now, of the whole folder, as of the last look
  std::atomic<int64_t> hits{0};
  std::atomic<int64_t> misses{0};
  std::atomic<int64_t> corrupt{0};
  std::atomic<int64_t> foreign{0};
  std::atomic<int64_t> read_bytes{0};
  std::atomic<int64_t> written{0};
  std::atomic<int64_t> written_bytes{0};
  std::atomic<int64_t> evicted{0};
  std::atomic<int64_t> expired{0};
  std::atomic<int64_t> copied_forward{0};
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_DISK_COUNTERS_H_
