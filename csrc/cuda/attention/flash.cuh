// What the kernels of attention over blocks share: their operands, tiles in shared memory, and products of
// tiles.
//
// A block of threads has some rows of one head (queries, or for the gradients of keys and values: keys) and
// walks over the other side in blocks of 64, of which the next is on its way while one is worked on. Weights
// pass from one product to the next in registers; the matrix of scores is nowhere.
//
// Products are those of warps (matrix.cuh). A warp has 32 rows, or 16 where the sums of wide heads would not
// fit in its registers: each tile that it loads from shared memory then takes part in two products, and with
// 16 rows the loads would be slower than the tensor cores. On Hopper gradients of narrow heads go by those of
// four warps (group.cuh), which have 64 rows; the others have kernels of their own (hopper/).
#pragma once

#include <climits>

#include "cuda/attention/flash.h"
#include "cuda/attention/group.cuh"
#include "cuda/engine/device.cuh"

namespace fl::cuda::flash {

using matrix::copy_async;
using matrix::load_tiles;
using matrix::load_tiles_turned;
using matrix::power_of_two;
using matrix::round_pair;
using matrix::shared_memory;

constexpr int kBlock = 64;  // rows of the side that is walked over
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// How a kernel is made: for heads of up to D numbers, by the products of warps or (kGroup) of four warps
// together.
template <bool kBrain_, int D_, bool kMasked_, bool kGroup_>
struct Make {
  static constexpr bool kBrain = kBrain_, kMasked = kMasked_, kGroup = kGroup_;
  static constexpr bool kDrops = kMasked && !kGroup;  // knows dropout
  static constexpr int D = D_;
  static constexpr int kThreads = 128;
  // Tiles of 16 rows that a warp has.
  static constexpr int kForwardTiles = 2, kBackwardTiles = !kGroup && D <= 64 ? 2 : 1;
  // Whether the left side of products is held in registers all the time, or loaded for each. Groups have it
  // in shared memory: ptxas 13.0 gives registers that such products read in each turn of a loop to others
  // meanwhile.
  static constexpr bool kHoldForward = D * kForwardTiles <= 128,
                        kHoldBackward = !kGroup && D * kBackwardTiles <= 128;
  // What gradients are computed for at once, of a block.
  static constexpr int kPart = kGroup ? kBlock : kBlock / 2;
};

// Rows of D numbers in shared memory, in chunks of 16 bytes. The chunks of a row are permuted so that the
// same chunk of eight rows, as loads of tiles read it, lies in different banks. Multiples of 64 numbers lie
// in planes of 128 bytes a row, as products of groups want them. Eight rows further is the same place eight
// pitches on.
template <int D, int kRows>
struct Tile {
  static constexpr int kChunks = D / 8, kBytes = kRows * D * 2;
  static constexpr int kPitch = D % 64 == 0 ? 128 : D * 2, kPlane = kRows * 128;
  // `odd` is added to an even chunk.
  static __device__ __forceinline__ uint32_t at(int row, int chunk, int odd = 0) {
    if constexpr (D % 64 == 0)
      return chunk / 8 * kPlane + row * kPitch + (((chunk % 8 | odd) ^ (row & 7)) << 4);
    else
      return row * kPitch + (((chunk | odd) ^ (row >> 1 & 3)) << 4);
  }
};

// Starts the copy of kRows rows to a tile; beyond `rows` and `chunks` it is filled with zeros.
template <int D, int kRows, int kThreads>
__device__ __forceinline__ void load_rows(uint32_t to, const char* from, int64_t stride, int rows,
                                          int chunks) {
  using Rows = Tile<D, kRows>;
  constexpr int kChunks = Rows::kChunks;
  static_assert(kRows * kChunks % kThreads == 0);
#pragma unroll
  for (int k = 0; k < kRows * kChunks / kThreads; ++k) {
    const int i = k * kThreads + threadIdx.x, row = i / kChunks, chunk = i % kChunks;
    const bool exists = row < rows && chunk < chunks;
    copy_async(to + Rows::at(row, chunk), exists ? from + row * stride + chunk * 16 : from, exists);
  }
}

// The left side of products: a warp's kM tiles of 16 rows among kRows in shared memory, held in registers or
// loaded for each product.
template <int D, int kRows, int kM, bool kHeld>
struct Left {
  uint32_t from;
  uint32_t held[kHeld ? D / 16 : 1][kM][4];
  static __device__ __forceinline__ void load(uint32_t (&r)[4], uint32_t from, int tile, int step) {
    const int lane = threadIdx.x % 32;
    load_tiles(r, from + Tile<D, kRows>::at(tile * 16 + (lane & 15), step * 2, lane >> 4));
  }
  __device__ __forceinline__ void set(uint32_t tile) {
    from = tile + threadIdx.x / 32 * kM * 16 * Tile<D, kRows>::kPitch;
    if constexpr (kHeld)
#pragma unroll
      for (int step = 0; step < D / 16; ++step)
#pragma unroll
        for (int m = 0; m < kM; ++m) load(held[step][m], from, m, step);
  }
};

template <int kM, int kN>
__device__ __forceinline__ void clear(float (&c)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[m][n][e] = 0;
}

// The fragments of weights for one step of a product, rounded from what another product gave.
template <bool kBrain, int kN>
__device__ __forceinline__ void round_weights(uint32_t (&left)[4], const float (&w)[kN][4], int step) {
#pragma unroll
  for (int e = 0; e < 4; ++e)
    left[e] = round_pair<kBrain>(w[step * 2 + e / 2][e % 2 * 2], w[step * 2 + e / 2][e % 2 * 2 + 1]);
}

// Starts c = a bᵀ for kN * 8 rows of a block b.
template <class K, int D, int kRows, int kM, int kN, bool kHeld>
__device__ __forceinline__ void start_scores(float (&c)[kM][kN][4], const Left<D, kRows, kM, kHeld>& a,
                                             uint32_t b) {
  using Rows = Tile<D, kBlock>;
  if constexpr (K::kGroup) {
    const uint32_t group = a.from - threadIdx.x / 32 % 4 * 16 * Rows::kPitch;
    matrix::start_products();
#pragma unroll
    for (int step = 0; step < D / 16; ++step) {
      const uint64_t right = matrix::describe(b) + (step / 4 * Rows::kPlane >> 4) + step % 4 * 2;
      const uint64_t left = matrix::describe(group) + (step / 4 * Tile<D, kRows>::kPlane >> 4) + step % 4 * 2;
      matrix::multiply_group<K::kBrain>(c[0], left, right, step > 0);
    }
    matrix::end_products();
    return;
  }
  const int lane = threadIdx.x % 32;
  clear(c);
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    uint32_t left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      if constexpr (kHeld) {
#pragma unroll
        for (int e = 0; e < 4; ++e) left[m][e] = a.held[step][m][e];
      } else {
        a.load(left[m], a.from, m, step);
      }
    }
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t right[4];
      load_tiles(right, b + Rows::at(n * 8 + (lane & 7) + (lane >> 4 << 3), step * 2, lane >> 3 & 1));
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        matrix::multiply<K::kBrain>(c[m][n], left[m], right[0], right[1]);
        matrix::multiply<K::kBrain>(c[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// Starts c += w b for the kN * 8 rows of a block b.
template <class K, int kM, int kN>
__device__ __forceinline__ void start_sums(float (&c)[kM][K::D / 8][4], const float (&w)[kM][kN][4],
                                           uint32_t b) {
  using Rows = Tile<K::D, kBlock>;
  if constexpr (K::kGroup) {
    uint32_t left[kN / 2][4];
#pragma unroll
    for (int step = 0; step < kN / 2; ++step) round_weights<K::kBrain>(left[step], w[0], step);
    matrix::start_products();
#pragma unroll
    for (int step = 0; step < kN / 2; ++step)
#pragma unroll
      for (int plane = 0; plane < K::D / 64; ++plane)
        matrix::multiply_group<K::kBrain>(reinterpret_cast<float (&)[8][4]>(c[0][plane * 8]), left[step],
                                          matrix::describe(b) + (plane * Rows::kPlane >> 4) + step * 128);
    matrix::end_products();
    return;
  }
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 0; step < kN / 2; ++step) {
    uint32_t left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) round_weights<K::kBrain>(left[m], w[m], step);
#pragma unroll
    for (int n = 0; n < K::D / 8; n += 2) {
      uint32_t right[4];
      load_tiles_turned(right, b + Rows::at(step * 16 + (lane & 15), n, lane >> 4));
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        matrix::multiply<K::kBrain>(c[m][n], left[m], right[0], right[1]);
        matrix::multiply<K::kBrain>(c[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// Waits for products of groups, all but the last kLeft that were started; c is what they made. Those of warps
// are done when they return.
template <class K, int kLeft, int kM, int kN>
__device__ __forceinline__ void finish(float (&c)[kM][kN][4]) {
  if constexpr (K::kGroup) {
    matrix::wait_for_products<kLeft>();
    matrix::settle(c[0]);
  }
}

// Waits for copies to shared memory, the own ones and those of the other threads of the block.
template <class K>
__device__ __forceinline__ void meet() {
  matrix::wait_for_copies();
  if constexpr (K::kGroup) matrix::publish_shared();
  __syncthreads();
}

// Scores of what is not there or hidden become minus infinity; with a mask they are also scaled and biased.
// `row` and `column` are those of the lane's first element. kFlipped: rows are keys and columns queries.
template <bool kMasked, bool kFlipped, int kM, int kN>
__device__ __forceinline__ void hide(const Args& a, const char* mask, float factor, int row, int column,
                                     float (&s)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // A row shows the columns from `first` to `last`.
      const int i = row + m * 16 + h * 8;
      const int first = !kFlipped ? 0 : i >= a.keys ? INT_MAX : a.causal ? i : 0;
      const int last = kFlipped ? a.queries - 1 : a.causal ? min(i, a.keys - 1) : a.keys - 1;
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int e = h * 2; e < h * 2 + 2; ++e) {
          const int j = column + n * 8 + e % 2;
          float x = s[m][n][e];
          if constexpr (kMasked) {
            const int query = kFlipped ? j : i, key = kFlipped ? i : j;
            bool shown = j >= first && j <= last && query < a.queries;
            x *= factor;
            if (shown && a.mask) {
              const char* at = mask + query * a.mask_query + key * a.mask_key;
              if (a.mask_dtype == DType::Bool)
                shown = *at != 0;
              else
                x += kLog2E * load<float>(at, a.mask_dtype);
            }
            s[m][n][e] = shown ? x : -INFINITY;
          } else {
            s[m][n][e] = (kFlipped ? j >= first : j <= last) ? x : -INFINITY;
          }
        }
    }
}

// Which weights of a block dropout keeps: a bit for each that a lane has of 16 rows. `row` and `column` are
// those of the lane's first element; what is not there is not kept. kFlipped: rows are keys.
template <bool kFlipped, int kM, int kN>
__device__ __forceinline__ void read_kept(const Args& a, int batch, int head, int row, int column,
                                          uint32_t (&bits)[kM]) {
  static_assert(kN * 4 <= 32);
  const char* keep = a.keep + batch * a.keep_batch + head * a.keep_head;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    bits[m] = 0;
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int i = row + m * 16 + h * 8, j = column + n * 8;
        if (!kFlipped && a.keep_pairs) {
          if (i < a.queries && j < a.keys) {
            const auto pair = *reinterpret_cast<const uint16_t*>(keep + i * a.keep_query + j);
            bits[m] |= (pair & 1u | (pair >> 7 & 2u)) << (n * 4 + h * 2);
          }
          continue;
        }
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int query = kFlipped ? j + e : i, key = kFlipped ? i : j + e;
          if (query < a.queries && key < a.keys && keep[query * a.keep_query + key * a.keep_key])
            bits[m] |= 1u << (n * 4 + h * 2 + e);
        }
      }
  }
}

// Numbers of which dropout keeps some.
template <int kM, int kN>
__device__ __forceinline__ void drop(float (&x)[kM][kN][4], const uint32_t (&bits)[kM], float factor) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) x[m][n][e] = bits[m] >> (n * 4 + e) & 1 ? x[m][n][e] * factor : 0.0f;
}

// Stores the rows of a warp, each times a factor, through the part of shared memory that was the warp's own.
template <class K, int kRows, int kM>
__device__ __forceinline__ void put_rows(const float (&c)[kM][K::D / 8][4], const float (&factor)[kM][2],
                                         uint32_t own, char* to, int64_t stride, int rows, int chunks) {
  using Rows = Tile<K::D, kRows>;
  const int lane = threadIdx.x % 32;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < K::D / 8; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        matrix::put_shared(
            own + Rows::at(m * 16 + h * 8 + lane / 4, n) + lane % 4 * 4,
            round_pair<K::kBrain>(c[m][n][h * 2] * factor[m][h], c[m][n][h * 2 + 1] * factor[m][h]));
  __syncwarp();
#pragma unroll
  for (int k = 0; k < kM * 16 * Rows::kChunks / 32; ++k) {
    const int i = k * 32 + lane, row = i / Rows::kChunks, chunk = i % Rows::kChunks;
    if (row < rows && chunk < chunks)
      *reinterpret_cast<uint4*>(to + row * stride + chunk * 16) =
          matrix::get_shared_vector(own + Rows::at(row, chunk));
  }
}

__device__ __forceinline__ char* head_of(const Operand& t, int batch, int head) {
  return t.data + batch * t.batch + head * t.head;
}
__device__ __forceinline__ const char* mask_of(const Args& a, int batch, int head) {
  return a.mask + batch * a.mask_batch + head * a.mask_head;
}

// The product of two vectors of eight numbers.
template <bool kBrain>
__device__ __forceinline__ float dot(uint4 x, uint4 y) {
  const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
  float sum = 0;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float2 p = matrix::widen_pair<kBrain>(xs[e]), q = matrix::widen_pair<kBrain>(ys[e]);
    sum += p.x * q.x + p.y * q.y;
  }
  return sum;
}

// Over the four lanes that have a row.
template <class F>
__device__ __forceinline__ float quad_fold(float x, F combine) {
  x = combine(x, shuffle_xor(x, 1));
  return combine(x, shuffle_xor(x, 2));
}

// What of each row of scores is known so far.
struct Softmax {
  float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, shrink[2];
  // Makes weights of the scores of a block, and says by what the sums so far shrink.
  template <int kN>
  __device__ __forceinline__ void weigh(float (&s)[kN][4], float factor) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = most[h];
#pragma unroll
      for (int n = 0; n < kN; ++n) top = fmaxf(top, fmaxf(s[n][h * 2], s[n][h * 2 + 1]));
      top = quad_fold(top, [](float x, float y) { return fmaxf(x, y); });
      const float base = top == -INFINITY ? 0.0f : top * factor;  // a row that has seen no key yet
      shrink[h] = power_of_two(most[h] * factor - base);
      most[h] = top;
      float total = 0;
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int e = h * 2; e < h * 2 + 2; ++e) {
          s[n][e] = power_of_two(s[n][e] * factor - base);
          total += s[n][e];
        }
      sum[h] = sum[h] * shrink[h] + total;
    }
  }
  // After the last block: by what rows of sums are multiplied, and the logarithms of what `factor` times the
  // scores sum up to. `row` is the lane's first.
  __device__ __forceinline__ void end(float (&inverse)[2], float factor, float* sums, int row,
                                      int rows) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float total = quad_fold(sum[h], Sum{});
      inverse[h] = total > 0 ? 1.0f / total : total;  // a row that sees no key is zero
      if (threadIdx.x % 4 == 0 && row + h * 8 < rows)
        sums[row + h * 8] = total == 0 ? -INFINITY : most[h] * factor * kLn2 + logf(total);
    }
  }
};

// Calls a launcher for the narrowest width that holds a head; with masks there are two of them, and for
// products of groups, too.
template <bool kGroup, template <class> class Launch>
void dispatch(const Args& a, bool brain, cudaStream_t stream) {
  const auto with = [&](auto kind) {
    constexpr bool kBrain = decltype(kind)::value;
    if (a.mask || a.keep) {
      if (a.depth <= 64) return Launch<Make<kBrain, 64, true, kGroup>>::run(a, stream);
      return Launch<Make<kBrain, 128, true, kGroup>>::run(a, stream);
    }
    if constexpr (!kGroup) {
      if (a.depth <= 32) return Launch<Make<kBrain, 32, false, false>>::run(a, stream);
      if (a.depth > 64 && a.depth <= 96) return Launch<Make<kBrain, 96, false, false>>::run(a, stream);
    }
    if (a.depth <= 64) return Launch<Make<kBrain, 64, false, kGroup>>::run(a, stream);
    return Launch<Make<kBrain, 128, false, kGroup>>::run(a, stream);
  };
  if (brain)
    with(std::true_type{});
  else
    with(std::false_type{});
}

}  // namespace fl::cuda::flash
