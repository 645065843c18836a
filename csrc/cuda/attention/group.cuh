// Products of four warps together, as Hopper has them (capability 9.0, compiled for sm_90a): 64 rows times 64
// or 128 columns, the right side read from shared memory by the tensor cores themselves, with twice the speed
// of a warp's products. They run asynchronously: between `start_products` and the wait for what
// `end_products` closed, nobody may touch their operands. A warp holds its 16 rows of the left side and of
// the result as in matrix.cuh.
//
// And what feeds them: copies of boxes of a tensor by the copy engine, which arrive at barriers in shared
// memory.
#pragma once

#include <cuda.h>

#include "cuda/attention/matrix.cuh"

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
// columns: 2. Where a product has more than 64 columns in a row, they lie `plane` bytes further.
__device__ __forceinline__ uint64_t describe(uint32_t address, uint32_t plane = 16) {
  return uint64_t((address & 0x3ffff) >> 4) | uint64_t(plane >> 4) << 16 | uint64_t(1024 >> 4) << 32 |
         uint64_t(1) << 62;
}

// Registers of a result, and how the instructions name 32 and 64 of them.
#define FL_ROW(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define FL_ROWS(i) FL_ROW(i), FL_ROW(i + 1), FL_ROW(i + 2), FL_ROW(i + 3)
#define FL_NAMES_64                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FL_NAMES_128                                                                   \
  FL_NAMES_64                                                                          \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define FL_MULTIPLY(n, type, names, left, right, add, turned)                                     \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " add                                                         \
  ", 0;\n"                                                                                        \
  "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" names "}, " left ", " right \
  ", p, 1, 1, " turned ";\n}"
// Both sides in shared memory, summed over columns: c = a bᵀ, or with `add` c += a bᵀ.
#define FL_SHARED_64(type)                                                       \
  asm volatile(FL_MULTIPLY("64", type, FL_NAMES_64, "%32", "%33", "%34", "0, 0") \
               : FL_ROWS(0), FL_ROWS(4)                                          \
               : "l"(a), "l"(b), "r"(int(add)))
#define FL_SHARED_128(type)                                                        \
  asm volatile(FL_MULTIPLY("128", type, FL_NAMES_128, "%64", "%65", "%66", "0, 0") \
               : FL_ROWS(0), FL_ROWS(4), FL_ROWS(8), FL_ROWS(12)                   \
               : "l"(a), "l"(b), "r"(int(add)))
template <bool kBrain, int kN>
__device__ __forceinline__ void multiply_group(float (&c)[kN][4], uint64_t a, uint64_t b, bool add) {
  static_assert(kN == 8 || kN == 16);
  if constexpr (kBrain && kN == 8)
    FL_SHARED_64("bf16");
  else if constexpr (kBrain)
    FL_SHARED_128("bf16");
  else if constexpr (kN == 8)
    FL_SHARED_64("f16");
  else
    FL_SHARED_128("f16");
}
// The left side in registers, summed over the rows of b: c += a b.
#define FL_HELD_64(type)                                                                       \
  asm volatile(FL_MULTIPLY("64", type, FL_NAMES_64, "{%32, %33, %34, %35}", "%36", "%37", "1") \
               : FL_ROWS(0), FL_ROWS(4)                                                        \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1))
#define FL_HELD_128(type)                                                                        \
  asm volatile(FL_MULTIPLY("128", type, FL_NAMES_128, "{%64, %65, %66, %67}", "%68", "%69", "1") \
               : FL_ROWS(0), FL_ROWS(4), FL_ROWS(8), FL_ROWS(12)                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1))
template <bool kBrain, int kN>
__device__ __forceinline__ void multiply_group(float (&c)[kN][4], const uint32_t (&a)[4], uint64_t b) {
  static_assert(kN == 8 || kN == 16);
  if constexpr (kBrain && kN == 8)
    FL_HELD_64("bf16");
  else if constexpr (kBrain)
    FL_HELD_128("bf16");
  else if constexpr (kN == 8)
    FL_HELD_64("f16");
  else
    FL_HELD_128("f16");
}
#undef FL_ROW
#undef FL_ROWS
#undef FL_NAMES_64
#undef FL_NAMES_128
#undef FL_MULTIPLY
#undef FL_SHARED_64
#undef FL_SHARED_128
#undef FL_HELD_64
#undef FL_HELD_128

// A barrier in shared memory lets through who waits for its turn 0, 1, ... modulo two once that many
// arrivals, and the bytes that were announced, have come.
__device__ __forceinline__ void make_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// After barriers are made, before the block meets.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and announces bytes.
__device__ __forceinline__ void announce(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void await(uint32_t barrier, int turn) {
  uint32_t done;
  do {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(turn)
        : "memory");
  } while (!done);
}

// Of a tensor of 16-bit numbers, up to 64 columns of some rows of one head, permuted as `describe` says.
using Box = CUtensorMap;
// Copies the box that begins at a place; what the tensor does not have is zero.
__device__ __forceinline__ void copy_box(uint32_t to, const Box& box, int column, int row, int head,
                                         int batch, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
      "l"(reinterpret_cast<uint64_t>(&box)), "r"(column), "r"(row), "r"(head), "r"(batch), "r"(barrier)
      : "memory");
}

// Registers of each thread of the calling group, taken from those that others gave.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace fl::cuda::matrix
