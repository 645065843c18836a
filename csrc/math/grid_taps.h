// Sampling at the positions of a grid: which input elements ("taps") a sample is made of, with which weights,
// and how the weights change with the position. Shared by the CPU and kernels on the device.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "math/math.h"

namespace fl {

// Axes are given width first; strides are those within a plane, which is contiguous as all arrays are.
struct GridShape {
  int ndim;
  int64_t batch, channels, size[3], stride[3], plane, points;
};

struct GridArgs {
  GridShape shape;
  int64_t mode, padding;
  bool align;
  DType dtype;     // whose precision the steps have
  DType computed;  // of the arrays: float or double
  const void *input, *grid;
  void* output;      // or, for gradients, null
  const void* grad;  // of the output
  void *grad_input, *grad_grid;
  int device;
};

namespace grid {

enum GridMode { kBilinear, kNearest, kBicubic };
enum GridPadding { kZeros, kBorder, kReflection };
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
  FL_MATH_FUNCTION T operator()(T x) const {
    return x;
  }
};

// The order of the steps differs between two and three dimensions, which shows in the reduced precisions.
template <class T, class R>
FL_MATH_FUNCTION Place<T> unnormalise(T x, int ndim, int64_t size, bool align, R r) {
  const T n = r(static_cast<T>(size)), last = r(static_cast<T>(size - 1)), from_left = r(x + 1);
  if (align) return {ndim == 2 ? r(from_left * (last / 2)) : r(r(from_left / 2) * last), last / 2};
  return {ndim == 2 ? r(r(from_left * (n / 2)) - T(0.5)) : r(r(r(from_left * n) - 1) / 2), n / 2};
}

template <class T>
FL_MATH_FUNCTION Place<T> clip(Place<T> p, int64_t size) {
  const T top = static_cast<T>(size - 1);
  if (!(p.at > 0)) return {T(0), T(0)};
  if (p.at >= top) return {top, T(0)};
  return p;
}

// Mirrors a position into the range between two half-integers given as twice their value.
template <class T, class R>
FL_MATH_FUNCTION Place<T> reflect(Place<T> p, int ndim, int64_t twice_low, int64_t twice_high, R r) {
  if (twice_low == twice_high) return {T(0), T(0)};
  const T low = static_cast<T>(twice_low) / 2, span = r(static_cast<T>(twice_high - twice_low) / 2);
  T x = r(p.at - low), slope = p.slope;
  if (x < 0) {
    x = -x;
    slope = -slope;
  }
  if (ndim == 2) {
    const T period = r(2 * span);
    const T extra = r(x - r(math::trunc(r(x / period)) * period)), back = r(period - extra);
    return extra <= back ? Place<T>{r(extra + low), slope} : Place<T>{r(back + low), -slope};
  }
  const T extra = r(math::fmod(x, span)), flips = math::floor(r(x / span));
  if (math::fmod(flips, T(2)) == 0) return {r(extra + low), slope};
  return {r(r(span - extra) + low), -slope};
}

template <class T, class R>
FL_MATH_FUNCTION Place<T> pad(Place<T> p, int ndim, int64_t size, int64_t padding, bool align, R r) {
  if (padding == kBorder) return clip(p, size);
  if (padding == kReflection)
    return clip(align ? reflect(p, ndim, 0, 2 * (size - 1), r) : reflect(p, ndim, -1, 2 * size - 1, r), size);
  return p;
}

template <class T>
FL_MATH_FUNCTION bool inside(T x, int64_t size) {
  return x >= 0 && x < static_cast<T>(size);  // false for a NaN
}

template <class T, class R>
FL_MATH_FUNCTION void cubic_weights(T t, T* w, T* slope, R r) {
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
FL_MATH_FUNCTION void find_taps(const T* position, int ndim, const int64_t* size, const int64_t* stride,
                                int64_t mode, int64_t padding, bool align, R r, Taps<T>& taps) {
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
      const T x = math::round(p[d].at);
      if (!inside(x, size[d])) return;
      offset += static_cast<int64_t>(x) * stride[d];
    }
    taps.count = 1;
    taps.offset[0] = offset;
    taps.weight[0] = 1;
    for (int d = 0; d < 3; ++d) taps.slope[0][d] = 0;
    return;
  }
  if (mode == kBilinear) {
    for (int corner = 0; corner < 1 << ndim; ++corner) {
      int64_t offset = 0;
      T part[3], sign[3];
      bool seen = true;
      for (int d = 0; d < ndim && seen; ++d) {
        const T low = math::floor(p[d].at), high = p[d].at - low;
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
    low[d] = math::floor(p[d].at);
    cubic_weights(p[d].at - low[d], w[d], s[d], r);
  }
  for (int k = 0; k < 4; ++k) taps.across[k] = w[1][k];
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
FL_MATH_FUNCTION T gather_taps(const Taps<T>& taps, const T* x, int64_t mode, R r) {
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

}  // namespace grid
}  // namespace fl
