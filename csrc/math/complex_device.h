// The complex functions that kernels on the device use, beside those of CUDA's standard library: where that
// loses digits or overflows they are computed as by Kahan ("Branch cuts for complex elementary functions"),
// from a square root that is exact on the axes.
#pragma once

#include <cmath>
#include <cuda/std/complex>

#include "math/math_basics.h"

namespace fl {
namespace math {
namespace complex_library {

using ::cuda::std::abs;
using ::cuda::std::arg;
using ::cuda::std::complex;
using ::cuda::std::conj;
using ::cuda::std::exp;
using ::cuda::std::tan;
using ::cuda::std::tanh;

using Number = complex<double>;

FL_MATH_FUNCTION Number sqrt(Number z) {
  const double a = z.real(), b = z.imag();
  if (a == 0 && b == 0) return {0.0, b};
  if (std::isinf(b)) return {std::numeric_limits<double>::infinity(), b};
  if (std::isinf(a))
    return a > 0 ? Number(a, b != b ? b : ::copysign(0.0, b)) : Number(b != b ? b : 0.0, ::copysign(-a, b));
  // Scaled so that the modulus does not overflow.
  const bool large = ::fabs(a) > 1e150 || ::fabs(b) > 1e150;
  const double scale = large ? 0x1p-200 : 1.0, x = a * scale, y = b * scale;
  const double t = ::sqrt((::fabs(x) + ::hypot(x, y)) * 0.5) * (large ? 0x1p100 : 1.0);
  const double other = ::fabs(b) / (2 * t);
  return a >= 0 ? Number(t, ::copysign(other, b)) : Number(other, ::copysign(t, b));
}

// The logarithm of the modulus without its cancellation near 1.
FL_MATH_FUNCTION Number log(Number z) {
  const double a = ::fabs(z.real()), b = ::fabs(z.imag());
  const double high = a > b ? a : b, low = a > b ? b : a;
  double size;
  if (high > 0.5 && high < 1.5)
    size = 0.5 * ::log1p((high - 1) * (high + 1) + low * low);
  else
    size = ::log(::hypot(a, b));
  return {size, ::atan2(z.imag(), z.real())};
}
FL_MATH_FUNCTION Number log10(Number z) {
  const Number w = log(z);
  return {w.real() * 0.43429448190325182765, w.imag() * 0.43429448190325182765};
}
FL_MATH_FUNCTION Number pow(Number z, Number w) {
  return exp(w * log(z));
}

// A factor of 0 stays one where the other overflows.
FL_MATH_FUNCTION Number sinh(Number z) {
  const double a = z.real(), b = z.imag();
  if (b == 0) return {::sinh(a), b};
  if (a == 0) return {a, ::sin(b)};
  return {::sinh(a) * ::cos(b), ::cosh(a) * ::sin(b)};
}
FL_MATH_FUNCTION Number cosh(Number z) {
  const double a = z.real(), b = z.imag();
  if (b == 0 || a == 0) return {::cosh(a) * ::cos(b), ::copysign(0.0, a) * ::copysign(1.0, b)};
  return {::cosh(a) * ::cos(b), ::sinh(a) * ::sin(b)};
}
FL_MATH_FUNCTION Number sin(Number z) {
  const Number w = sinh(Number(-z.imag(), z.real()));
  return {w.imag(), -w.real()};
}
FL_MATH_FUNCTION Number cos(Number z) {
  return cosh(Number(-z.imag(), z.real()));
}

// The parts of a product.
FL_MATH_FUNCTION double real_product(Number p, Number q) {
  return p.real() * q.real() - p.imag() * q.imag();
}
FL_MATH_FUNCTION double imaginary_product(Number p, Number q) {
  return p.real() * q.imag() + p.imag() * q.real();
}

FL_MATH_FUNCTION Number asin(Number z) {
  const Number low = sqrt(Number(1 - z.real(), -z.imag())), high = sqrt(Number(1 + z.real(), z.imag()));
  return {::atan2(z.real(), real_product(low, high)), ::asinh(imaginary_product(conj(low), high))};
}
FL_MATH_FUNCTION Number acos(Number z) {
  const Number low = sqrt(Number(1 - z.real(), -z.imag())), high = sqrt(Number(1 + z.real(), z.imag()));
  return {2 * ::atan2(low.real(), high.real()), ::asinh(imaginary_product(conj(high), low))};
}
FL_MATH_FUNCTION Number acosh(Number z) {
  const Number low = sqrt(Number(z.real() - 1, z.imag())), high = sqrt(Number(z.real() + 1, z.imag()));
  return {::asinh(real_product(conj(low), high)), 2 * ::atan2(low.imag(), high.real())};
}
FL_MATH_FUNCTION Number asinh(Number z) {
  const Number w = asin(Number(-z.imag(), z.real()));
  return {w.imag(), -w.real()};
}

FL_MATH_FUNCTION Number atanh(Number z) {
  const double a = ::fabs(z.real()), b = z.imag();
  const double size = 0.25 * ::log1p(4 * a / ((1 - a) * (1 - a) + b * b));
  return {::copysign(size, z.real()), 0.5 * ::atan2(2 * b, (1 - a) * (1 + a) - b * b)};
}
FL_MATH_FUNCTION Number atan(Number z) {
  const Number w = atanh(Number(-z.imag(), z.real()));
  return {w.imag(), -w.real()};
}

}  // namespace complex_library
}  // namespace math
}  // namespace fl
