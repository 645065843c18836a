// Elementary functions of complex arguments, over std::complex<T> with T float or double. They are
// computed by the standard library's complex functions, whose branch cuts and special values agree
// with torch; those that the library lacks are written here. Single precision is computed in
// double and rounded once. Sources that define FL_DEVICE_COMPLEX get the same functions for
// kernels on the device, over the complex numbers of CUDA's standard library.
#pragma once

#include <cmath>
#include <complex>
#include <limits>
#if defined(FL_DEVICE_COMPLEX)
#include "math/complex_device.h"

#include "math/math_basics.h"
#define FL_COMPLEX_FUNCTION FL_MATH_FUNCTION
#else
#define FL_COMPLEX_FUNCTION inline
#endif

namespace fl {
namespace math {

#if defined(FL_DEVICE_COMPLEX)
// complex_library is that of complex_device.h.
#else
namespace complex_library = std;
#endif
using complex64 = complex_library::complex<float>;
using complex128 = complex_library::complex<double>;

namespace complex_detail {

constexpr double pi = 3.14159265358979323846;
constexpr double ln2 = 0.69314718055994530942;
constexpr double inverse_ln2 = 1.44269504088896340736;

}  // namespace complex_detail

FL_COMPLEX_FUNCTION double abs(complex128 z) {
  return complex_library::abs(z);
}
FL_COMPLEX_FUNCTION double angle(complex128 z) {
  return complex_library::arg(z);
}

FL_COMPLEX_FUNCTION complex128 exp(complex128 z) {
  return complex_library::exp(z);
}
FL_COMPLEX_FUNCTION complex128 log(complex128 z) {
  return complex_library::log(z);
}
FL_COMPLEX_FUNCTION complex128 log10(complex128 z) {
  return complex_library::log10(z);
}
FL_COMPLEX_FUNCTION complex128 sqrt(complex128 z) {
  return complex_library::sqrt(z);
}
FL_COMPLEX_FUNCTION complex128 sin(complex128 z) {
  return complex_library::sin(z);
}
FL_COMPLEX_FUNCTION complex128 cos(complex128 z) {
  return complex_library::cos(z);
}
FL_COMPLEX_FUNCTION complex128 tan(complex128 z) {
  return complex_library::tan(z);
}
FL_COMPLEX_FUNCTION complex128 sinh(complex128 z) {
  return complex_library::sinh(z);
}
FL_COMPLEX_FUNCTION complex128 cosh(complex128 z) {
  return complex_library::cosh(z);
}
FL_COMPLEX_FUNCTION complex128 tanh(complex128 z) {
  return complex_library::tanh(z);
}
FL_COMPLEX_FUNCTION complex128 asin(complex128 z) {
  return complex_library::asin(z);
}
FL_COMPLEX_FUNCTION complex128 acos(complex128 z) {
  return complex_library::acos(z);
}
FL_COMPLEX_FUNCTION complex128 atan(complex128 z) {
  return complex_library::atan(z);
}
FL_COMPLEX_FUNCTION complex128 asinh(complex128 z) {
  return complex_library::asinh(z);
}
FL_COMPLEX_FUNCTION complex128 acosh(complex128 z) {
  return complex_library::acosh(z);
}
FL_COMPLEX_FUNCTION complex128 atanh(complex128 z) {
  return complex_library::atanh(z);
}
FL_COMPLEX_FUNCTION complex128 log2(complex128 z) {
  return complex_library::log(z) * double(complex_detail::inverse_ln2);
}
FL_COMPLEX_FUNCTION complex128 exp2(complex128 z) {
  return complex_library::exp(z * double(complex_detail::ln2));
}

// 0^0 is 1, and 0 to any other power with positive real part is 0.
FL_COMPLEX_FUNCTION complex128 pow(complex128 z, complex128 w) {
  return complex_library::pow(z, w);
}

// 1/z by Smith's scaling, so that |z|^2 neither overflows nor underflows.
FL_COMPLEX_FUNCTION complex128 reciprocal(complex128 z) {
  const double a = z.real(), b = z.imag();
  if (std::fabs(a) >= std::fabs(b)) {
    if (a == 0.0 && b == 0.0) return {1.0 / std::fabs(a), std::numeric_limits<double>::quiet_NaN()};
    const double ratio = b / a, scale = 1.0 / (a + b * ratio);
    return {scale, -ratio * scale};
  }
  const double ratio = a / b, scale = 1.0 / (a * ratio + b);
  return {ratio * scale, -scale};
}

FL_COMPLEX_FUNCTION complex128 rsqrt(complex128 z) {
  return reciprocal(complex_library::sqrt(z));
}
FL_COMPLEX_FUNCTION complex128 sigmoid(complex128 z) {
  return reciprocal(1.0 + complex_library::exp(-z));
}

// The direction z/|z|, and 0 at 0.
FL_COMPLEX_FUNCTION complex128 sgn(complex128 z) {
  if (z == complex128(0.0)) return {0.0, 0.0};
  return z / complex_library::abs(z);
}

// e^z - 1 = expm1(a) cos(b) - 2 sin(b/2)^2 + i e^a sin(b) keeps small results accurate.
FL_COMPLEX_FUNCTION complex128 expm1(complex128 z) {
  const double a = z.real(), b = z.imag();
  const double e = std::expm1(a);
  const double half_sine = std::sin(0.5 * b);
  const double real = e * std::cos(b) - 2.0 * half_sine * half_sine;
  return {real, std::exp(a) * std::sin(b)};
}

// log(1 + z): the real part is log1p(2a + a^2 + b^2) / 2, unless that sum is large or cancels.
FL_COMPLEX_FUNCTION complex128 log1p(complex128 z) {
  const double a = z.real(), b = z.imag();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  if (std::isnan(a) || std::isnan(b)) return {nan, nan};
  const double imag = std::atan2(b, 1.0 + a);
  if (!(std::fabs(a) < 0.5 && std::fabs(b) < 0.5)) {
    return {std::log(std::hypot(1.0 + a, b)), imag};
  }
  // 2a + a^2 + b^2 = a (2 + a) + b^2 with the rounding errors of both products recovered, because
  // they may cancel for negative a.
  const double two_a = 2.0 + a, two_a_error = a - (two_a - 2.0);
  const double p = a * two_a, p_error = std::fma(a, two_a, -p) + a * two_a_error;
  const double q = b * b, q_error = std::fma(b, b, -q);
  const double sum = p + q;
  const double shifted = sum - p;
  const double sum_error = (p - (sum - shifted)) + (q - shifted);
  return {0.5 * std::log1p(sum + (sum_error + p_error + q_error)), imag};
}

// sin(pi z) / (pi z), and 1 at 0.
FL_COMPLEX_FUNCTION complex128 sinc(complex128 z) {
  if (z == complex128(0.0)) return {1.0, 0.0};
  const complex128 scaled = double(complex_detail::pi) * z;
  return complex_library::sin(scaled) / scaled;
}

#define FL_MATH_COMPLEX64(name)                     \
  FL_COMPLEX_FUNCTION complex64 name(complex64 z) { \
    return complex64(name(complex128(z)));          \
  }

FL_MATH_COMPLEX64(exp)
FL_MATH_COMPLEX64(log)
FL_MATH_COMPLEX64(log10)
FL_MATH_COMPLEX64(sqrt)
FL_MATH_COMPLEX64(sin)
FL_MATH_COMPLEX64(cos)
FL_MATH_COMPLEX64(tan)
FL_MATH_COMPLEX64(sinh)
FL_MATH_COMPLEX64(cosh)
FL_MATH_COMPLEX64(tanh)
FL_MATH_COMPLEX64(asin)
FL_MATH_COMPLEX64(acos)
FL_MATH_COMPLEX64(atan)
FL_MATH_COMPLEX64(asinh)
FL_MATH_COMPLEX64(acosh)
FL_MATH_COMPLEX64(atanh)
FL_MATH_COMPLEX64(log2)
FL_MATH_COMPLEX64(exp2)
FL_MATH_COMPLEX64(reciprocal)
FL_MATH_COMPLEX64(rsqrt)
FL_MATH_COMPLEX64(sigmoid)
FL_MATH_COMPLEX64(sgn)
FL_MATH_COMPLEX64(expm1)
FL_MATH_COMPLEX64(log1p)
FL_MATH_COMPLEX64(sinc)
FL_COMPLEX_FUNCTION complex64 pow(complex64 z, complex64 w) {
  return complex64(pow(complex128(z), complex128(w)));
}
FL_COMPLEX_FUNCTION float abs(complex64 z) {
  return static_cast<float>(complex_library::abs(complex128(z)));
}
FL_COMPLEX_FUNCTION float angle(complex64 z) {
  return static_cast<float>(complex_library::arg(complex128(z)));
}

#undef FL_MATH_COMPLEX64

}  // namespace math
}  // namespace fl
