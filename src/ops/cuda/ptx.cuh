// The PTX instructions that have no C++ name.
#ifndef DEEPINFER_OPS_CUDA_PTX_CUH_
#define DEEPINFER_OPS_CUDA_PTX_CUH_

#include <cstdint>

namespace deepinfer::cuda {

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// 16 bytes from device memory to shared memory, past L1; L2 fetches the 128 bytes around them.
__device__ __forceinline__ void CopyAsync16(uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
__device__ __forceinline__ void CopyAsync4(uint32_t shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}
__device__ __forceinline__ void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `pending` groups of this thread are under way.
template <int pending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

__device__ __forceinline__ uint32_t LoadShared32(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
  return value;
}
__device__ __forceinline__ uint32_t LoadShared8(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(value) : "r"(address));
  return value;
}
__device__ __forceinline__ void StoreShared128(uint32_t address, const uint32_t (&words)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]), "r"(words[1]), "r"(words[2]),
               "r"(words[3])
               : "memory");
}
__device__ __forceinline__ uint4 LoadShared128(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address));
  return value;
}
/// Word `i` of four; `i` is known when the code is compiled.
__device__ __forceinline__ uint32_t Word(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}
__device__ __forceinline__ uint2 LoadShared64(uint32_t address) {
  uint2 value;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(address));
  return value;
}

/// Programmatic dependent launch: until the kernel ahead has ended and its writes are seen.
__device__ __forceinline__ void WaitForKernelAhead() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// From here on the kernel behind may be started, as far as there is room.
__device__ __forceinline__ void StartKernelBehind() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

/// d += a b: A 16 x 16 row major, B 16 x 8 column major, BF16 in, F32 sums. Lane (g, t) = (lane / 4, lane % 4) holds
/// A[g][2t..], A[g + 8][2t..], A[g][2t + 8..], A[g + 8][2t + 8..]; B[2t..][g], B[2t + 8..][g]; D[g][2t], D[g][2t + 1],
/// D[g + 8][2t], D[g + 8][2t + 1].
__device__ __forceinline__ void MmaBf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                        uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_PTX_CUH_
