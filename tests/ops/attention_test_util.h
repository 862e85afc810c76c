// The keys of a sequence in the places where attention finds them, and picks for its rows.
//
// Thread-safety: none needed. Ownership: every class owns its bytes; sequences are views of it.
#ifndef DEEPINFER_TESTS_OPS_ATTENTION_TEST_UTIL_H_
#define DEEPINFER_TESTS_OPS_ATTENTION_TEST_UTIL_H_

#include <algorithm>
#include <memory>
#include <vector>

#include "ops/ops.h"
#include "ops_test_util.h"

namespace deepinfer::test {

// The packed rows of one sequence for a step of `count` rows at `first`: the window before it in the ring, the rest
// fresh. Only what the step may read is written, the remaining slots stay NaN.
class SequenceRows {
 public:
  SequenceRows(const Tensor& kv, int64_t first, int32_t count, int window, int32_t ring_slots)
      : first_(first),
        count_(count),
        slots_(ring_slots),
        ring_(RowFormat::kWindowFp8, static_cast<int32_t>(kv.columns()), ring_slots, 8),
        fresh_(RowFormat::kWindowFp8, static_cast<int32_t>(kv.columns()), std::max(count, 1), 16) {
    const std::unique_ptr<Ops> writer = MakeReferenceOps();
    for (int64_t p = std::max<int64_t>(0, first - window); p < first + count; ++p) {
      const std::vector<int64_t> destination = {p < first ? p % ring_slots : p - first};
      writer->StoreRows(kv.view().RowRange(p, p + 1), p < first ? ring_ : fresh_, destination);
    }
  }
  AttentionSequence At(int32_t first_row) const {
    AttentionSequence sequence;
    sequence.first_row = first_row;
    sequence.row_count = count_;
    sequence.first_position = first_;
    sequence.ring = ring_;
    sequence.ring_slots = slots_;
    sequence.fresh = fresh_;
    return sequence;
  }

 private:
  int64_t first_;
  int32_t count_;
  int32_t slots_;
  OwnedRows ring_;
  OwnedRows fresh_;
};

inline OwnedRows StoreAll(const Tensor& x, RowFormat format, int32_t rows_per_page) {
  OwnedRows rows(format, static_cast<int32_t>(x.columns()), x.rows(), rows_per_page);
  std::vector<int64_t> destination;
  for (int64_t t = 0; t < x.rows(); ++t) destination.push_back(t);
  MakeReferenceOps()->StoreRows(x, rows, destination);
  return rows;
}

// Ascending picks for every row.
class Picks {
 public:
  Picks(int64_t rows, int64_t topk) : topk_(topk), rows_(static_cast<size_t>(rows * topk), -1), counts_(rows, 0) {}
  static Picks RandomOf(int64_t rows, int64_t topk, int64_t available, Random& random) {
    Picks picks(rows, topk);
    for (int64_t t = 0; t < rows; ++t) {
      const int64_t wanted = random.Below(std::min(topk, available) + 1);
      for (int64_t row = 0; row < available && picks.counts_[static_cast<size_t>(t)] < wanted; ++row) {
        if (random.Below(2) == 0 || available - row <= wanted - picks.counts_[static_cast<size_t>(t)])
          picks.Add(t, row);
      }
    }
    return picks;
  }
  void Add(int64_t t, int64_t row) {
    rows_[static_cast<size_t>(t * topk_ + counts_[static_cast<size_t>(t)]++)] = static_cast<int32_t>(row);
  }
  SelectedRows view() {
    return {TensorView<int32_t>(rows_.data(), static_cast<int64_t>(counts_.size()), topk_), counts_.data()};
  }
  Picks Gather(const std::vector<int64_t>& indices) const {
    Picks out(static_cast<int64_t>(indices.size()), topk_);
    for (size_t i = 0; i < indices.size(); ++i) {
      for (int32_t k = 0; k < counts_[static_cast<size_t>(indices[i])]; ++k) {
        out.Add(static_cast<int64_t>(i), rows_[static_cast<size_t>(indices[i] * topk_ + k)]);
      }
    }
    return out;
  }

 private:
  int64_t topk_;
  std::vector<int32_t> rows_;
  std::vector<int32_t> counts_;
};

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_OPS_ATTENTION_TEST_UTIL_H_
