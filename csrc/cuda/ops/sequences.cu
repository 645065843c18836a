// Sequences: places in sorted ones, and those that are made from their ends.
#include <limits>

#include "cuda/engine/rows.cuh"
#include "cuda/runtime/launch.h"
#include "dispatch/kernel.h"
#include "ops/search.h"
#include "ops/sequences.h"

namespace fl::cuda {

namespace {

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

// ---------------------------------------------------------------- numbers from a start to an end

struct SpacedArgs {
  char* out;
  DType dtype;
  int item;
  int64_t n;
  double start, end, step, base;
  int64_t first, last;  // of integers, as doubles cannot hold the largest ones
  bool whole, powers;
};
// From the nearer end, with the roundings of the CPU.
__global__ void __launch_bounds__(256) spaced_kernel(const __grid_constant__ SpacedArgs a) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= a.n) return;
  char* to = a.out + i * a.item;
  const double x = i < a.n / 2 || a.n == 1 ? fma(a.step, static_cast<double>(i), a.start)
                                           : fma(-a.step, static_cast<double>(a.n - i - 1), a.end);
  if (!a.whole) {
    store<double>(to, a.dtype, a.powers ? pow(a.base, x) : x);
    return;
  }
  const int64_t inside = x < 0x1p63 ? static_cast<int64_t>(x) : std::numeric_limits<int64_t>::max();
  store<int64_t>(to, a.dtype, i == 0 ? a.first : i + 1 == a.n ? a.last : inside);
}

void fill_spaced(const Tensor& out, const Scalar& start, const Scalar& end, std::optional<double> base) {
  SpacedArgs a{out.raw(), out.dtype(), static_cast<int>(out.itemsize()), out.numel()};
  if (a.n == 0) return;
  a.whole = is_integral(a.dtype, true);
  a.powers = base.has_value();
  a.base = base.value_or(0);
  if (a.whole) {
    a.first = start.to<int64_t>();
    a.last = end.to<int64_t>();
  }
  a.start = a.whole ? static_cast<double>(a.first) : start.to<double>();
  a.end = a.whole ? static_cast<double>(a.last) : end.to<double>();
  a.step = a.n > 1 ? (a.end - a.start) / static_cast<double>(a.n - 1) : 0;
  OnDevice on(out.device().index);
  launch(spaced_kernel, static_cast<unsigned>((a.n + 255) / 256), 256, current_stream(), "linspace", a);
}

// ---------------------------------------------------------------- places in triangles

struct TriangleArgs {
  char* out;
  DType dtype;
  int64_t n, rows, cols, shift;
  bool left;

  // Elements left of the edge in the first `row` rows: none before row -shift, all from row cols - shift on.
  __device__ __forceinline__ int64_t left_before(int64_t row) const {
    const int64_t none = max(int64_t(0), min(row, -shift)), full = max(none, min(row, cols - shift));
    return (full * (full - 1) - none * (none - 1)) / 2 + (full - none) * shift + (row - full) * cols;
  }
  __device__ __forceinline__ int64_t before(int64_t row) const {
    return left ? left_before(row) : row * cols - left_before(row);
  }
};
__global__ void __launch_bounds__(256) triangle_places(const __grid_constant__ TriangleArgs a) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= a.n) return;
  int64_t row = 0, count = a.rows;  // the last row with at most i elements before it
  while (count > 1) {
    const int64_t half = count / 2;
    if (a.before(row + half) <= i) row += half;
    count -= half;
  }
  const int64_t edge = max(int64_t(0), min(a.cols, row + a.shift));
  const int64_t column = i - a.before(row) + (a.left ? 0 : edge);
  const int item = a.dtype == DType::Int64 ? 8 : 4;
  store<int64_t>(a.out + i * item, a.dtype, row);
  store<int64_t>(a.out + (a.n + i) * item, a.dtype, column);
}

void fill_triangle(const Tensor& out, int64_t rows, int64_t cols, int64_t shift, bool left) {
  const TriangleArgs a{out.raw(), out.dtype(), out.size(1), rows, cols, shift, left};
  if (a.n == 0) return;
  OnDevice on(out.device().index);
  launch(triangle_places, static_cast<unsigned>((a.n + 255) / 256), 256, current_stream(), "tril_indices", a);
}

FL_ATTACH(spaced, CUDA, fill_spaced);
FL_ATTACH(triangle, CUDA, fill_triangle);

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
