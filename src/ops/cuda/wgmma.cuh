// WGMMA, TMA and mbarriers of SM90 as functions.
#ifndef DEEPINFER_OPS_CUDA_WGMMA_CUH_
#define DEEPINFER_OPS_CUDA_WGMMA_CUH_

#include <cuda.h>

#include <cstdint>

namespace deepinfer::cuda {

// mbarriers in shared memory, by address.
__device__ __forceinline__ void BarrierInit(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void BarrierArrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void BarrierExpect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void BarrierWait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "WAIT_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra WAIT_%=;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// A box of a two-dimensional tensor map to shared memory; completes on `barrier`.
__device__ __forceinline__ void LoadBox(uint32_t shared, const CUtensorMap* map, int column, int row,
                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

/// The same to the same place, and barrier, of every block of the cluster in `mask`.
template <uint16_t mask>
__device__ __forceinline__ void LoadBoxForAll(uint32_t shared, const CUtensorMap* map, int column, int row,
                                              uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
      "%3}], [%4], %5;" ::"r"(shared),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(mask)
      : "memory");
}

/// `bytes` contiguous bytes; all three are multiples of 16.
__device__ __forceinline__ void LoadBulk(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}
/// Arrives once all earlier CopyAsync of this thread are there; counts as one of the expected arrivals.
__device__ __forceinline__ void BarrierArriveCopied(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/// Clusters. The address in another block's shared memory; stores and arrivals there; a wait that sees such stores.
__device__ __forceinline__ uint32_t PeerAddress(uint32_t shared, uint32_t rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}
__device__ __forceinline__ void StorePeer128(uint32_t peer, float a, float b, float c, float d) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(peer), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}
__device__ __forceinline__ void BarrierArrivePeer(uint32_t peer_barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(peer_barrier) : "memory");
}
/// Arrival at a barrier of any block of the cluster that says only that this thread has read: no stores go with it.
__device__ __forceinline__ void BarrierArriveRead(uint32_t peer_barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(peer_barrier) : "memory");
}
__device__ __forceinline__ void BarrierWaitPeer(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "WAIT_%=:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra WAIT_%=;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void ClusterWait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/// Barrier `id` (1 .. 15) of `threads` threads of the block.
template <int id, int threads>
__device__ __forceinline__ void NamedBarrier() {
  asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(threads) : "memory");
}

/// Ordinary stores to shared memory become visible to the tensor cores (before a barrier).
__device__ __forceinline__ void FenceSharedForAsync() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void WgmmaFence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void WgmmaCommit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/// Rows of 64 BF16 columns (128 bytes) in the 128-byte swizzle, columns contiguous: groups of eight rows are 1024 bytes
/// apart. `shared` is a multiple of 1024, plus 32 bytes for every 16 columns.
__device__ __forceinline__ uint64_t SwizzledMatrix(uint32_t shared) {
  return uint64_t{(shared & 0x3ffffu) >> 4} | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

/// The same bytes with the columns as the matrix's outer side: 16 rows of many columns, 64 columns each `slab` bytes
/// apart. `shared` is a multiple of 1024, plus 2048 for every 16 rows.
__device__ __forceinline__ uint64_t SwizzledColumns(uint32_t shared, uint32_t slab) {
  return uint64_t{(shared & 0x3ffffu) >> 4} | uint64_t{slab >> 4} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

// The accumulators of a thread: their places in the instruction, and the operands.
#define DEEPINFER_WGMMA_PLACES_32                                          \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define DEEPINFER_WGMMA_PLACES_64                                                    \
  DEEPINFER_WGMMA_PLACES_32                                                          \
  ", "                                                                               \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define DEEPINFER_WGMMA_SUMS_32(d)                                                                            \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), \
      "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),  \
      "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), \
      "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define DEEPINFER_WGMMA_SUMS_64(d)                                                                            \
  DEEPINFER_WGMMA_SUMS_32(d), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]),   \
      "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), \
      "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), \
      "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), \
      "+f"(d[62]), "+f"(d[63])

/// d += a b^T: A 64 x 16, B 128 x 16, both BF16 in shared memory; D 64 x 128 F32. Thread (w, g, t) of the warp group
/// holds D[16w + g + 8h][8j + 2t + i] in d[4j + 2h + i]. `columns`: d += a b, B 16 x 128 as SwizzledColumns. Without
/// `add`: d is overwritten.
template <bool add = true, bool columns = false>
__device__ __forceinline__ void Wgmma64x128(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" DEEPINFER_WGMMA_PLACES_64
               "}, %64, %65, %66, 1, 1, 0, %67;\n"
               : DEEPINFER_WGMMA_SUMS_64(d)
               : "l"(a), "l"(b), "n"(add ? 1 : 0), "n"(columns ? 1 : 0));
}

/// The same for B 64 x 16: j < 8.
template <bool add>
__device__ __forceinline__ void Wgmma64x64(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" DEEPINFER_WGMMA_PLACES_32
               "}, %32, %33, %34, 1, 1, 0, 0;\n"
               : DEEPINFER_WGMMA_SUMS_32(d)
               : "l"(a), "l"(b), "n"(add ? 1 : 0));
}

/// The same two with A in registers: BF16 pairs as MmaBf16 has those of its 16 rows, warp w of the group rows 16w on.
/// They may be written again once the group was waited for.
template <bool add>
__device__ __forceinline__ void Wgmma64(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" DEEPINFER_WGMMA_PLACES_64
               "}, {%64, %65, %66, %67}, %68, %69, 1, 1, 0;\n"
               : DEEPINFER_WGMMA_SUMS_64(d)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(add ? 1 : 0));
}
template <bool add>
__device__ __forceinline__ void Wgmma64(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" DEEPINFER_WGMMA_PLACES_32
               "}, {%32, %33, %34, %35}, %36, %37, 1, 1, 0;\n"
               : DEEPINFER_WGMMA_SUMS_32(d)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(add ? 1 : 0));
}

#undef DEEPINFER_WGMMA_PLACES_32
#undef DEEPINFER_WGMMA_PLACES_64
#undef DEEPINFER_WGMMA_SUMS_32
#undef DEEPINFER_WGMMA_SUMS_64

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_WGMMA_CUH_
