// Window plus selected rows attention on the tensor cores of SM90 (spec c.5; docs/cuda.md, "Sparse attention").
//
// A row's keys are cut into splits of 64 by their place in its list. A cluster of two blocks takes a row's 64 heads:
// block r has channels 256r .. 256r + 255 of queries, keys and outputs. One warp group unpacks keys into shared memory
// as BF16, exactly, once for all heads; two others multiply, 128 channels each. Queries and probabilities are two BF16
// terms each, so products have 16 bits of them.
//
// Order of sums, whatever the batch: a score adds the four parts of 128 channels, ((0 + 1) + (2 + 3)); a split has its
// own maximum, sum and outputs, and Join() takes in one split after the other. Either one cluster does that for all
// splits of a row, or, when rows are few, each split has its cluster and JoinKernel does.
#include "ops/cuda/decode_bf16.cuh"
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/key_list.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/rope.cuh"
#include "ops/cuda/row_forms.cuh"
#include "ops/cuda/wgmma.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kWidth = 512;
constexpr int kBlockWidth = 256;  // channels of a block
constexpr int kHeads = 64;        // of a cluster
constexpr int kSplitKeys = 64;
constexpr int kGroup = 128;               // threads of a warp group
constexpr int kMultipliers = 2 * kGroup;  // threads 0 .. 255; the rest unpack
constexpr int kSparseThreads = kMultipliers + kGroup;
constexpr int kStages = 3;            // splits of keys in shared memory
constexpr int kSlabBytes = 64 * 128;  // 64 rows of 64 BF16 channels, 128-byte swizzle
constexpr int kOperandBytes = kBlockWidth / 64 * kSlabBytes;
constexpr int kExchangeBytes = kMultipliers * 16 * 4;
constexpr int kMostClusters = 132;  // up to which every split has its own cluster: two rounds of an H200
/// Unpacked keys are 2^32 too small, so that no scale leaves the exponents of BF16.
constexpr float kKeyFactor = 0x1p32f;

// Shared memory of a block, from a multiple of 1024.
constexpr int kQueryAt = 0;  // high terms, then low ones
constexpr int kKeysAt = kQueryAt + 2 * kOperandBytes;
constexpr int kProbabilityAt = kKeysAt + kStages * kOperandBytes;  // [64 heads][64 keys]: high terms, low terms
constexpr int kSiblingAt = kProbabilityAt + 2 * kSlabBytes;        // scores between the warp groups
constexpr int kPeerAt = kSiblingAt + kExchangeBytes;               // scores of the other block, two splits in turn
constexpr int kFactorsAt = kPeerAt + 2 * kExchangeBytes;           // [64 heads] of two floats
constexpr int kBarriersAt = kFactorsAt + kHeads * 8;
constexpr int kSparseBytes = kBarriersAt + (2 * kStages + 2) * 8 + 1024;
static_assert(kSparseBytes <= 232448);

struct SparseArguments {
  ConstFloatView q;
  int heads;
  const DeviceSequence* sequences;
  const int32_t* row_sequence;
  int window;
  DeviceLists selected;
  WeightVector sink;
  float scale;
  FloatView out;
  float* parts;  // [T, splits, heads, 512], in units of 2^-32
  float2* sums;  // [T, splits, heads]: maximum, sum
  int most_splits;
  ConstFloatView rotation;  // JoinKernel only, as are the forms
  RowForms forms;
};

/// What a head has of the splits so far: the largest score, the sum of e^(score - maximum).
struct Softmax {
  float maximum = -INFINITY;
  float sum = 0;
};

/// Takes in the next split. Returns the factors of the outputs before and of the split's.
__device__ __forceinline__ float2 Join(Softmax& total, const Softmax& split) {
  const float maximum = fmaxf(total.maximum, split.maximum);
  const float2 factors = make_float2(expf(total.maximum - maximum), expf(split.maximum - maximum));
  total.sum = fmaf(split.sum, factors.y, total.sum * factors.x);
  total.maximum = maximum;
  return factors;
}
__device__ __forceinline__ float JoinOutput(float before, float split, float2 factors) {
  return fmaf(split, factors.y, before * factors.x);
}
/// The factor of the outputs when all splits are in: the sink joins the denominator.
__device__ __forceinline__ float LastFactor(const Softmax& total, float sink) {
  const float maximum = fmaxf(total.maximum, sink);
  const float factor = expf(total.maximum - maximum);
  return factor / fmaf(total.sum, factor, expf(sink - maximum)) * kKeyFactor;
}

__device__ __forceinline__ int SplitsOf(const KeyRange& range) { return (range.count() + kSplitKeys - 1) / kSplitKeys; }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kKeyExponent = 32;  // of kKeyFactor

/// Two values as BF16, `low` in the low half.
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
/// What PackBf16 has cut off.
__device__ __forceinline__ uint32_t PackRest(float low, float high, uint32_t pair) {
  return PackBf16(low - __uint_as_float(pair << 16), high - __uint_as_float(pair & 0xffff0000u));
}

/// 128 channels of a key: codes in registers, BF16 to shared memory.
struct KeyPiece {
  uint4 words[8];  // FP4: four
  uint2 scales;    // FP8: one word
  bool fp4;
  bool exists;

  /// channel: the first, a multiple of 128.
  __device__ __forceinline__ void Load(const KeyRow& key, int channel) {
    exists = true;
    fp4 = key.format != RowFormat::kWindowFp8;
    if (fp4) {
      const uint4* from = reinterpret_cast<const uint4*>(key.values + channel / 2);
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = __ldg(from + i);
      scales = __ldg(reinterpret_cast<const uint2*>(key.scales + channel / 16));
    } else {
      const uint4* from = reinterpret_cast<const uint4*>(key.values + channel);
#pragma unroll
      for (int i = 0; i < 8; ++i) words[i] = __ldg(from + i);
      scales.x = __ldg(reinterpret_cast<const uint32_t*>(key.scales + channel / 32));
    }
  }

  /// To row `row` of two slabs. Keys that do not exist are 0: their probability is, too.
  __device__ __forceinline__ void Store(uint32_t slabs, int row) const {
#pragma unroll
    for (int piece = 0; piece < 16; ++piece) {  // eight channels, 16 bytes
      uint32_t pairs[4] = {0, 0, 0, 0};
      if (exists && fp4) {
        const uint32_t byte = (piece < 8 ? scales.x : scales.y) >> (piece / 2 % 4 * 8) & 255u;
        const uint32_t factor = __float_as_uint(E4m3ToFloat(static_cast<uint8_t>(byte)) * 0x1p94f);
        static_assert(kKeyExponent == 126 - 94);
        uint32_t apart[4];  // (0,4) (1,5) (2,6) (3,7)
        DecodeFp4(Word(words[piece / 4], piece % 4), __byte_perm(factor, 0, 0x3232), apart);
        pairs[0] = __byte_perm(apart[0], apart[1], 0x5410);
        pairs[1] = __byte_perm(apart[2], apart[3], 0x5410);
        pairs[2] = __byte_perm(apart[0], apart[1], 0x7632);
        pairs[3] = __byte_perm(apart[2], apart[3], 0x7632);
      } else if (exists) {
        const uint32_t exponent = (scales.x >> (piece / 4 * 8) & 255u) + 120 - kKeyExponent;
        const uint32_t factor = exponent << 7 | exponent << 23;
        // Bytes 0 2 1 3 come apart as (0,1) (2,3).
        DecodeFp8(__byte_perm(Word(words[piece / 2], piece % 2 * 2), 0, 0x3120), factor, pairs);
        DecodeFp8(__byte_perm(Word(words[piece / 2], piece % 2 * 2 + 1), 0, 0x3120), factor, pairs + 2);
      }
      StoreShared128(slabs + piece / 8 * kSlabBytes + row * 128 + ((piece % 8 ^ row % 8) << 4), pairs);
    }
  }
};

/// Where a block stands.
struct SparseBlock {
  uint32_t base;  // of its shared memory
  int64_t t;
  int rank;         // in the cluster
  int first_head;   // of the cluster
  int first_split;  // and how many
  int splits;
  KeyRange range;

  __device__ __forceinline__ uint32_t stage(int i) const { return base + kKeysAt + i % kStages * kOperandBytes; }
  __device__ __forceinline__ uint32_t full(int i) const { return base + kBarriersAt + i % kStages * 8; }
  __device__ __forceinline__ uint32_t empty(int i) const { return full(i) + kStages * 8; }
  __device__ __forceinline__ uint32_t peer_scores(int i) const { return base + kPeerAt + i % 2 * kExchangeBytes; }
  __device__ __forceinline__ uint32_t peer_barrier(int i) const {
    return base + kBarriersAt + (2 * kStages + i % 2) * 8;
  }
};

/// The warp group that unpacks: thread -> (key, half of the block's channels).
__device__ __forceinline__ void UnpackSplits(const SparseArguments& a, const SparseBlock& block) {
  const int thread = static_cast<int>(threadIdx.x) - kMultipliers;
  const int row = thread % kSplitKeys;
  const int half = thread / kSplitKeys;
  const DeviceSequence& sequence = a.sequences[a.row_sequence[block.t]];
  KeyPiece piece;
  const auto load = [&](int i) {
    const int j = (block.first_split + i) * kSplitKeys + row;
    piece.exists = false;
    if (i < block.splits && j < block.range.count()) {
      piece.Load(KeyAt(sequence, block.range, a.selected, block.t, j), block.rank * kBlockWidth + half * 128);
    }
  };
  load(0);
  __syncwarp();
  ClusterWait();  // barriers are there
  for (int i = 0; i < block.splits; ++i) {
    BarrierWait(block.empty(i), (i / kStages % 2) ^ 1);
    piece.Store(block.stage(i) + half * 2 * kSlabBytes, row);
    FenceSharedForAsync();
    BarrierArrive(block.full(i));
    load(i + 1);
  }
  __syncwarp();
}

/// The queries of the block as two BF16 terms; heads that do not exist are 0. By the multiplying threads.
__device__ __forceinline__ void LoadQueries(const SparseArguments& a, const SparseBlock& block) {
  constexpr int kPieces = kHeads * kBlockWidth / 8 / kMultipliers;
  const int piece = static_cast<int>(threadIdx.x) % 32;  // of eight channels
  const int first = static_cast<int>(threadIdx.x) / 32;  // heads first, first + 8, ...
  const float* row = RowOf(a.q, block.t) + int64_t{block.first_head} * kWidth + block.rank * kBlockWidth + piece * 8;
  float4 values[kPieces][2];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int head = first + i * 8;
    values[i][0] = values[i][1] = make_float4(0, 0, 0, 0);
    if (block.first_head + head < a.heads) {
      const float4* from = reinterpret_cast<const float4*>(row + head * kWidth);
      values[i][0] = from[0];
      values[i][1] = from[1];
    }
  }
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int head = first + i * 8;
    uint32_t high[4], low[4];
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const float4& v = values[i][part];
      high[2 * part] = PackBf16(v.x, v.y);
      high[2 * part + 1] = PackBf16(v.z, v.w);
      low[2 * part] = PackRest(v.x, v.y, high[2 * part]);
      low[2 * part + 1] = PackRest(v.z, v.w, high[2 * part + 1]);
    }
    const uint32_t at = block.base + kQueryAt + piece / 8 * kSlabBytes + head * 128 + ((piece % 8 ^ head % 8) << 4);
    StoreShared128(at, high);
    StoreShared128(at + kOperandBytes, low);
  }
}

/// The two warp groups that multiply. `group` has channels 128 group .. of the block and, between the products, the
/// scores of heads 16 w + 8 group + g for warp w and lane 4 g + t.
template <bool one_split>
__device__ __forceinline__ void MultiplySplits(const SparseArguments& a, const SparseBlock& block) {
  const int thread = static_cast<int>(threadIdx.x) % kGroup;
  const int group = static_cast<int>(threadIdx.x) / kGroup;
  const int g = thread % 32 / 4;
  const int t = thread % 4;
  const int own_head = thread / 32 * 16 + 8 * group + g;
  const uint32_t peer = PeerAddress(block.base, static_cast<uint32_t>(block.rank ^ 1));
  const uint32_t probabilities = block.base + kProbabilityAt;
  const uint32_t factors_at = block.base + kFactorsAt;
  const float scale = a.scale * kKeyFactor;

  LoadQueries(a, block);
  FenceSharedForAsync();
  ClusterWait();  // barriers are there
  NamedBarrier<1, kMultipliers>();

  float scores[32];
  const auto multiply_queries = [&](int i) {  // low terms first: they are small
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      const uint32_t at = (2 * group + k % 8 / 4) * kSlabBytes + k % 4 * 32;
      const uint64_t query = SwizzledMatrix(block.base + kQueryAt + (k < 8 ? kOperandBytes : 0) + at);
      if (k == 0) {
        Wgmma64x64<false>(scores, query, SwizzledMatrix(block.stage(i) + at));
      } else {
        Wgmma64x64<true>(scores, query, SwizzledMatrix(block.stage(i) + at));
      }
    }
    WgmmaCommit();
  };

  Softmax total;
  float outputs[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) outputs[i] = 0;
  float split_outputs[64];
  if (block.splits > 0) {
    BarrierWait(block.full(0), 0);
    multiply_queries(0);
    WgmmaWait<0>();
  }
  for (int i = 0; i < block.splits; ++i) {
    // Scores: the warp group's part plus the sibling's, plus the other block's.
    float score[16];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float send[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float first = scores[8 * j + e / 2 * 4 + e % 2], second = scores[8 * j + e / 2 * 4 + 2 + e % 2];
        score[4 * j + e] = group == 0 ? first : second;
        send[e] = group == 0 ? second : first;
      }
      const uint32_t words[4] = {__float_as_uint(send[0]), __float_as_uint(send[1]), __float_as_uint(send[2]),
                                 __float_as_uint(send[3])};
      StoreShared128(block.base + kSiblingAt + ((4 * (group ^ 1) + j) * kGroup + thread) * 16, words);
    }
    if (!one_split && i + 1 < block.splits) {  // meanwhile the tensor cores begin the next split
      BarrierWait(block.full(i + 1), (i + 1) / kStages % 2);
      multiply_queries(i + 1);
    }
    NamedBarrier<1, kMultipliers>();
    const auto add = [&](uint32_t from, int stride) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint4 words = LoadShared128(from + j * stride * 16);
#pragma unroll
        for (int e = 0; e < 4; ++e) score[4 * j + e] += __uint_as_float(Word(words, e));
      }
    };
    add(block.base + kSiblingAt + (4 * group * kGroup + thread) * 16, kGroup);
    const uint32_t own = block.peer_scores(i) + threadIdx.x * 16;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      StorePeer128(peer + (own - block.base) + j * kMultipliers * 16, score[4 * j], score[4 * j + 1], score[4 * j + 2],
                   score[4 * j + 3]);
    }
    __syncwarp();
    if (thread % 32 == 0) BarrierArrivePeer(peer + (block.peer_barrier(i) - block.base));
    BarrierWaitPeer(block.peer_barrier(i), i / 2 % 2);
    add(own, kMultipliers);

    // The split's softmax: key 16 j + 8 (e / 2) + 2 t + e % 2 is score[4 j + e].
    const int keys = block.range.count() - (block.first_split + i) * kSplitKeys;
    Softmax split;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      score[n] = n / 2 * 8 + 2 * t + n % 2 < keys ? score[n] * scale : -INFINITY;
      split.maximum = fmaxf(split.maximum, score[n]);
    }
    split.maximum = fmaxf(split.maximum, __shfl_xor_sync(0xffffffffu, split.maximum, 1));
    split.maximum = fmaxf(split.maximum, __shfl_xor_sync(0xffffffffu, split.maximum, 2));
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float even = expf(score[2 * n] - split.maximum), odd = expf(score[2 * n + 1] - split.maximum);
      split.sum += even + odd;
      const uint32_t high = PackBf16(even, odd);
      const uint32_t at = probabilities + own_head * 128 + ((n ^ g) << 4) + 4 * t;
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(high) : "memory");
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(at + kSlabBytes), "r"(PackRest(even, odd, high)) : "memory");
    }
    split.sum += __shfl_xor_sync(0xffffffffu, split.sum, 1);
    split.sum += __shfl_xor_sync(0xffffffffu, split.sum, 2);
    if (one_split) {
      const int head = block.first_head + own_head;
      if (block.rank == 0 && t == 0 && head < a.heads) {
        a.sums[(block.t * a.most_splits + block.first_split) * a.heads + head] = make_float2(split.maximum, split.sum);
      }
    } else {
      const float2 factors = Join(total, split);
      if (t == 0) {
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(factors_at + own_head * 8), "f"(factors.x), "f"(factors.y)
                     : "memory");
      }
    }
    FenceSharedForAsync();
    NamedBarrier<1, kMultipliers>();

    WgmmaFence();
#pragma unroll
    for (int k = 0; k < 8; ++k) {  // low terms first
      const uint64_t weights = SwizzledMatrix(probabilities + (k < 4 ? kSlabBytes : 0) + k % 4 * 32);
      const uint64_t values = SwizzledColumns(block.stage(i) + 2 * group * kSlabBytes + k % 4 * 2048, kSlabBytes);
      if (k == 0) {
        Wgmma64x128<false, true>(split_outputs, weights, values);
      } else {
        Wgmma64x128<true, true>(split_outputs, weights, values);
      }
    }
    WgmmaCommit();
    WgmmaWait<0>();
    if (thread % 32 == 0) BarrierArrive(block.empty(i));
    if (!one_split) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint2 words = LoadShared64(factors_at + (thread / 32 * 16 + g + 8 * h) * 8);
        const float2 factors = make_float2(__uint_as_float(words.x), __uint_as_float(words.y));
#pragma unroll
        for (int n = 0; n < 32; ++n) {
          const int at = n / 2 * 4 + 2 * h + n % 2;
          outputs[at] = JoinOutput(outputs[at], split_outputs[at], factors);
        }
      }
    }
  }

  if (!one_split) {
    NamedBarrier<1, kMultipliers>();  // the factors of the last split have been read
    const int head = block.first_head + own_head;
    if (t == 0 && head < a.heads) {
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(factors_at + own_head * 8),
                   "f"(LastFactor(total, LoadVector(a.sink, head)))
                   : "memory");
    }
    NamedBarrier<1, kMultipliers>();
  }
  const int channel = block.rank * kBlockWidth + group * 128 + 2 * t;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = thread / 32 * 16 + g + 8 * h;
    const int head = block.first_head + row;
    if (head >= a.heads) continue;
    float* to = one_split
                    ? a.parts + ((block.t * a.most_splits + block.first_split) * a.heads + head) * kWidth + channel
                    : RowOf(a.out, block.t) + int64_t{head} * kWidth + channel;
    const float factor = one_split ? 1.0f : __uint_as_float(LoadShared32(factors_at + row * 8));
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const int at = 4 * j + 2 * h;
      *reinterpret_cast<float2*>(to + 8 * j) = one_split ? make_float2(split_outputs[at], split_outputs[at + 1])
                                                         : make_float2(outputs[at] * factor, outputs[at + 1] * factor);
    }
  }
}

#endif  // SM90

template <bool one_split>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kSparseThreads, 1)
    SparseAttentionKernel(const __grid_constant__ SparseArguments a) {
  WaitForKernelAhead();
  StartKernelBehind();
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ uint8_t raw[];
  SparseBlock block;
  block.base = (SharedAddress(raw) + 1023u) & ~1023u;
  block.t = blockIdx.x / 2;
  block.rank = static_cast<int>(blockIdx.x % 2);
  block.first_head = static_cast<int>(blockIdx.y) * kHeads;
  block.range = KeysOf(a.sequences[a.row_sequence[block.t]], block.t, a.window, a.selected);
  block.first_split = static_cast<int>(blockIdx.z);
  block.splits = SplitsOf(block.range);
  if (one_split) {
    StartKernelBehind();
    if (block.first_split >= block.splits) return;  // both blocks
    block.splits = 1;
  }
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      BarrierInit(block.full(s), kGroup);              // the unpacking threads
      BarrierInit(block.empty(s), kMultipliers / 32);  // the multiplying warps
    }
    for (int i = 0; i < 2; ++i) BarrierInit(block.peer_barrier(i), kMultipliers / 32);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  ClusterArrive();
  if (threadIdx.x < kMultipliers) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
    MultiplySplits<one_split>(a, block);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    UnpackSplits(a, block);
  }
  // Nobody leaves while the other block may still write to it.
  ClusterArrive();
  ClusterWait();
#endif
}

/// Joins the splits of one head of one row: a block of 128 threads, four channels each.
__global__ void JoinKernel(const __grid_constant__ SparseArguments a) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t t = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  const int splits = SplitsOf(KeysOf(a.sequences[a.row_sequence[t]], t, a.window, a.selected));
  const int64_t first = t * a.most_splits * a.heads + head;
  Softmax total;
  float4 output = make_float4(0, 0, 0, 0);
#pragma unroll 4
  for (int s = 0; s < splits; ++s) {
    const int64_t at = first + int64_t{s} * a.heads;
    const float2 sums = a.sums[at];
    const float4 part = reinterpret_cast<const float4*>(a.parts + at * kWidth)[threadIdx.x];
    const float2 factors = Join(total, Softmax{sums.x, sums.y});
    output.x = JoinOutput(output.x, part.x, factors);
    output.y = JoinOutput(output.y, part.y, factors);
    output.z = JoinOutput(output.z, part.z, factors);
    output.w = JoinOutput(output.w, part.w, factors);
  }
  const float factor = LastFactor(total, LoadVector(a.sink, head));
  float values[4] = {output.x * factor, output.y * factor, output.z * factor, output.w * factor};
  const int channel = 4 * static_cast<int>(threadIdx.x);
  if (a.rotation.data != nullptr) {
    RotateFour(values, channel, kWidth, RowOf(a.rotation, t), a.rotation.columns / 2, true);
  }
  float2* to = reinterpret_cast<float2*>(RowOf(a.out, t) + int64_t{head} * kWidth + channel);
  to[0] = make_float2(values[0], values[1]);
  to[1] = make_float2(values[2], values[3]);
  StoreForms(a.forms, values, t, int64_t{head} * kWidth + channel, int64_t{a.heads} * kWidth);
}

int MostSplits(int most_keys) { return (most_keys + kSplitKeys - 1) / kSplitKeys; }

/// Whether each split has its own cluster.
bool TakesOneSplit(int64_t rows, int heads, int most_keys) {
  return MostSplits(most_keys) > 1 && rows * MostSplits(most_keys) * Blocks(heads, kHeads) <= kMostClusters;
}

}  // namespace

bool SparseAttentionFits(int heads, int64_t width) {
  return width == kWidth && heads > 0 && heads % 16 == 0 && heads <= 128 && IsSm90();
}

int64_t SparseAttentionScratchBytes(int64_t rows, int heads, int most_keys) {
  if (!TakesOneSplit(rows, heads, most_keys)) return 0;
  return rows * MostSplits(most_keys) * heads * (kWidth + 2) * 4;
}

void SparseAttention(cudaStream_t stream, ConstFloatView q, int heads, const DeviceSequence* sequences,
                     const int32_t* row_sequence, int window, const DeviceLists& selected, const WeightVector& sink,
                     float scale, int most_keys, void* scratch, FloatView out, ConstFloatView rotation,
                     const RowForms& forms) {
  if (q.rows == 0) return;
  const bool one_split = TakesOneSplit(q.rows, heads, most_keys);
  SparseArguments a{q,   heads,   sequences, row_sequence,          window,   selected, sink, scale,
                    out, nullptr, nullptr,   MostSplits(most_keys), rotation, forms};
  a.parts = static_cast<float*>(scratch);
  a.sums = reinterpret_cast<float2*>(a.parts + q.rows * a.most_splits * heads * kWidth);
  const auto launch = [&](auto kernel, int splits) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSparseBytes);
    const dim3 grid(static_cast<unsigned>(2 * q.rows), Blocks(heads, kHeads), static_cast<unsigned>(splits));
    LaunchEarly(stream, grid, kSparseThreads, kSparseBytes, kernel, a);
  };
  if (!one_split) return launch(SparseAttentionKernel<false>, 1);
  launch(SparseAttentionKernel<true>, a.most_splits);
  LaunchEarly(stream, dim3(static_cast<unsigned>(q.rows), static_cast<unsigned>(heads)), kWidth / 4, 0, JoinKernel, a);
}

}  // namespace deepinfer::cuda
