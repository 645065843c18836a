// Sampling at the positions of a grid, in two and three dimensions, and its gradients.
//
// Whatever the mode, a sample is a weighted sum of a few input elements ("taps"); forward and backward only
// differ in what they do with the taps.
#include <cmath>
#include <type_traits>

#include "cpu/parallel.h"
#include "dispatch/kernel.h"

namespace fl {
namespace {

enum { kBilinear, kNearest, kBicubic };
enum { kZeros, kBorder, kReflection };
constexpr int kMaxTaps = 16;

template <class T>
struct Taps {
  int count = 0;
  int64_t offset[kMaxTaps];
  T weight[kMaxTaps];
  T slope[kMaxTaps][3];  // derivative of the weight along each axis (width first), in input elements
  T factor[3];           // derivative of the position along each axis by the grid's value
  // Bicubic weights apart: along the tap's row, and of the rows.
  int row[kMaxTaps];
  T along[kMaxTaps], across[4];
};

// A position and its derivative by what it was computed from.
template <class T>
struct Place {
  T at, slope;
};

// Reduced precisions round every step of the position and of the sum, so that samples fall where those dtypes
// can express it; the other precisions keep what they compute.
struct Exact {
  template <class T>
  T operator()(T x) const {
    return x;
  }
};

template <class Narrow>
struct Rounded {
  float operator()(float x) const { return static_cast<float>(Narrow(x)); }
};

// Calls f(rounding) for the steps of a dtype computed in T.
template <class T, class F>
void with_rounding(DType dtype, F&& f) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::BFloat16) return f(Rounded<BFloat16>());
    if (dtype == DType::Half) return f(Rounded<Half>());
  }
  f(Exact());
}

// The order of the steps differs between two and three dimensions, which shows in the reduced precisions.
template <class T, class R>
Place<T> unnormalise(T x, int ndim, int64_t size, bool align, R r) {
  const T n = r(static_cast<T>(size)), last = r(static_cast<T>(size - 1)), from_left = r(x + 1);
  if (align) return {ndim == 2 ? r(from_left * (last / 2)) : r(r(from_left / 2) * last), last / 2};
  return {ndim == 2 ? r(r(from_left * (n / 2)) - T(0.5)) : r(r(r(from_left * n) - 1) / 2), n / 2};
}

template <class T>
Place<T> clip(Place<T> p, int64_t size) {
  const T top = static_cast<T>(size - 1);
  if (!(p.at > 0)) return {T(0), T(0)};
  if (p.at >= top) return {top, T(0)};
  return p;
}

// Mirrors a position into the range between two half-integers given as twice their value.
template <class T, class R>
Place<T> reflect(Place<T> p, int ndim, int64_t twice_low, int64_t twice_high, R r) {
  if (twice_low == twice_high) return {T(0), T(0)};
  const T low = static_cast<T>(twice_low) / 2, span = r(static_cast<T>(twice_high - twice_low) / 2);
  T x = r(p.at - low), slope = p.slope;
  if (x < 0) {
    x = -x;
    slope = -slope;
  }
  if (ndim == 2) {
    const T period = r(2 * span);
    const T extra = r(x - r(std::trunc(r(x / period)) * period)), back = r(period - extra);
    return extra <= back ? Place<T>{r(extra + low), slope} : Place<T>{r(back + low), -slope};
  }
  const T extra = r(std::fmod(x, span)), flips = std::floor(r(x / span));
  if (std::fmod(flips, T(2)) == 0) return {r(extra + low), slope};
  return {r(r(span - extra) + low), -slope};
}

template <class T, class R>
Place<T> pad(Place<T> p, int ndim, int64_t size, int64_t padding, bool align, R r) {
  if (padding == kBorder) return clip(p, size);
  if (padding == kReflection)
    return clip(align ? reflect(p, ndim, 0, 2 * (size - 1), r) : reflect(p, ndim, -1, 2 * size - 1, r), size);
  return p;
}

template <class T>
bool inside(T x, int64_t size) {
  return x >= 0 && x < static_cast<T>(size);  // false for a NaN
}

template <class T, class R>
void cubic_weights(T t, T* w, T* slope, R r) {
  const T a = T(-0.75);
  const T d[4] = {r(t + 1), t, r(1 - t), r(2 - t)};
  for (int k = 0; k < 4; ++k) {
    const T x = d[k], sign = k < 2 ? T(1) : T(-1);
    const bool far = k == 0 || k == 3;
    w[k] = far ? r(r(r(r(r(r(a * x) - 5 * a) * x) + 8 * a) * x) - 4 * a)
               : r(r(r(r(r((a + 2) * x) - (a + 3)) * x) * x) + 1);
    slope[k] = sign * (far ? (3 * a * x - 10 * a) * x + 8 * a : (3 * (a + 2) * x - 2 * (a + 3)) * x);
  }
}

// The taps of one position; sizes and strides are of the input's axes, width first.
template <class T, class R>
void find_taps(const T* position, int ndim, const int64_t* size, const int64_t* stride, int64_t mode,
               int64_t padding, bool align, R r, Taps<T>& taps) {
  taps.count = 0;
  Place<T> p[3];
  for (int d = 0; d < ndim; ++d) {
    p[d] = unnormalise(position[d], ndim, size[d], align, r);
    if (mode != kBicubic) p[d] = pad(p[d], ndim, size[d], padding, align, r);
    taps.factor[d] = p[d].slope;
  }
  if (mode == kNearest) {
    int64_t offset = 0;
    for (int d = 0; d < ndim; ++d) {
      const T x = std::nearbyint(p[d].at);
      if (!inside(x, size[d])) return;
      offset += static_cast<int64_t>(x) * stride[d];
    }
    taps.count = 1;
    taps.offset[0] = offset;
    taps.weight[0] = 1;
    std::fill_n(taps.slope[0], 3, T(0));
    return;
  }
  if (mode == kBilinear) {
    for (int corner = 0; corner < 1 << ndim; ++corner) {
      int64_t offset = 0;
      T part[3], sign[3];
      bool seen = true;
      for (int d = 0; d < ndim && seen; ++d) {
        const T low = std::floor(p[d].at), high = p[d].at - low;
        const bool upper = corner >> d & 1;
        const T x = low + (upper ? 1 : 0);
        seen = inside(x, size[d]);
        if (!seen) break;
        offset += static_cast<int64_t>(x) * stride[d];
        part[d] = upper ? high : r(1 - high);
        sign[d] = upper ? T(1) : T(-1);
      }
      if (!seen) continue;
      const int t = taps.count++;
      taps.offset[t] = offset;
      taps.weight[t] = 1;
      for (int d = 0; d < ndim; ++d) {
        taps.weight[t] = r(taps.weight[t] * part[d]);
        T s = sign[d];
        for (int e = 0; e < ndim; ++e)
          if (e != d) s *= part[e];
        taps.slope[t][d] = s;
      }
    }
    return;
  }
  T w[2][4], s[2][4], low[2];
  for (int d = 0; d < 2; ++d) {
    low[d] = std::floor(p[d].at);
    cubic_weights(p[d].at - low[d], w[d], s[d], r);
  }
  std::copy_n(w[1], 4, taps.across);
  for (int j = 0; j < 4; ++j)
    for (int i = 0; i < 4; ++i) {
      const T x = pad(Place<T>{r(r(low[0] - 1) + static_cast<T>(i)), T(1)}, 2, size[0], padding, align, r).at;
      const T y = pad(Place<T>{r(r(low[1] - 1) + static_cast<T>(j)), T(1)}, 2, size[1], padding, align, r).at;
      if (!inside(x, size[0]) || !inside(y, size[1])) continue;
      const int t = taps.count++;
      taps.offset[t] = static_cast<int64_t>(x) * stride[0] + static_cast<int64_t>(y) * stride[1];
      taps.row[t] = j;
      taps.along[t] = w[0][i];
      taps.weight[t] = w[0][i] * w[1][j];
      taps.slope[t][0] = s[0][i] * w[1][j];
      taps.slope[t][1] = w[0][i] * s[1][j];
    }
}

// The weighted sum of the taps of one channel.
template <class T, class R>
T gather_taps(const Taps<T>& taps, const T* x, int64_t mode, R r) {
  T sum = 0;
  if (mode == kBicubic && !std::is_same_v<R, Exact>) {
    T rows[4] = {};
    for (int t = 0; t < taps.count; ++t)
      rows[taps.row[t]] = r(rows[taps.row[t]] + r(taps.along[t] * x[taps.offset[t]]));
    for (int j = 0; j < 4; ++j) sum = r(sum + r(rows[j] * taps.across[j]));
    return sum;
  }
  for (int t = 0; t < taps.count; ++t) sum = r(sum + r(taps.weight[t] * x[taps.offset[t]]));
  return sum;
}

struct Shape {
  int ndim;
  int64_t batch, channels, size[3], stride[3], plane, points;  // axes width first, strides within a plane
};

Shape check(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding, int ndim) {
  FL_CHECK(input.dim() == ndim + 2 && grid.dim() == input.dim(), "[grid_sampler] expected input and grid of ",
           ndim + 2, " dimensions, got shapes ", input.sizes(), " and ", grid.sizes());
  FL_CHECK(input.dtype() == grid.dtype(), "[grid_sampler] expected input and grid of one dtype, got ",
           name_of(input.dtype()), " and ", name_of(grid.dtype()));
  FL_CHECK_KIND(is_floating(input.dtype()), NotImplemented, "[grid_sampler] expected a floating dtype, got ",
                name_of(input.dtype()));
  FL_CHECK(input.size(0) == grid.size(0), "[grid_sampler] expected input and grid of one batch size, got ",
           input.sizes(), " and ", grid.sizes());
  FL_CHECK(grid.size(ndim + 1) == ndim, "[grid_sampler] expected a grid with ", ndim,
           " coordinates, got shape ", grid.sizes());
  FL_CHECK(mode >= 0 && mode <= 2 && padding >= 0 && padding <= 2,
           "[grid_sampler] expected mode and padding mode 0, 1 or 2, got ", mode, " and ", padding);
  FL_CHECK(mode != kBicubic || ndim == 2, "[grid_sampler] expected 4 dimensions for bicubic, got ",
           input.sizes());
  Shape s;
  s.ndim = ndim;
  s.batch = input.size(0);
  s.channels = input.size(1);
  s.plane = 1;
  for (int d = 0; d < ndim; ++d) {
    s.size[d] = input.size(ndim + 1 - d);
    FL_CHECK(s.size[d] > 0, "[grid_sampler] expected an input without empty spatial dimensions, got shape ",
             input.sizes());
    s.stride[d] = s.plane;
    s.plane *= s.size[d];
  }
  s.points = 1;
  for (int d = 1; d <= ndim; ++d) s.points *= grid.size(d);
  return s;
}

template <int N>
Tensor grid_sampler(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding, bool align) {
  const Shape s = check(input, grid, mode, padding, N);
  Dims sizes(input.sizes());
  for (int d = 0; d < N; ++d) sizes[2 + d] = grid.size(1 + d);
  Tensor out = empty(sizes, input.options());
  if (input.is_meta() || out.numel() == 0) return out;
  const DType compute = compute_of(input.dtype());
  const Tensor in = contiguous(to_dtype(input, compute)), at = contiguous(to_dtype(grid, compute));
  const Tensor result = compute == input.dtype() ? out : empty(sizes, {compute, input.device()});
  dispatch_float(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    with_rounding<T>(input.dtype(), [&](auto r) {
      parallel_for(s.batch * s.points, std::max<int64_t>(1, kGrain / (8 + 8 * s.channels)),
                   [&](int64_t b, int64_t e) {
                     Taps<T> taps;
                     for (int64_t i = b; i < e; ++i) {
                       const int64_t n = i / s.points, point = i % s.points;
                       find_taps(at.data<T>() + i * N, N, s.size, s.stride, mode, padding, align, r, taps);
                       const T* x = in.data<T>() + n * s.channels * s.plane;
                       T* y = result.data<T>() + n * s.channels * s.points + point;
                       for (int64_t c = 0; c < s.channels; ++c)
                         y[c * s.points] = gather_taps(taps, x + c * s.plane, mode, r);
                     }
                   });
    });
  });
  if (!result.same(out)) copy_into(out, result);
  return out;
}

std::tuple<Tensor, Tensor> grid_sampler_backward(const Tensor& grad, const Tensor& input, const Tensor& grid,
                                                 int64_t mode, int64_t padding, bool align) {
  const int ndim = static_cast<int>(input.dim()) - 2;
  FL_CHECK(ndim == 2 || ndim == 3, "[grid_sampler] expected an input of 4 or 5 dimensions, got shape ",
           input.sizes());
  const Shape s = check(input, grid, mode, padding, ndim);
  FL_CHECK(grad.numel() == s.batch * s.channels * s.points && grad.dtype() == input.dtype(),
           "[grid_sampler] expected a gradient of ", s.batch * s.channels * s.points, " elements, got shape ",
           grad.sizes());
  if (input.is_meta()) return {empty(input.sizes(), input.options()), empty(grid.sizes(), grid.options())};
  const DType compute = compute_of(input.dtype());
  const Tensor in = contiguous(to_dtype(input, compute)), at = contiguous(to_dtype(grid, compute)),
               from = contiguous(to_dtype(grad, compute));
  const Tensor grad_input = empty(input.sizes(), {compute, input.device()}),
               grad_grid = empty(grid.sizes(), {compute, input.device()});
  dispatch_float(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    // A batch item has its own gradient, so threads split the batch.
    parallel_for(s.batch, 1, [&](int64_t b, int64_t e) {
      Taps<T> taps;
      for (int64_t n = b; n < e; ++n) {
        const T* x = in.data<T>() + n * s.channels * s.plane;
        const T* g = from.data<T>() + n * s.channels * s.points;
        T* dx = grad_input.data<T>() + n * s.channels * s.plane;
        std::fill_n(dx, s.channels * s.plane, T(0));
        for (int64_t point = 0; point < s.points; ++point) {
          const int64_t i = n * s.points + point;
          with_rounding<T>(input.dtype(), [&](auto r) {
            find_taps(at.data<T>() + i * ndim, ndim, s.size, s.stride, mode, padding, align, r, taps);
          });
          T slope[3] = {};
          for (int64_t c = 0; c < s.channels; ++c) {
            const T value = g[c * s.points + point];
            for (int t = 0; t < taps.count; ++t) {
              const int64_t where = c * s.plane + taps.offset[t];
              dx[where] += taps.weight[t] * value;
              for (int d = 0; d < ndim; ++d) slope[d] += taps.slope[t][d] * x[where] * value;
            }
          }
          for (int d = 0; d < ndim; ++d) grad_grid.data<T>()[i * ndim + d] = slope[d] * taps.factor[d];
        }
      }
    });
  });
  return {to_dtype(grad_input, input.dtype()), to_dtype(grad_grid, input.dtype())};
}

FL_KERNEL("grid_sampler_2d", grid_sampler<2>);
FL_KERNEL("grid_sampler_3d", grid_sampler<3>);
FL_KERNEL("_grid_sampler_backward", grid_sampler_backward);

}  // namespace
}  // namespace fl
