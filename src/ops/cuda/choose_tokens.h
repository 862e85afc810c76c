// TokenChooser: Ops::ChooseTokens for logits on the GPU (ops/sampling.h, docs/sampling.md).
//
// The device changes, ranks and sums; the host takes the few logarithms that must have its bits: of a row's total, and
// of the noise of ids whose sums are too close to tell apart. Ids and log probabilities are those of the reference.
// Thread-safety: one thread. Ownership: keeps its host buffers, so that nothing is allocated in the steady state;
// device memory is the staging's. Errors: the staging's; every id is then -1.
#ifndef DEEPINFER_OPS_CUDA_CHOOSE_TOKENS_H_
#define DEEPINFER_OPS_CUDA_CHOOSE_TOKENS_H_

#include <span>
#include <vector>

#include "base/tensor_view.h"
#include "deepinfer/status.h"
#include "ops/cuda/choose_tokens_kernels.h"
#include "ops/cuda/staging.h"
#include "ops/sampling.h"

namespace deepinfer::cuda {

class TokenChooser {
 public:
  /// choices[t] = the token of row t under rules[t]. logits [T, V] on the device, everything else on the host;
  /// top_logprobs <= kMostTopLogprobs. Runs on staging's stream and ends with staging.Finish(), whose status it
  /// returns.
  Status Choose(Staging& staging, ConstFloatView logits, std::span<const TokenRule> rules,
                std::span<TokenChoice> choices);

 private:
  DeviceRule Pack(const TokenRule& rule, int64_t vocabulary);
  void Read(const SamplingRows& rows, int64_t t, const TokenRule& rule, TokenChoice& choice) const;

  std::vector<DeviceRule> rules_;
  std::vector<uint32_t> words_;
  int32_t changed_rows_ = 0;
  std::vector<RowPart> row_parts_;     // [T, parts]
  std::vector<DrawnPart> drawn_;       // [T, parts]
  std::vector<RowLogprobs> logprobs_;  // [T]
  std::vector<LogitAt> top_;           // [T, most_top]
};

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_CHOOSE_TOKENS_H_
