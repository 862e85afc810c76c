// How the row kernels share their work: static, and only when it is worth waking the other workers.
//
// A section costs its barrier, one to two microseconds, in which one core moves 100 KiB through its caches; work below
// kBytesPerWorker stays on the calling thread, so the ops of a decode step (one row) do not pay for a barrier.
// Thread-safety: as ThreadPool::Run. Ownership: none.
#ifndef DEEPINFER_OPS_CPU_ROWS_SPLIT_H_
#define DEEPINFER_OPS_CPU_ROWS_SPLIT_H_

#include <algorithm>
#include <cstdint>

#include "base/thread_pool.h"

namespace deepinfer::cpu {

/// The least traffic that is handed to one worker.
inline constexpr int64_t kBytesPerWorker = 256 * 1024;

/// Calls body(begin, end) for a static partition of `rows` rows that read and write `row_bytes` each.
template <typename Body>
void ForRows(ThreadPool& pool, int64_t rows, int64_t row_bytes, const Body& body) {
  ParallelRange(pool, rows, std::max<int64_t>(1, kBytesPerWorker / std::max<int64_t>(row_bytes, 1)), body);
}

/// For elementwise ops, whose result does not depend on where a row is cut: calls body(row, first column, end column)
/// for pieces of rows, so that a few long rows keep all workers busy.
template <typename Body>
void ForRowPieces(ThreadPool& pool, int64_t rows, int64_t columns, int64_t column_bytes, const Body& body) {
  constexpr int64_t kPiece = 512;
  const int64_t pieces = (columns + kPiece - 1) / kPiece;
  ForRows(pool, rows * pieces, kPiece * column_bytes, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t row = begin / pieces;
      const int64_t stop = std::min(end, (row + 1) * pieces);
      body(row, (begin - row * pieces) * kPiece, std::min(columns, (stop - row * pieces) * kPiece));
      begin = stop;
    }
  });
}

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_ROWS_SPLIT_H_
