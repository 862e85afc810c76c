// Tensor core products of quantised activations, for few rows: what limits them is reading the weights.
//
// Activations are quantised (spec c.1) and then held as BF16, exactly. Weights become BF16 with their block scale, also
// exactly, so products are exact; sums are the F32 accumulators of m16n8k16 MMAs within 128 columns, then F32 additions
// in an order that depends on the weight's shape only: experts add chunk after chunk, then the two halves of the
// columns (skinny_plan.h); DirectLinear the same within each eighth of the columns, then these. Scales must lie in
// 2^-50 .. 2^60, which the released ones do by far: the exponents of BF16 bound them.
//
// early_launch.cuh says what these kernels may read before the kernel ahead of them has ended.
// Thread-safety, ownership: as kernels.h.
#ifndef DEEPINFER_OPS_CUDA_SKINNY_H_
#define DEEPINFER_OPS_CUDA_SKINNY_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/tensor_view.h"
#include "base/weight_matrix.h"

namespace deepinfer::cuda {

/// In which order the columns of BF16 rows lie: as the weight's codes come apart cheaply.
enum class ColumnOrder : uint8_t {
  kPlain,
  kFp8,  ///< of each four columns: 0 2 1 3
  kFp4,  ///< of each eight columns: 0 4 1 5 2 6 3 7
  // As a wide product's MMAs take them (wide.h): column 16 t + 4 j + i of 64 at 16 j + 2 t plus the place 0 8 1 9 of i;
  // of 128 columns, 32 t + 8 j + n at 32 j + 2 t plus the place 0 8 16 24 1 9 17 25 of n.
  kFp8Wide,
  kFp4Wide,
};

/// Where column `c` of a row lies.
constexpr int64_t PlaceOf(ColumnOrder order, int64_t c) {
  const int n = static_cast<int>(c % 128);
  switch (order) {
    case ColumnOrder::kPlain:
      return c;
    case ColumnOrder::kFp8:  // 0 2 1 3
      return c - n % 4 + ((n & 1) << 1 | (n >> 1 & 1));
    case ColumnOrder::kFp4:  // 0 4 1 5 2 6 3 7
      return c - n % 8 + ((n & 3) << 1 | (n >> 2 & 1));
    case ColumnOrder::kFp8Wide:
      return c - n % 64 + n / 4 % 4 * 16 + n / 16 % 4 * 2 + (n >> 1 & 1) + 8 * (n & 1);
    case ColumnOrder::kFp4Wide:
      return c - n + (n / 8 % 4 * 2 + (n >> 1 & 1)) * 16 + n / 32 * 2 + (n >> 2 & 1) + 8 * (n & 1);
  }
  return c;
}

/// How experts' weights come to the multiplying warps; the bits of the results are the same.
enum class SkinnyFeed : uint8_t {
  kAuto,     ///< kBulk where an expert is likely to have more than eight rows, else kDirect
  kThreads,  ///< through shared memory, by cp.async of all threads
  kBulk,     ///< through shared memory, by TMA from a warp of its own; where no tensor map can be made, kThreads
  kDirect,   ///< into registers (direct_experts.h); where its columns do not fit, kThreads
};
/// For benches and tests, while no other thread launches. `stages`: most of a bulk ring, 0: as many as suit the shape.
void UseSkinnyFeed(SkinnyFeed feed, int stages = 0);
/// Launches of experts so far that used kBulk.
int64_t BulkSkinnyLaunches();

/// Activations as BF16 [T, columns]: quantised, or the terms of exact ones. `values` are at a multiple of 16 bytes,
/// columns a multiple of 32.
struct Bf16Rows {
  uint16_t* values = nullptr;
  int64_t columns = 0;
};

/// One expert's weights as kF4Row32 holds them, with codes in pair order (fp4_pairs.h): w1, w3 [I, D], w2 [D, I]. Each
/// starts at a multiple of 16 bytes.
struct DeviceExpert {
  const uint8_t* w1 = nullptr;
  const uint8_t* w1_scale = nullptr;
  const uint8_t* w3 = nullptr;
  const uint8_t* w3_scale = nullptr;
  const uint8_t* w2 = nullptr;
  const uint8_t* w2_scale = nullptr;
};

/// Which rows go to which expert (routing.h), all arrays on the device.
struct ExpertsPlan {
  const DeviceExpert* experts = nullptr;  // [E]
  const int32_t* active = nullptr;        // [active_count]; -1 behind the last
  int active_count = 0;
  int most_rows = 0;                 ///< of one expert, as far as is known: more of them read its weights again
  const int32_t* offsets = nullptr;  // [E + 1]
  const int32_t* order = nullptr;    // [slots]
  const float* weights = nullptr;    // [slots], by slot
  int per_token = 1;
  int64_t columns = 0;  // D
  int64_t inner = 0;    // I
  float limit = 0;
};

void QuantiseRows(cudaStream_t stream, ConstFloatView x, ColumnOrder order, const Bf16Rows& out);

/// Whether DirectLinear takes this weight: kF8Block32, columns a multiple of 64, rows of a group of 16; its values at a
/// multiple of 16.
bool DirectLinearFits(const WeightMatrix& weight, int groups);
/// out = x W^T, by groups as Ops::Linear; x in ColumnOrder::kFp8: quantised rows, or terms (exact_linear.h).
void DirectLinear(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const WeightMatrix& weight, int groups,
                  FloatView out);

/// Two of them of the same rows in one launch, each with the bits that it has alone; no groups.
bool DirectLinearPairFits(const WeightMatrix& first, const WeightMatrix& second);
void DirectLinearPair(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const WeightMatrix& first,
                      const WeightMatrix& second, FloatView first_out, FloatView second_out);

/// Whether SkinnyExperts takes experts like these.
bool SkinnyExpertsFit(const WeightMatrix& w1, const WeightMatrix& w2);
/// x in ColumnOrder::kFp4; hidden [slots, I] is scratch; parts.row(slot) = w2(quantised(silu(w1 x) * (w3 x) * weight)),
/// parts [slots, D].
void SkinnyExperts(cudaStream_t stream, const ExpertsPlan& plan, const Bf16Rows& x, const Bf16Rows& hidden,
                   FloatView parts);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_SKINNY_H_
