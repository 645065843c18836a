// Along a line: running sums and products, sorting, ranges.
#include <cub/block/block_scan.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <limits>

#include "cpu/search.h"
#include "cuda/complex.cuh"
#include "cuda/launch.h"
#include "cuda/rows.cuh"
#include "dispatch/kernel.h"

namespace fl::cuda {

namespace {

// ---------------------------------------------------------------- running sums and products

struct Product {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a * b;
  }
};

// One block for each line, piece by piece; what was folded so far is carried on.
template <class T, class F>
__global__ void __launch_bounds__(256)
    scan_lines(const char* in, char* out, int64_t n, DType dtype, int item, T initial) {
  using Scan = cub::BlockScan<T, 256>;
  __shared__ typename Scan::TempStorage shared;
  __shared__ SharedArray<T, 1> last;
  constexpr int kPer = 4;
  const char* from = in + int64_t(blockIdx.x) * n * item;
  char* to = out + int64_t(blockIdx.x) * n * item;
  const F fold;
  T carry = initial;
  for (int64_t start = 0; start < n; start += 256 * kPer) {
    T v[kPer];
    const int64_t first = start + threadIdx.x * kPer;
#pragma unroll
    for (int j = 0; j < kPer; ++j) v[j] = first + j < n ? load<T>(from + (first + j) * item, dtype) : initial;
    Scan(shared).InclusiveScan(v, v, fold);
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      v[j] = fold(carry, v[j]);
      if (first + j < n) store<T>(to + (first + j) * item, dtype, v[j]);
    }
    if (threadIdx.x == 255) *last.get() = v[kPer - 1];
    __syncthreads();
    carry = *last.get();
    __syncthreads();
  }
}

Tensor cumulative(const char* op, const Tensor& self, int64_t dim, std::optional<DType> dtype, bool product) {
  const int64_t d = wrap_dim(op, dim, self.dim());
  const DType t = dtype.value_or(is_integral(self.dtype(), true) ? DType::Int64 : self.dtype());
  FL_CHECK_KIND(!is_stored_only(t), NotImplemented, "[", op,
                "] expected a dtype that CUDA kernels compute with, got ", name_of(t));
  if (self.numel() == 0) return empty(self.sizes(), {t, self.device()});
  OnDevice on(self.device().index);
  const Tensor source = lines_of(to_dtype(self, t), d), out = empty(source.sizes(), source.options());
  const int64_t n = self.dim() ? self.size(d) : 1;
  const unsigned lines = static_cast<unsigned>(self.numel() / n);
  const auto run = [&](auto one) {
    using T = decltype(one);
    const int item = static_cast<int>(source.itemsize());
    if (product)
      launch(scan_lines<T, Product>, lines, 256, current_stream(), op, source.raw(), out.raw(), n, t, item,
             T(1));
    else
      launch(scan_lines<T, Sum>, lines, 256, current_stream(), op, source.raw(), out.raw(), n, t, item, T(0));
  };
  if (is_complex(t))
    run(Complex());
  else if (t == DType::Double)
    run(double());
  else if (is_floating(t))
    run(float());
  else
    run(int64_t());
  check_launch(op);
  return from_lines(out, d);
}
Tensor cumsum(const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  return cumulative("cumsum", self, dim, dtype, false);
}
Tensor cumprod(const Tensor& self, int64_t dim, std::optional<DType> dtype) {
  return cumulative("cumprod", self, dim, dtype, true);
}
FL_CUDA_KERNEL("cumsum", cumsum);
FL_CUDA_KERNEL("cumprod", cumprod);

// ---------------------------------------------------------------- running extremes

template <class T>
struct Placed {
  T value;
  int64_t at;
};
// A later value that is equal replaces; once a NaN is met only NaNs do.
template <class T>
struct Later {
  bool largest;
  __device__ Placed<T> operator()(const Placed<T>& a, const Placed<T>& b) const {
    const bool beats = largest ? b.value >= a.value : b.value <= a.value;
    return b.value != b.value || (a.value == a.value && beats) ? b : a;
  }
};

template <class T>
__global__ void __launch_bounds__(256) scan_extremes(const char* in, char* out, int64_t* places, int64_t n,
                                                     DType dtype, int item, bool largest) {
  using Scan = cub::BlockScan<Placed<T>, 256>;
  __shared__ typename Scan::TempStorage shared;
  __shared__ Placed<T> last;
  const int64_t line = int64_t(blockIdx.x) * n;
  const Later<T> fold{largest};
  Placed<T> carry{load<T>(in + line * item, dtype), 0};
  for (int64_t start = 0; start < n; start += 256) {
    const int64_t i = start + threadIdx.x;
    Placed<T> v = carry;
    if (i < n) v = {load<T>(in + (line + i) * item, dtype), i};
    Scan(shared).InclusiveScan(v, v, fold);
    v = fold(carry, v);
    if (i < n) {
      store<T>(out + (line + i) * item, dtype, v.value);
      places[line + i] = v.at;
    }
    if (threadIdx.x == 255) last = v;
    __syncthreads();
    carry = last;
    __syncthreads();
  }
}

std::tuple<Tensor, Tensor> running_extreme(const char* op, const Tensor& self, int64_t dim, bool largest) {
  const int64_t d = wrap_dim(op, dim, self.dim());
  const DType t = self.dtype();
  FL_CHECK_KIND(!is_complex(t) && !is_stored_only(t), NotImplemented, "[", op,
                "] expected a dtype with an order, got ", name_of(t));
  const Options whole{DType::Int64, self.device()};
  if (self.numel() == 0) return {empty(self.sizes(), self.options()), empty(self.sizes(), whole)};
  OnDevice on(self.device().index);
  const Tensor source = lines_of(self, d), out = empty(source.sizes(), source.options()),
               places = empty(source.sizes(), whole);
  const int64_t n = self.dim() ? self.size(d) : 1;
  const unsigned lines = static_cast<unsigned>(self.numel() / n);
  const auto run = [&](auto one) {
    launch(scan_extremes<decltype(one)>, lines, 256, current_stream(), op, source.raw(), out.raw(),
           places.data<int64_t>(), n, t, static_cast<int>(source.itemsize()), largest);
  };
  if (t == DType::Double)
    run(double());
  else if (is_floating(t))
    run(float());
  else
    run(int64_t());
  return {from_lines(out, d), from_lines(places, d)};
}
std::tuple<Tensor, Tensor> cummax(const Tensor& self, int64_t dim) {
  return running_extreme("cummax", self, dim, true);
}
std::tuple<Tensor, Tensor> cummin(const Tensor& self, int64_t dim) {
  return running_extreme("cummin", self, dim, false);
}
FL_CUDA_KERNEL("cummax", cummax);
FL_CUDA_KERNEL("cummin", cummin);

// ---------------------------------------------------------------- places in sorted sequences

struct SearchArgs {
  const void *sequence, *values;
  const int64_t* order;  // of the sequence, or null
  char* out;
  DType result;
  int64_t n, per_line, total;  // of a sequence, values for each, and of all
  bool right;
  int* failed;
};
template <class T>
__global__ void __launch_bounds__(256) search_lines(const __grid_constant__ SearchArgs a) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= a.total) return;
  const T x = static_cast<const T*>(a.values)[i];
  const int64_t line = i / a.per_line * a.n;
  const T* all = static_cast<const T*>(a.sequence) + line;
  int64_t low = 0, count = a.n;
  while (count > 0) {
    const int64_t half = count / 2;
    int64_t at = low + half;
    if (a.order) {
      at = a.order[line + at];
      if (at < 0 || at >= a.n) {
        *a.failed = 1;
        return;
      }
    }
    const T m = all[at];
    if (a.right ? !(m > x) : !(m >= x)) {
      low += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  store<int64_t>(a.out + i * (a.result == DType::Int64 ? 8 : 4), a.result, low);
}

Tensor search(const Tensor& sequence, const Tensor& values, bool right, bool int32, const Tensor& sorter) {
  check_search(sequence, values, sorter);
  const bool one_line = sequence.dim() == 1;
  const DType common = compared_as(sequence, values);
  const Tensor out = empty(values.sizes(), {int32 ? DType::Int32 : DType::Int64, values.device()});
  if (values.numel() == 0) return out;
  OnDevice on(values.device().index);
  const Tensor s = contiguous(to_dtype(sequence, common)), v = contiguous(to_dtype(values, common)),
               order = sorter.defined() ? contiguous(sorter) : sorter;
  const int64_t total = values.numel();
  const SearchArgs args{s.raw(),
                        v.raw(),
                        order.defined() ? order.data<int64_t>() : nullptr,
                        out.raw(),
                        out.dtype(),
                        sequence.size(-1),
                        one_line ? total : values.size(-1),
                        total,
                        right,
                        failure_flag()};
  const auto kernel = common == DType::Int64    ? search_lines<int64_t>
                      : common == DType::Double ? search_lines<double>
                                                : search_lines<float>;
  launch(kernel, static_cast<unsigned>((total + 255) / 256), 256, current_stream(), "searchsorted", args);
  return out;
}
FL_CUDA_KERNEL("_search", search);

// ---------------------------------------------------------------- sorting

// A key whose unsigned order is that of the values; NaN is above all.
__device__ __forceinline__ uint64_t ordered(double x) {
  if (x != x) return ~uint64_t(0);
  const uint64_t u = static_cast<uint64_t>(__double_as_longlong(x == 0 ? 0.0 : x));
  return u >> 63 ? ~u : u | uint64_t(1) << 63;
}
__device__ __forceinline__ uint32_t ordered(float x) {
  if (x != x) return ~uint32_t(0);
  const uint32_t u = __float_as_uint(x == 0 ? 0.0f : x);
  return u >> 31 ? ~u : u | uint32_t(1) << 31;
}

// 32-bit keys carry the line above them, so that one sort does; 64-bit keys are sorted first by key, then, in
// a stable way, by line.
__global__ void make_keys(const char* in, uint64_t* keys, uint32_t* places, int64_t n, int64_t total,
                          DType dtype, int item, bool descending, bool wide) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= total) return;
  const char* at = in + i * item;
  uint64_t key;
  if (wide) {
    key = dtype == DType::Double ? ordered(load<double>(at, dtype))
                                 : static_cast<uint64_t>(load<int64_t>(at, dtype)) ^ uint64_t(1) << 63;
    if (descending) key = ~key;
  } else {
    uint32_t low = is_floating(dtype) ? ordered(load<float>(at, dtype))
                                      : static_cast<uint32_t>(load<int64_t>(at, dtype)) ^ uint32_t(1) << 31;
    if (descending) low = ~low;
    key = static_cast<uint64_t>(i / n) << 32 | low;
  }
  keys[i] = key;
  places[i] = static_cast<uint32_t>(i);
}
__global__ void line_keys(const uint32_t* places, uint64_t* keys, int64_t n, int64_t total) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i < total) keys[i] = places[i] / n;
}
template <class T>
__global__ void take_sorted(const T* in, T* out, int64_t* indices, const uint32_t* places, int64_t n,
                            int64_t total) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= total) return;
  out[i] = in[places[i]];
  indices[i] = places[i] % n;
}

std::tuple<Tensor, Tensor> sort(const Tensor& self, std::optional<bool>, int64_t dim, bool descending) {
  const int64_t d = wrap_dim("sort", dim, self.dim());
  FL_CHECK_KIND(!is_complex(self.dtype()) && !is_stored_only(self.dtype()), NotImplemented,
                "[sort] expected a dtype with an order, got ", name_of(self.dtype()));
  const Options whole{DType::Int64, self.device()};
  if (self.numel() == 0) return {empty(self.sizes(), self.options()), empty(self.sizes(), whole)};
  const int64_t total = self.numel(), n = self.dim() ? self.size(d) : 1;
  FL_CHECK(total < int64_t(1) << 31, "[sort] expected fewer than 2**31 elements on CUDA, got ", total);
  OnDevice on(self.device().index);
  const cudaStream_t stream = current_stream();
  const int device = self.device().index;
  const Tensor lines = lines_of(self, d), out = empty(lines.sizes(), lines.options()),
               indices = empty(lines.sizes(), whole);
  const bool wide = self.dtype() == DType::Double || self.dtype() == DType::Int64;
  Scratch keys(total * 8, device, stream), sorted(total * 8, device, stream);
  Scratch places(total * 4, device, stream), order(total * 4, device, stream);
  const unsigned blocks = static_cast<unsigned>((total + 255) / 256);
  launch(make_keys, blocks, 256, stream, "sort", lines.raw(), keys.as<uint64_t>(), places.as<uint32_t>(), n,
         total, self.dtype(), int(self.itemsize()), descending, wide);
  int line_bits = 0;
  while ((int64_t(1) << line_bits) < total / n) ++line_bits;
  const auto radix = [&](int last) {
    size_t bytes = 0;
    const auto run = [&](void* scratch) {
      check(cub::DeviceRadixSort::SortPairs(scratch, bytes, keys.as<uint64_t>(), sorted.as<uint64_t>(),
                                            places.as<uint32_t>(), order.as<uint32_t>(), int(total), 0, last,
                                            stream),
            "sort");
    };
    run(nullptr);
    Scratch scratch(bytes, device, stream);
    run(scratch.get());
  };
  radix(wide ? 64 : 32 + line_bits);
  if (wide && line_bits) {
    check(cudaMemcpyAsync(places.get(), order.get(), total * 4, cudaMemcpyDeviceToDevice, stream), "sort");
    launch(line_keys, blocks, 256, stream, "sort", places.as<uint32_t>(), keys.as<uint64_t>(), n, total);
    radix(line_bits);
  }
  by_size(self.itemsize(), [&](auto zero) {
    using T = decltype(zero);
    launch(take_sorted<T>, blocks, 256, stream, "sort", reinterpret_cast<const T*>(lines.raw()),
           reinterpret_cast<T*>(out.raw()), indices.data<int64_t>(), order.as<uint32_t>(), n, total);
  });
  return {laid_as(from_lines(out, d), self), laid_as(from_lines(indices, d), self)};
}
std::tuple<Tensor, Tensor> sort_plain(const Tensor& self, int64_t dim, bool descending) {
  return sort(self, std::nullopt, dim, descending);
}
FL_CUDA_KERNEL("sort", sort_plain);
FL_CUDA_KERNEL("sort.stable", sort);

// ---------------------------------------------------------------- ranges

__global__ void __launch_bounds__(256) range_kernel(char* out, int64_t n, DType dtype, int item, double start,
                                                    double step, int64_t first, int64_t stride, bool whole) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= n) return;
  if (whole)
    store<int64_t>(out + i * item, dtype, first + i * stride);
  else
    store<double>(out + i * item, dtype, start + double(i) * step);
}

}  // namespace

void fill_range(const Tensor& out, const Scalar& start, const Scalar& step) {
  const int64_t n = out.numel();
  if (n == 0) return;
  OnDevice on(out.device().index);
  launch(range_kernel, static_cast<unsigned>((n + 255) / 256), 256, current_stream(), "arange", out.raw(), n,
         out.dtype(), int(out.itemsize()), start.to<double>(), step.to<double>(), start.to<int64_t>(),
         step.to<int64_t>(), is_integral(out.dtype()));
}

}  // namespace fl::cuda
