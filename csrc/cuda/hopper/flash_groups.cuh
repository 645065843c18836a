// What attention by groups of warps shares: a block of threads has two groups that compute, 64 rows each, and
// a thread that sends for what they walk over. It arrives in a ring of places in shared memory, and the
// groups need not wait for each other.
#pragma once

#include "cuda/attention/flash.cuh"
#include "cuda/hopper/boxes.h"

namespace fl::cuda::flash {

constexpr int kGroups = 2, kGroupRows = 64 * kGroups, kGroupThreads = 128 * (kGroups + 1);

// The rows of one operand as boxes of kRows rows and 64 columns; a head of more columns is several.
template <int D, int kRows>
__device__ __forceinline__ void send_rows(uint32_t to, const Rows& rows, int row, int head, int batch,
                                          uint32_t barrier) {
#pragma unroll
  for (int plane = 0; plane < D / 64; ++plane)
    matrix::copy_box(to + plane * kRows * 128, rows.box, plane * 64, row, rows.heads ? head : 0,
                     rows.batches ? batch : 0, barrier);
}

// Places of kBytes that are filled and read one after the other; `barriers` has two for each place. A place
// is free again when every thread of the groups has released it.
template <int kPlaces, int kBytes>
struct Ring {
  uint32_t places, barriers;
  __device__ __forceinline__ void make(int fillers = 1) const {
    for (int i = 0; i < kPlaces; ++i) {
      matrix::make_barrier(barriers + i * 16, fillers);
      matrix::make_barrier(barriers + i * 16 + 8, kGroups * 128);
    }
  }
  __device__ __forceinline__ uint32_t place(int i) const { return places + i % kPlaces * kBytes; }
  __device__ __forceinline__ uint32_t filled(int i) const { return barriers + i % kPlaces * 16; }
  // Waits until the place of the i-th is free, or filled.
  __device__ __forceinline__ void wait_free(int i) const {
    matrix::await(filled(i) + 8, (i / kPlaces & 1) ^ 1);
  }
  __device__ __forceinline__ uint32_t wait_filled(int i) const {
    matrix::await(filled(i), i / kPlaces & 1);
    return place(i);
  }
  __device__ __forceinline__ void release(int i) const { matrix::arrive(filled(i) + 8); }
};

// Starts c = a bᵀ for 64 rows a among kRows and all kN * 8 rows b.
template <class K, int kRows, int kN>
__device__ __forceinline__ void start_scores(float (&c)[kN][4], uint32_t a, uint32_t b) {
  matrix::start_products();
#pragma unroll
  for (int step = 0; step < K::D / 16; ++step)
    matrix::multiply_group<K::kBrain>(
        c, matrix::describe(a) + (step / 4 * Tile<K::D, kRows>::kPlane >> 4) + step % 4 * 2,
        matrix::describe(b) + (step / 4 * Tile<K::D, kN * 8>::kPlane >> 4) + step % 4 * 2, step > 0);
  matrix::end_products();
}

// Starts c += w b for all kSteps * 16 rows b.
template <class K, int kSteps>
__device__ __forceinline__ void start_sums(float (&c)[K::D / 8][4], const uint32_t (&w)[kSteps][4],
                                           uint32_t b) {
  matrix::start_products();
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    matrix::multiply_group<K::kBrain>(c, w[step],
                                      matrix::describe(b, Tile<K::D, kSteps * 16>::kPlane) + step * 128);
  matrix::end_products();
}

// Waits for all but the last kLeft products; c is what they made.
template <int kLeft, int kN>
__device__ __forceinline__ void finish(float (&c)[kN][4]) {
  matrix::wait_for_products<kLeft>();
  matrix::settle(c);
}

}  // namespace fl::cuda::flash
