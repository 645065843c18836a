// The instructions that kernels on tensor cores are made of: products of 16 by 16 and 16 by 8 tiles of half
// or bfloat16 numbers, their loads from shared memory, and copies into it that run beside the computation.
// Needs capability 8.0. Addresses in shared memory are those of its own window.
//
// How a warp holds a tile, with g = lane / 4 and t = lane % 4:
//   A, 16 by 16: registers (row g, columns 2t and 2t + 1), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..)
//   B, 16 by 8: (rows 2t and 2t + 1, column g), (rows 2t + 8.., g)
//   C, 16 by 8: (row g, columns 2t and 2t + 1), (row g + 8, the same columns)
// So the C of two neighbouring products are the halves of an A, once rounded.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace fl::cuda::matrix {

// The shared memory whose size is given at the launch.
__device__ __forceinline__ uint32_t shared_memory() {
  extern __shared__ __align__(1024) char shared[];
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// c += a b
template <bool kBrain>
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (kBrain)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four tiles of 8 by 8; lanes 8i to 8i + 7 give the addresses of the rows of tile i. A lane gets two
// neighbours of row g of each tile, or with `turned` two neighbours of column g.
__device__ __forceinline__ void load_tiles(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
__device__ __forceinline__ void load_tiles_turned(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

// Two numbers rounded to a register; the first is its lower half.
template <bool kBrain>
__device__ __forceinline__ uint32_t round_pair(float x, float y) {
  if constexpr (kBrain) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(x, y);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}
template <bool kBrain>
__device__ __forceinline__ float2 widen_pair(uint32_t pair) {
  if constexpr (kBrain)
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
  else
    return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Starts a copy of 16 bytes, or of zeros; `from` is not read then.
__device__ __forceinline__ void copy_async(uint32_t to, const char* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_async_float(uint32_t to, const float* from, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(exists ? 4 : 0)
               : "memory");
}
// Waits for all copies that this thread has started.
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

__device__ __forceinline__ void put_shared(uint32_t to, uint32_t x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
__device__ __forceinline__ float get_shared_float(uint32_t from) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from) : "memory");
  return x;
}
__device__ __forceinline__ float2 get_shared_pair(uint32_t from) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(from) : "memory");
  return x;
}
__device__ __forceinline__ uint4 get_shared_vector(uint32_t from) {
  uint4 x;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(from)
               : "memory");
  return x;
}

}  // namespace fl::cuda::matrix
