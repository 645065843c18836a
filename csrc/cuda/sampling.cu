// Resizing and sampling at the places of a grid, with their gradients. Which input elements a result is made
// of is computed by the functions that the CPU uses (cpu/resize_taps.h, cpu/grid_taps.h).
#include "cpu/grid_taps.h"
#include "cpu/resize_kernel.h"
#include "cuda/device.cuh"
#include "cuda/kernels.h"

namespace fl::cuda {

namespace {

// ---------------------------------------------------------------- resizing

struct AxisArgs {
  ResizeRule rule;
  int32_t* index;
  double* weight;
};

struct ResizeLaunch {
  AxisArgs axis[3];  // depth, height, width
  const char* in;
  char* out;
  DType dtype;
  int item;
  uint32_t n;  // output elements of a plane
  int64_t planes, in_plane, out_plane;
  uint32_t inner;  // channels that lie beside each other
  Divider by_inner, by_width, by_height;
};

// grid: (elements / 128, axes)
template <class C>
__global__ void __launch_bounds__(128) list_taps(const __grid_constant__ ResizeLaunch a) {
  const AxisArgs& axis = a.axis[blockIdx.y];
  for (int64_t o = int64_t(blockIdx.x) * 128 + threadIdx.x; o < axis.rule.out; o += int64_t(gridDim.x) * 128)
    resize::find_taps<C>(axis.rule, o, axis.index, axis.weight);
}

// Calls f(input element, weight) for all taps of element i of an output plane.
template <class C, class F>
__device__ __forceinline__ void for_taps(const ResizeLaunch& a, uint32_t i, F&& f) {
  const uint32_t pixel = a.by_inner.divide(i), channel = i - pixel * a.inner;
  const uint32_t line = a.by_width.divide(pixel), x = pixel - line * a.by_width.divisor;
  const uint32_t z = a.by_height.divide(line), y = line - z * a.by_height.divisor;
  const AxisArgs &depth = a.axis[0], &height = a.axis[1], &width = a.axis[2];
  for (int64_t d = 0; d < depth.rule.taps; ++d) {
    const int64_t at_d = d * depth.rule.out + z;
    for (int64_t h = 0; h < height.rule.taps; ++h) {
      const int64_t at_h = h * height.rule.out + y;
      const int64_t row = (depth.index[at_d] * height.rule.in + height.index[at_h]) * width.rule.in;
      const C outer = static_cast<C>(depth.weight[at_d]) * static_cast<C>(height.weight[at_h]);
      for (int64_t w = 0; w < width.rule.taps; ++w) {
        const int64_t at_w = w * width.rule.out + x;
        f((row + width.index[at_w]) * a.inner + channel, outer * static_cast<C>(width.weight[at_w]));
      }
    }
  }
}

template <class C>
__global__ void __launch_bounds__(256) resize_forward(const __grid_constant__ ResizeLaunch a) {
  for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < a.n; i += gridDim.x * 256)
    for (int64_t plane = blockIdx.y; plane < a.planes; plane += gridDim.y) {
      const char* in = a.in + plane * a.in_plane * a.item;
      C sum = 0;
      for_taps<C>(a, i, [&](int64_t at, C weight) { sum += weight * load<C>(in + at * a.item, a.dtype); });
      if (a.dtype == DType::UInt8) {
        sum = math::round(sum);
        sum = sum < C(0) ? C(0) : sum > C(255) ? C(255) : sum;
      }
      store<C>(a.out + (plane * a.out_plane + i) * a.item, a.dtype, sum);
    }
}

// `in` is the gradient that arrives, laid out as the output; `out` the sums, laid out as the input.
template <class C>
__global__ void __launch_bounds__(256) resize_backward(const __grid_constant__ ResizeLaunch a) {
  for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < a.n; i += gridDim.x * 256)
    for (int64_t plane = blockIdx.y; plane < a.planes; plane += gridDim.y) {
      const C value = reinterpret_cast<const C*>(a.in)[plane * a.out_plane + i];
      C* sums = reinterpret_cast<C*>(a.out) + plane * a.in_plane;
      for_taps<C>(a, i, [&](int64_t at, C weight) {
        if (weight != C(0)) atomicAdd(sums + at, weight * value);
      });
    }
}

}  // namespace

void resize(const ResizeArgs& args, bool backward) {
  OnDevice on(args.device);
  const cudaStream_t stream = current_stream();
  ResizeLaunch a{};
  int64_t entries = 0, longest = 1, in = 1, out = 1;
  for (int d = 0; d < 3; ++d) {
    const ResizeRule& rule = args.axes[d];
    a.axis[d].rule = rule;
    entries += rule.taps * rule.out;
    longest = std::max(longest, rule.out);
    in *= rule.in;
    out *= rule.out;
  }
  Scratch lists(entries * (sizeof(double) + sizeof(int32_t)), args.device, stream);
  double* weight = lists.as<double>();
  int32_t* index = reinterpret_cast<int32_t*>(weight + entries);
  for (int d = 0; d < 3; ++d) {
    a.axis[d].weight = weight;
    a.axis[d].index = index;
    weight += a.axis[d].rule.taps * a.axis[d].rule.out;
    index += a.axis[d].rule.taps * a.axis[d].rule.out;
  }
  a.in = static_cast<const char*>(args.input);
  a.out = static_cast<char*>(args.output);
  a.dtype = args.dtype;
  a.item = static_cast<int>(size_of(args.dtype));
  const int64_t inner = args.channels_last ? args.channels : 1;
  a.planes = args.channels_last ? args.batch : args.batch * args.channels;
  a.in_plane = in * inner;
  a.out_plane = out * inner;
  FL_CHECK(a.out_plane < int64_t(1) << 31 && a.in_plane < int64_t(1) << 31,
           "[interpolate] expected planes of fewer than 2**31 elements on CUDA, got ", a.in_plane, " and ",
           a.out_plane);
  a.n = static_cast<uint32_t>(a.out_plane);
  a.inner = static_cast<uint32_t>(inner);
  a.by_inner = Divider(a.inner);
  a.by_width = Divider(static_cast<uint32_t>(args.axes[2].out));
  a.by_height = Divider(static_cast<uint32_t>(args.axes[1].out));
  // Positions have the precision that the CPU gives them.
  const bool wide = args.dtype == DType::Double || args.dtype == DType::UInt8;
  const dim3 listing(static_cast<unsigned>(std::min<int64_t>((longest + 127) / 128, 1024)), 3);
  (wide ? list_taps<double> : list_taps<float>)<<<listing, 128, 0, stream>>>(a);
  const dim3 grid((a.n + 255) / 256, static_cast<unsigned>(std::min<int64_t>(a.planes, 65535)));
  if (backward) check(cudaMemsetAsync(args.output, 0, a.planes * a.in_plane * a.item, stream), "interpolate");
  if (a.n && a.planes) {
    if (backward)
      (wide ? resize_backward<double> : resize_backward<float>)<<<grid, 256, 0, stream>>>(a);
    else
      (args.dtype == DType::Double ? resize_forward<double>
                                   : resize_forward<float>)<<<grid, 256, 0, stream>>>(a);
  }
  check_launch("interpolate");
}

// ---------------------------------------------------------------- sampling on a grid

namespace {

struct Rounded {
  DType dtype;
  __device__ float operator()(float x) const { return bits_to_float(float_to_bits(x, dtype), dtype); }
};

// f(number of the point, its place in the batch, its place in the image, its taps) for a thread's points.
template <class T, class R, class F>
__device__ __forceinline__ void each_point(const GridArgs& a, R round, F f) {
  const GridShape& s = a.shape;
  grid::Taps<T> taps;
  for (int64_t i = int64_t(blockIdx.x) * 128 + threadIdx.x; i < s.batch * s.points;
       i += int64_t(gridDim.x) * 128) {
    const int64_t n = i / s.points;
    grid::find_taps(static_cast<const T*>(a.grid) + i * s.ndim, s.ndim, s.size, s.stride, a.mode, a.padding,
                    a.align, round, taps);
    f(i, n, i - n * s.points, taps);
  }
}

template <class T, class R>
__global__ void __launch_bounds__(128) sample_forward(const __grid_constant__ GridArgs a, R round) {
  const GridShape& s = a.shape;
  each_point<T>(a, round, [&](int64_t, int64_t n, int64_t point, const grid::Taps<T>& taps) {
    const T* x = static_cast<const T*>(a.input) + n * s.channels * s.plane;
    T* y = static_cast<T*>(a.output) + n * s.channels * s.points + point;
    for (int64_t c = 0; c < s.channels; ++c)
      y[c * s.points] = grid::gather_taps(taps, x + c * s.plane, a.mode, round);
  });
}

template <class T, class R>
__global__ void __launch_bounds__(128) sample_backward(const __grid_constant__ GridArgs a, R round) {
  const GridShape& s = a.shape;
  each_point<T>(a, round, [&](int64_t i, int64_t n, int64_t point, const grid::Taps<T>& taps) {
    const T* x = static_cast<const T*>(a.input) + n * s.channels * s.plane;
    const T* g = static_cast<const T*>(a.grad) + n * s.channels * s.points + point;
    T* dx = static_cast<T*>(a.grad_input) + n * s.channels * s.plane;
    T slope[3] = {};
    for (int64_t c = 0; c < s.channels; ++c) {
      const T value = g[c * s.points];
      for (int t = 0; t < taps.count; ++t) {
        const int64_t where = c * s.plane + taps.offset[t];
        atomicAdd(dx + where, taps.weight[t] * value);
        for (int d = 0; d < s.ndim; ++d) slope[d] += taps.slope[t][d] * x[where] * value;
      }
    }
    for (int d = 0; d < s.ndim; ++d) static_cast<T*>(a.grad_grid)[i * s.ndim + d] = slope[d] * taps.factor[d];
  });
}

}  // namespace

void grid_sample(const GridArgs& args) {
  OnDevice on(args.device);
  const cudaStream_t stream = current_stream();
  const GridShape& s = args.shape;
  const bool backward = args.output == nullptr;
  if (backward)
    check(
        cudaMemsetAsync(args.grad_input, 0, s.batch * s.channels * s.plane * size_of(args.computed), stream),
        "grid_sample");
  const int64_t n = s.batch * s.points;
  if (n == 0) return;
  const unsigned blocks = static_cast<unsigned>(std::min<int64_t>((n + 127) / 128, 1 << 20));
  const auto launch = [&](auto one, auto round) {
    using T = decltype(one);
    using R = decltype(round);
    if (backward)
      sample_backward<T, R><<<blocks, 128, 0, stream>>>(args, round);
    else
      sample_forward<T, R><<<blocks, 128, 0, stream>>>(args, round);
  };
  if (args.computed == DType::Double)
    launch(double(), grid::Exact());
  else if (args.dtype == DType::Float)
    launch(float(), grid::Exact());
  else
    launch(float(), Rounded{args.dtype});
  check_launch("grid_sample");
}

}  // namespace fl::cuda
