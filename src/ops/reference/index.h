// Index: scores of compressed rows, the two-level candidates and the final top-k (spec c.6). Contract: ops/ops.h.
//
// Thread-safety: pure function.
#ifndef DEEPINFER_OPS_REFERENCE_INDEX_H_
#define DEEPINFER_OPS_REFERENCE_INDEX_H_

#include "ops/ops.h"

namespace deepinfer::reference {

void SelectRows(ConstFloatView q, ConstFloatView head_weights, std::span<const IndexSequence> sequences,
                const IndexSettings& settings, const CandidateBlocks& candidates, const SelectedRows& selected);

}  // namespace deepinfer::reference

#endif  // DEEPINFER_OPS_REFERENCE_INDEX_H_
