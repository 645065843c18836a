// Attention over blocks of keys. A block has 128 queries of one head; the sums over keys of a row are
// corrected when a larger score is met. Scores are exponents of two: one multiplication and addition away
// from the product.
#pragma once

#include "cuda/attention/flash.cuh"
#include "cuda/runtime/launch.h"

namespace fl::cuda::flash {

namespace {

template <class K>
struct ForwardMemory {
  static constexpr int D = K::D;
  static constexpr int kThreads = K::kThreads, kRows = K::kForwardTiles * kThreads / 2;
  static constexpr int kSide = kBlock * D * 2;               // a block of keys, or of values
  static constexpr int kQuery = 0, kStages = kRows * D * 2;  // two of keys and values
  static constexpr int kTotal = kStages + 2 * 2 * kSide;
};

template <class K>
__global__ void __launch_bounds__(ForwardMemory<K>::kThreads) flash_forward(const Args a) {
  using Memory = ForwardMemory<K>;
  constexpr int D = K::D, kM = K::kForwardTiles, kN = kBlock / 8;
  constexpr bool kMasked = K::kMasked;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int batch = blockIdx.x / a.heads, head = blockIdx.x % a.heads;
  // The last queries see the most keys when those after them are hidden: they begin first.
  const int first = int(gridDim.y - 1 - blockIdx.y) * Memory::kRows, mine = first + warp * kM * 16;
  const int end = mine + kM * 16;
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

  load_rows<D, Memory::kRows, Memory::kThreads>(shared, head_of(a.query, batch, head) + first * a.query.row,
                                                a.query.row, a.queries - first, chunks);
  fetch(0);

  Left<D, Memory::kRows, kM, K::kHoldForward> query;
  float out[kM][D / 8][4];
  Softmax softmax[kM];
  clear(out);
  const float scale = a.scale * kLog2E, factor = kMasked ? 1.0f : scale;

  meet<K>();
  query.set(shared);
  for (int from = 0; from < seen; from += kBlock) {
    if (from > 0) meet<K>();  // the block is there for all, and nobody reads the other stage any more
    if (from + kBlock < seen) fetch(from + kBlock);
    if (a.causal && from >= end) continue;
    const uint32_t stage = shared + Memory::kStages + (from / kBlock & 1) * 2 * Memory::kSide;
    float s[kM][kN][4];
    start_scores<K>(s, query, stage);
    if (kMasked || from + kBlock > a.keys || (a.causal && from + kBlock - 1 > mine))
      hide<kMasked, false>(a, mask_of(a, batch, head), scale, mine + lane / 4, from + lane % 4 * 2, s);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      softmax[m].weigh(s[m], factor);
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) out[m][n][e] *= softmax[m].shrink[e / 2];
    }
    if constexpr (K::kDrops) {
      if (a.keep) {
        uint32_t kept_bits[kM];
        read_kept<false, kM, kN>(a, batch, head, mine + lane / 4, from + lane % 4 * 2, kept_bits);
        drop(s, kept_bits, a.kept_factor);
      }
    }
    start_sums<K>(out, s, stage + Memory::kSide);
  }

  float inverse[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m)
    softmax[m].end(inverse[m], factor, a.sums + int64_t(blockIdx.x) * a.queries, mine + m * 16 + lane / 4,
                   a.queries);
  put_rows<K, Memory::kRows>(out, inverse, query.from, head_of(a.output, batch, head) + mine * a.output.row,
                             a.output.row, a.queries - mine, chunks);
}

template <class K>
struct Forward {
  static void run(const Args& a, cudaStream_t stream) {
    using Memory = ForwardMemory<K>;
    launch_with<flash_forward<K>>(dim3(a.batch * a.heads, (a.queries + Memory::kRows - 1) / Memory::kRows),
                                  Memory::kThreads, Memory::kTotal, stream, "scaled_dot_product_attention",
                                  a);
  }
};

}  // namespace
}  // namespace fl::cuda::flash
