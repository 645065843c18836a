// What factorisations need beside cuSOLVER: triangles, conjugates, checks of elements and pivots,
// permutations and determinants. A complex matrix is one of pairs of numbers here.
#include "cuda/engine/device.cuh"
#include "cuda/engine/kernels.h"
#include "cuda/linalg/solver.h"
#include "ops/solver.h"

namespace fl::cuda {

namespace {

using linalg::Part;

template <class F>
void by_precision(const Tensor& t, F f) {
  if (t.dtype() == DType::Float || t.dtype() == DType::ComplexFloat)
    f(float{});
  else
    f(double{});
}
int width_of(const Tensor& t) {
  return is_complex(t.dtype()) ? 2 : 1;
}
unsigned blocks_of(int64_t n) {
  return static_cast<unsigned>(std::min<int64_t>((n + 255) / 256, 1 << 20));
}

// Matrices by columns: rows x columns of `to`, from those of `from_rows` x `from_columns`, or identities.
template <class R>
__global__ void part_kernel(R* to, const R* from, int64_t rows, int64_t columns, int64_t from_rows,
                            int64_t from_columns, int width, int64_t count, Part part, bool unit) {
  for (int64_t i = blockIdx.x * int64_t(256) + threadIdx.x; i < count; i += int64_t(gridDim.x) * 256) {
    const int64_t r = i % rows, c = i / rows % columns, b = i / (rows * columns);
    const bool inside = from && r < from_rows && c < from_columns &&
                        (part == Part::All || (part == Part::Upper ? r <= c : r >= c));
    for (int w = 0; w < width; ++w) {
      R value = inside ? from[((b * from_columns + c) * from_rows + r) * width + w] : R(0);
      if (unit && r == c) value = R(w == 0);
      to[i * width + w] = value;
    }
  }
}

template <class R>
__global__ void conjugate_kernel(R* data, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t(256) + threadIdx.x; i < count; i += int64_t(gridDim.x) * 256)
    data[2 * i + 1] = -data[2 * i + 1];
}

template <class R>
__global__ void finite_kernel(R* data, int32_t* flags, int64_t rows, int64_t columns, int width, Part part,
                              int mark) {
  R* a = data + blockIdx.x * rows * columns * width;
  const int64_t count = rows * columns;
  int bad = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const int64_t r = i % rows, c = i / rows;
    if (part != Part::All && (part == Part::Upper ? r > c : r < c)) continue;
    for (int w = 0; w < width; ++w) bad |= !isfinite(a[i * width + w]);
  }
  bad = __syncthreads_or(bad);
  if (threadIdx.x == 0) flags[blockIdx.x] = bad ? mark : 0;
  if (bad)
    for (int64_t i = threadIdx.x; i < count * width; i += blockDim.x) a[i] = R(0);
}

__global__ void failed_kernel(int32_t* info, const int32_t* flags, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t(256) + threadIdx.x; i < count; i += int64_t(gridDim.x) * 256)
    if (flags[i]) info[i] = flags[i];
}

__global__ void pivots_kernel(int32_t* pivots, int64_t count, int64_t rows, int* failed) {
  for (int64_t i = blockIdx.x * int64_t(256) + threadIdx.x; i < count; i += int64_t(gridDim.x) * 256)
    if (pivots[i] < 1 || pivots[i] > rows) {
      pivots[i] = 1;
      *failed = 1;
    }
}

__global__ void sequence_kernel(int32_t* pivots, int64_t count, int64_t length) {
  for (int64_t i = blockIdx.x * int64_t(256) + threadIdx.x; i < count; i += int64_t(gridDim.x) * 256)
    pivots[i] = static_cast<int32_t>(i % length + 1);
}

__global__ void addresses_kernel(void** to, char* first, int64_t step, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t(256) + threadIdx.x; i < count; i += int64_t(gridDim.x) * 256)
    to[i] = first + i * step;
}

// One thread swaps the rows of a matrix one after the other; `order` has room for all rows of all matrices.
template <class R>
__global__ void permutation_kernel(R* p, const int32_t* pivots, int32_t* order, int64_t rows, int64_t length,
                                   int width, int64_t batch) {
  const int64_t b = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (b >= batch) return;
  int32_t* mine = order + b * rows;
  for (int64_t r = 0; r < rows; ++r) mine[r] = static_cast<int32_t>(r);
  for (int64_t r = 0; r < length; ++r) {
    const int32_t other = pivots[b * length + r] - 1, own_row = mine[r];
    mine[r] = mine[other];
    mine[other] = own_row;
  }
  for (int64_t r = 0; r < rows; ++r) p[(b * rows * rows + r * rows + mine[r]) * width] = R(1);
}

// One warp for each matrix. `logarithm` is null when the determinant itself is asked for.
template <class R>
__global__ void determinant_kernel(const R* lu, const int32_t* pivots, R* result, R* logarithm, int64_t n,
                                   int width) {
  const int64_t b = blockIdx.x;
  const R* a = lu + b * n * n * width;
  R re = 1, im = 0, total = 0;
  const auto times = [&](R x, R y) {
    const R product = re * x - im * y;
    im = width == 2 ? re * y + im * x : R(0);
    re = width == 2 ? product : re * x;
  };
  for (int64_t d = threadIdx.x; d < n; d += 32) {
    R x = a[(d * n + d) * width], y = width == 2 ? a[(d * n + d) * width + 1] : R(0);
    if (logarithm) {
      const R size = width == 2 ? hypot(x, y) : fabs(x);
      total += log(size);
      if (width == 2) {
        x = size == 0 ? R(0) : x / size;
        y = size == 0 ? R(0) : y / size;
      } else {
        x = x > 0 ? R(1) : x < 0 ? R(-1) : x;
      }
    }
    times(x, y);
    if (pivots[b * n + d] != d + 1) times(R(-1), R(0));
  }
  for (int m = 16; m > 0; m >>= 1) {
    const R other_re = shuffle_xor(re, m), other_im = shuffle_xor(im, m);
    times(other_re, other_im);
    total += shuffle_xor(total, m);
  }
  if (threadIdx.x == 0) {
    result[b * width] = re;
    if (width == 2) result[b * width + 1] = im;
    if (logarithm) logarithm[b] = total;
  }
}

}  // namespace

void Elements::copy_part(const Tensor& to, const Tensor& from, Part part, bool unit) {
  if (to.numel() == 0) return;
  OnDevice on(to.device().index);
  const bool present = from.defined();
  by_precision(to, [&](auto r) {
    using R = decltype(r);
    part_kernel<R><<<blocks_of(to.numel()), 256, 0, current_stream()>>>(
        to.data<R>(), present ? from.data<R>() : nullptr, to.size(-2), to.size(-1),
        present ? from.size(-2) : 0, present ? from.size(-1) : 0, width_of(to), to.numel(), part, unit);
  });
  check_launch("linalg");
}

void Elements::conjugate(const Tensor& a) {
  if (!is_complex(a.dtype()) || a.numel() == 0) return;
  OnDevice on(a.device().index);
  by_precision(a, [&](auto r) {
    using R = decltype(r);
    conjugate_kernel<R><<<blocks_of(a.numel()), 256, 0, current_stream()>>>(a.data<R>(), a.numel());
  });
  check_launch("linalg");
}

void Elements::take_finite(const Tensor& a, Part part, int mark, const Tensor& flags) {
  OnDevice on(a.device().index);
  by_precision(a, [&](auto r) {
    using R = decltype(r);
    finite_kernel<R><<<static_cast<unsigned>(flags.numel()), 256, 0, current_stream()>>>(
        a.data<R>(), flags.data<int32_t>(), a.size(-2), a.size(-1), width_of(a), part, mark);
  });
  check_launch("linalg");
}

void Elements::mark_failed(const Tensor& info, const Tensor& flags) {
  OnDevice on(info.device().index);
  failed_kernel<<<blocks_of(info.numel()), 256, 0, current_stream()>>>(info.data<int32_t>(),
                                                                       flags.data<int32_t>(), info.numel());
  check_launch("linalg");
}

void Elements::check_pivots(const Tensor& pivots, int64_t rows) {
  if (pivots.numel() == 0) return;
  OnDevice on(pivots.device().index);
  pivots_kernel<<<blocks_of(pivots.numel()), 256, 0, current_stream()>>>(
      pivots.data<int32_t>(), pivots.numel(), rows, failure_flag());
  check_launch("linalg");
}

void Elements::count_pivots(const Tensor& pivots) {
  sequence_kernel<<<blocks_of(pivots.numel()), 256, 0, current_stream()>>>(pivots.data<int32_t>(),
                                                                           pivots.numel(), pivots.size(-1));
  check_launch("linalg");
}

void list_addresses(void** to, char* first, int64_t step, int64_t count) {
  addresses_kernel<<<blocks_of(count), 256, 0, current_stream()>>>(to, first, step, count);
  check_launch("linalg");
}

void Elements::permutation(const Tensor& p, const Tensor& pivots) {
  if (p.numel() == 0) return;
  OnDevice on(p.device().index);
  const int64_t rows = p.size(-1), batch = p.numel() / (rows * rows);
  copy_part(p, {}, Part::All, false);
  Scratch order(sizeof(int32_t) * batch * rows, p.device().index, current_stream());
  by_precision(p, [&](auto r) {
    using R = decltype(r);
    permutation_kernel<R><<<static_cast<unsigned>((batch + 31) / 32), 32, 0, current_stream()>>>(
        p.data<R>(), pivots.data<int32_t>(), order.as<int32_t>(), rows, pivots.size(-1), width_of(p), batch);
  });
  check_launch("linalg");
}

void Elements::determinant(const Tensor& lu, const Tensor& pivots, const Tensor& result,
                           const Tensor& logarithm) {
  if (result.numel() == 0) return;
  OnDevice on(lu.device().index);
  by_precision(lu, [&](auto r) {
    using R = decltype(r);
    determinant_kernel<R><<<static_cast<unsigned>(result.numel()), 32, 0, current_stream()>>>(
        lu.data<R>(), pivots.data<int32_t>(), result.data<R>(),
        logarithm.defined() ? logarithm.data<R>() : nullptr, lu.size(-1), width_of(lu));
  });
  check_launch("linalg");
}

}  // namespace fl::cuda
