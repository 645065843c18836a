// Elementary functions for the CPU kernels and for the code the fusing compiler generates.
//
// Every function here that is not marked "scalar" is branch-free straight-line arithmetic, so a
// plain loop such as `for (i < n) out[i] = fl::math::exp(in[i]);` is turned into vector code by
// the compiler itself. Expected flags: -O3, at least -march=x86-64-v3 (FMA is required for the
// stated accuracy), -fno-math-errno -fno-trapping-math -ffp-contract=fast. Never -ffast-math:
// the handling of NaN, infinity, signed zero and denormals relies on IEEE semantics.
//
// The polynomial coefficients are our own minimax (Remez) fits; hexadecimal constants are exact
// splittings of well known numbers into a rounded head and a small tail. The public functions are here, each
// for float and double; how they are computed is in math_<family>.h.
#pragma once

#include "math/math_power.h"

namespace fl {
namespace math {

#define FL_MATH_UNARY(name)              \
  FL_MATH_INLINE float name(float x) {   \
    return detail::name##_impl(x);       \
  }                                      \
  FL_MATH_INLINE double name(double x) { \
    return detail::name##_impl(x);       \
  }
#define FL_MATH_BINARY(name)                       \
  FL_MATH_INLINE float name(float x, float y) {    \
    return detail::name##_impl(x, y);              \
  }                                                \
  FL_MATH_INLINE double name(double x, double y) { \
    return detail::name##_impl(x, y);              \
  }

FL_MATH_UNARY(exp)
FL_MATH_UNARY(exp2)
FL_MATH_UNARY(expm1)
FL_MATH_UNARY(log)
FL_MATH_UNARY(log1p)
FL_MATH_UNARY(tanh)
FL_MATH_UNARY(sigmoid)
FL_MATH_UNARY(erf)
FL_MATH_UNARY(erfc)
FL_MATH_UNARY(sin)  // sin, cos and tan are right for |x| <= trig_limit
FL_MATH_UNARY(cos)
FL_MATH_UNARY(tan)
FL_MATH_UNARY(sinh)
FL_MATH_UNARY(cosh)
FL_MATH_UNARY(asin)
FL_MATH_UNARY(acos)
FL_MATH_UNARY(atan)
FL_MATH_UNARY(asinh)
FL_MATH_UNARY(acosh)
FL_MATH_UNARY(atanh)
FL_MATH_UNARY(cbrt)
FL_MATH_BINARY(atan2)  // atan2(y, x)
FL_MATH_BINARY(pow)
FL_MATH_BINARY(maximum)  // NaN wins
FL_MATH_BINARY(minimum)
FL_MATH_BINARY(hypot)
FL_MATH_BINARY(logaddexp)
FL_MATH_BINARY(logaddexp2)
FL_MATH_BINARY(nextafter)
FL_MATH_BINARY(remainder)     // scalar; the sign of y, as Python's %
FL_MATH_BINARY(floor_divide)  // scalar; consistent with remainder

#undef FL_MATH_UNARY
#undef FL_MATH_BINARY

// Beyond this magnitude the reduction of sin, cos and tan is no longer accurate. A caller that
// must accept such arguments uses sin_any, cos_any and tan_any, which branch to the library.
constexpr double trig_limit = 0x1p46;

// Templates from here on: T is float or double.
#define FL_MATH_T    \
  template <class T> \
  FL_MATH_INLINE T

FL_MATH_T log2(T x) {
  return detail::log_base(x, detail::Fp<T>::log2e, detail::Fp<T>::log2e_tail, T(1), T(0));
}
FL_MATH_T log10(T x) {
  using F = detail::Fp<T>;
  return detail::log_base(x, F::log10e, F::log10e_tail, F::log10_2, F::log10_2_tail);
}

FL_MATH_T sin_any(T x) {
  return detail::abs_of(x) <= T(trig_limit) ? sin(x) : T(std::sin(x));
}
FL_MATH_T cos_any(T x) {
  return detail::abs_of(x) <= T(trig_limit) ? cos(x) : T(std::cos(x));
}
FL_MATH_T tan_any(T x) {
  return detail::abs_of(x) <= T(trig_limit) ? tan(x) : T(std::tan(x));
}

FL_MATH_T abs(T x) {
  return detail::abs_of(x);
}
FL_MATH_T sqrt(T x) {
  return detail::sqrt_of(x);
}
FL_MATH_T rsqrt(T x) {
  return T(1) / detail::sqrt_of(x);
}
FL_MATH_T floor(T x) {
  return std::floor(x);
}
FL_MATH_T ceil(T x) {
  return std::ceil(x);
}
FL_MATH_T trunc(T x) {
  return detail::to_zero(x);
}
FL_MATH_T round(T x) {
  return detail::to_even(x);
}  // halves to even
FL_MATH_T copysign(T x, T y) {
  return detail::with_sign_of(x, y);
}
FL_MATH_T fmod(T x, T y) {
  return std::fmod(x, y);
}  // scalar

// Maximum and minimum that ignore a NaN operand.
FL_MATH_T fmax(T x, T y) {
  return detail::select(y != y, x, detail::select(x > y, x, y));
}
FL_MATH_T fmin(T x, T y) {
  return detail::select(y != y, x, detail::select(x < y, x, y));
}

FL_MATH_T sign(T x) {
  return T(x > T(0)) - T(x < T(0));
}  // 0 for NaN
FL_MATH_T heaviside(T x, T at_zero) {
  return detail::select(x == T(0), at_zero, detail::select(x > T(0), T(1), T(0)));
}
// x * 2^n; n is integer-valued, of the same type as x so that the lanes match.
FL_MATH_T ldexp(T x, T n) {
  return detail::ldexp_impl(x, n);
}

FL_MATH_T xlogy(T x, T y) {
  return detail::select(y != y, y, detail::select(x == T(0), T(0), x * log(y)));
}
FL_MATH_T xlog1py(T x, T y) {
  return detail::select(y != y, y, detail::select(x == T(0), T(0), x * log1p(y)));
}
// sin(pi x) / (pi x). The argument is reduced to half a turn exactly, before it is multiplied.
FL_MATH_T sinc(T x) {
  const T turns = detail::to_even(x);
  const T parity = turns - T(2) * detail::to_even(T(0.5) * turns);
  const T sine = sin(detail::Fp<T>::pi * (x - turns));
  return detail::select(x == T(0), T(1),
                        detail::select(parity != T(0), -sine, sine) / (detail::Fp<T>::pi * x));
}

// log(1 + e^(beta x)) / beta, linear above the threshold.
FL_MATH_T softplus(T x, T beta = T(1), T threshold = T(20)) {
  const T scaled = x * beta;
  return detail::select(scaled > threshold, x, log1p(exp(scaled)) / beta);
}
FL_MATH_T silu(T x) {
  return x * sigmoid(x);
}
FL_MATH_T gelu_erf(T x) {
  return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752440)));
}
// x (1 + tanh(u)) / 2 = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
FL_MATH_T gelu_tanh(T x) {
  const T cubic = x * detail::fma(x * x, T(0.044715), T(1));
  return x * sigmoid(T(1.5957691216057307117) * cubic);
}
// x tanh(softplus(x)), where tanh(log(1 + e)) = n / (n + 2) with n = e (e + 2).
FL_MATH_T mish(T x) {
  const T e = exp(detail::at_most(x, T(22)));
  const T n = e * (e + T(2));
  return x * (n / (n + T(2)));
}

// e^x to about 1e-6 for softmax and attention: results below the normal range become zero,
// arguments above 88.37 overflow early.
FL_MATH_INLINE float exp_fast(float x) {
  using F = detail::Fp<float>;
  constexpr float lowest = -87.33f;
  const float clamped = detail::at_most(x, 88.72f);
  const float n = detail::fma(clamped, F::log2e, F::integer_shift) - F::integer_shift;
  const float r = detail::fma(n, -F::ln2, clamped);
  const float p =
      detail::fma(r * r, detail::poly(r, 0.499992315f, 0.166671147f, 0.0418901557f, 0.0083125193f), r) + 1.0f;
  return detail::select(x < lowest, 0.0f, p * detail::power_of_two(n));
}

#undef FL_MATH_T

}  // namespace math
}  // namespace fl
