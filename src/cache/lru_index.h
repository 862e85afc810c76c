// LruIndex: which of the ids 0 .. capacity - 1 in a set was used least recently. A binary heap that knows where each
// id is: insert and erase O(log n), oldest O(1), no allocation after Create.
//
// Thread-safety: one thread. Ownership: owns its tables; memory becomes resident as ids and entries are first used.
#ifndef DEEPINFER_CACHE_LRU_INDEX_H_
#define DEEPINFER_CACHE_LRU_INDEX_H_

#include <cstdint>

#include "base/aligned_buffer.h"

namespace deepinfer {

class LruIndex {
 public:
  static constexpr int64_t kBytesPerId = sizeof(uint64_t) + 2 * sizeof(int32_t);

  /// An empty set. False when the system has no memory for kBytesPerId * capacity bytes.
  [[nodiscard]] bool Allocate(int64_t capacity);

  /// Adds an id that is not in the set. Equal ticks: the lower id counts as older.
  void Insert(int32_t id, uint64_t tick);
  /// Removes an id if it is in the set.
  void Erase(int32_t id);

  bool Contains(int32_t id) const { return place_[id] != 0; }
  /// The id with the smallest tick; -1 when the set is empty.
  int32_t Oldest() const { return size_ == 0 ? -1 : heap_[0]; }
  int64_t size() const { return size_; }

 private:
  bool Older(int32_t a, int32_t b) const { return tick_[a] != tick_[b] ? tick_[a] < tick_[b] : a < b; }
  void Put(int32_t at, int32_t id);
  void SiftUp(int32_t at, int32_t id);
  void SiftDown(int32_t at, int32_t id);

  int32_t size_ = 0;
  AlignedBuffer<int32_t> heap_;   // [capacity], ids; the children of i are 2 i + 1 and 2 i + 2
  AlignedBuffer<int32_t> place_;  // [capacity], 1 + index in heap_, 0: not in the set
  AlignedBuffer<uint64_t> tick_;  // [capacity]
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_LRU_INDEX_H_
