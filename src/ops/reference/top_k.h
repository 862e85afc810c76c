// TopK: the k best scores, equal scores in favour of the earliest. Router and indexer share this rule: relu makes exact
// ties ordinary, and without a rule decode and prefill of the same tokens could disagree (spec e.1).
//
// Thread-safety: pure function.
#ifndef DEEPINFER_OPS_REFERENCE_TOP_K_H_
#define DEEPINFER_OPS_REFERENCE_TOP_K_H_

#include <cstdint>
#include <vector>

namespace deepinfer::reference {

/// Indices of the k largest scores (all of them when there are fewer), ascending. -0 equals +0; NaN counts as -inf.
std::vector<int32_t> TopK(const std::vector<float>& scores, int64_t k);

}  // namespace deepinfer::reference

#endif  // DEEPINFER_OPS_REFERENCE_TOP_K_H_
