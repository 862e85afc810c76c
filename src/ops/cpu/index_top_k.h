// TopKList: the k best of a stream of (score, row), found in one pass and small memory; equal scores: the earliest row.
//
// Rows arrive in ascending order. The list collects what may still be among the best; when it is full, a selection
// keeps k and its worst score becomes the bar that later rows must pass strictly (they stand behind in position, so a
// tie loses). Linear in the stream but for monotonously rising scores, and exact always. Entries keep their order, so
// the result is ascending without a sort.
//
// Thread-safety: one thread. Ownership: none; the caller owns the memory.
#ifndef DEEPINFER_OPS_CPU_INDEX_TOP_K_H_
#define DEEPINFER_OPS_CPU_INDEX_TOP_K_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>

#include "ops/cpu/index_kernels.h"

namespace deepinfer::cpu {

class TopKList {
 public:
  /// Most rows of one Push.
  static constexpr int64_t kMaxPush = kIndexPanelKeys;
  static constexpr int64_t Capacity(int64_t k) { return 2 * k + kMaxPush; }

  /// entries, spare [Capacity(k)]; `spare` is used inside calls only and may be shared by lists of one thread.
  void Reset(uint64_t* entries, uint64_t* spare, int64_t k) {
    entries_ = entries;
    spare_ = spare;
    k_ = k;
    size_ = 0;
    bar_ = 0;
  }

  /// Offers `count` <= kMaxPush scores (no NaN, no -infinity) of rows[0], rows[1], ... or, when `rows` is null, of rows
  /// first, first + 1, ...
  void Push(const float* scores, int64_t count, const int32_t* rows, int64_t first) {
    MakeRoom(count);
    size_ += AppendAbove(scores, count, ScoreOf(bar_), rows, first, entries_ + size_);
  }

  void PushOne(float score, int64_t row) {
    const uint64_t entry = Entry(score, row);
    if (entry <= bar_) return;
    MakeRoom(1);
    entries_[size_++] = entry;
  }

  /// Appends what a list of later rows has kept. `spare` as in Reset: the merging thread need not be the one that
  /// filled this list.
  void Merge(const TopKList& later, uint64_t* spare) {
    spare_ = spare;
    for (int64_t i = 0; i < later.size_; ++i) {
      if (later.entries_[i] <= bar_) continue;
      MakeRoom(1);
      entries_[size_++] = later.entries_[i];
    }
  }

  /// Writes the best rows, ascending, and returns how many there are (k, or all that were offered). `spare` as in
  /// Merge.
  int64_t Finish(uint64_t* spare, int32_t* rows) {
    spare_ = spare;
    if (size_ > k_) Select();
    for (int64_t i = 0; i < size_; ++i) rows[i] = static_cast<int32_t>(~static_cast<uint32_t>(entries_[i]));
    return size_;
  }

  /// Orders by score, then by earlier row: larger is better.
  static uint64_t Entry(float score, int64_t row) {
    const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 ties with +0
    const uint32_t ordered = bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
    return uint64_t{ordered} << 32 | static_cast<uint32_t>(~static_cast<uint32_t>(row));
  }

 private:
  // -infinity for the bar 0 of a list that has not selected yet.
  static float ScoreOf(uint64_t entry) {
    const uint32_t ordered = static_cast<uint32_t>(entry >> 32);
    if (ordered == 0) return -std::bit_cast<float>(0x7f800000u);
    return std::bit_cast<float>(ordered ^ ((ordered >> 31) != 0 ? 0x80000000u : 0xffffffffu));
  }

  void MakeRoom(int64_t count) {
    if (size_ + count > Capacity(k_)) Select();
  }

  // Keeps the k best, in their order.
  void Select() {
    std::copy_n(entries_, size_, spare_);
    std::nth_element(spare_, spare_ + k_ - 1, spare_ + size_, std::greater<uint64_t>());
    bar_ = spare_[k_ - 1];
    int64_t kept = 0;
    for (int64_t i = 0; i < size_; ++i) {
      entries_[kept] = entries_[i];
      kept += entries_[i] >= bar_ ? 1 : 0;
    }
    size_ = kept;
  }

  uint64_t* entries_ = nullptr;
  uint64_t* spare_ = nullptr;
  int64_t k_ = 0;
  int64_t size_ = 0;
  uint64_t bar_ = 0;  // later entries must be larger
};

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_INDEX_TOP_K_H_
