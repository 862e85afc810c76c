// The inner loops of index scoring, compiled once per instruction set; index.cc arranges them.
//
// A panel holds up to kIndexPanelKeys unpacked keys in tiles that fit the registers: per tile, dwords of four channels
// of each key (values doubled and offset to 0 .. 24), then one F32 scale per key and group of 32 channels. A query
// holds the same dwords of its heads as signed bytes, doubled. Both layouts are private to the kernels.
//
// Thread-safety: pure functions on the caller's buffers.
#ifndef DEEPINFER_OPS_CPU_INDEX_KERNELS_H_
#define DEEPINFER_OPS_CPU_INDEX_KERNELS_H_

#include <cstdint>

#include "ops/cpu/unpack_rows.h"

namespace deepinfer::cpu {

/// Keys of a panel; whole tiles on every instruction set.
inline constexpr int64_t kIndexPanelKeys = 240;

/// Bytes of a panel and of a query with `heads` heads, `width` channels each. Buffers are 64-byte aligned.
int64_t IndexPanelBytes(int64_t width);
int64_t IndexQueryBytes(int64_t heads, int64_t width);

/// Unpacks `count` <= kIndexPanelKeys rows of format kIndexFp4.
void FillIndexPanel(const KeyRow* rows, int64_t count, int64_t width, uint8_t* panel);

/// Quantises q [heads, width] as spec c.7 `fake_fp4_32` and stores it with its head weights.
void FillIndexQuery(const float* q, const float* head_weights, int64_t heads, int64_t width, uint8_t* query);

/// scores[j] = sum_h w[h] * max(<q_h, key_j>, 0) for the first `count` keys of the panel (index.h has the order). NaN
/// and -infinity become the lowest F32. `scores` has room for kIndexPanelKeys.
void ScoreIndexPanel(const uint8_t* panel, int64_t count, const uint8_t* query, int64_t heads, int64_t width,
                     float* scores);

/// Appends TopKList::Entry(scores[i], row i) for the scores above `bar` and returns how many there were. Row i is
/// rows[i], or first + i when `rows` is null.
int64_t AppendAbove(const float* scores, int64_t count, float bar, const int32_t* rows, int64_t first,
                    uint64_t* entries);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_INDEX_KERNELS_H_
