// Depthwise convolutions and their gradients, for both memory formats.
//
// The axes of planes are called by their part in a kernel: a thread computes a few neighbours along the axis
// `tiled`, so that what it reads serves several of them, and one place of the axis `other`. With channels
// innermost these are width and height, and the threads of a warp take neighbouring channels, some at a time;
// else they are height and width, and threads take neighbouring columns. A block keeps to a few channels
// (one, if they are not innermost), whose weights it holds in shared memory, and goes over a part of all
// places.
//
// Filters of 3, 5 and 7 elements a side with steps of one or two have unrolled kernels, those with channels
// innermost in depthwise_walk.cuh; any other geometry has kernels with a thread for each result.
#include <algorithm>

#include "cuda/convolution/depthwise_walk.cuh"
#include "cuda/runtime/launch.h"

namespace fl::cuda::depthwise {

namespace {

constexpr int kThreads = 256;  // of a block, at most
constexpr int kSummers = 128;  // of a block for the gradient of weights, where channels are not innermost
constexpr int kAcross = 32;    // neighbouring packs of channels that a block takes, at most

// Where a result at `i` reads for a tap; negative: nowhere.
template <bool spread>
__device__ __forceinline__ int source_of(const Axis& axis, int i, int tap, int stride) {
  if (!spread) {
    const int at = i * stride - axis.padding + tap * axis.dilation;
    return at < axis.x ? at : -1;
  }
  const int at = i + axis.padding - tap * axis.dilation;
  return at >= 0 && at % stride == 0 && at / stride < axis.x ? at / stride : -1;
}

// ---------------------------------------------------------------- unrolled: K taps a side, steps of S

// Results along the tiled axis of a thread, and what it reads for them: from `before` the first place on.
// Of a spread reading the first result is one whose first tap has a source.
template <int K, int S, bool is_spread>
struct Tile {
  static constexpr bool spread = is_spread;
  static constexpr int results = spread ? 8 : 7, before = spread ? (K - 1) / S : 0,
                       sources = spread ? (results - 1) / S + before + 1 : (results - 1) * S + K;
  // The tap by which a source counts for a result; there is none outside of 0 ... K - 1.
  static __device__ __forceinline__ constexpr int tap(int result, int source) {
    return spread ? result - (source - before) * S : source - result * S;
  }
  static __device__ __forceinline__ int first_result(const Axis& axis, int tile) {
    return tile * results - (spread ? axis.padding % S : 0);
  }
  static __device__ __forceinline__ int first_source(const Axis& axis, int result) {
    return spread ? (result + axis.padding) / S - before : result * S - axis.padding;
  }
  static int count(const Axis& axis) {
    return (axis.y + (spread ? axis.padding % S : 0) + results - 1) / results;
  }
};

template <class T, int V, int K, int S, bool spread>
__global__ void __launch_bounds__(kThreads) convolve(const __grid_constant__ Launch a) {
  using A = Sums<T>;
  using Tile = Tile<K, S, spread>;
  A* const weights = reinterpret_cast<A*>(shared_memory());
  const int wide = a.across * V, first = static_cast<int>(blockIdx.x) * wide;
  share_weights<T, K>(a, weights, wide, first);
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % a.across, slot = static_cast<int>(threadIdx.x) / a.across;
  const int channel = first + lane * V;
  if (channel >= a.channels) return;
  A bias[V] = {};
  if (a.bias) read<T, V>(reinterpret_cast<const T*>(a.bias) + channel, bias);
  const T* const x = reinterpret_cast<const T*>(a.x) + channel * a.x_channel;
  T* const y = reinterpret_cast<T*>(a.y) + channel * a.y_channel;
  const int end = end_of(a);
  for (int i = static_cast<int>(blockIdx.y) * a.length + slot; i < end; i += a.slots) {
    const Place place = place_of(a, i);
    const int result = Tile::first_result(a.tiled, place.tile), source = Tile::first_source(a.tiled, result);
    const uint32_t inside = inside_of<Tile::sources>(source, a.tiled.x);
    const T* const from = x + int64_t(place.image) * a.x_image + int64_t(source) * a.tiled.x_step;
    A sums[Tile::results][V];
#pragma unroll
    for (int t = 0; t < Tile::results; ++t)
#pragma unroll
      for (int v = 0; v < V; ++v) sums[t][v] = bias[v];
#pragma unroll 1
    for (int k = 0; k < K; ++k) {
      const int at = source_of<spread>(a.other, place.other, k, S);
      if (at < 0) continue;
      A w[K][V];
#pragma unroll
      for (int j = 0; j < K; ++j)
#pragma unroll
        for (int v = 0; v < V; ++v)
          w[j][v] = weights[(k * a.other.tap_step + j * a.tiled.tap_step) * wide + lane * V + v];
      Line<T, V, Tile::sources> loaded;
      loaded.read(from + int64_t(at) * a.other.x_step, a.tiled.x_step, inside);
      A line[Tile::sources][V];
      loaded.get(line);
#pragma unroll
      for (int j = 0; j < Tile::sources; ++j)
#pragma unroll
        for (int t = 0; t < Tile::results; ++t) {
          constexpr auto tap = Tile::tap;
          if (tap(t, j) < 0 || tap(t, j) >= K) continue;
#pragma unroll
          for (int v = 0; v < V; ++v) sums[t][v] += line[j][v] * w[tap(t, j)][v];
        }
    }
    T* const to = y + int64_t(place.image) * a.y_image + int64_t(result) * a.tiled.y_step +
                  place.other * a.other.y_step;
#pragma unroll
    for (int t = 0; t < Tile::results; ++t)
      if (static_cast<unsigned>(result + t) < static_cast<unsigned>(a.tiled.y))
        write<T, V>(to + int64_t(a.tiled.y_step) * t, sums[t]);
  }
}

// The sums of a block for the gradient of weights, where channels are not innermost; to the parts at `y`.
template <class T, int K, int S>
__global__ void __launch_bounds__(kSummers) sum_taps(const __grid_constant__ Launch a) {
  using A = Sums<T>;
  using Tile = Tile<K, S, false>;
  const int thread = static_cast<int>(threadIdx.x), channel = static_cast<int>(blockIdx.x);
  A sums[K][K] = {};
  const int end = end_of(a);
  for (int i = static_cast<int>(blockIdx.y) * a.length + thread; i < end; i += kSummers) {
    const Place place = place_of(a, i);
    const int result = place.tile * Tile::results, source = Tile::first_source(a.tiled, result);
    const T* const x = reinterpret_cast<const T*>(a.x) + channel * a.x_channel +
                       int64_t(place.image) * a.x_image + int64_t(source) * a.tiled.x_step;
    const T* const grad = reinterpret_cast<const T*>(a.grad) + channel * a.y_channel +
                          place.image * a.y_image + result * a.tiled.y_step + place.other * a.other.y_step;
    const uint32_t inside = inside_of<Tile::sources>(source, a.tiled.x);
    Line<T, 1, Tile::results> given_by;
    given_by.read(grad, a.tiled.y_step, inside_of<Tile::results>(result, a.tiled.y));
    A by[Tile::results][1];
    given_by.get(by);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int at = source_of<false>(a.other, place.other, k, S);
      Line<T, 1, Tile::sources> loaded;
      loaded.read(x + int64_t(at) * a.other.x_step, a.tiled.x_step, at < 0 ? 0 : inside);
      A line[Tile::sources][1];
      loaded.get(line);
#pragma unroll
      for (int j = 0; j < K; ++j)
#pragma unroll
        for (int t = 0; t < Tile::results; ++t) sums[k][j] += line[t * S + j][0] * by[t][0];
    }
  }
  A* const shared = reinterpret_cast<A*>(shared_memory());
#pragma unroll
  for (int i = 0; i < K * K; ++i) shared[i * kSummers + thread] = sums[i / K][i % K];
  __syncthreads();
  A* const parts = reinterpret_cast<A*>(a.y) + (int64_t(blockIdx.y) * a.channels + channel) * K * K;
  for (int i = thread / 32; i < K * K; i += kSummers / 32) {
    A sum = 0;
    for (int s = thread % 32; s < kSummers; s += 32) sum += shared[i * kSummers + s];
    for (int m = 16; m > 0; m >>= 1) sum += shuffle_xor(sum, m);
    if (thread % 32 == 0) parts[i / K * a.other.tap_step + i % K * a.tiled.tap_step] = sum;
  }
}

// ---------------------------------------------------------------- any geometry

// A thread for each result, in the order of memory.
template <class T>
__global__ void __launch_bounds__(kThreads) convolve_any(const __grid_constant__ Launch a) {
  using A = Sums<T>;
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= a.places * a.channels) return;
  const int plane = a.tiled.y * a.other.y;
  const int channel = a.last ? i % a.channels : i / plane % a.channels;
  const int place = a.last ? i / a.channels : i / plane / a.channels * plane + i % plane;
  const Place p = place_of(a, place);
  const T* const x = reinterpret_cast<const T*>(a.x) + p.image * a.x_image + channel * a.x_channel;
  const T* const weight = reinterpret_cast<const T*>(a.weight) + channel * a.taps;
  A sum[1] = {0};
  if (a.bias) read<T, 1>(reinterpret_cast<const T*>(a.bias) + channel, sum);
  for (int k = 0; k < a.other.kernel; ++k) {
    const int at = a.spread ? source_of<true>(a.other, p.other, k, a.other.stride)
                            : source_of<false>(a.other, p.other, k, a.other.stride);
    if (at < 0) continue;
    for (int j = 0; j < a.tiled.kernel; ++j) {
      const int along = a.spread ? source_of<true>(a.tiled, p.tile, j, a.tiled.stride)
                                 : source_of<false>(a.tiled, p.tile, j, a.tiled.stride);
      if (along < 0) continue;
      A value[1], w[1];
      read<T, 1>(x + at * a.other.x_step + along * a.tiled.x_step, value);
      read<T, 1>(weight + k * a.other.tap_step + j * a.tiled.tap_step, w);
      sum[0] += value[0] * w[0];
    }
  }
  write<T, 1>(reinterpret_cast<T*>(a.y) + i, sum);
}

// As sum_taps, for one tap.
template <class T>
__global__ void __launch_bounds__(kThreads) sum_any(const __grid_constant__ Launch a) {
  using A = Sums<T>;
  const int lane = static_cast<int>(threadIdx.x) % a.across, slot = static_cast<int>(threadIdx.x) / a.across,
            chunk = static_cast<int>(blockIdx.x) / a.taps, tap = static_cast<int>(blockIdx.x) % a.taps;
  const int channel = chunk * a.across + lane;
  const int k = tap / a.other.tap_step % a.other.kernel, j = tap / a.tiled.tap_step % a.tiled.kernel;
  const int end = channel < a.channels ? end_of(a) : 0;
  const T* const x = reinterpret_cast<const T*>(a.x) + channel * a.x_channel;
  const T* const grad = reinterpret_cast<const T*>(a.grad) + channel * a.y_channel;
  A sum = 0;
  for (int i = static_cast<int>(blockIdx.y) * a.length + slot; i < end; i += a.slots) {
    const Place p = place_of(a, i);
    const int at = source_of<false>(a.other, p.other, k, a.other.stride),
              along = source_of<false>(a.tiled, p.tile, j, a.tiled.stride);
    if (at < 0 || along < 0) continue;
    A value[1], g[1];
    read<T, 1>(x + p.image * a.x_image + at * a.other.x_step + along * a.tiled.x_step, value);
    read<T, 1>(grad + p.image * a.y_image + p.other * a.other.y_step + p.tile * a.tiled.y_step, g);
    sum += value[0] * g[0];
  }
  A* const shared = reinterpret_cast<A*>(shared_memory());
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (slot > 0 || channel >= a.channels) return;
  for (int s = 1; s < a.slots; ++s) sum += shared[s * a.across + lane];
  reinterpret_cast<A*>(a.y)[(int64_t(blockIdx.y) * a.channels + channel) * a.taps + tap] = sum;
}

// ---------------------------------------------------------------- the sums of all blocks

constexpr int kFolders = 8;  // threads for one result

template <class T>
__global__ void __launch_bounds__(kThreads)
    fold_parts(const void* const parts, void* const result, const int count, const int size) {
  using A = Sums<T>;
  A* const shared = reinterpret_cast<A*>(shared_memory());
  constexpr int wide = kThreads / kFolders;
  const int lane = static_cast<int>(threadIdx.x) % wide, folder = static_cast<int>(threadIdx.x) / wide,
            i = static_cast<int>(blockIdx.x) * wide + lane;
  A sum[1] = {0};
  if (i < size)
    for (int p = folder; p < count; p += kFolders)
      sum[0] += static_cast<const A*>(parts)[int64_t(p) * size + i];
  shared[threadIdx.x] = sum[0];
  __syncthreads();
  if (folder > 0 || i >= size) return;
  for (int f = 1; f < kFolders; ++f) sum[0] += shared[f * wide + lane];
  write<T, 1>(static_cast<T*>(result) + i, sum);
}

// ---------------------------------------------------------------- launches

template <class F>
void by_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::Float:
      return f(float());
    case DType::Half:
      return f(__half());
    case DType::BFloat16:
      return f(__nv_bfloat16());
    default:
      return f(double());
  }
}

int ceil_div(int64_t a, int64_t b) {
  return static_cast<int>((a + b - 1) / b);
}

// As in the forward direction.
Launch launch_of(const Problem& p) {
  Launch a{};
  const auto axis = [](const Problem::Axis& of, int x_step, int y_step, int tap_step) {
    return Axis{of.x, of.y, of.kernel, of.stride, of.padding, of.dilation, x_step, y_step, tap_step};
  };
  const int beside = p.last ? p.channels : 1;
  const Axis width = axis(p.width, beside, beside, 1),
             height = axis(p.height, p.width.x * beside, p.width.y * beside, p.width.kernel);
  a.tiled = p.last ? width : height;
  a.other = p.last ? height : width;
  a.last = p.last;
  a.channels = p.channels;
  a.taps = p.height.kernel * p.width.kernel;
  const int x_plane = p.height.x * p.width.x, y_plane = p.height.y * p.width.y;
  a.x_image = x_plane * p.channels;
  a.y_image = y_plane * p.channels;
  a.x_channel = p.last ? 1 : x_plane;
  a.y_channel = p.last ? 1 : y_plane;
  return a;
}
// What is read and what is written change places.
void turn(Axis& axis) {
  std::swap(axis.x, axis.y);
  std::swap(axis.x_step, axis.y_step);
}

bool unrolled(const Problem& p) {
  const Problem::Axis &h = p.height, &w = p.width;
  return p.dtype != DType::Double && h.kernel == w.kernel && h.stride == w.stride && h.stride <= 2 &&
         h.dilation == 1 && w.dilation == 1 && (h.kernel == 3 || h.kernel == 5 || h.kernel == 7);
}

// f(type, taps, stride) as constants, for unrolled kernels.
template <class F>
void by_geometry(const Problem& p, F&& f) {
  by_dtype(p.dtype, [&](auto zero) {
    if constexpr (!std::is_same_v<decltype(zero), double>) {
      const auto with_taps = [&](auto taps) {
        if (p.height.stride == 1) return f(zero, taps, std::integral_constant<int, 1>());
        f(zero, taps, std::integral_constant<int, 2>());
      };
      if (p.height.kernel == 3) return with_taps(std::integral_constant<int, 3>());
      if (p.height.kernel == 5) return with_taps(std::integral_constant<int, 5>());
      with_taps(std::integral_constant<int, 7>());
    }
  });
}
// f(pack) as a constant: the channels that a thread takes at once are `most`, or one.
template <int most, class F>
void by_pack(const Problem& p, F&& f) {
  if (p.last && p.channels % most == 0) return f(std::integral_constant<int, most>());
  f(std::integral_constant<int, 1>());
}

// Threads of a block, for packs of channels and for places.
void share_threads(Launch& a, const Problem& p, int pack, int most) {
  const int packs = p.last ? ceil_div(p.channels, pack) : 1, chunks = ceil_div(packs, kAcross);
  a.across = ceil_div(packs, chunks);
  a.chunks = ceil_div(p.channels, a.across * pack);
  a.slots = std::max(1, most / a.across);
}
// The places of all images; a block goes over a part of them, and there are at most about `parts`.
void share_places(Launch& a, const Problem& p, int tiles, int others, int parts) {
  a.inner = Divider(static_cast<uint32_t>(a.last ? tiles : others));
  a.outer = Divider(static_cast<uint32_t>(a.last ? others : tiles));
  a.places = p.batch * tiles * others;
  a.length = ceil_div(a.places, std::max(1, std::min({65535, ceil_div(a.places, a.slots), parts})));
  a.parts = ceil_div(a.places, a.length);
}
// Walks are split where images and columns alone are too few to share the device's time out evenly.
template <int K, int S>
void share_walks(Launch& a, const Problem& p, int pack, int parts) {
  share_threads(a, p, pack, kWalkThreads);
  const int tiles = ceil_div(a.tiled.y, Turns<K, S>::columns);
  const int64_t blocks = int64_t(a.chunks) * ceil_div(int64_t(p.batch) * tiles, a.slots);
  const int pieces = std::min(ceil_div(a.other.y, 2 * K), ceil_div(4 * kWalkBlocks * p.processors, blocks));
  a.rows = ceil_div(a.other.y, pieces);
  share_places(a, p, tiles, ceil_div(a.other.y, a.rows), parts);
}
dim3 grid_of(const Launch& a, int beside = 1) {
  return dim3(static_cast<unsigned>(a.chunks * beside), static_cast<unsigned>(a.parts));
}

constexpr int kNoLimit = 1 << 30;

// A convolution, with unrolled taps.
void run_unrolled(Launch a, const Problem& p, cudaStream_t stream) {
  by_geometry(p, [&](auto zero, auto taps, auto stride) {
    using T = decltype(zero);
    constexpr int K = decltype(taps)::value, S = decltype(stride)::value;
    const auto run = [&](auto kernel, int pack) {
      launch_shared(kernel, grid_of(a), static_cast<unsigned>(a.across * a.slots),
                    static_cast<unsigned>(a.across * pack * K * K * sizeof(float)), stream, "convolution", a);
    };
    const auto run_tiles = [&](auto kernel, int pack, int tiles) {
      share_threads(a, p, pack, kThreads);
      const int busy = ceil_div(8 * p.processors, a.chunks);
      share_places(a, p, tiles, a.other.y,
                   std::max(busy, ceil_div(int64_t(p.batch) * tiles * a.other.y, 8 * a.slots)));
      run(kernel, pack);
    };
    if (a.spread) {
      if constexpr (S > 1)
        by_pack<4>(p, [&](auto pack) {
          constexpr int V = decltype(pack)::value;
          run_tiles(convolve<T, V, K, S, true>, V, Tile<K, S, true>::count(a.tiled));
        });
    } else if (p.last) {
      by_pack<Turns<K, S>::pack>(p, [&](auto pack) {
        constexpr int V = decltype(pack)::value;
        share_walks<K, S>(a, p, V, kNoLimit);
        run(walk_rows<T, V, K, S>, V);
      });
    } else {
      run_tiles(convolve<T, 1, K, S, false>, 1, Tile<K, S, false>::count(a.tiled));
    }
  });
}

void run_any(Launch a, const Problem& p, cudaStream_t stream) {
  share_threads(a, p, 1, kThreads);
  share_places(a, p, a.tiled.y, a.other.y, kNoLimit);
  by_dtype(p.dtype, [&](auto zero) {
    const auto blocks = static_cast<unsigned>(ceil_div(int64_t(a.places) * a.channels, kThreads));
    launch_shared(convolve_any<decltype(zero)>, blocks, kThreads, 0, stream, "convolution", a);
  });
}

// f(launch, kernel, threads, shared memory) for the kernel that computes parts of the gradient of weights.
template <class F>
void with_parts(const Problem& p, F&& f) {
  Launch a = launch_of(p);
  const auto parts = [&](int blocks) { return ceil_div(int64_t(blocks) * p.processors, a.chunks); };
  if (!unrolled(p))
    return by_dtype(p.dtype, [&](auto zero) {
      share_threads(a, p, 1, kThreads);
      share_places(a, p, a.tiled.y, a.other.y, ceil_div(parts(8), a.taps));
      f(a, grid_of(a, a.taps), sum_any<decltype(zero)>, a.across * a.slots, sizeof(Sums<decltype(zero)>));
    });
  by_geometry(p, [&](auto zero, auto taps, auto stride) {
    using T = decltype(zero);
    constexpr int K = decltype(taps)::value, S = decltype(stride)::value;
    if (!p.last) {
      share_threads(a, p, 1, kSummers);
      share_places(a, p, Tile<K, S, false>::count(a.tiled), a.other.y, parts(8));
      return f(a, grid_of(a), sum_taps<T, K, S>, kSummers, K * K * sizeof(float));
    }
    by_pack<Turns<K, S>::pack>(p, [&](auto pack) {
      constexpr int V = decltype(pack)::value;
      share_threads(a, p, V, kWalkThreads);
      share_walks<K, S>(a, p, V, std::max(1, kWalkBlocks * p.processors / a.chunks));
      f(a, grid_of(a), walk_taps<T, V, K, S>, a.across * a.slots, K * K * V * sizeof(float));
    });
  });
}

}  // namespace

void forward(const Problem& p, const void* x, const void* w, const void* bias, void* y, cudaStream_t stream) {
  Launch a = launch_of(p);
  a.x = static_cast<const char*>(x);
  a.weight = static_cast<const char*>(w);
  a.bias = static_cast<const char*>(bias);
  a.y = static_cast<char*>(y);
  unrolled(p) ? run_unrolled(a, p, stream) : run_any(a, p, stream);
}

void input_gradient(const Problem& p, const void* grad, const void* w, void* result, cudaStream_t stream) {
  Launch a = launch_of(p);
  turn(a.tiled);
  turn(a.other);
  std::swap(a.x_image, a.y_image);
  std::swap(a.x_channel, a.y_channel);
  a.x = static_cast<const char*>(grad);
  a.weight = static_cast<const char*>(w);
  a.y = static_cast<char*>(result);
  a.spread = true;
  if (!unrolled(p)) return run_any(a, p, stream);
  if (p.height.stride == 1) {
    // Without steps it is a convolution with the filter turned round.
    a.spread = false;
    a.flipped = true;
    for (Axis* axis : {&a.tiled, &a.other}) axis->padding = axis->kernel - 1 - axis->padding;
  }
  run_unrolled(a, p, stream);
}

size_t bytes_of_parts(const Problem& p) {
  size_t bytes = 0;
  with_parts(p, [&](const Launch& a, dim3, auto, int, size_t) {
    bytes = size_t(a.parts) * a.channels * a.taps * (p.dtype == DType::Double ? 8 : 4);
  });
  return bytes;
}

void weight_gradient(const Problem& p, const void* x, const void* grad, void* parts, void* result,
                     cudaStream_t stream) {
  with_parts(p, [&](Launch a, dim3 grid, auto kernel, int threads, size_t bytes) {
    a.x = static_cast<const char*>(x);
    a.grad = static_cast<const char*>(grad);
    a.y = static_cast<char*>(parts);
    launch_shared(kernel, grid, static_cast<unsigned>(threads), static_cast<unsigned>(threads * bytes),
                  stream, "convolution", a);
    by_dtype(p.dtype, [&](auto zero) {
      const int size = a.channels * a.taps;
      launch_shared(fold_parts<decltype(zero)>, static_cast<unsigned>(ceil_div(size, kThreads / kFolders)),
                    kThreads, static_cast<unsigned>(kThreads * sizeof(Sums<decltype(zero)>)), stream,
                    "convolution", static_cast<const void*>(parts), result, a.parts, size);
    });
  });
}

}  // namespace fl::cuda::depthwise
