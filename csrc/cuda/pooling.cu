// Maxima and averages over windows, and the gradients of averages: a thread for each element that is written,
// in the order of memory. Geometry and layouts are settled in cpu/pooling.cpp.
#include "cpu/pool_kernel.h"
#include "cuda/device.cuh"
#include "cuda/launch.h"

namespace fl::cuda {

namespace {

struct Axis {
  int in, out, step, stride, pad, kernel;
  bool adaptive, padded;

  struct Window {
    int begin, end, extent;
  };
  __device__ Window window(int o) const {
    if (adaptive) {
      const int begin = static_cast<int>(int64_t(o) * in / out),
                end = static_cast<int>((int64_t(o + 1) * in + out - 1) / out);
      return {begin, end, end - begin};
    }
    const int first = o * stride - pad;
    const int begin = first >= 0 ? first : first + (-first + step - 1) / step * step,
              end = min(first + step * (kernel - 1) + 1, in);
    return {begin, end, max(0, padded ? min(first + kernel, in + pad) - first : end - begin)};
  }
  // The windows of averages that element i lies in.
  __device__ int first_over(int i) const {
    if (adaptive) return static_cast<int>(int64_t(i) * out / in);
    return i + pad < kernel ? 0 : (i + pad - kernel) / stride + 1;
  }
  __device__ int last_over(int i) const {
    if (adaptive) return min(out, static_cast<int>((int64_t(i + 1) * out + in - 1) / in)) - 1;
    return min(out - 1, (i + pad) / stride);
  }
};

struct PoolLaunch {
  const char* from;
  char* to;
  int64_t* indices;
  DType dtype;
  int size;
  int64_t n;  // elements that are written
  int64_t channels, divisor;
  bool last;
  Axis axis[3];
  Divider by[4];  // innermost first, of what is written
};

// The coordinates of an element: plane (with channels last: image and channel) and place.
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
// Where the space of a plane begins, and the step between its elements.
__device__ __forceinline__ int64_t start_of(const PoolLaunch& a, const Place& p, int64_t space) {
  return a.last ? p.image * space * a.channels + p.channel : (p.image * a.channels + p.channel) * space;
}

template <class T>
__global__ void __launch_bounds__(256) max_windows(const __grid_constant__ PoolLaunch a) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= a.n) return;
  const Place p = place_of(a, i);
  const Axis::Window d = a.axis[0].window(p.at[0]), h = a.axis[1].window(p.at[1]),
                     w = a.axis[2].window(p.at[2]);
  const int64_t space = int64_t(a.axis[0].in) * a.axis[1].in * a.axis[2].in, step = a.last ? a.channels : 1;
  const char* from = a.from + start_of(a, p, space) * a.size;
  T best = 0;
  int64_t where = -1;
  for (int z = d.begin; z < d.end; z += a.axis[0].step)
    for (int y = h.begin; y < h.end; y += a.axis[1].step)
      for (int x = w.begin; x < w.end; x += a.axis[2].step) {
        const int64_t at = (int64_t(z) * a.axis[1].in + y) * a.axis[2].in + x;
        const T value = load<T>(from + at * step * a.size, a.dtype);
        if (where < 0 || value > best || value != value) best = value, where = at;
      }
  store<T>(a.to + int64_t(i) * a.size, a.dtype, best);
  if (a.indices) a.indices[i] = where;
}

template <class T>
__global__ void __launch_bounds__(256) average_windows(const __grid_constant__ PoolLaunch a) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= a.n) return;
  const Place p = place_of(a, i);
  const Axis::Window d = a.axis[0].window(p.at[0]), h = a.axis[1].window(p.at[1]),
                     w = a.axis[2].window(p.at[2]);
  const int64_t space = int64_t(a.axis[0].in) * a.axis[1].in * a.axis[2].in, step = a.last ? a.channels : 1;
  const char* from = a.from + start_of(a, p, space) * a.size;
  T sum = 0;
  for (int z = d.begin; z < d.end; ++z)
    for (int y = h.begin; y < h.end; ++y) {
      const char* row = from + (int64_t(z) * a.axis[1].in + y) * a.axis[2].in * step * a.size;
      for (int x = w.begin; x < w.end; ++x) sum += load<T>(row + x * step * a.size, a.dtype);
    }
  const int64_t over = a.divisor ? a.divisor : int64_t(d.extent) * h.extent * w.extent;
  store<T>(a.to + int64_t(i) * a.size, a.dtype, sum / static_cast<T>(over));
}

// `from` is the gradient of the averages; what is written, that of the input.
template <class T>
__global__ void __launch_bounds__(256) average_gradient(const __grid_constant__ PoolLaunch a) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= a.n) return;
  const Place p = place_of(a, i);
  const int64_t space = int64_t(a.axis[0].out) * a.axis[1].out * a.axis[2].out,
                step = a.last ? a.channels : 1;
  const char* from = a.from + start_of(a, p, space) * a.size;
  T sum = 0;
  for (int z = a.axis[0].first_over(p.at[0]); z <= a.axis[0].last_over(p.at[0]); ++z)
    for (int y = a.axis[1].first_over(p.at[1]); y <= a.axis[1].last_over(p.at[1]); ++y) {
      const int64_t extent = int64_t(a.axis[0].window(z).extent) * a.axis[1].window(y).extent;
      for (int x = a.axis[2].first_over(p.at[2]); x <= a.axis[2].last_over(p.at[2]); ++x) {
        const int64_t at = (int64_t(z) * a.axis[1].out + y) * a.axis[2].out + x;
        const int64_t over = a.divisor ? a.divisor : extent * a.axis[2].window(x).extent;
        sum += load<T>(from + at * step * a.size, a.dtype) / static_cast<T>(over);
      }
    }
  store<T>(a.to + int64_t(i) * a.size, a.dtype, sum);
}

// A long window to itself: a warp for each average of whole planes.
template <class T>
__global__ void __launch_bounds__(256) average_planes(const __grid_constant__ PoolLaunch a) {
  const int64_t plane = int64_t(blockIdx.x) * 8 + threadIdx.x / 32;
  if (plane >= a.n) return;
  const int64_t space = int64_t(a.axis[0].in) * a.axis[1].in * a.axis[2].in;
  const char* from = a.from + plane * space * a.size;
  T sum = 0;
  for (int64_t k = threadIdx.x % 32; k < space; k += 32) sum += load<T>(from + k * a.size, a.dtype);
  sum = warp_fold(sum, Sum{});
  if (threadIdx.x % 32 == 0) store<T>(a.to + plane * a.size, a.dtype, sum / static_cast<T>(space));
}

using PoolKernel = void (*)(const PoolLaunch);

// size_of_axis: what is written along an axis, the input or the output.
void run(const PoolArgs& g, int device, const void* from, void* to, int64_t (*size_of_axis)(const PoolAxis&),
         PoolKernel kernel, unsigned threads_of_one) {
  OnDevice on(device);
  PoolLaunch a;
  a.dtype = g.dtype;
  a.size = static_cast<int>(size_of(g.dtype));
  a.channels = g.channels;
  a.divisor = g.divisor;
  a.last = g.channels_last;
  int64_t read = g.channels, written = g.channels;
  for (int d = 0; d < 3; ++d) {
    const PoolAxis& x = g.axes[d];
    FL_CHECK(x.in < int64_t(1) << 30 && x.out < int64_t(1) << 30,
             "[pooling] expected sizes below 2**30 on a device, got ", x.in);
    a.axis[d] = {int(x.in),  int(x.out),    int(x.step), int(x.stride),
                 int(x.pad), int(x.kernel), x.adaptive,  x.padded};
    const int64_t size = size_of_axis(x);
    a.by[d] = Divider(static_cast<uint32_t>(size));
    written *= size;
    read *= x.in * x.out / std::max<int64_t>(1, size);
  }
  a.by[3] = Divider(static_cast<uint32_t>(g.channels));
  FL_CHECK(written < int64_t(1) << 31, "[pooling] expected images of less than 2**31 elements, got ",
           written);
  // As many images at a time as can be counted.
  const int64_t images = std::max<int64_t>(1, ((int64_t(1) << 31) - 1) / written);
  for (int64_t first = 0; first < g.batch; first += images) {
    a.from = static_cast<const char*>(from) + first * read * a.size;
    a.to = static_cast<char*>(to) + first * written * a.size;
    a.indices = g.indices ? g.indices + first * written : nullptr;
    a.n = std::min(images, g.batch - first) * written;
    const int64_t per_block = 256 / threads_of_one;
    launch(kernel, static_cast<unsigned>((a.n + per_block - 1) / per_block), 256, current_stream(), "pooling",
           a);
  }
}

#define FL_POOL_KERNEL(name) \
  (g.dtype == DType::Double ? name<double> : g.dtype == DType::Int64 ? name<int64_t> : name<float>)

int64_t out_of(const PoolAxis& x) {
  return x.out;
}
int64_t in_of(const PoolAxis& x) {
  return x.in;
}

void max_pool(const PoolArgs& g, int device) {
  run(g, device, g.input, g.output, out_of, FL_POOL_KERNEL(max_windows), 1);
}
void average_pool(const PoolArgs& g, int device) {
  bool whole = !g.channels_last && !g.divisor;
  for (int d = 0; d < 3; ++d) whole &= g.axes[d].adaptive && g.axes[d].out == 1;
  if (whole)
    run(g, device, g.input, g.output, out_of, FL_POOL_KERNEL(average_planes), 32);
  else
    run(g, device, g.input, g.output, out_of, FL_POOL_KERNEL(average_windows), 1);
}
void average_pool_backward(const PoolArgs& g, int device) {
  run(g, device, g.output, const_cast<void*>(g.input), in_of, FL_POOL_KERNEL(average_gradient), 1);
}

const bool attached = [] {
  device_pools() = {max_pool, average_pool, average_pool_backward};
  return true;
}();

}  // namespace
}  // namespace fl::cuda
