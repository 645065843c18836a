// Products of four warps together, as Hopper has them (capability 9.0, compiled for sm_90a): 64 rows times 64
// columns, the right side read from shared memory by the tensor cores themselves, with twice the speed of a
// warp's products. They run asynchronously: between `start_products` and the wait for what `end_products`
// closed, nobody may touch their operands. A warp holds its 16 rows of the left side and of the result as in
// matrix.cuh.
#pragma once

#include "cuda/matrix.cuh"

namespace fl::cuda::matrix {

__device__ __forceinline__ void start_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kLeft of the closed ones are still running.
template <int kLeft>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// After a wait: keeps the compiler from using results before it.
template <int kN>
__device__ __forceinline__ void settle(float (&c)[kN][4]) {
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(c[n][e])::"memory");
}
// What this thread has written to shared memory becomes visible to products that start after the next
// barrier.
__device__ __forceinline__ void publish_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Describes rows of 128 bytes in shared memory, at a multiple of 1024, whose chunks are permuted by exclusive
// or with the row modulo eight; groups of eight rows follow each other. 16 rows further: 128 more; 16
// columns: 2.
__device__ __forceinline__ uint64_t describe(uint32_t address) {
  return uint64_t((address & 0x3ffff) >> 4) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 |
         uint64_t(1) << 62;
}

#define FL_PRODUCT(type, turned)                                                                  \
  asm volatile(                                                                                   \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                 \
      " "                                                                                         \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                   \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "         \
      "{%32, %33, %34, %35}, %36, p, 1, 1, " turned ";\n}"                                        \
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), \
        "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), \
        "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), \
        "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), \
        "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]), \
        "+f"(c[7][2]), "+f"(c[7][3])                                                              \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)))
#define FL_PRODUCT_SHARED(type, turned)                                                           \
  asm volatile(                                                                                   \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                 \
      " "                                                                                         \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                   \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "         \
      "%32, %33, p, 1, 1, 0, " turned ";\n}"                                                      \
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), \
        "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), \
        "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), \
        "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), \
        "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]), \
        "+f"(c[7][2]), "+f"(c[7][3])                                                              \
      : "l"(a), "l"(b), "r"(int(add)))
// Both sides in shared memory, summed over columns: c = a bᵀ, or with `add` c += a bᵀ.
template <bool kBrain>
__device__ __forceinline__ void multiply_group(float (&c)[8][4], uint64_t a, uint64_t b, bool add) {
  if constexpr (kBrain)
    FL_PRODUCT_SHARED("bf16", "0");
  else
    FL_PRODUCT_SHARED("f16", "0");
}
// The left side in registers, summed over the rows of b: c += a b.
template <bool kBrain>
__device__ __forceinline__ void multiply_group(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b) {
  constexpr bool add = true;
  if constexpr (kBrain)
    FL_PRODUCT("bf16", "1");
  else
    FL_PRODUCT("f16", "1");
}
#undef FL_PRODUCT
#undef FL_PRODUCT_SHARED

}  // namespace fl::cuda::matrix
