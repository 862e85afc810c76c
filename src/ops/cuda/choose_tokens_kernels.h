// What TokenChooser and its kernels share (choose_tokens.h): rules, results and launchers of the choice of tokens.
//
// Pointers are device pointers; structs are plain memory that is copied as bytes. Launchers as in kernels.h.
#ifndef DEEPINFER_OPS_CUDA_CHOOSE_TOKENS_KERNELS_H_
#define DEEPINFER_OPS_CUDA_CHOOSE_TOKENS_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/tensor_view.h"

namespace deepinfer::cuda {

/// A list in SamplingRows::words.
struct WordList {
  uint32_t first = 0;
  int32_t count = 0;
};

/// A TokenRule. Lists: barred ids; (id, F32 bits) of biases; (id, output count) of seen tokens; mask words.
struct DeviceRule {
  double temperature = 0;  ///< 0: no noise, as with a known id
  double top_p = 1;
  double least_score = 0;  ///< log(min_p); -inf: none
  double repetition = 1, presence = 0, frequency = 0;
  uint64_t seed = 0, position = 0;
  uint32_t purpose = 0;
  int32_t top_k = 0;  ///< 0: all
  int32_t known_id = -1;
  int32_t top_logprobs = -1;
  int32_t changed_row = -1;  ///< where the row lies after steps 1 to 3; -1: they leave it as it is
  WordList barred, bias, seen, allowed;
  bool filters = false;  ///< top-k or top-p
};

struct LogitAt {
  float logit;
  int32_t id;
};

/// What one part of a row's ids holds. Ids are -1 where everything is barred.
struct RowPart {
  LogitAt raw;      ///< the largest of the model's logits, of equal ones the lowest id
  LogitAt changed;  ///< the same after steps 1 to 3
  float raw_of_changed;
  int32_t numbers;  ///< 0: a logit is NaN or +inf
};

/// Ids whose score plus noise is within kNoiseSlack of the part's largest. Logarithms differ by a bit between math
/// libraries, so where there are several the host decides.
inline constexpr double kNoiseSlack = 1e-10;
struct DrawnPart {
  static constexpr int kIds = 2;  // a third one within the slack is a matter of 1e-18
  double noisy[kIds];
  LogitAt changed[kIds];
  float raw[kIds];
  int32_t count;
};

struct RowLogprobs {
  double total;    ///< of e^(logit - largest)
  float of_known;  ///< logit of the known id
};

/// Filters keep logits above `logit`, and of those equal to it the ids up to `id`.
using RankCut = LogitAt;

struct SamplingRows {
  ConstFloatView logits;  // [T, V]
  const DeviceRule* rules = nullptr;
  const uint32_t* words = nullptr;
  float* changed = nullptr;  // [changed rows, V]
  int32_t parts = 1;
  int32_t part_ids = 0;             // a multiple of 64
  RowPart* row_parts = nullptr;     // [T, parts]
  RankCut* cuts = nullptr;          // [T]
  DrawnPart* drawn = nullptr;       // [T, parts]
  RowLogprobs* logprobs = nullptr;  // [T]
  LogitAt* top = nullptr;           // [T, most_top]
  int32_t most_top = 0;             // <= kMostTopLogprobs
};
inline constexpr int32_t kMostTopLogprobs = 1024;

/// Steps 1 to 3 of ops/sampling.h, and the largest logits: row_parts.
void ChangeRows(cudaStream_t stream, const SamplingRows& rows);
/// Step 5 without min-p, where rules filter: cuts. And where they ask for log probabilities: logprobs, top. One of the
/// two flags at least.
void RankRows(cudaStream_t stream, const SamplingRows& rows, bool filters, bool logprobs);
/// Steps 4 and 6, and min-p, where the temperature is not 0: drawn.
void DrawTokens(cudaStream_t stream, const SamplingRows& rows);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_CHOOSE_TOKENS_KERNELS_H_
