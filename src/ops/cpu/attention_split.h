// Splitting the rows of a ragged batch over workers so that each gets about the same work.
//
// The split decides who computes a row, never how, so it may use any cost model. Thread-safety: pure functions.
#ifndef DEEPINFER_OPS_CPU_ATTENTION_SPLIT_H_
#define DEEPINFER_OPS_CPU_ATTENTION_SPLIT_H_

#include <algorithm>
#include <cstdint>
#include <span>

namespace deepinfer::cpu {

/// Cuts the rows of `sequences` (numbered through, in order) into `workers` runs of about equal sums of
/// cost(sequence, row in sequence) >= 0; run w is bounds[w] .. bounds[w + 1]. Returns the whole cost.
template <typename Sequence, typename Cost>
int64_t SplitByCost(std::span<const Sequence> sequences, int workers, int64_t* bounds, const Cost& cost) {
  int64_t total = 0;
  for (const Sequence& sequence : sequences) {
    for (int32_t row = 0; row < sequence.row_count; ++row) total += cost(sequence, row);
  }
  int64_t seen = 0;
  int64_t number = 0;
  int worker = 0;
  bounds[0] = 0;
  for (const Sequence& sequence : sequences) {
    for (int32_t row = 0; row < sequence.row_count; ++row, ++number) {
      const int64_t next = seen + cost(sequence, row);
      // A row belongs to the worker whose share its middle falls into.
      while (worker + 1 < workers && (seen + next) * workers > 2 * total * (worker + 1)) bounds[++worker] = number;
      seen = next;
    }
  }
  while (worker < workers) bounds[++worker] = number;
  return total;
}

/// Calls body(sequence, first row, last row + 1) for the parts of `sequences` that hold the rows begin..end-1 of that
/// numbering.
template <typename Sequence, typename Body>
void ForRows(std::span<const Sequence> sequences, int64_t begin, int64_t end, const Body& body) {
  int64_t number = 0;
  for (const Sequence& sequence : sequences) {
    const int64_t first = std::max(begin - number, int64_t{0});
    const int64_t last = std::min(end - number, int64_t{sequence.row_count});
    if (first < last) body(sequence, static_cast<int32_t>(first), static_cast<int32_t>(last));
    number += sequence.row_count;
  }
}

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_ATTENTION_SPLIT_H_
