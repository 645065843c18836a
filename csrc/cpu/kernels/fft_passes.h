// The inner loops of the CPU Fourier transforms, compiled for each instruction set by fft_float.cpp and
// fft_double.cpp. Nothing from the standard library with linkage may be used here (it could be emitted with
// instructions the running machine lacks).
//
// Data is planar (real and imaginary parts apart). A pass of radix R is a step of the Stockham
// autosort algorithm: with n = R * m * (product of the radices done), and s contiguous elements
// that share every twiddle,
//   y[(R*p + k)*s + q] = w(R*m)^(p*k) * DFT_R over j of x[(m*j + p)*s + q],  p < m, q < s.
// Several lines are transformed at once by starting with s = number of lines instead of 1.

#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "cpu/fft/loops.h"

namespace fl::cpu::fft_detail {
namespace FL_ARCH {
namespace {

#define FL_INLINE inline __attribute__((always_inline))

template <typename T, int W>
struct VecOf {
  typedef T type __attribute__((vector_size(W * sizeof(T))));
};
template <typename T>
struct VecOf<T, 1> {
  typedef T type;
};
template <typename T, int W>
using Vec = typename VecOf<T, W>::type;

#ifdef FL_ARCH_v4
constexpr int kVectorBytes = 64;
#else
constexpr int kVectorBytes = 32;
#endif
template <typename T>
constexpr int kLanes = kVectorBytes / sizeof(T);

template <typename V>
struct Cplx {
  V re, im;
};

template <typename V, typename T>
FL_INLINE V load(const T* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}

template <typename V, typename T>
FL_INLINE void store(T* p, V v) {
  __builtin_memcpy(p, &v, sizeof(V));
}

// ---- shuffles: interleaving and its inverse ------------------------------------------------

template <int Base, int W, typename V, std::size_t... I>
FL_INLINE V zip_half(V a, V b, std::index_sequence<I...>) {
  return __builtin_shufflevector(a, b, (Base + static_cast<int>(I) / 2 + (I % 2 ? W : 0))...);
}

template <int Base, typename V, std::size_t... I>
FL_INLINE V unzip_half(V a, V b, std::index_sequence<I...>) {
  return __builtin_shufflevector(a, b, (Base + 2 * static_cast<int>(I))...);
}

template <typename T, int W, typename V>
FL_INLINE void zip(V a, V b, V& lo, V& hi) {
  if constexpr (W == 1) {
    lo = a;
    hi = b;
  } else {
    lo = zip_half<0, W>(a, b, std::make_index_sequence<W>());
    hi = zip_half<W / 2, W>(a, b, std::make_index_sequence<W>());
  }
}

// Interleaves R vectors (a power of two): afterwards v, read as one array, is v0[0] v1[0] ...
template <int R, typename T, int W, typename V>
FL_INLINE void zip_all(V* v) {
  if constexpr (R > 1) {
    V even[R / 2], odd[R / 2];
    for (int i = 0; i < R / 2; ++i) {
      even[i] = v[2 * i];
      odd[i] = v[2 * i + 1];
    }
    zip_all<R / 2, T, W>(even);
    zip_all<R / 2, T, W>(odd);
    for (int i = 0; i < R / 2; ++i) zip<T, W>(even[i], odd[i], v[2 * i], v[2 * i + 1]);
  }
}

template <typename T, int W>
FL_INLINE Cplx<Vec<T, W>> load_interleaved(const T* p) {
  using V = Vec<T, W>;
  if constexpr (W == 1) {
    return {p[0], p[1]};
  } else {
    V a = load<V>(p), b = load<V>(p + W);
    return {unzip_half<0>(a, b, std::make_index_sequence<W>()),
            unzip_half<1>(a, b, std::make_index_sequence<W>())};
  }
}

template <typename T, int W, typename V>
FL_INLINE void store_interleaved(T* p, V re, V im) {
  V lo, hi;
  zip<T, W>(re, im, lo, hi);
  store(p, lo);
  store(p + W, hi);
}

// ---- butterflies: a[0..R) is replaced by its forward DFT -----------------------------------

template <typename V>
FL_INLINE Cplx<V> operator+(Cplx<V> a, Cplx<V> b) {
  return {a.re + b.re, a.im + b.im};
}
template <typename V>
FL_INLINE Cplx<V> operator-(Cplx<V> a, Cplx<V> b) {
  return {a.re - b.re, a.im - b.im};
}
template <typename V>
FL_INLINE Cplx<V> times_minus_i(Cplx<V> a) {
  return {a.im, -a.re};
}
template <typename V, typename S>
FL_INLINE Cplx<V> cmul(Cplx<V> a, S re, S im) {
  return {a.re * re - a.im * im, a.re * im + a.im * re};
}

template <typename V>
FL_INLINE void dft4(Cplx<V>& a0, Cplx<V>& a1, Cplx<V>& a2, Cplx<V>& a3) {
  Cplx<V> s02 = a0 + a2, d02 = a0 - a2, s13 = a1 + a3, d13 = times_minus_i(a1 - a3);
  a0 = s02 + s13;
  a1 = d02 + d13;
  a2 = s02 - s13;
  a3 = d02 - d13;
}

// Odd length r by pairing j with r - j; roots holds (cos, sin) of 2*pi*j/r.
template <int R, typename V, typename T>
FL_INLINE void dft_odd(Cplx<V>* a, int radix, const T* roots) {
  const int r = R ? R : radix, half = (r - 1) / 2;
  constexpr int kMax = (R ? R : kMaxGenericRadix) / 2 + 1;
  Cplx<V> sum[kMax], dif[kMax];
  Cplx<V> first = a[0], total = a[0];
  for (int j = 1; j <= half; ++j) {
    sum[j] = a[j] + a[r - j];
    dif[j] = a[j] - a[r - j];
    total = total + sum[j];
  }
  a[0] = total;
  for (int k = 1; k <= half; ++k) {
    Cplx<V> c = first;
    Cplx<V> d = {dif[1].im * roots[2 * k + 1], dif[1].re * roots[2 * k + 1]};
    c = {c.re + sum[1].re * roots[2 * k], c.im + sum[1].im * roots[2 * k]};
    for (int j = 2, t = 2 * k >= r ? 2 * k - r : 2 * k; j <= half; ++j) {
      c = {c.re + sum[j].re * roots[2 * t], c.im + sum[j].im * roots[2 * t]};
      d = {d.re + dif[j].im * roots[2 * t + 1], d.im + dif[j].re * roots[2 * t + 1]};
      t += k;
      if (t >= r) t -= r;
    }
    a[k] = {c.re + d.re, c.im - d.im};
    a[r - k] = {c.re - d.re, c.im + d.im};
  }
}

template <int R, typename V, typename T>
FL_INLINE void dft(Cplx<V>* a, int radix, const T* roots) {
  if constexpr (R == 2) {
    Cplx<V> d = a[0] - a[1];
    a[0] = a[0] + a[1];
    a[1] = d;
  } else if constexpr (R == 3) {
    const T half = T(0.5), sin60 = T(0.86602540378443864676);
    Cplx<V> s = a[1] + a[2], d = a[1] - a[2];
    Cplx<V> mid = {a[0].re - s.re * half, a[0].im - s.im * half};
    Cplx<V> rot = {d.im * sin60, d.re * sin60};
    a[0] = a[0] + s;
    a[1] = {mid.re + rot.re, mid.im - rot.im};
    a[2] = {mid.re - rot.re, mid.im + rot.im};
  } else if constexpr (R == 4) {
    dft4(a[0], a[1], a[2], a[3]);
  } else if constexpr (R == 5) {
    const T c1 = T(0.30901699437494742410), c2 = T(-0.80901699437494742410);
    const T s1 = T(0.95105651629515357212), s2 = T(0.58778525229247312917);
    Cplx<V> p1 = a[1] + a[4], m1 = a[1] - a[4], p2 = a[2] + a[3], m2 = a[2] - a[3];
    Cplx<V> x = {a[0].re + p1.re * c1 + p2.re * c2, a[0].im + p1.im * c1 + p2.im * c2};
    Cplx<V> y = {a[0].re + p1.re * c2 + p2.re * c1, a[0].im + p1.im * c2 + p2.im * c1};
    Cplx<V> u = {m1.im * s1 + m2.im * s2, m1.re * s1 + m2.re * s2};
    Cplx<V> v = {m1.im * s2 - m2.im * s1, m1.re * s2 - m2.re * s1};
    a[0] = a[0] + p1 + p2;
    a[1] = {x.re + u.re, x.im - u.im};
    a[4] = {x.re - u.re, x.im + u.im};
    a[2] = {y.re + v.re, y.im - v.im};
    a[3] = {y.re - v.re, y.im + v.im};
  } else if constexpr (R == 8) {
    const T h = T(0.70710678118654752440);
    dft4(a[0], a[2], a[4], a[6]);
    dft4(a[1], a[3], a[5], a[7]);
    Cplx<V> o1 = {(a[3].re + a[3].im) * h, (a[3].im - a[3].re) * h};
    Cplx<V> o2 = times_minus_i(a[5]);
    Cplx<V> o3 = {(a[7].im - a[7].re) * h, (a[7].re + a[7].im) * -h};
    Cplx<V> e0 = a[0], e1 = a[2], e2 = a[4], e3 = a[6], o0 = a[1];
    a[0] = e0 + o0;
    a[1] = e1 + o1;
    a[2] = e2 + o2;
    a[3] = e3 + o3;
    a[4] = e0 - o0;
    a[5] = e1 - o1;
    a[6] = e2 - o2;
    a[7] = e3 - o3;
  } else {
    dft_odd<R>(a, radix, roots);
  }
}

// ---- passes ---------------------------------------------------------------------------------

// A planar pass whose inner loop runs over q, s >= W. The last vector of a run is moved back so as
// to end with it: those elements are computed twice, which is harmless out of place.
template <int R, typename T, int W, bool Twiddle>
void pass_planar(const Pass<T>& pass, int64_t s, const T* xr, const T* xi, T* yr, T* yi) {
  using V = Vec<T, W>;
  const int r = R ? R : pass.radix;
  const int64_t step = pass.m * s;
  Cplx<V> a[R ? R : kMaxGenericRadix];
  for (int64_t p = 0; p < pass.m; ++p) {
    const T* w = pass.twiddles + p * (r - 1) * 2 - 2;
    for (int64_t q = 0;;) {
      const int64_t from = p * s + q, to = r * p * s + q;
      for (int j = 0; j < r; ++j) {
        a[j] = {load<V>(xr + from + j * step), load<V>(xi + from + j * step)};
      }
      dft<R>(a, r, pass.roots);
      store(yr + to, a[0].re);
      store(yi + to, a[0].im);
      for (int k = 1; k < r; ++k) {
        if (Twiddle) a[k] = cmul(a[k], w[2 * k], w[2 * k + 1]);
        store(yr + to + k * s, a[k].re);
        store(yi + to + k * s, a[k].im);
      }
      if (q + W >= s) break;
      q = q + 2 * W <= s ? q + W : s - W;
    }
  }
}

// The first pass of a single line (s = 1), to planar: vectors run over p. The input is interleaved
// (xi is not used) or planar.
template <int R, typename T, int W, bool Interleaved>
void pass_first(const Pass<T>& pass, const T* x, const T* xi, bool swap, T* yr, T* yi) {
  using V = Vec<T, W>;
  const int r = R ? R : pass.radix;
  const int64_t m = pass.m;
  Cplx<V> a[R ? R : kMaxGenericRadix];
  for (int64_t p = 0;;) {
    for (int j = 0; j < r; ++j) {
      if constexpr (Interleaved) {
        a[j] = load_interleaved<T, W>(x + 2 * (p + m * j));
        if (swap) a[j] = {a[j].im, a[j].re};
      } else {
        a[j] = {load<V>(x + p + m * j), load<V>(xi + p + m * j)};
      }
    }
    dft<R>(a, r, pass.roots);
    for (int k = 1; k < r; ++k) {
      const T* w = pass.line_twiddles + (k - 1) * 2 * m + p;
      a[k] = cmul(a[k], load<V>(w), load<V>(w + m));
    }
    if constexpr (R == 2 || R == 4 || R == 8) {
      V re[R], im[R];
      for (int k = 0; k < R; ++k) {
        re[k] = a[k].re;
        im[k] = a[k].im;
      }
      zip_all<R, T, W>(re);
      zip_all<R, T, W>(im);
      for (int k = 0; k < R; ++k) {
        store(yr + R * p + k * W, re[k]);
        store(yi + R * p + k * W, im[k]);
      }
    } else {
      T re[W], im[W];
      for (int k = 0; k < r; ++k) {
        store(re, a[k].re);
        store(im, a[k].im);
        for (int i = 0; i < W; ++i) {
          yr[r * (p + i) + k] = re[i];
          yi[r * (p + i) + k] = im[i];
        }
      }
    }
    if (p + W >= m) break;
    p = p + 2 * W <= m ? p + W : m - W;
  }
}

// The last pass of a single line (m = 1), from planar to interleaved, with the scale.
template <int R, typename T, int W>
void pass_last(const Pass<T>& pass, int64_t s, const T* xr, const T* xi, T* y, bool swap, T scale) {
  using V = Vec<T, W>;
  const int r = R ? R : pass.radix;
  Cplx<V> a[R ? R : kMaxGenericRadix];
  for (int64_t q = 0;;) {
    for (int j = 0; j < r; ++j) a[j] = {load<V>(xr + q + j * s), load<V>(xi + q + j * s)};
    dft<R>(a, r, pass.roots);
    for (int k = 0; k < r; ++k) {
      V re = a[k].re * scale, im = a[k].im * scale;
      T* to = y + 2 * (q + k * s);
      if (swap) {
        store_interleaved<T, W>(to, im, re);
      } else {
        store_interleaved<T, W>(to, re, im);
      }
    }
    if (q + W >= s) break;
    q = q + 2 * W <= s ? q + W : s - W;
  }
}

// Calls f with the widest vector that fits into a run of `length` elements, as a constant.
template <typename T, typename F>
FL_INLINE void with_width(int64_t length, F f) {
  constexpr int L = kLanes<T>;
  if (length >= L) return f(std::integral_constant<int, L>());
  if constexpr (L > 8) {
    if (length >= 8) return f(std::integral_constant<int, 8>());
  }
  if constexpr (L > 4) {
    if (length >= 4) return f(std::integral_constant<int, 4>());
  }
  if constexpr (L > 2 && sizeof(T) == 8) {
    if (length >= 2) return f(std::integral_constant<int, 2>());
  }
  f(std::integral_constant<int, 1>());
}

template <typename F>
FL_INLINE void with_radix(int radix, F f) {
  switch (radix) {
    case 2:
      return f(std::integral_constant<int, 2>());
    case 3:
      return f(std::integral_constant<int, 3>());
    case 4:
      return f(std::integral_constant<int, 4>());
    case 5:
      return f(std::integral_constant<int, 5>());
    case 7:
      return f(std::integral_constant<int, 7>());
    case 8:
      return f(std::integral_constant<int, 8>());
    default:
      return f(std::integral_constant<int, 0>());
  }
}

template <typename T>
void run_one_pass(const Pass<T>& pass, int64_t s, const T* xr, const T* xi, T* yr, T* yi) {
  with_radix(pass.radix, [&](auto r) {
    if (s == 1) {
      with_width<T>(pass.m, [&](auto w) { pass_first<r(), T, w(), false>(pass, xr, xi, false, yr, yi); });
      return;
    }
    with_width<T>(s, [&](auto w) {
      if (pass.m == 1) {
        pass_planar<r(), T, w(), false>(pass, s, xr, xi, yr, yi);
      } else {
        pass_planar<r(), T, w(), true>(pass, s, xr, xi, yr, yi);
      }
    });
  });
}

// All passes over `lines` lines stored as x[element][line]; the result is in x or y as returned.
template <typename T>
bool run_planar(const Pass<T>* passes, int count, int64_t lines, T* xr, T* xi, T* yr, T* yi) {
  bool in_y = false;
  int64_t s = lines;
  for (int i = 0; i < count; ++i) {
    if (in_y) {
      run_one_pass(passes[i], s, yr, yi, xr, xi);
    } else {
      run_one_pass(passes[i], s, xr, xi, yr, yi);
    }
    in_y = !in_y;
    s *= passes[i].radix;
  }
  return in_y;
}

// One contiguous line, interleaved in (at least two passes). With `out` the result is written there
// interleaved and scaled (in == out is allowed); without, it stays planar in x or y as returned.
// Swapping the parts going in and coming out turns the forward transform into the inverse.
template <typename T>
bool run_line(const Pass<T>* passes, int count, const T* in, T* out, bool swap, T scale, T* xr, T* xi, T* yr,
              T* yi) {
  with_radix(passes[0].radix, [&](auto r) {
    with_width<T>(passes[0].m,
                  [&](auto w) { pass_first<r(), T, w(), true>(passes[0], in, nullptr, swap, xr, xi); });
  });
  int64_t s = passes[0].radix;
  bool in_y = false;
  for (int i = 1; i < count; ++i) {
    const T *fr = in_y ? yr : xr, *fi = in_y ? yi : xi;
    if (i + 1 == count && out) {
      with_radix(passes[i].radix, [&](auto r) {
        with_width<T>(s, [&](auto w) { pass_last<r(), T, w()>(passes[i], s, fr, fi, out, swap, scale); });
      });
      return false;
    }
    run_one_pass(passes[i], s, fr, fi, in_y ? xr : yr, in_y ? xi : yi);
    in_y = !in_y;
    s *= passes[i].radix;
  }
  return in_y;
}

// ---- moving data ----------------------------------------------------------------------------

// count interleaved numbers at `in` to planar.
template <typename T>
void deinterleave(const T* in, int64_t count, T* re, T* im) {
  with_width<T>(count, [&](auto w) {
    constexpr int W = w();
    for (int64_t i = 0; i < count;) {
      auto v = load_interleaved<T, W>(in + 2 * i);
      store(re + i, v.re);
      store(im + i, v.im);
      if (i + W == count) break;
      i = i + 2 * W <= count ? i + W : count - W;
    }
  });
}

// The inverse, with a scale.
template <typename T>
void interleave(const T* re, const T* im, int64_t count, T scale, T* out) {
  with_width<T>(count, [&](auto w) {
    constexpr int W = w();
    using V = Vec<T, W>;
    for (int64_t i = 0; i < count;) {
      store_interleaved<T, W>(out + 2 * i, load<V>(re + i) * scale, load<V>(im + i) * scale);
      if (i + W == count) break;
      i = i + 2 * W <= count ? i + W : count - W;
    }
  });
}

// count lines of `rows` interleaved numbers, line b contiguous at in + at[b], to planar
// [row][line]: squares of kSquare values are transposed in registers.
template <typename T>
constexpr int kSquare = 32 / sizeof(T);

template <typename T>
void transpose_in(const T* in, const int64_t* at, int count, int64_t rows, T* re, T* im) {
  constexpr int W = kSquare<T>;
  using V = Vec<T, W>;
  int b = 0;
  for (; b + W <= count; b += W) {
    int64_t j = 0;
    for (; j + W / 2 <= rows; j += W / 2) {
      V v[W];
      for (int i = 0; i < W; ++i) v[i] = load<V>(in + at[b + i] + 2 * j);
      zip_all<W, T, W>(v);
      for (int i = 0; i < W / 2; ++i) {
        store(re + (j + i) * count + b, v[2 * i]);
        store(im + (j + i) * count + b, v[2 * i + 1]);
      }
    }
    for (; j < rows; ++j) {
      for (int i = 0; i < W; ++i) {
        re[j * count + b + i] = in[at[b + i] + 2 * j];
        im[j * count + b + i] = in[at[b + i] + 2 * j + 1];
      }
    }
  }
  for (; b < count; ++b) {
    for (int64_t j = 0; j < rows; ++j) {
      re[j * count + b] = in[at[b] + 2 * j];
      im[j * count + b] = in[at[b] + 2 * j + 1];
    }
  }
}

// The inverse, with a scale.
template <typename T>
void transpose_out(const T* re, const T* im, int count, int64_t rows, T scale, T* out, const int64_t* at) {
  constexpr int W = kSquare<T>;
  using V = Vec<T, W>;
  int b = 0;
  for (; b + W <= count; b += W) {
    int64_t j = 0;
    for (; j + W / 2 <= rows; j += W / 2) {
      V v[W];
      for (int i = 0; i < W / 2; ++i) {
        v[2 * i] = load<V>(re + (j + i) * count + b) * scale;
        v[2 * i + 1] = load<V>(im + (j + i) * count + b) * scale;
      }
      zip_all<W, T, W>(v);
      for (int i = 0; i < W; ++i) store(out + at[b + i] + 2 * j, v[i]);
    }
    for (; j < rows; ++j) {
      for (int i = 0; i < W; ++i) {
        out[at[b + i] + 2 * j] = re[j * count + b + i] * scale;
        out[at[b + i] + 2 * j + 1] = im[j * count + b + i] * scale;
      }
    }
  }
  for (; b < count; ++b) {
    for (int64_t j = 0; j < rows; ++j) {
      out[at[b] + 2 * j] = re[j * count + b] * scale;
      out[at[b] + 2 * j + 1] = im[j * count + b] * scale;
    }
  }
}

// y[j][line] = x[j][line] * c[j] (interleaved c, conjugated on request); x == y is allowed only
// for one line or whole vectors of lines, hence the plain scalar tail.
template <typename T>
void multiply_rows(const T* xr, const T* xi, const T* c, bool conjugate, int64_t rows, int64_t lines, T* yr,
                   T* yi) {
  constexpr int W = kLanes<T>;
  using V = Vec<T, W>;
  const T sign = conjugate ? T(-1) : T(1);
  if (lines == 1) {
    int64_t j = 0;
    for (; j + W <= rows; j += W) {
      auto f = load_interleaved<T, W>(c + 2 * j);
      auto v = cmul(Cplx<V>{load<V>(xr + j), load<V>(xi + j)}, f.re, f.im * sign);
      store(yr + j, v.re);
      store(yi + j, v.im);
    }
    for (; j < rows; ++j) {
      auto v = cmul(Cplx<T>{xr[j], xi[j]}, c[2 * j], c[2 * j + 1] * sign);
      yr[j] = v.re;
      yi[j] = v.im;
    }
    return;
  }
  for (int64_t j = 0; j < rows; ++j) {
    const T re = c[2 * j], im = c[2 * j + 1] * sign;
    const int64_t row = j * lines;
    int64_t b = 0;
    for (; b + W <= lines; b += W) {
      auto v = cmul(Cplx<V>{load<V>(xr + row + b), load<V>(xi + row + b)}, re, im);
      store(yr + row + b, v.re);
      store(yi + row + b, v.im);
    }
    for (; b < lines; ++b) {
      auto v = cmul(Cplx<T>{xr[row + b], xi[row + b]}, re, im);
      yr[row + b] = v.re;
      yi[row + b] = v.im;
    }
  }
}

// ---- real transforms of even length n = 2h through a complex transform of length h -----------

template <typename T, int W, typename V, std::size_t... I>
FL_INLINE V reversed(V v, std::index_sequence<I...>) {
  return __builtin_shufflevector(v, v, (W - 1 - static_cast<int>(I))...);
}

template <typename T, int W>
FL_INLINE Vec<T, W> load_reversed(const T* p) {
  if constexpr (W == 1) {
    return *p;
  } else {
    return reversed<T, W>(load<Vec<T, W>>(p), std::make_index_sequence<W>());
  }
}

// One element of the spectrum: a = Z[k], b = Z[h - k], w = exp(-2*pi*i*k/n).
template <typename V, typename S>
FL_INLINE Cplx<V> spectrum_of(Cplx<V> a, Cplx<V> b, S wr, S wi) {
  Cplx<V> even = {a.re + b.re, a.im - b.im}, odd = {a.im + b.im, b.re - a.re};
  Cplx<V> turned = cmul(odd, wr, wi);
  return {even.re + turned.re, even.im + turned.im};
}

// The reverse: Z[k] (times two) from a = X[k], b = X[h - k].
template <typename V, typename S>
FL_INLINE Cplx<V> packed_of(Cplx<V> a, Cplx<V> b, S wr, S wi) {
  Cplx<V> even = {a.re + b.re, a.im - b.im}, odd = {a.re - b.re, a.im + b.im};
  Cplx<V> turned = cmul(odd, wr, -wi);
  return {even.re - turned.im, even.im + turned.re};
}

// X[0..h] of one line from its packed transform, written interleaved and contiguous;
// twiddles: h cosines, then h (negative) sines. `sign` is -1 for the conjugated result.
template <typename T>
void real_post_line(const T* zr, const T* zi, int64_t h, const T* twiddles, T scale, T sign, T* out) {
  out[0] = (zr[0] + zi[0]) * scale;
  out[1] = 0;
  out[2 * h] = (zr[0] - zi[0]) * scale;
  out[2 * h + 1] = 0;
  const T half = scale * T(0.5), half_im = half * sign;
  with_width<T>(h - 1, [&](auto w) {
    constexpr int W = w();
    using V = Vec<T, W>;
    for (int64_t k = 1; k < h;) {
      const int64_t back = h - k - W + 1;
      auto v = spectrum_of<V>({load<V>(zr + k), load<V>(zi + k)},
                              {load_reversed<T, W>(zr + back), load_reversed<T, W>(zi + back)},
                              load<V>(twiddles + k), load<V>(twiddles + h + k));
      store_interleaved<T, W>(out + 2 * k, v.re * half, v.im * half_im);
      if (k + W == h) break;
      k = k + 2 * W <= h ? k + W : h - W;
    }
  });
}

// The same for several lines, planar to planar and not scaled except for the factor 1/2.
template <typename T>
void real_post_rows(const T* zr, const T* zi, int64_t h, int64_t lines, const T* twiddles, T* xr, T* xi) {
  for (int64_t b = 0; b < lines; ++b) {
    const T re = zr[b], im = zi[b];
    xr[b] = re + im;
    xr[h * lines + b] = re - im;
    xi[b] = xi[h * lines + b] = 0;
  }
  const T half = T(0.5);
  with_width<T>(lines, [&](auto w) {
    constexpr int W = w();
    using V = Vec<T, W>;
    for (int64_t k = 1; k < h; ++k) {
      const int64_t at = k * lines, back = (h - k) * lines;
      for (int64_t b = 0;;) {
        auto v =
            spectrum_of<V>({load<V>(zr + at + b), load<V>(zi + at + b)},
                           {load<V>(zr + back + b), load<V>(zi + back + b)}, twiddles[k], twiddles[h + k]);
        store(xr + at + b, v.re * half);
        store(xi + at + b, v.im * half);
        if (b + W >= lines) break;
        b = b + 2 * W <= lines ? b + W : lines - W;
      }
    }
  });
}

// Z[0..h) to be transformed backwards from the planar spectrum X[0..h] of several lines. The
// imaginary parts of X[0] and X[h] are taken to be zero.
template <typename T>
void real_pre_rows(const T* xr, const T* xi, int64_t h, int64_t lines, const T* twiddles, T* zr, T* zi) {
  for (int64_t b = 0; b < lines; ++b) {
    zr[b] = xr[b] + xr[h * lines + b];
    zi[b] = xr[b] - xr[h * lines + b];
  }
  if (lines == 1) {
    with_width<T>(h - 1, [&](auto w) {
      constexpr int W = w();
      using V = Vec<T, W>;
      for (int64_t k = 1; k < h;) {
        const int64_t back = h - k - W + 1;
        auto v = packed_of<V>({load<V>(xr + k), load<V>(xi + k)},
                              {load_reversed<T, W>(xr + back), load_reversed<T, W>(xi + back)},
                              load<V>(twiddles + k), load<V>(twiddles + h + k));
        store(zr + k, v.re);
        store(zi + k, v.im);
        if (k + W == h) break;
        k = k + 2 * W <= h ? k + W : h - W;
      }
    });
    return;
  }
  with_width<T>(lines, [&](auto w) {
    constexpr int W = w();
    using V = Vec<T, W>;
    for (int64_t k = 1; k < h; ++k) {
      const int64_t at = k * lines, back = (h - k) * lines;
      for (int64_t b = 0;;) {
        auto v = packed_of<V>({load<V>(xr + at + b), load<V>(xi + at + b)},
                              {load<V>(xr + back + b), load<V>(xi + back + b)}, twiddles[k], twiddles[h + k]);
        store(zr + at + b, v.re);
        store(zi + at + b, v.im);
        if (b + W >= lines) break;
        b = b + 2 * W <= lines ? b + W : lines - W;
      }
    }
  });
}

template <typename T>
constexpr FftLoops<T> loops() {
  return {&run_planar<T>,    &run_line<T>,      &deinterleave<T>,   &interleave<T>,     &transpose_in<T>,
          &transpose_out<T>, &multiply_rows<T>, &real_post_line<T>, &real_post_rows<T>, &real_pre_rows<T>};
}

#undef FL_INLINE

}  // namespace
}  // namespace FL_ARCH
}  // namespace fl::cpu::fft_detail
