// Gradients of attention over blocks. Weights come again from scores and the logarithms of sums that the
// forward pass left. Two kernels, so that nothing is added up by several blocks and results are the same each
// time: the first has queries and walks over keys; it also leaves the products of outputs and their gradients
// that the second needs, which has keys and walks over queries, those of all heads that share the keys.
#pragma once

#include "cuda/attention/flash.cuh"
#include "cuda/runtime/launch.h"

namespace fl::cuda::flash {

namespace {

template <class K>
struct BackwardMemory {
  static constexpr int D = K::D;
  static constexpr int kThreads = K::kThreads, kRows = K::kBackwardTiles * kThreads / 2;
  static constexpr int kSide = kBlock * D * 2;
  static constexpr int kFirst = 0, kSecond = kRows * D * 2;  // what the block has: queries and gradients, or
                                                             // keys and values
  static constexpr int kStages = 2 * kSecond;                // two blocks of the other two
  static constexpr int kNumbers =
      kStages + 2 * 2 * kSide;  // for rows; or for both stages, of queries walked over
  static constexpr int kTotal = kNumbers + 2 * 2 * kBlock * 4;
  static_assert(kRows <= 4 * kBlock);
};

// Weights from scores; `sum` in exponents of two. Hidden ones are zero, whatever the sum of a row that sees
// no key.
template <bool kMasked>
__device__ __forceinline__ float weight(float score, float factor, float sum) {
  if (kMasked && score == -INFINITY) return 0.0f;
  return power_of_two(score * factor - sum);
}

template <class K>
__device__ __forceinline__ void multiply_outputs(const Args& a, uint32_t shared, const char* output,
                                                 int first, int chunks, int64_t row_of_all) {
  using Memory = BackwardMemory<K>;
  constexpr int D = K::D;
#pragma unroll
  for (int k = 0; k < Memory::kRows / (Memory::kThreads / 8); ++k) {
    const int row = k * (Memory::kThreads / 8) + threadIdx.x / 8;
    float sum = 0;
    if (first + row < a.queries)
      for (int chunk = threadIdx.x % 8; chunk < chunks; chunk += 8)
        sum += dot<K::kBrain>(
            *reinterpret_cast<const uint4*>(output + row * a.output.row + chunk * 16),
            matrix::get_shared_vector(shared + Memory::kSecond + Tile<D, Memory::kRows>::at(row, chunk)));
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    sum += shuffle_xor(sum, 4);
    if (threadIdx.x % 8 == 0) {
      matrix::put_shared(shared + Memory::kNumbers + row * 4, __float_as_uint(sum));
      if (first + row < a.queries) a.products[row_of_all + first + row] = sum;
    }
  }
}

// Starts the copies of the two sides that a block has itself.
template <class K>
__device__ __forceinline__ void load_own(uint32_t shared, const Operand& one, const Operand& two, int batch,
                                         int head, int first, int rows, int chunks) {
  using Memory = BackwardMemory<K>;
  load_rows<K::D, Memory::kRows, Memory::kThreads>(
      shared + Memory::kFirst, head_of(one, batch, head) + first * one.row, one.row, rows - first, chunks);
  load_rows<K::D, Memory::kRows, Memory::kThreads>(
      shared + Memory::kSecond, head_of(two, batch, head) + first * two.row, two.row, rows - first, chunks);
}

// The logarithms of sums and the products of outputs for the rows of a warp, of which `mine` is the first.
template <int kM>
__device__ __forceinline__ void get_numbers(const Args& a, uint32_t numbers, int lane, int warp, int mine,
                                            int64_t row_of_all, float (&sums)[kM][2],
                                            float (&products)[kM][2]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = m * 16 + h * 8 + lane / 4;
      sums[m][h] = mine + row < a.queries ? a.sums[row_of_all + mine + row] * kLog2E : 0.0f;
      products[m][h] = matrix::get_shared_float(numbers + (warp * kM * 16 + row) * 4);
    }
}

// Stores gradients of biased scores; `row` and `column` are those of the lane's first element.
template <class K, int kM, int kN>
__device__ __forceinline__ void put_scores(const Args& a, int batch, int head, int row, int column,
                                           const float (&s)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int i = row + m * 16 + h * 8;
      if (i >= a.queries) continue;
      char* to = a.grad_scores + ((int64_t(batch) * a.heads + head) * a.queries + i) * a.keys * 2;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const int j = column + n * 8;
        const uint32_t pair = round_pair<K::kBrain>(s[m][n][h * 2], s[m][n][h * 2 + 1]);
        if (a.keys % 2 == 0) {
          if (j < a.keys) *reinterpret_cast<uint32_t*>(to + j * 2) = pair;
        } else {
          if (j < a.keys) *reinterpret_cast<uint16_t*>(to + j * 2) = static_cast<uint16_t>(pair);
          if (j + 1 < a.keys)
            *reinterpret_cast<uint16_t*>(to + j * 2 + 2) = static_cast<uint16_t>(pair >> 16);
        }
      }
    }
}

// Gradients of weights that dropout zeroed are zero; `row` and `column` are those of the lane's first
// element.
template <class K, int kM, int kN>
__device__ __forceinline__ void drop_gradients(const Args& a, int batch, int head, int row, int column,
                                               float (&d)[kM][kN][4]) {
  if constexpr (K::kDrops) {
    if (a.keep) {
      uint32_t kept_bits[kM];
      read_kept<false, kM, kN>(a, batch, head, row, column, kept_bits);
      drop(d, kept_bits, a.kept_factor);
    }
  }
}

template <class K>
__global__ void __launch_bounds__(BackwardMemory<K>::kThreads) flash_gradient_of_queries(const Args a) {
  using Memory = BackwardMemory<K>;
  constexpr int D = K::D, kM = K::kBackwardTiles, kPart = K::kPart, kN = kPart / 8;
  constexpr bool kMasked = K::kMasked;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int batch = blockIdx.x / a.heads, head = blockIdx.x % a.heads;
  const int first = int(gridDim.y - 1 - blockIdx.y) * Memory::kRows, mine = first + warp * kM * 16;
  const int end = K::kGroup ? first + (warp / 4 + 1) * 64 : mine + kM * 16;  // of those that work together
  const int seen = a.causal ? min(a.keys, first + Memory::kRows) : a.keys;
  const int chunks = a.depth / 8;
  const uint32_t shared = shared_memory();
  const char* key = head_of(a.key, batch, head / a.group);
  const char* value = head_of(a.value, batch, head / a.group);
  const auto fetch = [&](int from) {
    const uint32_t stage = shared + Memory::kStages + (from / kBlock & 1) * 2 * Memory::kSide;
    load_rows<D, kBlock, Memory::kThreads>(stage, key + from * a.key.row, a.key.row, a.keys - from, chunks);
    load_rows<D, kBlock, Memory::kThreads>(stage + Memory::kSide, value + from * a.value.row, a.value.row,
                                           a.keys - from, chunks);
  };

  load_own<K>(shared, a.query, a.grad_output, batch, head, first, a.queries, chunks);
  fetch(0);
  meet<K>();

  // Products of outputs and their gradients, eight lanes for a row.
  const int64_t row_of_all = int64_t(blockIdx.x) * a.queries;
  const char* output = head_of(a.output, batch, head) + first * a.output.row;
  multiply_outputs<K>(a, shared, output, first, chunks, row_of_all);

  Left<D, Memory::kRows, kM, K::kHoldBackward> query, grad;
  query.set(shared + Memory::kFirst);
  grad.set(shared + Memory::kSecond);
  float of_query[kM][D / 8][4], sums[kM][2], products[kM][2];
  clear(of_query);
  __syncthreads();
  get_numbers(a, shared + Memory::kNumbers, lane, warp, mine, row_of_all, sums, products);
  const float scale = a.scale * kLog2E, factor = kMasked ? 1.0f : scale;

  for (int from = 0; from < seen; from += kBlock) {
    meet<K>();
    if (from + kBlock < seen) fetch(from + kBlock);
    const uint32_t stage = shared + Memory::kStages + (from / kBlock & 1) * 2 * Memory::kSide;
#pragma unroll 1
    for (int part = 0; part < kBlock; part += kPart) {
      const int at = from + part;
      if (at >= a.keys || (a.causal && at >= end)) break;
      const uint32_t keys = stage + part * Tile<D, kBlock>::kPitch, values = keys + Memory::kSide;
      float s[kM][kN][4], d[kM][kN][4];
      start_scores<K>(s, query, keys);
      start_scores<K>(d, grad, values);
      finish<K, 1>(s);
      if (kMasked || at + kPart > a.keys || (a.causal && at + kPart - 1 > mine))
        hide<kMasked, false>(a, mask_of(a, batch, head), scale, mine + lane / 4, at + lane % 4 * 2, s);
      finish<K, 0>(d);
      drop_gradients<K>(a, batch, head, mine + lane / 4, at + lane % 4 * 2, d);
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            s[m][n][e] =
                weight<kMasked>(s[m][n][e], factor, sums[m][e / 2]) * (d[m][n][e] - products[m][e / 2]);
      if constexpr (K::kDrops)
        if (a.grad_scores) put_scores<K>(a, batch, head, mine + lane / 4, at + lane % 4 * 2, s);
      start_sums<K>(of_query, s, keys);
      finish<K, 0>(of_query);
    }
  }

  float scales[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) scales[m][0] = scales[m][1] = a.scale;
  put_rows<K, Memory::kRows>(of_query, scales, query.from,
                             head_of(a.grad_query, batch, head) + mine * a.grad_query.row, a.grad_query.row,
                             a.queries - mine, chunks);
}

// A block of queries of a head, and which of the two stages it goes to. The walk goes from the first block
// that sees one of the keys at hand, then on to the next head.
struct QueryPlace {
  int head, from, stage;
  __device__ __forceinline__ QueryPlace next(int start, int queries) const {
    QueryPlace p = *this;
    p.from += kBlock;
    p.stage ^= 1;
    if (p.from >= queries) p.from = start, ++p.head;
    return p;
  }
};

// Starts the copies of a block of queries, of their gradients and their numbers.
template <class K>
__device__ __forceinline__ void fetch_queries(const Args& a, const QueryPlace& p, uint32_t shared, int batch,
                                              int chunks) {
  using Memory = BackwardMemory<K>;
  constexpr int D = K::D;
  const uint32_t stage = shared + Memory::kStages + p.stage * 2 * Memory::kSide;
  const uint32_t numbers = shared + Memory::kNumbers + p.stage * 2 * kBlock * 4;
  load_rows<D, kBlock, Memory::kThreads>(stage, head_of(a.query, batch, p.head) + p.from * a.query.row,
                                         a.query.row, a.queries - p.from, chunks);
  load_rows<D, kBlock, Memory::kThreads>(stage + Memory::kSide,
                                         head_of(a.grad_output, batch, p.head) + p.from * a.grad_output.row,
                                         a.grad_output.row, a.queries - p.from, chunks);
  const int row = p.from + threadIdx.x % kBlock;
  const float* from = threadIdx.x < kBlock ? a.sums : a.products;
  if (threadIdx.x < 2 * kBlock)
    matrix::copy_async_float(numbers + threadIdx.x * 4,
                             from + (int64_t(batch) * a.heads + p.head) * a.queries + min(row, a.queries - 1),
                             row < a.queries);
}

// Stores the rows that a warp has summed, of which `mine` is the first, through the tile at `from`.
template <class K, int kM, int kN>
__device__ __forceinline__ void put_own(const float (&sums)[kM][kN][4], const float (&scales)[kM][2],
                                        uint32_t from, const Operand& to, int batch, int head, int mine,
                                        int rows, int chunks) {
  put_rows<K, BackwardMemory<K>::kRows>(sums, scales, from, head_of(to, batch, head) + mine * to.row, to.row,
                                        rows - mine, chunks);
}

// Starts c += w b for the weights that dropout keeps; the others stay what they are.
template <class K, int kM, int kN>
__device__ __forceinline__ void start_sums_of_kept(const Args& a, float (&c)[kM][K::D / 8][4],
                                                   const float (&w)[kM][kN][4],
                                                   const uint32_t (&kept_bits)[kM], uint32_t b) {
  if constexpr (K::kDrops)
    if (a.keep) {
      float used[kM][kN][4];
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) used[m][n][e] = w[m][n][e];
      drop(used, kept_bits, a.kept_factor);
      return start_sums<K>(c, used, b);
    }
  start_sums<K>(c, w, b);
}

// Gradients of scores: weights times gradients of weights, less the products of outputs in shared memory.
template <int kM, int kN>
__device__ __forceinline__ void multiply_gradients(float (&s)[kM][kN][4], const float (&d)[kM][kN][4],
                                                   uint32_t products) {
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    const float2 product = matrix::get_shared_pair(products + n * 8 * 4);
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[m][n][e] *= d[m][n][e] - (e % 2 ? product.y : product.x);
  }
}

template <class K>
__global__ void __launch_bounds__(BackwardMemory<K>::kThreads, K::kGroup&& K::D <= 64 ? 3 : 1)
    flash_gradient_of_keys(const Args a) {
  using Memory = BackwardMemory<K>;
  constexpr int D = K::D, kM = K::kBackwardTiles, kPart = K::kPart, kN = kPart / 8;
  constexpr bool kMasked = K::kMasked;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int key_heads = a.heads / a.group, batch = blockIdx.x / key_heads, key_head = blockIdx.x % key_heads;
  const int first = blockIdx.y * Memory::kRows, mine = first + warp * kM * 16;
  const int begin = K::kGroup ? first + warp / 4 * 64 : mine;  // of those that work together
  const int chunks = a.depth / 8;
  const uint32_t shared = shared_memory();
  const int start = a.causal ? first / kBlock * kBlock : 0;
  const int last_head = start < a.queries ? (key_head + 1) * a.group : 0;

  load_own<K>(shared, a.key, a.value, batch, key_head, first, a.keys, chunks);
  QueryPlace place{key_head * a.group, start, 0};
  if (place.head < last_head) fetch_queries<K>(a, place, shared, batch, chunks);

  Left<D, Memory::kRows, kM, false> key, value;
  key.set(shared + Memory::kFirst);
  value.set(shared + Memory::kSecond);
  float of_key[kM][D / 8][4], of_value[kM][D / 8][4];
  clear(of_key);
  clear(of_value);
  const float scale = a.scale * kLog2E, factor = kMasked ? 1.0f : scale;

  while (place.head < last_head) {
    meet<K>();
    const QueryPlace after = place.next(start, a.queries);
    if (after.head < last_head) fetch_queries<K>(a, after, shared, batch, chunks);
    const uint32_t stage = shared + Memory::kStages + place.stage * 2 * Memory::kSide;
    const uint32_t numbers = shared + Memory::kNumbers + place.stage * 2 * kBlock * 4;
#pragma unroll 1
    for (int part = 0; part < kBlock; part += kPart) {
      const int at = place.from + part;
      if (at >= a.queries) break;
      if (a.causal && at + kPart <= begin) continue;
      const uint32_t queries = stage + part * Tile<D, kBlock>::kPitch, grads = queries + Memory::kSide;
      float s[kM][kN][4], d[kM][kN][4];
      start_scores<K>(s, key, queries);
      if constexpr (K::kGroup) start_scores<K>(d, value, grads);
      finish<K, 1>(s);
      // Absent keys and queries need not be hidden: the former are not stored, the latter have no gradient.
      if (kMasked || (a.causal && at < mine + kM * 16 - 1))
        hide<kMasked, true>(a, mask_of(a, batch, place.head), scale, mine + lane / 4, at + lane % 4 * 2, s);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const float2 sum = matrix::get_shared_pair(numbers + (part + n * 8 + lane % 4 * 2) * 4);
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            s[m][n][e] = weight<kMasked>(s[m][n][e], factor, (e % 2 ? sum.y : sum.x) * kLog2E);
      }
      uint32_t kept_bits[kM] = {};
      if constexpr (K::kDrops)
        if (a.keep)
          read_kept<true, kM, kN>(a, batch, place.head, mine + lane / 4, at + lane % 4 * 2, kept_bits);
      start_sums_of_kept<K>(a, of_value, s, kept_bits, grads);
      if constexpr (!K::kGroup) start_scores<K>(d, value, grads);  // only now: registers are scarce
      finish<K, 1>(d);
      if constexpr (K::kDrops)
        if (a.keep) drop(d, kept_bits, a.kept_factor);
      multiply_gradients(s, d, numbers + (kBlock + part + lane % 4 * 2) * 4);
      start_sums<K>(of_key, s, queries);
      finish<K, 0>(of_value);
      finish<K, 0>(of_key);
    }
    place = after;
  }

  meet<K>();
  float scales[kM][2], ones[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) scales[m][0] = scales[m][1] = a.scale, ones[m][0] = ones[m][1] = 1;
  put_own<K>(of_key, scales, key.from, a.grad_key, batch, key_head, mine, a.keys, chunks);
  put_own<K>(of_value, ones, value.from, a.grad_value, batch, key_head, mine, a.keys, chunks);
}

template <class K>
struct Backward {
  static void run(const Args& a, cudaStream_t stream) {
    using Memory = BackwardMemory<K>;
    const char* what = "scaled_dot_product_attention";
    const auto blocks = [](int rows) { return unsigned((rows + Memory::kRows - 1) / Memory::kRows); };
    launch_with<flash_gradient_of_queries<K>>(dim3(a.batch * a.heads, blocks(a.queries)), Memory::kThreads,
                                              Memory::kTotal, stream, what, a);
    launch_with<flash_gradient_of_keys<K>>(dim3(a.batch * (a.heads / a.group), blocks(a.keys)),
                                           Memory::kThreads, Memory::kTotal, stream, what, a);
  }
};

}  // namespace
}  // namespace fl::cuda::flash
