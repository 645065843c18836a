// What the op records' expressions may call: the real, special and complex functions, and the small ones that
// only expressions need (parts of a number, tests, integer division).
#pragma once

#include "core/error.h"
#include "math/complex_math.h"
#include "math/math.h"
#include "math/special.h"

namespace fl::math {

FL_MATH_FUNCTION float real(float x) {
  return x;
}
FL_MATH_FUNCTION double real(double x) {
  return x;
}
FL_COMPLEX_FUNCTION double real(complex128 z) {
  return z.real();
}
FL_COMPLEX_FUNCTION double imag(complex128 z) {
  return z.imag();
}
FL_COMPLEX_FUNCTION complex128 make_complex(double re, double im) {
  return {re, im};
}
FL_COMPLEX_FUNCTION complex128 conj(complex128 z) {
  return complex_library::conj(z);
}

FL_MATH_FUNCTION bool isinf(float x) {
  return x == std::numeric_limits<float>::infinity() || x == -std::numeric_limits<float>::infinity();
}
FL_MATH_FUNCTION bool isinf(double x) {
  return x == std::numeric_limits<double>::infinity() || x == -std::numeric_limits<double>::infinity();
}
FL_MATH_FUNCTION bool isfinite(float x) {
  return x - x == 0;
}
FL_MATH_FUNCTION bool isfinite(double x) {
  return x - x == 0;
}

FL_COMPLEX_FUNCTION complex128 logaddexp(complex128 a, complex128 b) {
  const bool swap = a.real() < b.real();
  const complex128 hi = swap ? b : a, lo = swap ? a : b;
  return hi + complex_library::log(1.0 + complex_library::exp(lo - hi));
}

// Integers, computed in 64 bits. Division by zero raises, as PyTorch's does.
[[noreturn]] void integer_division_by_zero();  // out of line: pointwise.cpp
// On the device nothing can be raised: the quotient is what the hardware gives.
FL_MATH_FUNCTION void check_divisor(int64_t b) {
#if !defined(__CUDA_ARCH__)
  if (__builtin_expect(b == 0, 0)) integer_division_by_zero();
#endif
}

// The ends of a type's range, where reductions by maximum and minimum start.
template <class T>
constexpr T least() {
  return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                              : std::numeric_limits<T>::lowest();
}
template <class T>
constexpr T greatest() {
  return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                              : std::numeric_limits<T>::max();
}

FL_MATH_FUNCTION int64_t abs(int64_t x) {
  return x < 0 ? -x : x;
}
FL_MATH_FUNCTION int64_t maximum(int64_t a, int64_t b) {
  return a > b ? a : b;
}
FL_MATH_FUNCTION int64_t minimum(int64_t a, int64_t b) {
  return a < b ? a : b;
}
FL_MATH_FUNCTION int64_t fmax(int64_t a, int64_t b) {
  return a > b ? a : b;
}
FL_MATH_FUNCTION int64_t fmin(int64_t a, int64_t b) {
  return a < b ? a : b;
}
FL_MATH_FUNCTION int64_t trunc_divide(int64_t a, int64_t b) {
  check_divisor(b);
  return b == -1 ? -a : a / b;
}
FL_MATH_FUNCTION int64_t fmod(int64_t a, int64_t b) {
  check_divisor(b);
  return b == -1 ? 0 : a % b;
}
// Whether a remainder has the other sign than its divisor; without jumps, which signs of data would mislead.
FL_MATH_FUNCTION int64_t has_other_sign(int64_t r, int64_t b) {
  return (r != 0) & ((r ^ b) < 0);
}
FL_MATH_FUNCTION int64_t remainder(int64_t a, int64_t b) {
  const int64_t r = fmod(a, b);
  return r + (b & -has_other_sign(r, b));
}
FL_MATH_FUNCTION int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t q = trunc_divide(a, b);
  return q - has_other_sign(a - q * b, b);
}
FL_MATH_FUNCTION int64_t ipow(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  int64_t result = 1;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

template <class T>
FL_MATH_FUNCTION T igamma(T a, T x) {
  return gammainc(a, x);
}
template <class T>
FL_MATH_FUNCTION T igammac(T a, T x) {
  return gammaincc(a, x);
}

}  // namespace fl::math
