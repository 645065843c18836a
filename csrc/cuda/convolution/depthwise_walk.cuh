// Depthwise convolutions with channels innermost, of filters of K elements a side with steps of S.
//
// A thread walks down the rows of a few columns: each line that it reads serves all results that have it in
// their windows. Their sums, or for the gradient of weights the lines of the other operand, are in registers
// and take turns there; the next line is on its way meanwhile.
#pragma once

#include "cuda/convolution/depthwise.cuh"

namespace fl::cuda::depthwise {

constexpr int kWalkThreads = 128;  // of a block, at most
constexpr int kWalkBlocks = 3;     // at once on a processor

template <int K, int S>
struct Turns {
  static constexpr int pack = K == 3 ? 4 : K == 5 ? 2 : 1;  // channels, where their number is a multiple
  static constexpr int columns = K == 7 ? 7 : 4, sources = (columns - 1) * S + K;
  static constexpr int held = (K + S - 1) / S;  // results of a column that a line can serve
  static constexpr int lines = held * S;        // until each place is taken by what it was taken by before
};

// The columns and rows of results that a thread computes in one go.
template <int K, int S>
struct Walk {
  int image, column, top, rows;
  int source, x_top;  // where its reading begins, perhaps outside of the image
  __device__ __forceinline__ Walk(const Launch& a, int i) {
    const Place place = place_of(a, i);
    image = place.image;
    column = place.tile * Turns<K, S>::columns;
    top = place.other * a.rows;
    rows = min(a.rows, a.other.y - top);
    source = column * S - a.tiled.padding;
    x_top = top * S - a.other.padding;
  }
  __device__ __forceinline__ int lines() const { return (rows - 1) * S + K; }
  // Where it reads and writes, as distances from the beginnings.
  __device__ __forceinline__ int64_t x(const Launch& a, int channel) const {
    return int64_t(image) * a.x_image + channel + int64_t(source) * a.tiled.x_step +
           int64_t(x_top) * a.other.x_step;
  }
  __device__ __forceinline__ int64_t y(const Launch& a, int channel) const {
    return image * a.y_image + channel + column * a.tiled.y_step + top * a.other.y_step;
  }
  // Whether a line is read, and is in the image.
  __device__ __forceinline__ bool has(const Launch& a, int line) const {
    return line < lines() && static_cast<unsigned>(x_top + line) < static_cast<unsigned>(a.other.x);
  }
};

template <class T, int V, int K, int S>
__global__ void __launch_bounds__(kWalkThreads, kWalkBlocks) walk_rows(const __grid_constant__ Launch a) {
  using A = Sums<T>;
  using Turns = Turns<K, S>;
  constexpr int N = Turns::columns, M = Turns::sources, held = Turns::held;
  A* const weights = reinterpret_cast<A*>(shared_memory());
  const int wide = a.across * V, first = static_cast<int>(blockIdx.x) * wide;
  share_weights<T, K>(a, weights, wide, first);
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % a.across, slot = static_cast<int>(threadIdx.x) / a.across;
  const int channel = first + lane * V;
  if (channel >= a.channels) return;
  A w[K][K][V], bias[V] = {};
#pragma unroll
  for (int i = 0; i < K * K * V; ++i)
    w[i / V / K][i / V % K][i % V] = weights[i / V * wide + lane * V + i % V];
  if (a.bias) read<T, V>(reinterpret_cast<const T*>(a.bias) + channel, bias);
  const int end = end_of(a);
  for (int i = static_cast<int>(blockIdx.y) * a.length + slot; i < end; i += a.slots) {
    const Walk<K, S> walk(a, i);
    const uint32_t inside = inside_of<M>(walk.source, a.tiled.x);
    const T* x = reinterpret_cast<const T*>(a.x) + walk.x(a, channel);
    T* y = reinterpret_cast<T*>(a.y) + walk.y(a, channel);
    A sums[held][N][V];
    Line<T, V, M> next;
    next.read(x, a.tiled.x_step, walk.has(a, 0) ? inside : 0);
    const int lines = walk.lines();
    for (int base = 0, begun = 0; base < lines; base += Turns::lines, begun += held) {
#pragma unroll
      for (int p = 0; p < Turns::lines; ++p) {
        if (base + p >= lines) break;
        A line[M][V];
        next.get(line);
        x += a.other.x_step;
        next.read(x, a.tiled.x_step, walk.has(a, base + p + 1) ? inside : 0);
#pragma unroll
        for (int q = 0; q < held; ++q) {
          const int k = p % S + q * S;
          if (k >= K || static_cast<unsigned>(begun + p / S - q) >= static_cast<unsigned>(walk.rows))
            continue;
          A(&sum)[N][V] = sums[(p / S - q + held) % held];
#pragma unroll
          for (int j = 0; j < K; ++j)
#pragma unroll
            for (int t = 0; t < N; ++t)
#pragma unroll
              for (int v = 0; v < V; ++v)
                sum[t][v] = (k == 0 && j == 0 ? bias[v] : sum[t][v]) + line[t * S + j][v] * w[k][j][v];
        }
        constexpr int behind = (K - 1) / S;  // lines of results, of the one that is done
        if (p % S != (K - 1) % S || begun + p / S < behind) continue;
        const A(&done)[N][V] = sums[(p / S - behind + held) % held];
#pragma unroll
        for (int t = 0; t < N; ++t)
          if (walk.column + t < a.tiled.y) write<T, V>(y + int64_t(a.tiled.y_step) * t, done[t]);
        y += a.other.y_step;
      }
    }
  }
}

// The sums of a block for the gradient of weights, to the parts at `y`.
template <class T, int V, int K, int S>
__global__ void __launch_bounds__(kWalkThreads, kWalkBlocks) walk_taps(const __grid_constant__ Launch a) {
  using A = Sums<T>;
  using Turns = Turns<K, S>;
  constexpr int N = Turns::columns, M = Turns::sources, held = Turns::held;
  const int lane = static_cast<int>(threadIdx.x) % a.across, slot = static_cast<int>(threadIdx.x) / a.across,
            threads = a.across * a.slots;
  const int wide = a.across * V, first = static_cast<int>(blockIdx.x) * wide, channel = first + lane * V;
  A sums[K][K][V] = {};
  const int end = channel < a.channels ? end_of(a) : 0;
  for (int i = static_cast<int>(blockIdx.y) * a.length + slot; i < end; i += a.slots) {
    const Walk<K, S> walk(a, i);
    const uint32_t inside = inside_of<M>(walk.source, a.tiled.x),
                   beside = inside_of<N>(walk.column, a.tiled.y);
    const T* x = reinterpret_cast<const T*>(a.x) + walk.x(a, channel);
    const T* grad = reinterpret_cast<const T*>(a.grad) + walk.y(a, channel);
    A by[held][N][V];
    Line<T, V, M> next;
    Line<T, V, N> next_by;
    next.read(x, a.tiled.x_step, walk.has(a, 0) ? inside : 0);
    next_by.read(grad, a.tiled.y_step, beside);
    const int lines = walk.lines();
    for (int base = 0, begun = 0; base < lines; base += Turns::lines, begun += held) {
#pragma unroll
      for (int p = 0; p < Turns::lines; ++p) {
        if (base + p >= lines) break;
        A line[M][V];
        next.get(line);
        x += a.other.x_step;
        next.read(x, a.tiled.x_step, walk.has(a, base + p + 1) ? inside : 0);
        if (p % S == 0) {
          next_by.get(by[p / S]);
          grad += a.other.y_step;
          next_by.read(grad, a.tiled.y_step, begun + p / S + 1 < walk.rows ? beside : 0);
        }
#pragma unroll
        for (int q = 0; q < held; ++q) {
          const int k = p % S + q * S;
          if (k >= K || static_cast<unsigned>(begun + p / S - q) >= static_cast<unsigned>(walk.rows))
            continue;
          const A(&g)[N][V] = by[(p / S - q + held) % held];
#pragma unroll
          for (int j = 0; j < K; ++j)
#pragma unroll
            for (int t = 0; t < N; ++t)
#pragma unroll
              for (int v = 0; v < V; ++v) sums[k][j][v] += line[t * S + j][v] * g[t][v];
        }
      }
    }
  }
  A* const shared = reinterpret_cast<A*>(shared_memory());
#pragma unroll
  for (int i = 0; i < K * K * V; ++i) shared[i * threads + threadIdx.x] = sums[i / V / K][i / V % K][i % V];
  __syncthreads();
  A* const parts = reinterpret_cast<A*>(a.y) + int64_t(blockIdx.y) * a.channels * K * K;
  for (int i = threadIdx.x; i < wide * K * K; i += threads) {
    const int c = i % wide, tap = i / wide;
    if (first + c >= a.channels) continue;
    const A* const from = shared + (tap * V + c % V) * threads + c / V;
    A sum = 0;
    for (int s = 0; s < a.slots; ++s) sum += from[s * a.across];
    parts[(first + c) * K * K + tap] = sum;
  }
}

}  // namespace fl::cuda::depthwise
