#include "cache/lru_index.h"

#include <cassert>

namespace deepinfer {

bool LruIndex::Allocate(int64_t capacity) {
  size_ = 0;
  return heap_.Allocate(capacity) && place_.Allocate(capacity) && tick_.Allocate(capacity);
}

void LruIndex::Insert(int32_t id, uint64_t tick) {
  assert(!Contains(id));
  tick_[id] = tick;
  SiftUp(size_++, id);
}

void LruIndex::Erase(int32_t id) {
  if (!Contains(id)) return;
  const int32_t at = place_[id] - 1;
  const int32_t last = heap_[--size_];
  place_[id] = 0;
  if (last == id) return;
  // The last entry takes the hole; it may belong above or below it.
  SiftUp(at, last);
  SiftDown(place_[last] - 1, last);
}

void LruIndex::Put(int32_t at, int32_t id) {
  heap_[at] = id;
  place_[id] = at + 1;
}

void LruIndex::SiftUp(int32_t at, int32_t id) {
  while (at > 0) {
    const int32_t parent = (at - 1) / 2;
    if (!Older(id, heap_[parent])) break;
    Put(at, heap_[parent]);
    at = parent;
  }
  Put(at, id);
}

void LruIndex::SiftDown(int32_t at, int32_t id) {
  while (true) {
    int64_t child = int64_t{2} * at + 1;
    if (child >= size_) break;
    if (child + 1 < size_ && Older(heap_[child + 1], heap_[child])) ++child;
    if (!Older(heap_[child], id)) break;
    Put(at, heap_[child]);
    at = static_cast<int32_t>(child);
  }
  Put(at, id);
}

}  // namespace deepinfer
