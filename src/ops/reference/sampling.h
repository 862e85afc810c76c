// Sampling: the token of a row, the check of drafts. Contracts: ops/ops.h, ops/sampling.h.
//
// Thread-safety: pure functions.
#ifndef DEEPINFER_OPS_REFERENCE_SAMPLING_H_
#define DEEPINFER_OPS_REFERENCE_SAMPLING_H_

#include "ops/ops.h"

namespace deepinfer::reference {

void ChooseTokens(ConstFloatView logits, std::span<const TokenRule> rules, std::span<TokenChoice> choices);
void AcceptDrafts(std::span<const DraftCheck> checks, std::span<DraftVerdict> verdicts);

}  // namespace deepinfer::reference

#endif  // DEEPINFER_OPS_REFERENCE_SAMPLING_H_
