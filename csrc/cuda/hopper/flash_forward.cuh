// Attention over blocks of keys by groups of warps. While a group makes weights of the scores of one block,
// the tensor cores sum the values of the block before.
#pragma once

#include "cuda/hopper/flash_groups.cuh"
#include "cuda/launch.h"

namespace fl::cuda::flash {

namespace {

template <class K>
struct ForwardPlan {
  static constexpr int D = K::D, kPlaces = 4;
  static constexpr int kKeys = K::kMasked ? 64 : 128;  // fewer where ptxas would take long over a mask
  static constexpr int kSide = kKeys * D * 2;          // a block of keys, or of values
  static constexpr int kQuery = 0, kRing = kGroupRows * D * 2, kBarriers = kRing + kPlaces * kSide;
  static constexpr int kTotal = kBarriers + 16 * (kPlaces + 1);
  using Places = Ring<kPlaces, kSide>;
};
struct ForwardRows {
  Rows query, key, value;
};

// What of each row of scores is known so far.
struct Softmax {
  float most[2], sum[2], shrink[2];
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
};

template <class K>
__global__ void __launch_bounds__(kGroupThreads, 1)
    flash_forward_by_groups(const Args a, const __grid_constant__ ForwardRows rows) {
  using Plan = ForwardPlan<K>;
  constexpr int D = K::D, kKeys = Plan::kKeys, kN = kKeys / 8;
  constexpr bool kMasked = K::kMasked;
  const int batch = blockIdx.x / a.heads, head = blockIdx.x % a.heads;
  // The last queries see the most keys when those after them are hidden: they begin first.
  const int first = int(gridDim.y - 1 - blockIdx.y) * kGroupRows;
  const int seen = a.causal ? min(a.keys, first + kGroupRows) : a.keys, blocks = (seen + kKeys - 1) / kKeys;
  const uint32_t shared = shared_memory(), query_there = shared + Plan::kBarriers + 16 * Plan::kPlaces;
  const typename Plan::Places ring{shared + Plan::kRing, shared + Plan::kBarriers};
  if (threadIdx.x == 0) {
    ring.make();
    matrix::make_barrier(query_there, 1);
    matrix::publish_barriers();
  }
  __syncthreads();

  const int group = threadIdx.x / 128;
  if (group == kGroups) {
    matrix::give_registers<24>();
    if (threadIdx.x != kGroups * 128) return;
    matrix::announce(query_there, kGroupRows * D * 2);
    send_rows<D, kGroupRows>(shared, rows.query, first, head, batch, query_there);
    const int key_head = head / a.group;
    int i = 0;
    const auto send = [&](const Rows& side, int block) {
      ring.wait_free(i);
      matrix::announce(ring.filled(i), Plan::kSide);
      send_rows<D, kKeys>(ring.place(i), side, block * kKeys, key_head, batch, ring.filled(i));
      ++i;
    };
    for (int block = 0; block <= blocks; ++block) {
      if (block < blocks) send(rows.key, block);
      if (block > 0) send(rows.value, block - 1);
    }
  } else {
    matrix::take_registers<240>();
    const int lane = threadIdx.x % 32, mine = first + threadIdx.x / 32 * 16;
    const uint32_t query = shared + group * 64 * 128;
    const float scale = a.scale * kLog2E, factor = kMasked ? 1.0f : scale;
    float out[1][D / 8][4], s[1][kN][4];
    uint32_t weights[kN / 2][4];
    Softmax softmax{{-INFINITY, -INFINITY}, {0, 0}, {0, 0}};
    clear(out);
    matrix::await(query_there, 0);

    int i = 0;
    // A block of keys, and the values of the one before.
    const auto step = [&](int block, auto begins) {
      constexpr bool kBegins = decltype(begins)::value;
      const uint32_t keys = ring.wait_filled(i);
      start_scores<K, kGroupRows>(s[0], query, keys);
      if constexpr (!kBegins) start_sums<K>(out[0], weights, ring.wait_filled(i + 1));
      finish<kBegins ? 0 : 1>(s[0]);
      ring.release(i++);
      const int from = block * kKeys;
      if (kMasked || from + kKeys > a.keys || (a.causal && from + kKeys - 1 > mine))
        hide<kMasked, false>(a, mask_of(a, batch, head), scale, mine + lane / 4, from + lane % 4 * 2, s);
      softmax.weigh(s[0], factor);
      if constexpr (!kBegins) {
        finish<0>(out[0]);
        ring.release(i++);
#pragma unroll
        for (int n = 0; n < D / 8; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) out[0][n][e] *= softmax.shrink[e / 2];
      }
#pragma unroll
      for (int k = 0; k < kN / 2; ++k) round_weights<K::kBrain>(weights[k], s[0], k);
    };
    step(0, std::true_type{});
#pragma unroll 1
    for (int block = 1; block < blocks; ++block) step(block, std::false_type{});
    start_sums<K>(out[0], weights, ring.wait_filled(i));
    finish<0>(out[0]);

    float inverse[1][2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float total = quad_fold(softmax.sum[h], Sum{});
      inverse[0][h] = total > 0 ? 1.0f / total : total;  // a row that sees no key is zero
      const int row = mine + h * 8 + lane / 4;
      if (lane % 4 == 0 && row < a.queries)
        a.sums[int64_t(blockIdx.x) * a.queries + row] =
            total == 0 ? -INFINITY : softmax.most[h] * factor * kLn2 + logf(total);
    }
    put_rows<K, kGroupRows>(out, inverse, shared + threadIdx.x / 32 * 16 * 128,
                            head_of(a.output, batch, head) + mine * a.output.row, a.output.row,
                            a.queries - mine, a.depth / 8);
  }
}

template <class K>
struct ForwardByGroups {
  static void run(const Args& a, cudaStream_t stream) {
    using Plan = ForwardPlan<K>;
    const int key_heads = a.heads / a.group;
    const ForwardRows rows{rows_of(a.query, K::kBrain, a.depth, a.queries, a.heads, a.batch, kGroupRows),
                           rows_of(a.key, K::kBrain, a.depth, a.keys, key_heads, a.batch, Plan::kKeys),
                           rows_of(a.value, K::kBrain, a.depth, a.keys, key_heads, a.batch, Plan::kKeys)};
    launch_with<flash_forward_by_groups<K>>(
        dim3(a.batch * a.heads, (a.queries + kGroupRows - 1) / kGroupRows), kGroupThreads, Plan::kTotal,
        stream, "scaled_dot_product_attention", a, rows);
  }
};

}  // namespace
}  // namespace fl::cuda::flash
