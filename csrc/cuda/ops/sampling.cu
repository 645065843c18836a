// Resizing and sampling at the places of a grid, with their gradients. Which input elements a result is made
// of is computed by the functions that the CPU uses (math/resize_taps.h, math/grid_taps.h).
#include "cuda/engine/device.cuh"
#include "cuda/engine/kernels.h"
#include "cuda/runtime/launch.h"
#include "ops/grid_sample.h"
#include "ops/resize.h"

namespace fl::cuda {

namespace {

// ---------------------------------------------------------------- resizing

constexpr int kPlanes = 4;  // that one thread takes: where elements come from is found once for them

struct AxisArgs {
  ResizeRule rule;
  int32_t *index, *begin;  // begin[i]: which outputs look at input i, with the end at begin[in + i]
  double* weight;
};

struct ResizeLaunch {
  AxisArgs axis[3];  // depth, height, width
  const char* in;
  char* out;
  DType dtype;
  int item;
  uint32_t n;  // elements of a plane that are made
  int64_t planes, in_plane, out_plane;
  Divider by_inner;  // channels that lie beside each other
  Divider by_width, by_height;
};

// grid: (elements / 128, axes)
template <class C>
__global__ void __launch_bounds__(128) list_taps(const __grid_constant__ ResizeLaunch a) {
  const AxisArgs& axis = a.axis[blockIdx.y];
  for (int64_t o = int64_t(blockIdx.x) * 128 + threadIdx.x; o < axis.rule.out; o += int64_t(gridDim.x) * 128)
    resize::find_taps<C>(axis.rule, o, axis.index, axis.weight);
}

// Taps move along with the output, so those that look at an input element follow each other.
__global__ void __launch_bounds__(128) list_lookers(const __grid_constant__ ResizeLaunch a) {
  const AxisArgs& axis = a.axis[blockIdx.y];
  const int out = static_cast<int>(axis.rule.out), in = static_cast<int>(axis.rule.in);
  const auto first = [out](const int32_t* index, int from) {
    int low = 0, high = out;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (index[middle] >= from)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  };
  for (int i = blockIdx.x * 128 + threadIdx.x; i < in; i += gridDim.x * 128) {
    axis.begin[i] = first(axis.index + (axis.rule.taps - 1) * out, i);
    axis.begin[in + i] = first(axis.index, i + 1);
  }
}

struct Pixel {
  uint32_t channel, z, y, x;
  __device__ __forceinline__ Pixel(const ResizeLaunch& a, uint32_t i) {
    const uint32_t pixel = a.by_inner.divide(i), line = a.by_width.divide(pixel);
    channel = i - pixel * a.by_inner.divisor;
    x = pixel - line * a.by_width.divisor;
    z = a.by_height.divide(line);
    y = line - z * a.by_height.divisor;
  }
};

// Calls f(input element, weight) for all taps of element i of an output plane.
template <class C, class F>
__device__ __forceinline__ void for_taps(const ResizeLaunch& a, uint32_t i, F&& f) {
  const Pixel at(a, i);
  const AxisArgs &depth = a.axis[0], &height = a.axis[1], &width = a.axis[2];
  const int inner = a.by_inner.divisor, taps_d = depth.rule.taps, taps_h = height.rule.taps,
            taps_w = width.rule.taps;
  for (int d = 0; d < taps_d; ++d) {
    const int64_t at_d = d * depth.rule.out + at.z;
    for (int h = 0; h < taps_h; ++h) {
      const int64_t at_h = h * height.rule.out + at.y;
      const int64_t row = (depth.index[at_d] * height.rule.in + height.index[at_h]) * width.rule.in;
      const C outer = static_cast<C>(depth.weight[at_d]) * static_cast<C>(height.weight[at_h]);
      for (int w = 0; w < taps_w; ++w) {
        const int64_t at_w = w * width.rule.out + at.x;
        f((row + width.index[at_w]) * inner + at.channel, outer * static_cast<C>(width.weight[at_w]));
      }
    }
  }
}

// What output o takes of input i along an axis.
template <class C>
__device__ __forceinline__ C taken(const AxisArgs& axis, int o, uint32_t i) {
  if (axis.rule.mode == ResizeMode::Nearest || axis.rule.mode == ResizeMode::NearestExact) return 1;
  C sum = 0;
  for (int64_t t = 0; t < axis.rule.taps; ++t)
    if (static_cast<uint32_t>(axis.index[t * axis.rule.out + o]) == i)
      sum += static_cast<C>(axis.weight[t * axis.rule.out + o]);
  return sum;
}
// Calls f(output element, weight) for all that look at element i of an input plane.
template <class C, class F>
__device__ __forceinline__ void for_lookers(const ResizeLaunch& a, uint32_t i, F&& f) {
  const Pixel at(a, i);
  const AxisArgs &depth = a.axis[0], &height = a.axis[1], &width = a.axis[2];
  const int inner = a.by_inner.divisor;
  const int end_z = depth.begin[depth.rule.in + at.z], end_y = height.begin[height.rule.in + at.y],
            end_x = width.begin[width.rule.in + at.x];
  for (int z = depth.begin[at.z]; z < end_z; ++z) {
    const C weight_z = taken<C>(depth, z, at.z);
    for (int y = height.begin[at.y]; y < end_y; ++y) {
      const C weight_y = weight_z * taken<C>(height, y, at.y);
      const int64_t row = (z * height.rule.out + y) * width.rule.out;
      for (int x = width.begin[at.x]; x < end_x; ++x)
        f((row + x) * inner + at.channel, weight_y * taken<C>(width, x, at.x));
    }
  }
}

// Single taps of weight one: elements as they are. grid: (elements / 256, planes / kPlanes)
template <class T>
__global__ void __launch_bounds__(256) resize_nearest(const __grid_constant__ ResizeLaunch a) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= a.n) return;
  const Pixel at(a, i);
  const AxisArgs &depth = a.axis[0], &height = a.axis[1], &width = a.axis[2];
  const int64_t row = (depth.index[at.z] * height.rule.in + height.index[at.y]) * width.rule.in;
  const T* in =
      reinterpret_cast<const T*>(a.in) + (row + width.index[at.x]) * a.by_inner.divisor + at.channel;
  T* out = reinterpret_cast<T*>(a.out) + i;
  for (int64_t first = int64_t(blockIdx.y) * kPlanes; first < a.planes;
       first += int64_t(gridDim.y) * kPlanes) {
    T value[kPlanes];
#pragma unroll
    for (int p = 0; p < kPlanes; ++p)
      if (first + p < a.planes) value[p] = in[(first + p) * a.in_plane];
#pragma unroll
    for (int p = 0; p < kPlanes; ++p)
      if (first + p < a.planes) out[(first + p) * a.out_plane] = value[p];
  }
}

// grid: (elements / 256, planes / kPlanes). Backward, `in` is the gradient that arrives, laid out as the
// output; `out` the sums, laid out as the input.
template <class C, bool kBackward>
__global__ void __launch_bounds__(256) resize_planes(const __grid_constant__ ResizeLaunch a) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= a.n) return;
  for (int64_t first = int64_t(blockIdx.y) * kPlanes; first < a.planes;
       first += int64_t(gridDim.y) * kPlanes) {
    const int here = static_cast<int>(a.planes - first < kPlanes ? a.planes - first : kPlanes);
    C sum[kPlanes] = {};
    const auto add = [&](int64_t at, C weight) {
      if (kBackward && weight == C(0)) return;
#pragma unroll
      for (int p = 0; p < kPlanes; ++p)
        if (p < here) sum[p] += weight * load<C>(a.in + ((first + p) * a.in_plane + at) * a.item, a.dtype);
    };
    if constexpr (kBackward)
      for_lookers<C>(a, i, add);
    else
      for_taps<C>(a, i, add);
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) {
      if (p >= here) break;
      if (a.dtype == DType::UInt8) {
        sum[p] = math::round(sum[p]);
        sum[p] = sum[p] < C(0) ? C(0) : sum[p] > C(255) ? C(255) : sum[p];
      }
      store<C>(a.out + ((first + p) * a.out_plane + i) * a.item, a.dtype, sum[p]);
    }
  }
}

}  // namespace

void resize(const ResizeArgs& args, bool backward) {
  OnDevice on(args.device);
  const cudaStream_t stream = current_stream();
  ResizeLaunch a{};
  int64_t entries = 0, lookers = 0, longest = 1, in = 1, out = 1;
  for (int d = 0; d < 3; ++d) {
    const ResizeRule& rule = args.axes[d];
    a.axis[d].rule = rule;
    entries += rule.taps * rule.out;
    if (backward) lookers += 2 * rule.in;
    longest = std::max({longest, rule.out, rule.in});
    in *= rule.in;
    out *= rule.out;
  }
  Scratch lists(entries * (sizeof(double) + sizeof(int32_t)) + lookers * sizeof(int32_t), args.device,
                stream);
  double* weight = lists.as<double>();
  int32_t* index = reinterpret_cast<int32_t*>(weight + entries);
  int32_t* begin = index + entries;
  for (AxisArgs& axis : a.axis) {
    axis.weight = weight;
    axis.index = index;
    axis.begin = begin;
    weight += axis.rule.taps * axis.rule.out;
    index += axis.rule.taps * axis.rule.out;
    begin += 2 * axis.rule.in;
  }
  a.in = static_cast<const char*>(args.input);
  a.out = static_cast<char*>(args.output);
  a.dtype = args.dtype;
  a.item = static_cast<int>(size_of(args.dtype));
  const int64_t inner = args.channels_last ? args.channels : 1;
  a.planes = args.channels_last ? args.batch : args.batch * args.channels;
  FL_CHECK(out * inner < int64_t(1) << 31 && in * inner < int64_t(1) << 31,
           "[interpolate] expected planes of fewer than 2**31 elements on CUDA, got ", in * inner, " and ",
           out * inner);
  a.in_plane = (backward ? out : in) * inner;
  a.out_plane = (backward ? in : out) * inner;
  a.n = static_cast<uint32_t>(a.out_plane);
  a.by_inner = Divider(static_cast<uint32_t>(inner));
  const auto divider_of = [&](int d) {
    return Divider(static_cast<uint32_t>(backward ? args.axes[d].in : args.axes[d].out));
  };
  a.by_width = divider_of(2);
  a.by_height = divider_of(1);
  if (!a.n || !a.planes) return;
  // Positions have the precision that the CPU gives them.
  const bool wide = args.dtype == DType::Double || args.dtype == DType::UInt8;
  const dim3 listing(static_cast<unsigned>(std::min<int64_t>((longest + 127) / 128, 1024)), 3);
  launch(wide ? list_taps<double> : list_taps<float>, listing, 128, stream, "interpolate", a);
  if (backward) launch(list_lookers, listing, 128, stream, "interpolate", a);
  const dim3 grid((a.n + 255) / 256,
                  static_cast<unsigned>(std::min<int64_t>((a.planes + kPlanes - 1) / kPlanes, 65535)));
  const ResizeMode mode = args.axes[2].mode;
  if (!backward && (mode == ResizeMode::Nearest || mode == ResizeMode::NearestExact))
    return by_size(a.item, [&](auto word) {
      launch(resize_nearest<decltype(word)>, grid, 256, stream, "interpolate", a);
    });
  const bool doubles = args.dtype == DType::Double;
  launch(backward ? (doubles ? resize_planes<double, true> : resize_planes<float, true>)
                  : (doubles ? resize_planes<double, false> : resize_planes<float, false>),
         grid, 256, stream, "interpolate", a);
}

// ---------------------------------------------------------------- sampling on a grid

namespace {

struct Rounded {
  DType dtype;
  __device__ float operator()(float x) const { return bits_to_float(float_to_bits(x, dtype), dtype); }
};

// A block takes kPoints points, and kSlices threads each of them: they share its channels.
constexpr int kPoints = 32, kSlices = 8;

// f(its place in the batch, its place in the image, its taps) for the point of a thread.
template <class T, class R, class F>
__device__ __forceinline__ void with_point(const GridArgs& a, int64_t i, R round, F f) {
  const GridShape& s = a.shape;
  if (i >= s.batch * s.points) return;
  grid::Taps<T> taps;
  grid::find_taps(static_cast<const T*>(a.grid) + i * s.ndim, s.ndim, s.size, s.stride, a.mode, a.padding,
                  a.align, round, taps);
  const int64_t n = i / s.points;
  f(n, i - n * s.points, taps);
}

template <class T, class R>
__global__ void __launch_bounds__(256) sample_forward(const __grid_constant__ GridArgs a, R round) {
  const GridShape& s = a.shape;
  const int64_t i = int64_t(blockIdx.x) * kPoints + threadIdx.x;
  with_point<T>(a, i, round, [&](int64_t n, int64_t point, const grid::Taps<T>& taps) {
    const T* x = static_cast<const T*>(a.input) + n * s.channels * s.plane;
    T* y = static_cast<T*>(a.output) + n * s.channels * s.points + point;
    for (int64_t c = threadIdx.y; c < s.channels; c += kSlices)
      y[c * s.points] = grid::gather_taps(taps, x + c * s.plane, a.mode, round);
  });
}

template <class T, class R>
__global__ void __launch_bounds__(256) sample_backward(const __grid_constant__ GridArgs a, R round) {
  __shared__ T shared[kSlices][3][kPoints];
  const GridShape& s = a.shape;
  const int64_t i = int64_t(blockIdx.x) * kPoints + threadIdx.x;
  T slope[3] = {};
  with_point<T>(a, i, round, [&](int64_t n, int64_t point, const grid::Taps<T>& taps) {
    const T* x = static_cast<const T*>(a.input) + n * s.channels * s.plane;
    const T* g = static_cast<const T*>(a.grad) + n * s.channels * s.points + point;
    T* dx = static_cast<T*>(a.grad_input) + n * s.channels * s.plane;
    for (int64_t c = threadIdx.y; c < s.channels; c += kSlices) {
      const T value = g[c * s.points];
      for (int t = 0; t < taps.count; ++t) {
        const int64_t where = c * s.plane + taps.offset[t];
        atomicAdd(dx + where, taps.weight[t] * value);
        const T seen = x[where] * value;
        for (int d = 0; d < 3; ++d)
          if (d < s.ndim) slope[d] += taps.slope[t][d] * seen;
      }
    }
    for (int d = 0; d < 3; ++d)
      if (d < s.ndim) slope[d] *= taps.factor[d];
  });
  for (int d = 0; d < 3; ++d) shared[threadIdx.y][d][threadIdx.x] = slope[d];
  __syncthreads();
  if (threadIdx.y != 0 || i >= s.batch * s.points) return;
  for (int d = 0; d < s.ndim; ++d) {
    T sum = 0;
    for (int k = 0; k < kSlices; ++k) sum += shared[k][d][threadIdx.x];
    static_cast<T*>(a.grad_grid)[i * s.ndim + d] = sum;
  }
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
  const unsigned blocks = static_cast<unsigned>((n + kPoints - 1) / kPoints);
  const dim3 threads(kPoints, kSlices);
  const auto launch = [&](auto one, auto round) {
    using T = decltype(one);
    using R = decltype(round);
    if (backward)
      sample_backward<T, R><<<blocks, threads, 0, stream>>>(args, round);
    else
      sample_forward<T, R><<<blocks, threads, 0, stream>>>(args, round);
  };
  if (args.computed == DType::Double)
    launch(double(), grid::Exact());
  else if (args.dtype == DType::Float)
    launch(float(), grid::Exact());
  else
    launch(float(), Rounded{args.dtype});
  check_launch("grid_sample");
}

FL_ATTACH(resize, CUDA, resize);
FL_ATTACH(grid_sample, CUDA, grid_sample);

}  // namespace fl::cuda
