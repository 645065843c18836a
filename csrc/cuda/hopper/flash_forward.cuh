// Attention over blocks of keys by groups of warps. While a group makes weights of the scores of one block,
// the tensor cores sum the values of the block before. For wide heads there is a block of threads for
// each multiprocessor: queries, keys and values of its next task are on their way while one ends.
#pragma once

#include "cuda/hopper/flash_groups.cuh"
#include "cuda/runtime/launch.h"

namespace fl::cuda::flash {

namespace {

template <class K>
struct ForwardPlan {
  static constexpr int D = K::D, kPlaces = 4, kQueries = 2;
  static constexpr int kKeys = K::kMasked ? 64 : 128;  // fewer where ptxas would take long over a mask
  static constexpr int kOwn = kGroupRows * D * 2, kSide = kKeys * D * 2;  // of queries; of keys, or values
  static constexpr int kRing = kQueries * kOwn, kBarriers = kRing + kPlaces * kSide;
  static constexpr int kQueryBarriers = kBarriers + 16 * kPlaces, kTotal = kQueryBarriers + 16 * kQueries;
};
struct ForwardRows {
  Rows query, key, value;
};

// What a block of threads does at a time: queries of one head, and the blocks of keys that they see. The last
// queries see the most keys when those after them are hidden: they come first.
struct ForwardTask {
  int batch, head, first, blocks;
  __device__ __forceinline__ ForwardTask(const Args& a, int task, int keys) {
    const int heads = a.batch * a.heads, tasks = (a.queries + kGroupRows - 1) / kGroupRows;
    batch = task % heads / a.heads;
    head = task % a.heads;
    first = (tasks - 1 - task / heads) * kGroupRows;
    blocks = ((a.causal ? min(a.keys, first + kGroupRows) : a.keys) + keys - 1) / keys;
  }
};

// Sends for the queries, keys and values of every task of a block of threads, in the order in which its
// groups read them.
template <class K, class Sides, class Queries>
__device__ __forceinline__ void send_tasks(const Args& a, const ForwardRows& rows, int tasks,
                                           const Sides& ring, const Queries& queries) {
  using Plan = ForwardPlan<K>;
  constexpr int D = K::D, kKeys = Plan::kKeys;
  for (int task = blockIdx.x, n = 0, i = 0; task < tasks; task += gridDim.x, ++n) {
    const ForwardTask at(a, task, kKeys);
    queries.wait_free(n);
    matrix::announce(queries.filled(n), Plan::kOwn);
    send_rows<D, kGroupRows>(queries.place(n), rows.query, at.first, at.head, at.batch, queries.filled(n));
    const auto send = [&](const Rows& side, int block) {
      ring.wait_free(i);
      matrix::announce(ring.filled(i), Plan::kSide);
      send_rows<D, kKeys>(ring.place(i), side, block * kKeys, at.head / a.group, at.batch, ring.filled(i));
      ++i;
    };
    for (int block = 0; block <= at.blocks; ++block) {
      if (block < at.blocks) send(rows.key, block);
      if (block > 0) send(rows.value, block - 1);
    }
  }
}

template <class K>
__global__ void __launch_bounds__(kGroupThreads, 1)
    flash_forward_by_groups(const Args a, const __grid_constant__ ForwardRows rows, int tasks) {
  using Plan = ForwardPlan<K>;
  constexpr int D = K::D, kKeys = Plan::kKeys, kN = kKeys / 8;
  constexpr bool kMasked = K::kMasked;
  const uint32_t shared = shared_memory();
  const Ring<Plan::kPlaces, Plan::kSide> ring{shared + Plan::kRing, shared + Plan::kBarriers};
  const Ring<Plan::kQueries, Plan::kOwn> queries{shared, shared + Plan::kQueryBarriers};
  if (threadIdx.x == 0) {
    ring.make();
    queries.make();
    matrix::publish_barriers();
  }
  __syncthreads();

  const int group = threadIdx.x / 128;
  if (group == kGroups) {
    matrix::give_registers<24>();
    if (threadIdx.x == kGroups * 128) send_tasks<K>(a, rows, tasks, ring, queries);
  } else {
    matrix::take_registers<240>();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float scale = a.scale * kLog2E, factor = kMasked ? 1.0f : scale;
    float out[1][D / 8][4], s[1][kN][4];
    uint32_t weights[kN / 2][4];
    for (int task = blockIdx.x, n = 0, i = 0; task < tasks; task += gridDim.x, ++n) {
      const ForwardTask at(a, task, kKeys);
      const int mine = at.first + warp * 16;
      const uint32_t query = queries.wait_filled(n) + group * 64 * 128;
      Softmax softmax;
      clear(out);
      // A block of keys, and the values of the one before.
      const auto step = [&](int block, auto begins) {
        constexpr bool kBegins = decltype(begins)::value;
        start_scores<K, kGroupRows>(s[0], query, ring.wait_filled(i));
        if constexpr (!kBegins) start_sums<K>(out[0], weights, ring.wait_filled(i + 1));
        finish<kBegins ? 0 : 1>(s[0]);
        ring.release(i++);
        const int from = block * kKeys;
        if (kMasked || from + kKeys > a.keys || (a.causal && from + kKeys - 1 > mine))
          hide<kMasked, false>(a, mask_of(a, at.batch, at.head), scale, mine + lane / 4, from + lane % 4 * 2,
                               s);
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
      for (int block = 1; block < at.blocks; ++block) step(block, std::false_type{});
      start_sums<K>(out[0], weights, ring.wait_filled(i));
      finish<0>(out[0]);
      ring.release(i++);

      float inverse[1][2];
      softmax.end(inverse[0], factor, a.sums + (int64_t(at.batch) * a.heads + at.head) * a.queries,
                  mine + lane / 4, a.queries);
      put_rows<K, kGroupRows>(out, inverse, queries.place(n) + warp * 16 * 128,
                              head_of(a.output, at.batch, at.head) + mine * a.output.row, a.output.row,
                              a.queries - mine, a.depth / 8);
      matrix::publish_shared();
      queries.release(n);
    }
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
    const int tasks = a.batch * a.heads * ((a.queries + kGroupRows - 1) / kGroupRows);
    launch_with<flash_forward_by_groups<K>>(dim3(K::D > 64 ? min(tasks, processors()) : tasks), kGroupThreads,
                                            Plan::kTotal, stream, "scaled_dot_product_attention", a, rows,
                                            tasks);
  }
};

}  // namespace
}  // namespace fl::cuda::flash
