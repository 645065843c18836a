// Powers and roots, and functions of two numbers. Private to math.h.
#pragma once

#include "math/math_trigonometry.h"

namespace fl {
namespace math {
namespace detail {

// --- Power ---

// |x|^y in the precision needed for a float result, without the special cases.
FL_MATH_INLINE float pow_magnitude(float a, float y) {
  const double x = a;
  const auto [e, f] = reduce_log_normal(x);  // every float is a normal double
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double r = poly(z, 0.66666666710306044, 0.39999984632860824, 0.28573182884956722, 0.22135171771408718,
                        0.20121821002488138);
  double log2x = fma(s * fma(z, r, 2.0), Fp<double>::log2e, e);
  log2x = select(a == 0.0f, -infinity<double>(), log2x);
  log2x = select(a < infinity<float>(), log2x, x);
  const double t = clamp_magnitude(double(y) * log2x, 200.0);
  const double n = (t + Fp<double>::integer_shift) - Fp<double>::integer_shift;
  const double g = t - n;
  const double p = poly(g, 0.69314720282916651, 0.24022647913545, 0.0555033241, 0.0096184376, 0.00133989004,
                        0.000153533427);
  return static_cast<float>(fma(g, p, 1.0) * power_of_two(n));
}

// The logarithm is carried to about 68 bits, because the exponent multiplies its relative error
// by up to 1000. Every error-compensating product is an explicit fma, so that contraction of
// ordinary expressions by the compiler cannot count a rounding error twice.
FL_MATH_INLINE double pow_magnitude(double a, double y) {
  using F = Fp<double>;
  constexpr uint64_t sqrt_half_bits = 0x3fe6a09e667f3bcdull;
  const bool denormal = a < F::min_normal;
  const uint64_t shifted = to_bits(denormal ? a * F::denormal_scale : a) + (F::one_bits - sqrt_half_bits);
  const double e = from_bits((shifted >> 52) | to_bits(F::two_to_mantissa)) - (F::two_to_mantissa + F::bias) -
                   (denormal ? F::denormal_shift : 0.0);
  const double f = from_bits((shifted & F::mantissa_mask) + sqrt_half_bits) - 1.0;

  // s = f / (2 + f)
  const double d = 2.0 + f;
  const double d_tail = f - (d - 2.0);
  const double inverse = 1.0 / d;
  const double s = f * inverse;
  const double s_tail = inverse * (fma(-s, d, f) - s * d_tail);
  // z = s^2
  const double z = s * s;
  const double z_tail = fma(2.0 * s, s_tail, fma(s, s, -z));
  // log(1 + f) = s (2 + v), v = z (2/3 + z Q(z))
  const double q = poly(z, 0.39999999999999974, 0.28571428571445695, 0.22222222217394264, 0.18181818887745083,
                        0.15384555682907719, 0.13336363091679385, 0.11673892054997598, 0.11996723710728405);
  constexpr double two_thirds = 0x1.5555555555555p-1, two_thirds_tail = 0x1.5555555555555p-55;
  const double rest = fma(z * z, q, fma(z, two_thirds_tail, z_tail * two_thirds));
  const double v = fma(z, two_thirds, rest);
  const double v_tail = fma(z, two_thirds, -v) + rest;
  const double w = 2.0 + v;
  const double w_tail = ((2.0 - w) + v) + v_tail;
  const double l = s * w;
  const double l_tail = fma(s, w, -l) + fma(s, w_tail, s_tail * w);
  // log2|x| = e + l log2(e)
  double g = fma(l, F::log2e, e);
  const double g_tail = fma(l, F::log2e, e - g) + fma(l, F::log2e_tail, l_tail * F::log2e);
  g = select(a == 0.0, -infinity<double>(), g);
  g = select(a < infinity<double>(), g, a);

  const double t = y * g;
  const bool extreme = !(abs_of(t) < 1100.0);  // the result is 0, inf or NaN whatever the tail
  const double bounded = clamp_magnitude(t, 1100.0);
  const auto exponent = round_exponent(bounded, 1.0);
  const double n = exponent.n;
  const double r = select(extreme, bounded - n, fma(y, g, -n) + y * g_tail);
  return exponent.scale(fma(r, exp2_poly(r), 1.0));
}

template <class T>
FL_MATH_INLINE T pow_impl(T x, T y) {
  const T a = abs_of(x);
  T result = pow_magnitude(a, y);
  result = select(a == T(1), T(1), result);  // also 1^inf; NaN exponents are handled below
  const bool integer = to_even(y) == y;      // includes infinities, which count as even
  const T half = y * T(0.5);
  const bool odd = integer && to_even(half) != half;
  const bool negative = (to_bits(x) & Fp<T>::sign_mask) != 0;
  result = select(negative && odd, -result, result);
  result = select(x < T(0) && a < infinity<T>() && !integer, quiet_nan<T>(), result);
  result = select(x == x && y == y, result, x + y);
  return select(y == T(0) || x == T(1), T(1), result);
}

// A first root by logarithm and one Newton step; small numbers are scaled up by 2^60, because
// the residual of the step would be denormal.
template <class T>
FL_MATH_INLINE T cbrt_impl(T x) {
  const bool small = abs_of(x) < T(0x1p-60);
  const T a = abs_of(x) * select(small, T(0x1p60), T(1));
  const T y = exp_impl(log_impl(a) * T(1.0 / 3.0));
  const T square = y * y;
  const T refined = (y - fma(square, y, -a) / (T(3) * square)) * select(small, T(0x1p-20), T(1));
  // Zero, infinity and NaN pass through.
  return select(a > T(0) && a < infinity<T>(), with_sign_of(refined, x), x);
}

// --- Combinations ---

template <class T>
FL_MATH_INLINE T maximum_impl(T x, T y) {
  return select(x != x, x, select(x > y, x, y));
}
template <class T>
FL_MATH_INLINE T minimum_impl(T x, T y) {
  return select(x != x, x, select(x < y, x, y));
}

FL_MATH_INLINE float hypot_impl(float x, float y) {
  const double dx = x, dy = y;
  const float result = static_cast<float>(sqrt_of(fma(dx, dx, dy * dy)));
  return select(abs_of(x) == infinity<float>() || abs_of(y) == infinity<float>(), infinity<float>(), result);
}
FL_MATH_INLINE double hypot_impl(double x, double y) {
  const double ax = abs_of(x), ay = abs_of(y);
  const double larger = select(ax > ay, ax, ay), smaller = select(ax > ay, ay, ax);
  const bool big = larger > 0x1p500, small = larger < 0x1p-450;
  const double scale = select(big, 0x1p-600, select(small, 0x1p600, 1.0));
  const double inverse = select(big, 0x1p600, select(small, 0x1p-600, 1.0));
  const double a = larger * scale, b = smaller * scale;
  const double result = sqrt_of(fma(a, a, b * b)) * inverse;
  return select(ax == infinity<double>() || ay == infinity<double>(), infinity<double>(), result);
}

template <class T>
FL_MATH_INLINE T logaddexp_impl(T x, T y) {
  const T m = maximum_impl(x, y);
  const T result = m + log1p_impl(exp_impl(-abs_of(x - y)));
  return select(x == y && abs_of(x) == infinity<T>(), x, result);  // inf - inf is NaN above
}
template <class T>
FL_MATH_INLINE T logaddexp2_impl(T x, T y) {
  const T m = maximum_impl(x, y);
  const T result = m + log1p_impl(exp2_impl(-abs_of(x - y))) * Fp<T>::log2e;
  return select(x == y && abs_of(x) == infinity<T>(), x, result);
}

template <class T>
FL_MATH_INLINE T nextafter_impl(T x, T y) {
  using UInt = typename Fp<T>::UInt;
  const bool away_from_zero = (y > x) == (x > T(0));
  const T stepped = from_bits(to_bits(x) + (away_from_zero ? UInt(1) : ~UInt(0)));
  const T from_zero = with_sign_of(from_bits(UInt(1)), y);
  T result = select(x == T(0), from_zero, stepped);
  result = select(x == y, y, result);
  return select(x == x && y == y, result, x + y);
}

// x * 2^n for any n: three factors, because 2^n itself may be out of range for a denormal x.
template <class T>
FL_MATH_INLINE T ldexp_impl(T x, T n) {
  constexpr T bound = T(Fp<T>::bias - 1);
  n = at_most(at_least(n, T(-3) * bound), T(3) * bound);
  const T first = at_most(at_least(n, -bound), bound);
  const T second = at_most(at_least(n - first, -bound), bound);
  return x * power_of_two(first) * power_of_two(second) * power_of_two(n - first - second);
}

// Scalar: the C remainder is exact for every ratio, which takes a loop in the library.
template <class T>
FL_MATH_FUNCTION T remainder_impl(T x, T y) {
  const T r = std::fmod(x, y);
  return (r != T(0) && (r < T(0)) != (y < T(0))) ? r + y : r;
}
template <class T>
FL_MATH_FUNCTION T floor_divide_impl(T x, T y) {
  if (y == T(0)) return x / y;
  const T r = std::fmod(x, y);
  // (x - r) / y is a whole number up to rounding.
  T quotient = (x - r) / y;
  if (r != T(0) && (r < T(0)) != (y < T(0))) quotient -= T(1);
  if (quotient == T(0)) return std::copysign(T(0), x / y);
  const T floored = std::floor(quotient);
  return quotient - floored > T(0.5) ? floored + T(1) : floored;
}

}  // namespace detail
}  // namespace math
}  // namespace fl
