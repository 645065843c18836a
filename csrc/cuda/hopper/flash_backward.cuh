// Gradients of attention by groups of warps; see flash_backward.cuh for what the two kernels do. The two
// groups of a block of threads keep the tensor cores busy for each other.
#pragma once

#include "cuda/attention/flash_backward.cuh"
#include "cuda/hopper/flash_groups.cuh"

namespace fl::cuda::flash {

namespace {

// Two sides of kGroupRows rows that a block has, and a ring of pairs of blocks of the other two, with
// numbers.
template <class K>
struct BackwardPlan {
  static constexpr int D = K::D, kPlaces = 3, kOwn = kGroupRows * D * 2, kSide = kBlock * D * 2;
  static constexpr int kPlace = 2 * kSide + 1024, kRing = 2 * kOwn, kBarriers = kRing + kPlaces * kPlace;
  static constexpr int kThere = kBarriers + 16 * kPlaces, kNumbers = kThere + 16;
  static constexpr int kTotal = kNumbers + kGroupRows * 4;
  using Places = Ring<kPlaces, kPlace>;
};
struct BackwardRows {
  Rows query, grad_output, key, value;
};

// Makes what the parts of a block of threads meet at, and sends for what it has itself.
template <class K, class Plan>
__device__ __forceinline__ void begin(const typename Plan::Places& ring, int fillers, const Rows& one,
                                      const Rows& two, int first, int head, int batch) {
  const uint32_t shared = shared_memory(), there = shared + Plan::kThere;
  if (threadIdx.x == 0) {
    ring.make(fillers);
    matrix::make_barrier(there, 1);
    matrix::publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x != kGroups * 128) return;
  matrix::announce(there, 2 * Plan::kOwn);
  send_rows<K::D, kGroupRows>(shared, one, first, head, batch, there);
  send_rows<K::D, kGroupRows>(shared + Plan::kOwn, two, first, head, batch, there);
}

// Products of a warp's 16 rows of outputs and their gradients, eight lanes for a row: to shared memory for
// the warp itself, and to a.products for the gradients of keys. `mine` is the warp's first query, at `row` of
// its block.
template <class K, class Plan>
__device__ __forceinline__ void multiply_outputs(const Args& a, uint32_t shared, int batch, int head, int row,
                                                 int mine, int64_t row_of_all) {
  const int lane = threadIdx.x % 32, chunks = a.depth / 8;
  const char* output = head_of(a.output, batch, head) + mine * a.output.row;
#pragma unroll
  for (int k = lane / 8; k < 16; k += 4) {
    float sum = 0;
    if (mine + k < a.queries)
      for (int chunk = lane % 8; chunk < chunks; chunk += 8)
        sum += dot<K::kBrain>(
            *reinterpret_cast<const uint4*>(output + k * a.output.row + chunk * 16),
            matrix::get_shared_vector(shared + Plan::kOwn + Tile<K::D, kGroupRows>::at(row + k, chunk)));
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    sum += shuffle_xor(sum, 4);
    if (lane % 8 == 0) {
      matrix::put_shared(shared + Plan::kNumbers + (row + k) * 4, __float_as_uint(sum));
      if (mine + k < a.queries) a.products[row_of_all + k] = sum;
    }
  }
  __syncwarp();
}

template <class K>
__global__ void __launch_bounds__(kGroupThreads, 1)
    flash_gradient_of_queries_by_groups(const Args a, const __grid_constant__ BackwardRows rows) {
  using Plan = BackwardPlan<K>;
  constexpr int D = K::D, kN = kBlock / 8;
  constexpr bool kMasked = K::kMasked;
  const int batch = blockIdx.x / a.heads, head = blockIdx.x % a.heads;
  const int first = int(gridDim.y - 1 - blockIdx.y) * kGroupRows;
  const int seen = a.causal ? min(a.keys, first + kGroupRows) : a.keys, blocks = (seen + kBlock - 1) / kBlock;
  const uint32_t shared = shared_memory();
  const typename Plan::Places ring{shared + Plan::kRing, shared + Plan::kBarriers};
  begin<K, Plan>(ring, 1, rows.query, rows.grad_output, first, head, batch);

  const int group = threadIdx.x / 128;
  if (group == kGroups) {
    matrix::give_registers<24>();
    if (threadIdx.x != kGroups * 128) return;
    for (int i = 0; i < blocks; ++i) {
      ring.wait_free(i);
      matrix::announce(ring.filled(i), 2 * Plan::kSide);
      send_rows<D, kBlock>(ring.place(i), rows.key, i * kBlock, head / a.group, batch, ring.filled(i));
      send_rows<D, kBlock>(ring.place(i) + Plan::kSide, rows.value, i * kBlock, head / a.group, batch,
                           ring.filled(i));
    }
  } else {
    matrix::take_registers<240>();
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16, mine = first + row, chunks = a.depth / 8;
    const uint32_t query = shared + group * 64 * 128, grad = query + Plan::kOwn;
    matrix::await(shared + Plan::kThere, 0);

    const int64_t row_of_all = int64_t(blockIdx.x) * a.queries + mine;
    multiply_outputs<K, Plan>(a, shared, batch, head, row, mine, row_of_all);
    float sums[2], products[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int k = h * 8 + lane / 4;
      sums[h] = mine + k < a.queries ? a.sums[row_of_all + k] * kLog2E : 0.0f;
      products[h] = matrix::get_shared_float(shared + Plan::kNumbers + (row + k) * 4);
    }

    const float scale = a.scale * kLog2E, factor = kMasked ? 1.0f : scale;
    float of_query[1][D / 8][4];
    clear(of_query);
#pragma unroll 1
    for (int i = 0; i < blocks; ++i) {
      float s[1][kN][4], d[1][kN][4];
      uint32_t weights[kN / 2][4];
      const uint32_t keys = ring.wait_filled(i);
      start_scores<K, kGroupRows>(s[0], query, keys);
      start_scores<K, kGroupRows>(d[0], grad, keys + Plan::kSide);
      finish<1>(s[0]);
      const int at = i * kBlock;
      if (kMasked || at + kBlock > a.keys || (a.causal && at + kBlock - 1 > mine))
        hide<kMasked, false>(a, mask_of(a, batch, head), scale, mine + lane / 4, at + lane % 4 * 2, s);
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[0][n][e] = weight<kMasked>(s[0][n][e], factor, sums[e / 2]);
      finish<0>(d[0]);
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[0][n][e] *= d[0][n][e] - products[e / 2];
#pragma unroll
      for (int k = 0; k < kN / 2; ++k) round_weights<K::kBrain>(weights[k], s[0], k);
      start_sums<K>(of_query[0], weights, keys);
      finish<0>(of_query[0]);
      ring.release(i);
    }

    const float scales[1][2] = {{a.scale, a.scale}};
    put_rows<K, kGroupRows>(of_query, scales, shared + row * 128,
                            head_of(a.grad_query, batch, head) + mine * a.grad_query.row, a.grad_query.row,
                            a.queries - mine, chunks);
  }
}

// Sends for `blocks` blocks of queries and their gradients, from `start` on in each head of a group, and
// leaves their numbers beside them. A warp runs this.
template <class K, class Plan>
__device__ __forceinline__ void send_queries(const Args& a, const BackwardRows& rows,
                                             const typename Plan::Places& ring, int batch, int key_head,
                                             int start, int of_head, int blocks) {
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < blocks; ++i) {
    const int head = key_head * a.group + i / of_head, from = start + i % of_head * kBlock;
    const uint32_t place = ring.place(i), filled = ring.filled(i);
    const int64_t row_of_all = (int64_t(batch) * a.heads + head) * a.queries + from;
    float sums[2], products[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const bool exists = from + k * 32 + lane < a.queries;
      sums[k] = exists ? a.sums[row_of_all + k * 32 + lane] * kLog2E : 0.0f;
      products[k] = exists ? a.products[row_of_all + k * 32 + lane] : 0.0f;
    }
    ring.wait_free(i);
    if (lane == 0) {
      matrix::announce(filled, 2 * Plan::kSide);
      send_rows<K::D, kBlock>(place, rows.query, from, head, batch, filled);
      send_rows<K::D, kBlock>(place + Plan::kSide, rows.grad_output, from, head, batch, filled);
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const uint32_t to = place + 2 * Plan::kSide + (k * 32 + lane) * 4;
      matrix::put_shared(to, __float_as_uint(sums[k]));
      matrix::put_shared(to + kBlock * 4, __float_as_uint(products[k]));
    }
    matrix::arrive(filled);
  }
}

template <class K>
__global__ void __launch_bounds__(kGroupThreads, 1)
    flash_gradient_of_keys_by_groups(const Args a, const __grid_constant__ BackwardRows rows) {
  using Plan = BackwardPlan<K>;
  constexpr int D = K::D, kN = kBlock / 8;
  constexpr bool kMasked = K::kMasked;
  const int key_heads = a.heads / a.group, batch = blockIdx.x / key_heads, key_head = blockIdx.x % key_heads;
  const int first = blockIdx.y * kGroupRows;
  // Walks over blocks of queries from the first that sees one of these keys, then on to the next head.
  const int start = a.causal ? first : 0;
  const int of_head = max(0, (a.queries - start + kBlock - 1) / kBlock), blocks = of_head * a.group;
  const uint32_t shared = shared_memory();
  const typename Plan::Places ring{shared + Plan::kRing, shared + Plan::kBarriers};
  begin<K, Plan>(ring, 33, rows.key, rows.value, first, key_head, batch);

  const int lane = threadIdx.x % 32, group = threadIdx.x / 128;
  if (group == kGroups) {
    matrix::give_registers<24>();
    if (threadIdx.x / 32 != kGroups * 4) return;
    send_queries<K, Plan>(a, rows, ring, batch, key_head, start, of_head, blocks);
  } else {
    matrix::take_registers<240>();
    const int row = threadIdx.x / 32 * 16, mine = first + row, chunks = a.depth / 8;
    const uint32_t key = shared + group * 64 * 128, value = key + Plan::kOwn;
    const float scale = a.scale * kLog2E, factor = kMasked ? 1.0f : scale;
    float of_key[1][D / 8][4], of_value[1][D / 8][4];
    clear(of_key);
    clear(of_value);
    matrix::await(shared + Plan::kThere, 0);
#pragma unroll 1
    for (int i = 0; i < blocks; ++i) {
      float s[1][kN][4], d[1][kN][4];
      const uint32_t queries = ring.wait_filled(i), grads = queries + Plan::kSide;
      const uint32_t numbers = queries + 2 * Plan::kSide + lane % 4 * 8;
      start_scores<K, kGroupRows>(s[0], key, queries);
      start_scores<K, kGroupRows>(d[0], value, grads);
      finish<1>(s[0]);
      const int head = key_head * a.group + i / of_head, at = start + i % of_head * kBlock;
      // Keys and queries that are not there need not be hidden: the former are not stored, the latter have no
      // gradient.
      if (kMasked || (a.causal && at < mine + 15))
        hide<kMasked, true>(a, mask_of(a, batch, head), scale, mine + lane / 4, at + lane % 4 * 2, s);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const float2 sum = matrix::get_shared_pair(numbers + n * 32);
#pragma unroll
        for (int e = 0; e < 4; ++e) s[0][n][e] = weight<kMasked>(s[0][n][e], factor, e % 2 ? sum.y : sum.x);
      }
      uint32_t weights[kN / 2][4], changes[kN / 2][4];
#pragma unroll
      for (int k = 0; k < kN / 2; ++k) round_weights<K::kBrain>(weights[k], s[0], k);
      start_sums<K>(of_value[0], weights, grads);
      finish<1>(d[0]);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const float2 product = matrix::get_shared_pair(numbers + kBlock * 4 + n * 32);
#pragma unroll
        for (int e = 0; e < 4; ++e) s[0][n][e] *= d[0][n][e] - (e % 2 ? product.y : product.x);
      }
#pragma unroll
      for (int k = 0; k < kN / 2; ++k) round_weights<K::kBrain>(changes[k], s[0], k);
      start_sums<K>(of_key[0], changes, queries);
      finish<0>(of_value[0]);
      finish<0>(of_key[0]);
      ring.release(i);
    }

    const float scales[1][2] = {{a.scale, a.scale}}, ones[1][2] = {{1, 1}};
    put_rows<K, kGroupRows>(of_key, scales, shared + row * 128,
                            head_of(a.grad_key, batch, key_head) + mine * a.grad_key.row, a.grad_key.row,
                            a.keys - mine, chunks);
    put_rows<K, kGroupRows>(of_value, ones, shared + Plan::kOwn + row * 128,
                            head_of(a.grad_value, batch, key_head) + mine * a.grad_value.row,
                            a.grad_value.row, a.keys - mine, chunks);
  }
}

template <class K>
struct BackwardByGroups {
  static BackwardRows rows(const Args& a, int query_rows, int key_rows) {
    const int key_heads = a.heads / a.group;
    return {rows_of(a.query, K::kBrain, a.depth, a.queries, a.heads, a.batch, query_rows),
            rows_of(a.grad_output, K::kBrain, a.depth, a.queries, a.heads, a.batch, query_rows),
            rows_of(a.key, K::kBrain, a.depth, a.keys, key_heads, a.batch, key_rows),
            rows_of(a.value, K::kBrain, a.depth, a.keys, key_heads, a.batch, key_rows)};
  }
  static unsigned blocks(int rows) { return unsigned((rows + kGroupRows - 1) / kGroupRows); }
  static void run(const Args& a, cudaStream_t stream) {
    const char* what = "scaled_dot_product_attention";
    constexpr int kShared = BackwardPlan<K>::kTotal;
    launch_with<flash_gradient_of_queries_by_groups<K>>(dim3(a.batch * a.heads, blocks(a.queries)),
                                                        kGroupThreads, kShared, stream, what, a,
                                                        rows(a, kGroupRows, kBlock));
    launch_with<flash_gradient_of_keys_by_groups<K>>(dim3(a.batch * (a.heads / a.group), blocks(a.keys)),
                                                     kGroupThreads, kShared, stream, what, a,
                                                     rows(a, kBlock, kGroupRows));
  }
};

}  // namespace
}  // namespace fl::cuda::flash
