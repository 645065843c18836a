// Reductions and maps over the channels of (batch, channels, space), for batch and group normalisation.
//
// Two layouts. Planes: the elements of a channel are runs of `spatial` neighbours, one of each sample; a
// block takes a piece of one channel. Rows: channels lie side by side; a thread takes neighbouring channels
// of many rows. Elements go by 16 bytes where the layout allows it. Sums of pieces go through memory and are
// reduced in a fixed order, so that results do not depend on the order in which blocks run.
#pragma once

#include "cuda/engine/packs.cuh"

namespace fl::cuda {

constexpr int kUnrolled = 4;      // loads of a thread that wait for memory at the same time
constexpr unsigned kBlock = 256;  // threads of a block, at most

// A division of the items of a channel among blocks. An item is `width` elements.
struct Pieces {
  uint32_t items = 0, length = 0, count = 1;
  int width = 1;
#if defined(__CUDACC__)
  __device__ uint32_t begin(uint32_t piece) const { return piece * length; }
  __device__ uint32_t end(uint32_t piece) const { return min(items, (piece + 1) * length); }
#endif
};

// A vector of the channels, of any floating dtype; null: absent.
struct Numbers {
  char* data = nullptr;
  DType dtype = DType::Float;
#if defined(__CUDACC__)
  __device__ __forceinline__ char* at(int64_t i) const { return data + i * item_size(dtype); }
  template <class A>
  __device__ __forceinline__ A get(int64_t i, A absent) const {
    return data ? load<A>(at(i), dtype) : absent;
  }
  template <class A>
  __device__ __forceinline__ void put(int64_t i, A x) const {
    if (data) store<A>(at(i), dtype, x);
  }
#endif
};

struct ChannelArgs {
  const char *in = nullptr, *grad = nullptr;
  char* out = nullptr;
  int64_t channels = 0, spatial = 0;
  double count = 0;  // elements of a channel
  Pieces pieces;     // of the kernel that runs
  Divider per_plane;
  // A plane's statistics are those of its group of `members`, its parameters number `plane % parameters`.
  uint32_t members = 1, parameters = 1;
  Numbers weight, bias;
  Numbers mean, rstd;  // given ones, or those to keep
  Numbers running_mean, running_var;
  Numbers grad_weight, grad_bias;
  void* parts = nullptr;  // pairs of numbers: of pieces, to be reduced, or of channels
  Pieces folded;          // what the parts are of; of no items: they are reduced already
  double momentum = 0, eps = 0;
};

// Where an item of a channel begins.
template <int V>
__device__ __forceinline__ int64_t place_of(const ChannelArgs& a, uint32_t channel, uint32_t item) {
  const uint32_t plane = a.per_plane.divide(item), inside = item - plane * a.per_plane.divisor;
  return (int64_t(plane) * a.channels + channel) * a.spatial + int64_t(inside) * V;
}

// f(place, elements of the input, those of the gradient) for a thread's items, where place(item) says.
template <class T, int V, bool with_gradient, class P, class F>
__device__ __forceinline__ void walk(const ChannelArgs& a, uint32_t first, uint32_t end, uint32_t step,
                                     P place, F f) {
  using A = typename AccumulateIn<T>::type;
  constexpr int unrolled = with_gradient ? kUnrolled / 2 : kUnrolled;
  for (uint32_t i = first; i < end; i += step * unrolled) {
    Pack<T, V> in[unrolled], grad[unrolled];
    int64_t at[unrolled];
#pragma unroll
    for (int u = 0; u < unrolled; ++u) {
      if (i + u * step >= end) break;
      at[u] = place(i + u * step);
      in[u] = read_pack<T, V>(a.in, at[u]);
      if constexpr (with_gradient) grad[u] = read_pack<T, V>(a.grad, at[u]);
    }
#pragma unroll
    for (int u = 0; u < unrolled; ++u) {
      if (i + u * step >= end) break;
      A x[V], g[V];
      in[u].get(x);
      if constexpr (with_gradient) grad[u].get(g);
      f(at[u], x, g);
    }
  }
}

// Count, mean and sum of squared distances from it. A thread sums distances from its first number; so
// nothing cancels, however large the mean.
template <class A>
struct Moments {
  A count, mean, squares;
  __device__ void add(const Moments& other) {
    const A total = count + other.count;
    if (total == A(0)) return;
    const A by = other.mean - mean, share = other.count / total;
    mean += by * share;
    squares += other.squares + by * by * count * share;
    count = total;
  }
};
template <class A>
struct Distances {
  A from, sum, squares;
  __device__ __forceinline__ void add(A x) {
    const A d = x - from;
    sum += d;
    squares += d * d;
  }
  __device__ __forceinline__ Moments<A> moments(A count) const {
    if (count == A(0)) return {0, 0, 0};
    const A shift = sum / count;
    return {count, from + shift, max(A(0), squares - sum * shift)};
  }
};
// In the first lane.
template <class A>
__device__ __forceinline__ Moments<A> warp_moments(Moments<A> m) {
#pragma unroll
  for (int by = 16; by > 0; by >>= 1)
    m.add({shuffle_down(m.count, by), shuffle_down(m.mean, by), shuffle_down(m.squares, by)});
  return m;
}

template <class A>
struct Pair {
  A first, second;
};

// By a warp, from the parts of a channel; in the first lane.
template <class A>
__device__ __forceinline__ Moments<A> reduce_moments(const ChannelArgs& a, int64_t channel) {
  Moments<A> m{0, 0, 0};
  const Pair<A>* parts = static_cast<const Pair<A>*>(a.parts) + channel * a.folded.count;
  for (uint32_t p = threadIdx.x % 32; p < a.folded.count; p += 32)
    m.add({A(a.folded.end(p) - a.folded.begin(p)) * A(a.folded.width), parts[p].first, parts[p].second});
  return warp_moments(m);
}
template <class A>
__device__ __forceinline__ Pair<A> reduce_sums(const ChannelArgs& a, int64_t channel) {
  Pair<A> s{0, 0};
  const Pair<A>* parts = static_cast<const Pair<A>*>(a.parts) + channel * a.folded.count;
  for (uint32_t p = threadIdx.x % 32; p < a.folded.count; p += 32) {
    s.first += parts[p].first;
    s.second += parts[p].second;
  }
  return {warp_fold(s.first, Sum{}), warp_fold(s.second, Sum{})};
}

// By one thread for a channel: what the derivative needs, and the running statistics.
template <class A>
__device__ __forceinline__ void keep_statistics(const ChannelArgs& a, int64_t channel, A mean, A variance) {
  a.mean.put<A>(channel, mean);
  a.rstd.put<A>(channel, A(1) / sqrt(variance + A(a.eps)));
  const A momentum = A(a.momentum);
  if (a.running_mean.data)
    a.running_mean.put<A>(channel, momentum * mean + (A(1) - momentum) * a.running_mean.get<A>(channel, 0));
  if (a.running_var.data)  // that of the sample
    a.running_var.put<A>(channel, momentum * variance * A(a.count / (a.count - 1)) +
                                      (A(1) - momentum) * a.running_var.get<A>(channel, 0));
}

// The gradient of an element is by_grad * g + by_distance * (x - mean) + constant.
template <class A>
struct GradientFactors {
  A by_grad, by_distance, constant;
};
template <class A>
__device__ __forceinline__ GradientFactors<A> gradient_factors(const ChannelArgs& a, A rstd, A weight,
                                                               Pair<A> sums, bool training) {
  const A scale = weight * rstd, share = training ? scale / A(a.count) : A(0);
  return {scale, -share * rstd * rstd * sums.second, -share * sums.first};
}

// ---------------------------------------------------------------- planes: blocks (channel, piece)

template <class T, int V>
__global__ void __launch_bounds__(kBlock, 4) plane_moments(const __grid_constant__ ChannelArgs a) {
  using A = typename AccumulateIn<T>::type;
  __shared__ Moments<A> shared[kBlock / 32];
  const uint32_t channel = blockIdx.x, first = a.pieces.begin(blockIdx.y) + threadIdx.x,
                 end = a.pieces.end(blockIdx.y);
  Distances<A> d{0, 0, 0};
  A count = 0;
  if (first < end) {
    A x[1];
    read_pack<T, 1>(a.in, place_of<V>(a, channel, first)).get(x);
    d.from = x[0];
  }
  walk<T, V, false>(
      a, first, end, blockDim.x, [&](uint32_t i) { return place_of<V>(a, channel, i); },
      [&](int64_t, const A(&x)[V], const A(&)[V]) {
#pragma unroll
        for (int j = 0; j < V; ++j) d.add(x[j]);
        count += A(V);
      });
  Moments<A> m = warp_moments(d.moments(count));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = m;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  m = threadIdx.x < blockDim.x / 32 ? shared[threadIdx.x] : Moments<A>{0, 0, 0};
  m = warp_moments(m);
  if (threadIdx.x == 0)
    static_cast<Pair<A>*>(a.parts)[int64_t(channel) * a.pieces.count + blockIdx.y] = {m.mean, m.squares};
}

// With parts the statistics are theirs, and kept; without, those given as running ones.
template <class T, int V>
__global__ void __launch_bounds__(kBlock, 4) plane_normalise(const __grid_constant__ ChannelArgs a) {
  using A = typename AccumulateIn<T>::type;
  __shared__ A shared[2];
  const uint32_t plane = blockIdx.x, channel = plane / a.members, parameter = plane % a.parameters;
  if (threadIdx.x < 32) {
    A mean, variance;
    if (a.parts) {
      const Moments<A> m = reduce_moments<A>(a, channel);
      mean = m.mean, variance = m.squares / m.count;
    } else {
      mean = a.running_mean.get<A>(channel, 0), variance = a.running_var.get<A>(channel, 1);
    }
    if (threadIdx.x == 0) {
      shared[0] = mean;
      shared[1] = A(1) / sqrt(variance + A(a.eps));
      if (a.parts && blockIdx.y == 0 && plane % a.members == 0)
        keep_statistics<A>(a, channel, mean, variance);
    }
  }
  const A weight = a.weight.get<A>(parameter, 1), bias = a.bias.get<A>(parameter, 0);
  __syncthreads();
  const A mean = shared[0], scale = shared[1] * weight;
  walk<T, V, false>(
      a, a.pieces.begin(blockIdx.y) + threadIdx.x, a.pieces.end(blockIdx.y), blockDim.x,
      [&](uint32_t i) { return place_of<V>(a, plane, i); },
      [&](int64_t at, const A(&x)[V], const A(&)[V]) {
        A y[V];
#pragma unroll
        for (int j = 0; j < V; ++j) y[j] = (x[j] - mean) * scale + bias;
        write_pack<T, V>(a.out, at, y);
      });
}

// The sums of g and of g (x - mean).
template <class T, int V>
__global__ void __launch_bounds__(kBlock, 4) plane_sums(const __grid_constant__ ChannelArgs a) {
  using A = typename AccumulateIn<T>::type;
  __shared__ A shared[33];
  const uint32_t plane = blockIdx.x;
  const A mean = a.mean.get<A>(plane / a.members, 0);
  A sum = 0, product = 0;
  walk<T, V, true>(
      a, a.pieces.begin(blockIdx.y) + threadIdx.x, a.pieces.end(blockIdx.y), blockDim.x,
      [&](uint32_t i) { return place_of<V>(a, plane, i); },
      [&](int64_t, const A(&x)[V], const A(&g)[V]) {
#pragma unroll
        for (int j = 0; j < V; ++j) {
          sum += g[j];
          product += g[j] * (x[j] - mean);
        }
      });
  sum = block_fold(sum, Sum{}, A(0), shared);
  product = block_fold(product, Sum{}, A(0), shared);
  if (threadIdx.x == 0)
    static_cast<Pair<A>*>(a.parts)[int64_t(plane) * a.pieces.count + blockIdx.y] = {sum, product};
}

// Without an output: the gradients of the parameters alone. Reduced parts are, for each group, by_distance
// and the constant.
template <class T, int V, bool training>
__global__ void __launch_bounds__(kBlock, 4) plane_gradient(const __grid_constant__ ChannelArgs a) {
  using A = typename AccumulateIn<T>::type;
  __shared__ GradientFactors<A> shared;
  const uint32_t plane = blockIdx.x, channel = plane / a.members;
  if (threadIdx.x < 32) {
    const A rstd = a.rstd.get<A>(channel, 1), weight = a.weight.get<A>(plane % a.parameters, 1);
    if (a.folded.items) {
      const Pair<A> sums = reduce_sums<A>(a, plane);
      if (threadIdx.x == 0) {
        shared = gradient_factors<A>(a, rstd, weight, sums, training);
        if (blockIdx.y == 0) {
          a.grad_weight.put<A>(plane, sums.second * rstd);
          a.grad_bias.put<A>(plane, sums.first);
        }
      }
    } else if (threadIdx.x == 0) {
      const Pair<A> channel_sums = static_cast<const Pair<A>*>(a.parts)[channel];
      shared = {rstd * weight, channel_sums.first, channel_sums.second};
    }
  }
  if (!a.out) return;
  const A mean = a.mean.get<A>(channel, 0);
  __syncthreads();
  const GradientFactors<A> s = shared;
  walk<T, V, true>(
      a, a.pieces.begin(blockIdx.y) + threadIdx.x, a.pieces.end(blockIdx.y), blockDim.x,
      [&](uint32_t i) { return place_of<V>(a, plane, i); },
      [&](int64_t at, const A(&x)[V], const A(&g)[V]) {
        A y[V];
#pragma unroll
        for (int j = 0; j < V; ++j) y[j] = s.by_grad * g[j] + s.by_distance * (x[j] - mean) + s.constant;
        write_pack<T, V>(a.out, at, y);
      });
}

// ---------------------------------------------------------------- rows: blocks (channels, piece), threads
// (channels, rows)

// What a block's channels have in common goes through shared memory: f(channel) for each, once.
template <int V, class S, class F>
__device__ __forceinline__ void share_channels(const ChannelArgs& a, S* shared, F f) {
  const uint32_t across = blockDim.x * V;
  for (uint32_t c = threadIdx.y * blockDim.x + threadIdx.x; c < across; c += kBlock) {
    const int64_t channel = int64_t(blockIdx.x) * across + c;
    if (channel < a.channels) shared[c] = f(channel);
  }
  __syncthreads();
}
template <class A>
struct Affine {
  A mean, scale, bias;
};
template <class A>
struct Gradient {
  A mean;
  GradientFactors<A> factors;
};

// The sums of all lines of a block become parts, as finish(channel, sums) makes them.
template <int V, class A, class F>
__device__ __forceinline__ void reduce_lines(const ChannelArgs& a, Pair<A>* shared, const A (&first)[V],
                                             const A (&second)[V], F finish) {
  const uint32_t across = blockDim.x * V;
#pragma unroll
  for (int j = 0; j < V; ++j) shared[threadIdx.y * across + threadIdx.x * V + j] = {first[j], second[j]};
  __syncthreads();
  for (uint32_t c = threadIdx.y * blockDim.x + threadIdx.x; c < across; c += kBlock) {
    const int64_t channel = int64_t(blockIdx.x) * across + c;
    if (channel >= a.channels) continue;
    Pair<A> sums{0, 0};
    for (uint32_t y = 0; y < blockDim.y; ++y) {
      sums.first += shared[y * across + c].first;
      sums.second += shared[y * across + c].second;
    }
    static_cast<Pair<A>*>(a.parts)[channel * a.pieces.count + blockIdx.y] = finish(channel, sums);
  }
}

// Distances are from the piece's first row.
template <class T, int V>
__global__ void __launch_bounds__(kBlock, 3) row_moments(const __grid_constant__ ChannelArgs a) {
  using A = typename AccumulateIn<T>::type;
  __shared__ Pair<A> shared[kBlock * V];
  const int64_t channel = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  const uint32_t begin = a.pieces.begin(blockIdx.y), end = a.pieces.end(blockIdx.y);
  const auto place = [&](uint32_t r) { return int64_t(r) * a.channels + channel; };
  A from[V], sum[V], squares[V];
#pragma unroll
  for (int j = 0; j < V; ++j) sum[j] = squares[j] = 0;
  if (channel < a.channels) {
    read_pack<T, V>(a.in, place(begin)).get(from);
    walk<T, V, false>(a, begin + threadIdx.y, end, blockDim.y, place,
                      [&](int64_t, const A(&x)[V], const A(&)[V]) {
#pragma unroll
                        for (int j = 0; j < V; ++j) {
                          const A d = x[j] - from[j];
                          sum[j] += d;
                          squares[j] += d * d;
                        }
                      });
  }
  reduce_lines<V>(a, shared, sum, squares, [&](int64_t c, Pair<A> sums) {
    A first[1];
    read_pack<T, 1>(a.in, int64_t(begin) * a.channels + c).get(first);
    const Moments<A> m = Distances<A>{first[0], sums.first, sums.second}.moments(A(end - begin));
    return Pair<A>{m.mean, m.squares};
  });
}

// A warp for each channel.
template <class A>
__global__ void __launch_bounds__(kBlock) finish_moments(const __grid_constant__ ChannelArgs a) {
  const int64_t channel = int64_t(blockIdx.x) * (kBlock / 32) + threadIdx.x / 32;
  if (channel >= a.channels) return;
  const Moments<A> m = reduce_moments<A>(a, channel);
  if (threadIdx.x % 32 == 0) keep_statistics<A>(a, channel, m.mean, m.squares / m.count);
}

template <class T, int V, bool training>
__global__ void __launch_bounds__(kBlock, 3) row_normalise(const __grid_constant__ ChannelArgs a) {
  using A = typename AccumulateIn<T>::type;
  __shared__ Affine<A> shared[32 * V];
  share_channels<V>(a, shared, [&](int64_t c) {
    const A rstd = training ? a.rstd.get<A>(c, 1) : A(1) / sqrt(a.running_var.get<A>(c, 1) + A(a.eps));
    return Affine<A>{training ? a.mean.get<A>(c, 0) : a.running_mean.get<A>(c, 0),
                     rstd * a.weight.get<A>(c, 1), a.bias.get<A>(c, 0)};
  });
  const int64_t channel = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (channel >= a.channels) return;
  A mean[V], scale[V], bias[V];
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const Affine<A> by = shared[threadIdx.x * V + j];
    mean[j] = by.mean, scale[j] = by.scale, bias[j] = by.bias;
  }
  walk<T, V, false>(
      a, a.pieces.begin(blockIdx.y) + threadIdx.y, a.pieces.end(blockIdx.y), blockDim.y,
      [&](uint32_t r) { return int64_t(r) * a.channels + channel; },
      [&](int64_t at, const A(&x)[V], const A(&)[V]) {
        A y[V];
#pragma unroll
        for (int j = 0; j < V; ++j) y[j] = (x[j] - mean[j]) * scale[j] + bias[j];
        write_pack<T, V>(a.out, at, y);
      });
}

template <class T, int V>
__global__ void __launch_bounds__(kBlock, 3) row_sums(const __grid_constant__ ChannelArgs a) {
  using A = typename AccumulateIn<T>::type;
  __shared__ Pair<A> shared[kBlock * V];
  const int64_t channel = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  A mean[V], sum[V], product[V];
  __shared__ A means[32 * V];
  share_channels<V>(a, means, [&](int64_t c) { return a.mean.get<A>(c, 0); });
#pragma unroll
  for (int j = 0; j < V; ++j) {
    mean[j] = channel < a.channels ? means[threadIdx.x * V + j] : A(0);
    sum[j] = product[j] = 0;
  }
  if (channel < a.channels)
    walk<T, V, true>(
        a, a.pieces.begin(blockIdx.y) + threadIdx.y, a.pieces.end(blockIdx.y), blockDim.y,
        [&](uint32_t r) { return int64_t(r) * a.channels + channel; },
        [&](int64_t, const A(&x)[V], const A(&g)[V]) {
#pragma unroll
          for (int j = 0; j < V; ++j) {
            sum[j] += g[j];
            product[j] += g[j] * (x[j] - mean[j]);
          }
        });
  reduce_lines<V>(a, shared, sum, product, [](int64_t, Pair<A> sums) { return sums; });
}

// A warp for each channel; `totals` are its sums.
template <class A>
__global__ void __launch_bounds__(kBlock)
    finish_sums(const __grid_constant__ ChannelArgs a, Pair<A>* const totals) {
  const int64_t channel = int64_t(blockIdx.x) * (kBlock / 32) + threadIdx.x / 32;
  if (channel >= a.channels) return;
  const Pair<A> sums = reduce_sums<A>(a, channel);
  if (threadIdx.x % 32) return;
  totals[channel] = sums;
  a.grad_weight.put<A>(channel, sums.second * a.rstd.get<A>(channel, 1));
  a.grad_bias.put<A>(channel, sums.first);
}

template <class T, int V, bool training>
__global__ void __launch_bounds__(kBlock, 3) row_gradient(const __grid_constant__ ChannelArgs a) {
  using A = typename AccumulateIn<T>::type;
  __shared__ Gradient<A> shared[32 * V];
  share_channels<V>(a, shared, [&](int64_t c) {
    return Gradient<A>{a.mean.get<A>(c, 0),
                       gradient_factors<A>(a, a.rstd.get<A>(c, 1), a.weight.get<A>(c, 1),
                                           static_cast<const Pair<A>*>(a.parts)[c], training)};
  });
  const int64_t channel = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (channel >= a.channels) return;
  A mean[V];
  GradientFactors<A> s[V];
#pragma unroll
  for (int j = 0; j < V; ++j) {
    mean[j] = shared[threadIdx.x * V + j].mean;
    s[j] = shared[threadIdx.x * V + j].factors;
  }
  walk<T, V, true>(
      a, a.pieces.begin(blockIdx.y) + threadIdx.y, a.pieces.end(blockIdx.y), blockDim.y,
      [&](uint32_t r) { return int64_t(r) * a.channels + channel; },
      [&](int64_t at, const A(&x)[V], const A(&g)[V]) {
        A y[V];
#pragma unroll
        for (int j = 0; j < V; ++j)
          y[j] = s[j].by_grad * g[j] + s[j].by_distance * (x[j] - mean[j]) + s[j].constant;
        write_pack<T, V>(a.out, at, y);
      });
}

// ---------------------------------------------------------------- groups of channels

// A warp for each group: the sums of its planes become, for the group, the derivatives by the distance from
// the mean and the constants; `totals` are the planes' sums.
template <class A>
__global__ void __launch_bounds__(kBlock)
    finish_groups(const __grid_constant__ ChannelArgs a, Pair<A>* const totals, Pair<A>* const factors,
                  const int64_t groups) {
  const int64_t group = int64_t(blockIdx.x) * (kBlock / 32) + threadIdx.x / 32;
  if (group >= groups) return;
  A first = 0, second = 0;
  for (uint32_t m = threadIdx.x % 32; m < a.members; m += 32) {
    const int64_t plane = group * a.members + m;
    const Pair<A>* parts = static_cast<const Pair<A>*>(a.parts) + plane * a.folded.count;
    Pair<A> sums{0, 0};
    for (uint32_t p = 0; p < a.folded.count; ++p) {
      sums.first += parts[p].first;
      sums.second += parts[p].second;
    }
    totals[plane] = sums;
    const A weight = a.weight.get<A>(plane % a.parameters, 1);
    first += weight * sums.first;
    second += weight * sums.second;
  }
  first = warp_fold(first, Sum{});
  second = warp_fold(second, Sum{});
  if (threadIdx.x % 32) return;
  const A rstd = a.rstd.get<A>(group, 1), share = rstd / A(a.count);
  factors[group] = {-share * rstd * rstd * second, -share * first};
}

// The gradients of the parameters; a warp for each channel.
template <class A>
__global__ void __launch_bounds__(kBlock) group_parameters(const __grid_constant__ ChannelArgs a,
                                                           const Pair<A>* const totals, const int64_t batch) {
  const int64_t channel = int64_t(blockIdx.x) * (kBlock / 32) + threadIdx.x / 32;
  if (channel >= a.parameters) return;
  A by_weight = 0, by_bias = 0;
  for (int64_t n = threadIdx.x % 32; n < batch; n += 32) {
    const int64_t plane = n * a.parameters + channel;
    by_weight += totals[plane].second * a.rstd.get<A>(plane / a.members, 1);
    by_bias += totals[plane].first;
  }
  by_weight = warp_fold(by_weight, Sum{});
  by_bias = warp_fold(by_bias, Sum{});
  if (threadIdx.x % 32) return;
  a.grad_weight.put<A>(channel, by_weight);
  a.grad_bias.put<A>(channel, by_bias);
}

}  // namespace fl::cuda
