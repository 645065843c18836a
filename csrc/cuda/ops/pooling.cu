// Maxima and averages over windows, and their gradients: a thread for each element that is written, in the
// order of memory, or for a word of channels that lie side by side. Geometry and layouts are settled in
// ops/pooling.cpp.
#include "cuda/engine/packs.cuh"
#include "cuda/runtime/launch.h"
#include "ops/pooling.h"

namespace fl::cuda {

namespace {

// Products of sizes fit: in * (out + 1) < 2**31 is checked.
struct Axis : PoolRule<int> {
  // The windows of averages that element i lies in.
  __device__ __forceinline__ int first_over(int i) const {
    if (adaptive) return uint32_t(i * out) / uint32_t(in);
    return i + pad < kernel ? 0 : uint32_t(i + pad - kernel) / uint32_t(stride) + 1;
  }
  __device__ __forceinline__ int last_over(int i) const {
    if (adaptive) return min(uint32_t(out), uint32_t((i + 1) * out + in - 1) / uint32_t(in)) - 1;
    return min(uint32_t(out - 1), uint32_t(i + pad) / uint32_t(stride));
  }
};

struct PoolLaunch {
  const char* from;
  char* to;
  int64_t* indices;
  int64_t n;  // elements that are written
  int64_t channels, divisor;
  bool last;
  Axis axis[3];
  Divider by[4];  // of what is written: depth, height, width, channels (or words of them)
};

// The coordinates of an element.
struct Place {
  uint32_t image, channel, at[3];
};
__device__ __forceinline__ Place place_of(const PoolLaunch& a, uint32_t i) {
  Place p;
  const auto take = [&](int k) {
    const uint32_t q = a.by[k].divide(i), r = i - q * a.by[k].divisor;
    i = q;
    return r;
  };
  if (a.last) p.channel = take(3);
  p.at[2] = take(2);
  p.at[1] = take(1);
  p.at[0] = take(0);
  if (!a.last) p.channel = take(3);
  p.image = i;
  return p;
}
// Elements of a plane, by their place in it.
template <class T>
struct Plane {
  const T* data;
  int64_t step;
  __device__ __forceinline__ Plane(const PoolLaunch& a, const Place& p, int space)
      : data(reinterpret_cast<const T*>(a.from) + (a.last ? int64_t(p.image) * space * a.channels + p.channel
                                                          : (p.image * a.channels + p.channel) * space)),
        step(a.last ? a.channels : 1) {}
  __device__ __forceinline__ auto operator[](int at) const {
    typename AccumulateIn<T>::type x[1];
    read_pack<T, 1>(reinterpret_cast<const char*>(data), at * step).get(x);
    return x[0];
  }
};

// The place of the first channel of a thread in the word or plane of an image, of planes of `space` elements.
template <int V>
__device__ __forceinline__ int64_t element_of(const PoolLaunch& a, const Place& p, int64_t space, int at) {
  return a.last ? (p.image * space + at) * a.channels + p.channel * V
                : (p.image * a.channels + p.channel) * space + at;
}

// The window of an element, and the plane it looks at.
template <class T>
struct View {
  Axis::Window d, h, w;
  Plane<T> plane;
  __device__ __forceinline__ View(const PoolLaunch& a, const Place& p)
      : d(a.axis[0].window(p.at[0])),
        h(a.axis[1].window(p.at[1])),
        w(a.axis[2].window(p.at[2])),
        plane(a, p, a.axis[0].in * a.axis[1].in * a.axis[2].in) {}
};

// A thread has V channels.
template <class T, int V>
__global__ void __launch_bounds__(256) max_windows(const __grid_constant__ PoolLaunch a) {
  using A = typename AccumulateIn<T>::type;
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= a.n) return;
  const Place p = place_of(a, i);
  const Axis::Window d = a.axis[0].window(p.at[0]), h = a.axis[1].window(p.at[1]),
                     w = a.axis[2].window(p.at[2]);
  const int64_t space = int64_t(a.axis[0].in) * a.axis[1].in * a.axis[2].in;
  A best[V] = {};
  int where[V];
#pragma unroll
  for (int j = 0; j < V; ++j) where[j] = -1;
  for (int z = d.begin; z < d.end; z += a.axis[0].step)
    for (int y = h.begin; y < h.end; y += a.axis[1].step)
      for (int x = w.begin; x < w.end; x += a.axis[2].step) {
        const int at = (z * a.axis[1].in + y) * a.axis[2].in + x;
        A value[V];
        read_pack<T, V>(a.from, element_of<V>(a, p, space, at)).get(value);
#pragma unroll
        for (int j = 0; j < V; ++j)
          if (where[j] < 0 || value[j] > best[j] || value[j] != value[j]) best[j] = value[j], where[j] = at;
      }
  write_pack<T, V>(a.to, int64_t(i) * V, best);
  if (!a.indices) return;
#pragma unroll
  for (int j = 0; j < V; ++j) a.indices[int64_t(i) * V + j] = where[j];
}

template <int V>
__device__ __forceinline__ void read_indices(const int64_t* from, int64_t (&x)[V]) {
  if constexpr (V == 1) {
    x[0] = *from;
  } else {
#pragma unroll
    for (int j = 0; j < V; j += 2) {
      const longlong2 pair = *reinterpret_cast<const longlong2*>(from + j);
      x[j] = pair.x;
      x[j + 1] = pair.y;
    }
  }
}

// `from` is the gradient of the maxima that lie at `indices`; what is written, that of the input.
template <class T, int V>
__global__ void __launch_bounds__(256) max_gradient(const __grid_constant__ PoolLaunch a) {
  using A = typename AccumulateIn<T>::type;
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= a.n) return;
  const Place p = place_of(a, i);
  const int own = (p.at[0] * a.axis[1].in + p.at[1]) * a.axis[2].in + p.at[2];
  const int64_t space = int64_t(a.axis[0].out) * a.axis[1].out * a.axis[2].out;
  const int z0 = a.axis[0].first_over(p.at[0]), z1 = a.axis[0].last_over(p.at[0]),
            y0 = a.axis[1].first_over(p.at[1]), y1 = a.axis[1].last_over(p.at[1]),
            x0 = a.axis[2].first_over(p.at[2]), x1 = a.axis[2].last_over(p.at[2]);
  A sum[V] = {};
  for (int z = z0; z <= z1; ++z)
    for (int y = y0; y <= y1; ++y)
      for (int x = x0; x <= x1; ++x) {
        const int64_t at = element_of<V>(a, p, space, (z * a.axis[1].out + y) * a.axis[2].out + x);
        A grad[V];
        int64_t where[V];
        read_indices(a.indices + at, where);
        read_pack<T, V>(a.from, at).get(grad);
#pragma unroll
        for (int j = 0; j < V; ++j) sum[j] += where[j] == own ? grad[j] : A(0);
      }
  write_pack<T, V>(a.to, int64_t(i) * V, sum);
}

template <class T>
__global__ void __launch_bounds__(256) average_windows(const __grid_constant__ PoolLaunch a) {
  using A = typename AccumulateIn<T>::type;
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= a.n) return;
  const auto [d, h, w, plane] = View<T>(a, place_of(a, i));
  A sum[1] = {0};
  for (int z = d.begin; z < d.end; ++z)
    for (int y = h.begin; y < h.end; ++y) {
      const int row = (z * a.axis[1].in + y) * a.axis[2].in;
      for (int x = w.begin; x < w.end; ++x) sum[0] += plane[row + x];
    }
  sum[0] /= A(a.divisor ? a.divisor : int64_t(d.extent) * h.extent * w.extent);
  write_pack<T, 1>(a.to, i, sum);
}

// `from` is the gradient of the averages; what is written, that of the input.
template <class T>
__global__ void __launch_bounds__(256) average_gradient(const __grid_constant__ PoolLaunch a) {
  using A = typename AccumulateIn<T>::type;
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= a.n) return;
  const Place p = place_of(a, i);
  const Plane<T> plane(a, p, a.axis[0].out * a.axis[1].out * a.axis[2].out);
  const int z0 = a.axis[0].first_over(p.at[0]), z1 = a.axis[0].last_over(p.at[0]),
            y0 = a.axis[1].first_over(p.at[1]), y1 = a.axis[1].last_over(p.at[1]),
            x0 = a.axis[2].first_over(p.at[2]), x1 = a.axis[2].last_over(p.at[2]);
  A sum[1] = {0};
  for (int z = z0; z <= z1; ++z)
    for (int y = y0; y <= y1; ++y) {
      const int row = (z * a.axis[1].out + y) * a.axis[2].out;
      const int64_t extent =
          a.divisor ? a.divisor : int64_t(a.axis[0].window(z).extent) * a.axis[1].window(y).extent;
      for (int x = x0; x <= x1; ++x)
        sum[0] += plane[row + x] / A(a.divisor ? extent : extent * a.axis[2].window(x).extent);
    }
  write_pack<T, 1>(a.to, i, sum);
}

// Averages of whole planes, a block for each; and their gradient, a block for each.
template <class T, int V>
__global__ void __launch_bounds__(256) average_planes(const __grid_constant__ PoolLaunch a) {
  using A = typename AccumulateIn<T>::type;
  __shared__ A shared[33];
  const int space = a.axis[0].in * a.axis[1].in * a.axis[2].in;
  A sum = 0;
  for (int k = threadIdx.x * V; k < space; k += blockDim.x * V) {
    A x[V];
    read_pack<T, V>(a.from, int64_t(blockIdx.x) * space + k).get(x);
#pragma unroll
    for (int j = 0; j < V; ++j) sum += x[j];
  }
  const A mean[1] = {block_fold(sum, Sum{}, A(0), shared) / A(space)};
  if (threadIdx.x == 0) write_pack<T, 1>(a.to, blockIdx.x, mean);
}
template <class T, int V>
__global__ void __launch_bounds__(256) spread_planes(const __grid_constant__ PoolLaunch a) {
  using A = typename AccumulateIn<T>::type;
  const int space = a.axis[0].in * a.axis[1].in * a.axis[2].in;
  A g[1], all[V];
  read_pack<T, 1>(a.from, blockIdx.x).get(g);
#pragma unroll
  for (int j = 0; j < V; ++j) all[j] = g[0] / A(space);
  for (int k = threadIdx.x * V; k < space; k += blockDim.x * V)
    write_pack<T, V>(a.to, int64_t(blockIdx.x) * space + k, all);
}

using PoolKernel = void (*)(const PoolLaunch);

// Kernels for a dtype: one element to a thread; by elements and by words.
struct PoolKernels {
  PoolKernel average, gradient;
  PoolKernel max[2], max_gradient[2], whole[2], spread[2];
};
template <class T>
PoolKernels kernels_of() {
  PoolKernels k{average_windows<T>, average_gradient<T>, {max_windows<T, 1>, nullptr}, {}, {}, {}};
  if constexpr (!std::is_same_v<T, int64_t>) {
    constexpr int width = 16 / sizeof(T);
    k.max[1] = max_windows<T, width>;
    k.max_gradient[0] = max_gradient<T, 1>;
    k.max_gradient[1] = max_gradient<T, width>;
    k.whole[0] = average_planes<T, 1>;
    k.whole[1] = average_planes<T, width>;
    k.spread[0] = spread_planes<T, 1>;
    k.spread[1] = spread_planes<T, width>;
  }
  return k;
}
PoolKernels kernels_for(DType dtype) {
  switch (dtype) {
    case DType::Float:
      return kernels_of<float>();
    case DType::Double:
      return kernels_of<double>();
    case DType::BFloat16:
      return kernels_of<__nv_bfloat16>();
    case DType::Half:
      return kernels_of<__half>();
    default:
      return kernels_of<int64_t>();
  }
}

enum class Pass { Max, Average, Gradient, MaxGradient };

PoolKernel kernel_for(const PoolKernels& kernels, Pass pass, bool words) {
  switch (pass) {
    case Pass::Max:
      return kernels.max[words];
    case Pass::MaxGradient:
      return kernels.max_gradient[words];
    case Pass::Average:
      return kernels.average;
    default:
      return kernels.gradient;
  }
}

// Averages of whole planes, or their gradient.
void run_planes(const PoolArgs& g, const PoolLaunch& a, Pass pass, int64_t inside, cudaStream_t stream) {
  const PoolKernels kernels = kernels_for(g.dtype);
  const int64_t item = size_of(g.dtype);
  const bool words = inside * item % 16 == 0 && is_aligned(pass == Pass::Average ? a.from : a.to);
  const int64_t width = words ? 16 / item : 1;
  const int64_t threads = std::min<int64_t>(256, std::max<int64_t>(32, (inside / width + 63) / 64 * 32));
  launch(pass == Pass::Average ? kernels.whole[words] : kernels.spread[words],
         static_cast<unsigned>(g.batch * g.channels), static_cast<unsigned>(threads), stream, "pooling", a);
}

void run(const PoolArgs& g, int device, const void* from, void* to, Pass pass) {
  OnDevice on(device);
  PoolLaunch a;
  a.channels = g.channels;
  a.divisor = g.divisor;
  a.last = g.channels_last;
  const int64_t item = size_of(g.dtype);
  int64_t inside = 1, windows = 1;
  const bool of_maxima = pass == Pass::Max || pass == Pass::MaxGradient;
  const bool backward = pass == Pass::Gradient || pass == Pass::MaxGradient;
  bool whole = !g.channels_last && !g.divisor && g.dtype != DType::Int64 && !of_maxima;
  for (int d = 0; d < 3; ++d) {
    const PoolAxis& x = g.axes[d];
    FL_CHECK(x.in * (x.out + 1) < int64_t(1) << 31,
             "[pooling] expected sizes with a product below 2**31 on a device, got ", x.in, " and ", x.out);
    a.axis[d] = {int(x.in),  int(x.out),    int(x.step), int(x.stride),
                 int(x.pad), int(x.kernel), x.adaptive,  x.padded};
    if (pass == Pass::MaxGradient)
      a.axis[d].kernel = int(x.step * (x.kernel - 1) + 1);  // all that it reaches
    a.by[d] = Divider(static_cast<uint32_t>(backward ? x.in : x.out));
    inside *= x.in;
    windows *= x.out;
    whole &= x.adaptive && x.out == 1;
  }
  const bool words = of_maxima && g.channels_last && g.dtype != DType::Int64 && g.channels * item % 16 == 0 &&
                     is_aligned(from) && is_aligned(to) && is_aligned(g.indices);
  const int64_t width = words ? 16 / item : 1;
  a.by[3] = Divider(static_cast<uint32_t>(g.channels / width));
  FL_CHECK(std::max(inside, windows) < int64_t(1) << 31,
           "[pooling] expected planes of less than 2**31 elements on a device, got ",
           std::max(inside, windows));
  const int64_t read = g.channels * (backward ? windows : inside),
                written = g.channels * (backward ? inside : windows);
  const cudaStream_t stream = current_stream();
  a.from = static_cast<const char*>(from);
  a.to = static_cast<char*>(to);
  a.indices = g.indices;
  if (whole) return run_planes(g, a, pass, inside, stream);
  FL_CHECK(written < int64_t(1) << 31, "[pooling] expected images of less than 2**31 elements, got ",
           written);
  // As many images at a time as can be counted.
  const int64_t images = std::max<int64_t>(1, ((int64_t(1) << 31) - 1) / written);
  for (int64_t first = 0; first < g.batch; first += images) {
    a.from = static_cast<const char*>(from) + first * read * item;
    a.to = static_cast<char*>(to) + first * written * item;
    a.indices = g.indices ? g.indices + first * (backward ? read : written) : nullptr;
    a.n = std::min(images, g.batch - first) * written / width;
    launch(kernel_for(kernels_for(g.dtype), pass, words), static_cast<unsigned>((a.n + 255) / 256), 256,
           stream, "pooling", a);
  }
}

void max_pool(const PoolArgs& g, int device) {
  run(g, device, g.input, g.output, Pass::Max);
}
void max_pool_backward(const PoolArgs& g, int device) {
  run(g, device, g.output, const_cast<void*>(g.input), Pass::MaxGradient);
}
void average_pool(const PoolArgs& g, int device) {
  run(g, device, g.input, g.output, Pass::Average);
}
void average_pool_backward(const PoolArgs& g, int device) {
  run(g, device, g.output, const_cast<void*>(g.input), Pass::Gradient);
}

FL_ATTACH(max_pool, CUDA, max_pool);
FL_ATTACH(max_pool_backward, CUDA, max_pool_backward);
FL_ATTACH(average_pool, CUDA, average_pool);
FL_ATTACH(average_pool_backward, CUDA, average_pool_backward);

}  // namespace
}  // namespace fl::cuda
