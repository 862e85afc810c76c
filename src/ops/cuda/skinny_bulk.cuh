// The FP4 experts' other way to fill stages (skinny.h, SkinnyFeed::kBulk): a warp of its own brings boxes of 128
// weight rows with TMA and the activation rows with cp.async, eight warps multiply. They meet at mbarriers only: a full
// and an empty one for each stage. Scales are there for all columns from the first chunk on, since they are contiguous.
//
// The sums are those of StreamChunks, to the bit.
#ifndef DEEPINFER_OPS_CUDA_SKINNY_BULK_CUH_
#define DEEPINFER_OPS_CUDA_SKINNY_BULK_CUH_

#include <algorithm>
#include <atomic>

#include "ops/cuda/skinny_block.cuh"
#include "ops/cuda/space_map.cuh"
#include "ops/cuda/wgmma.cuh"

namespace deepinfer::cuda {

inline constexpr int kBulkWarps = kSkinnyWarps + 1;  // the last one brings the data
inline constexpr int kBulkThreads = kBulkWarps * 32;
inline constexpr int kBoxRows = kSkinnyRows;
inline constexpr int kStageValues = kWarpTiles * kBoxRows * kSkinnyChunk / 2;  // two boxes
inline constexpr int kMostStages = 8;
inline constexpr int kBarrierBytes = 2 * kMostStages * 8;

template <int NT>
inline constexpr int kBulkStageBytes = kStageValues + kRowsBytes<NT>;

/// What UseSkinnyFeed set, and how often kBulk was taken.
struct FeedChoice {
  SkinnyFeed feed = SkinnyFeed::kAuto;
  int stages = 0;
  std::atomic<int64_t> bulk_launches = 0;
};
inline FeedChoice feed_choice;

/// How a box lies in shared memory.
struct BoxLayout {
  static constexpr int kRowBytes = kSkinnyChunk / 2;
  static constexpr int kBytes = kBoxRows * kRowBytes;
};

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
  const SpacePlace place = PlaceIn(space, values, row, pitch);
  return {&space.map, place.column, place.row, scales};
}

/// A map of all experts' matrices with rows of `pitch` bytes; near: an address by theirs.
inline bool MakeBoxMap(const void* near, int64_t pitch, SpaceMap* space) {
  return MakeSpaceMap(near, pitch, kBoxRows, BoxLayout::kRowBytes, CU_TENSOR_MAP_SWIZZLE_NONE, space);
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
struct BoxTiles {
  using Layout = BoxLayout;
  uint32_t at;         // row 0 of the warp's tile in the first box
  uint32_t scale;      // this lane's byte of row g of that tile
  uint32_t row_bytes;  // of scales
  __device__ __forceinline__ uint32_t Scale(int m, int upper, int, int) const {
    return LoadShared8(scale + (m * kBoxRows + upper * 8) * row_bytes);
  }
  __device__ __forceinline__ uint4 Words(int m, int upper, int g, int piece) const {
    return LoadShared128(at + m * Layout::kBytes + (g + 8 * upper) * Layout::kRowBytes + 16 * piece);
  }
};

/// The block's ring. Shared memory: stages, then the scales of the boxes, then barriers; the base is a multiple of 128.
template <int NT>
class BulkStream {
 public:
  static constexpr int kStage = kBulkStageBytes<NT>;
  using Layout = BoxLayout;
  static_assert(kWarpTiles * Layout::kBytes == kStageValues);

  static constexpr int64_t ScaleBytes(int64_t columns) { return kWarpTiles * kBoxRows * (columns / kScaleColumns); }

  /// By the whole block.
  __device__ __forceinline__ BulkStream(uint32_t shared, int stages, int columns)
      : ring_(shared),
        scales_(shared + stages * kStage),
        barriers_(scales_ + static_cast<uint32_t>(ScaleBytes(columns))),
        scale_row_bytes_(static_cast<uint32_t>(columns / kScaleColumns)),
        stages_(stages) {
    if (threadIdx.x == 0) {
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
  __device__ __forceinline__ void Run(const BoxSource (&boxes)[kWarpTiles], const MakeRows& make_rows, int first,
                                      int last, float (&accumulators)[kWarpTiles][NT][4]) {
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
  __device__ __forceinline__ void StartBoxes(const BoxSource (&boxes)[kWarpTiles], int stage, int chunk,
                                             bool with_scales) {
    const uint32_t scale_bytes = kBoxRows * scale_row_bytes_;
    BarrierExpect(Full(stage), kStageValues + (with_scales ? kWarpTiles * scale_bytes : 0));
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m) {
      LoadBox(ring_ + stage * kStage + m * Layout::kBytes, boxes[m].map, boxes[m].column + chunk * Layout::kRowBytes,
              boxes[m].row, Full(stage));
    }
    if (!with_scales) return;
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m) LoadBulk(scales_ + m * scale_bytes, boxes[m].scales, scale_bytes, Full(stage));
  }

  template <typename MakeRows>
  __device__ __forceinline__ void Bring(const BoxSource (&boxes)[kWarpTiles], const MakeRows& make_rows, int first,
                                        int last) {
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

  __device__ __forceinline__ void Multiply(int first, int last, float (&accumulators)[kWarpTiles][NT][4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const uint32_t own = warp * kSkinnyTile * Layout::kRowBytes;
    const int scale_row = warp * kSkinnyTile + lane / 4;
    uint32_t scale = scales_ + scale_row * scale_row_bytes_ + first * kChunkScales + lane % 4;
    Clear(accumulators);
    for (int chunk = first; chunk < last; ++chunk) {
      const uint32_t stage = ring_ + place_.stage * kStage;
      BarrierWait(Full(place_.stage), place_.parity);
      MultiplyChunk<NT>(BoxTiles{stage + own, scale, scale_row_bytes_}, stage + kStageValues, lane, accumulators);
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
template <int NT>
BulkSize SizeOfBulk(int64_t columns, int blocks, int chunks) {
  using Stream = BulkStream<NT>;
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
