// The skinny products' other way to fill stages (skinny.h, SkinnyFeed::kBulk): a warp of its own brings boxes of 128
// weight rows with TMA and the activation rows with cp.async, eight warps multiply. They meet at mbarriers only: a full
// and an empty one for each stage. Scales are there for all columns from the first chunk on, since they are contiguous.
//
// The sums are those of StreamChunks, to the bit.
#ifndef DEEPINFER_OPS_CUDA_SKINNY_BULK_CUH_
#define DEEPINFER_OPS_CUDA_SKINNY_BULK_CUH_

#include <algorithm>

#include "ops/cuda/skinny_block.cuh"
#include "ops/cuda/tensor_map.h"
#include "ops/cuda/wgmma.cuh"

namespace deepinfer::cuda {

inline constexpr int kBulkWarps = kSkinnyWarps + 1;  // the last one brings the data
inline constexpr int kBulkThreads = kBulkWarps * 32;
inline constexpr int kBoxRows = kSkinnyRows;
inline constexpr int kStageValues = 16384;  // one box of FP8, two of FP4
inline constexpr int kMostStages = 8;
inline constexpr int kBarrierBytes = 2 * kMostStages * 8;

template <int NT>
inline constexpr int kBulkStageBytes = kStageValues + kRowsBytes<NT>;

/// What UseSkinnyFeed set, and how often it was followed.
struct FeedChoice {
  SkinnyFeed feed = SkinnyFeed::kBulk;
  SkinnyFeed experts = SkinnyFeed::kThreads;
  int stages = 0;
  int64_t bulk_launches = 0;
};
inline FeedChoice feed_choice;

/// How a box lies in shared memory: FP4 as it is, FP8 in the 128-byte swizzle.
template <bool fp4>
struct BoxLayout {
  static constexpr int kRowBytes = fp4 ? kSkinnyChunk / 2 : kSkinnyChunk;
  static constexpr int kBytes = kBoxRows * kRowBytes;
  static constexpr CUtensorMapSwizzle kSwizzle = fp4 ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B;
};

/// A tensor map that has all matrices with rows of `pitch` bytes: it covers 2^31 such rows from `base` on, whatever
/// lies there, and a matrix begins at some row and column of it. So experts need no map each.
struct SpaceMap {
  CUtensorMap map;
  const uint8_t* base;
};

/// `near`: an address within 2^30 rows of all matrices. pitch: a multiple of 16.
inline bool MakeSpaceMap(const void* near, int64_t pitch, SpaceMap* space) {
  const uintptr_t back = static_cast<uintptr_t>(pitch) << 30;
  const uintptr_t address = reinterpret_cast<uintptr_t>(near);
  space->base = reinterpret_cast<const uint8_t*>(std::max<uintptr_t>(address > back ? address - back : 0, 256) & ~255u);
  // Columns of two rows: a matrix that begins inside a row goes on in the next.
  return MakeTensorMap(CU_TENSOR_MAP_DATA_TYPE_UINT8, space->base, (int64_t{1} << 31) - 1, 2 * pitch, pitch, kBoxRows,
                       BoxLayout<true>::kRowBytes, BoxLayout<true>::kSwizzle, &space->map);
}

/// 128 weight rows: where their first box begins, and their scales, contiguous.
struct BoxSource {
  const CUtensorMap* map;
  int column;  // bytes
  int row;
  const uint8_t* scales;
};

/// Rows `row` on of the matrix at `values`.
__device__ __forceinline__ BoxSource BoxIn(const SpaceMap& space, const uint8_t* values, int64_t row, uint32_t pitch,
                                           const uint8_t* scales) {
  const uint64_t offset = static_cast<uint64_t>(values - space.base);
  const uint64_t first = offset / pitch;
  return {&space.map, static_cast<int>(offset - first * pitch), static_cast<int>(first + static_cast<uint64_t>(row)),
          scales};
}

/// What a lane of the bringing warp copies of the activation rows: piece lane % 16 of every second row.
template <int NT>
struct BulkRows {
  static constexpr int kRowStep = 32 / RowLayout::kPieces;
  static constexpr int kCopies = 8 * NT / kRowStep;
  const uint16_t* values[kCopies];

  /// row_of(i): the address of row i < count. Rows behind are left out: their columns of the MMAs go nowhere.
  template <typename RowOf>
  __device__ __forceinline__ BulkRows(const RowOf& row_of, int count) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int row = lane / RowLayout::kPieces + i * kRowStep;
      values[i] = row < count ? row_of(row) + lane % RowLayout::kPieces * 8 : nullptr;
    }
  }
  __device__ __forceinline__ void Start(uint32_t shared, int chunk) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int at = RowLayout::PieceAt(lane / RowLayout::kPieces, lane % RowLayout::kPieces);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (values[i] != nullptr) {
        CopyAsync16(shared + at + i * kRowStep * kSkinnyChunk * 2, values[i] + chunk * kSkinnyChunk);
      }
    }
  }
};

/// A warp's tiles in a stage that TMA filled, as MultiplyTiles reads them.
template <bool fp4>
struct BoxTiles {
  using Layout = BoxLayout<fp4>;
  uint32_t at;         // row 0 of the warp's tile in the first box
  uint32_t scale;      // this lane's byte of row g of that tile
  uint32_t row_bytes;  // of scales
  __device__ __forceinline__ uint32_t Scale(int m, int upper, int, int) const {
    return LoadShared8(fp4 ? scale + (m * kBoxRows + upper * 8) * row_bytes : scale);
  }
  __device__ __forceinline__ uint4 Words(int m, int upper, int g, int piece) const {
    return LoadShared128(at + m * Layout::kBytes + (g + 8 * upper) * Layout::kRowBytes +
                         16 * (fp4 ? piece : piece ^ g));
  }
};

/// The block's ring. Shared memory: stages, then the scales of MT boxes, then barriers; the base is a multiple of 1024.
template <bool fp4, int MT, int NT>
class BulkStream {
 public:
  static constexpr int kStage = kBulkStageBytes<NT>;
  using Layout = BoxLayout<fp4>;
  static_assert(MT * Layout::kBytes == kStageValues);

  static constexpr int64_t ScaleBytes(int64_t columns) {
    return MT * (fp4 ? kBoxRows : kBoxRows / 32) * (columns / kScaleColumns);
  }

  /// By the whole block.
  __device__ __forceinline__ BulkStream(uint32_t shared, int stages, int columns)
      : ring_(shared),
        scales_(shared + stages * kStage),
        barriers_(scales_ + static_cast<uint32_t>(ScaleBytes(columns))),
        scale_row_bytes_(static_cast<uint32_t>(columns / kScaleColumns)),
        stages_(stages) {
    if (threadIdx.x == 0) {
      if (shared % 1024 != 0) __trap();  // the swizzle goes by address
      for (int s = 0; s < stages; ++s) {
        BarrierInit(Full(s), 33);  // the announcement of the bytes, and each lane's copies
        BarrierInit(Empty(s), kSkinnyWarps);
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
  }

  /// As StreamChunks, by the whole block; the multiplying warps get accumulators. Nobody reads the stages any more when
  /// it returns. A block that runs it again has stored nothing there since, or fenced and met at a barrier.
  template <typename MakeRows>
  __device__ __forceinline__ void Run(const BoxSource (&boxes)[MT], const MakeRows& make_rows, int first, int last,
                                      float (&accumulators)[MT][NT][4]) {
    if (threadIdx.x / 32 == kSkinnyWarps) {
      Bring(boxes, make_rows, first, last);
    } else {
      WaitForKernelAhead();
      Multiply(first, last, accumulators);
    }
    __syncwarp();
    __syncthreads();
  }

 private:
  struct Place {
    int stage = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void Next(int stages) {
      if (++stage == stages) {
        stage = 0;
        parity ^= 1;
      }
    }
  };
  __device__ __forceinline__ uint32_t Full(int stage) const { return barriers_ + stage * 8; }
  __device__ __forceinline__ uint32_t Empty(int stage) const { return barriers_ + kMostStages * 8 + stage * 8; }

  // By one lane.
  __device__ __forceinline__ void StartBoxes(const BoxSource (&boxes)[MT], int stage, int chunk, bool with_scales) {
    const uint32_t scale_bytes = (fp4 ? kBoxRows : kBoxRows / 32) * scale_row_bytes_;
    BarrierExpect(Full(stage), kStageValues + (with_scales ? MT * scale_bytes : 0));
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      LoadBox(ring_ + stage * kStage + m * Layout::kBytes, boxes[m].map, boxes[m].column + chunk * Layout::kRowBytes,
              boxes[m].row, Full(stage));
    }
    if (!with_scales) return;
#pragma unroll
    for (int m = 0; m < MT; ++m) LoadBulk(scales_ + m * scale_bytes, boxes[m].scales, scale_bytes, Full(stage));
  }

  template <typename MakeRows>
  __device__ __forceinline__ void Bring(const BoxSource (&boxes)[MT], const MakeRows& make_rows, int first, int last) {
    const bool leader = threadIdx.x % 32 == 0;
    const int early = min(stages_, last - first);
    if (leader) {
      Place place = place_;
      for (int i = 0; i < early; ++i) {
        BarrierWait(Empty(place.stage), place.parity ^ 1);
        StartBoxes(boxes, place.stage, first + i, i == 0 && !has_scales_);
        place.Next(stages_);
      }
    }
    __syncwarp();
    has_scales_ = true;
    WaitForKernelAhead();
    const BulkRows<NT> rows = make_rows();
    for (int chunk = first; chunk < last; ++chunk) {
      if (chunk - first >= early) {
        BarrierWait(Empty(place_.stage), place_.parity ^ 1);
        if (leader) StartBoxes(boxes, place_.stage, chunk, false);
        __syncwarp();
      }
      rows.Start(ring_ + place_.stage * kStage + kStageValues, chunk);
      BarrierArriveCopied(Full(place_.stage));
      place_.Next(stages_);
    }
  }

  __device__ __forceinline__ void Multiply(int first, int last, float (&accumulators)[MT][NT][4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const uint32_t own = warp * kSkinnyTile * Layout::kRowBytes;
    const int scale_row = fp4 ? warp * kSkinnyTile + lane / 4 : warp * kSkinnyTile / 32;
    uint32_t scale = scales_ + scale_row * scale_row_bytes_ + first * kChunkScales + lane % 4;
    Clear(accumulators);
    for (int chunk = first; chunk < last; ++chunk) {
      const uint32_t stage = ring_ + place_.stage * kStage;
      BarrierWait(Full(place_.stage), place_.parity);
      MultiplyChunk<fp4, MT, NT>(BoxTiles<fp4>{stage + own, scale, scale_row_bytes_}, stage + kStageValues, lane,
                                 accumulators);
      __syncwarp();
      if (lane == 0) BarrierArrive(Empty(place_.stage));
      scale += kChunkScales;
      place_.Next(stages_);
    }
  }

  uint32_t ring_, scales_, barriers_, scale_row_bytes_;
  int stages_;
  Place place_;
  bool has_scales_ = false;
};

/// Stages and shared memory of a bulk kernel; 0 stages: it does not fit.
struct BulkSize {
  int stages = 0;
  int bytes = 0;
};
/// Room for `blocks` of them on an SM, if each then has two stages; `chunks`: of a part.
template <bool fp4, int MT, int NT>
BulkSize SizeOfBulk(int64_t columns, int blocks, int chunks) {
  using Stream = BulkStream<fp4, MT, NT>;
  const int64_t rest = Stream::ScaleBytes(columns) + kBarrierBytes;
  int64_t stages = 0;
  for (; blocks > 0 && stages < 2; --blocks) stages = BulkStagesThatFit(Stream::kStage, rest, blocks);
  if (feed_choice.stages > 0) {
    stages = std::min<int64_t>(feed_choice.stages, BulkStagesThatFit(Stream::kStage, rest, 1));
  }
  if (stages < 2) return {};
  stages = std::min<int64_t>({stages, kMostStages, std::max(chunks, 2)});
  return {static_cast<int>(stages), static_cast<int>(stages * Stream::kStage + rest)};
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_SKINNY_BULK_CUH_
