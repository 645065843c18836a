// Trigonometric and hyperbolic functions and their inverses. Private to math.h.
#pragma once

#include "math/math_exponential.h"

namespace fl {
namespace math {
namespace detail {

// --- Trigonometry ---

// x = quadrant * pi/2 + r + r_tail with |r| <= pi/4; `quadrant` is exact modulo 4 only.
template <class T>
struct TrigReduced {
  T r, r_tail;
  typename Fp<T>::UInt quadrant;
};

// Valid for |x| up to trig_limit: n * (pi/2 head) is subtracted exactly by the fused operation.
FL_MATH_INLINE TrigReduced<double> reduce_trig(double x) {
  constexpr double two_over_pi = 0x1.45f306dc9c883p-1;
  constexpr double p1 = 0x1.921fb54442d18p+0, p2 = 0x1.1a62633145c07p-54, p3 = -0x1.f1976b7ed8fbcp-110;
  const double shifted = fma(x, two_over_pi, Fp<double>::integer_shift);
  const double n = shifted - Fp<double>::integer_shift;
  const double r1 = fma(n, -p1, x);
  // r1 - n p2 with its rounding error, which matters where the two nearly cancel.
  const double h = n * p2;
  const double h_tail = fma(n, p2, -h);
  const double r = r1 - h;
  const double moved = r - r1;
  const double error = (r1 - (r - moved)) - (h + moved);
  return {r, fma(n, -p3, error - h_tail), to_bits(shifted)};
}
// Single precision reduces in double, which costs little and stays right far beyond 1e7.
FL_MATH_INLINE TrigReduced<float> reduce_trig(float x) {
  constexpr double two_over_pi = 0x1.45f306dc9c883p-1;
  constexpr double p1 = 0x1.921fb54442d18p+0, p2 = 0x1.1a62633145c07p-54;
  const double wide = x;
  const double shifted = fma(wide, two_over_pi, Fp<double>::integer_shift);
  const double n = shifted - Fp<double>::integer_shift;
  const double r = fma(n, -p2, fma(n, -p1, wide));
  const float head = static_cast<float>(r);
  return {head, static_cast<float>(r - head), static_cast<uint32_t>(to_bits(shifted))};
}

FL_MATH_INLINE float sin_reduced(float r, float) {
  const float z = r * r;
  return fma(r * z, poly(z, -0.166666546f, 0.00833215841f, -0.000195149579f), r);
}
FL_MATH_INLINE double sin_reduced(double r, double r_tail) {
  const double z = r * r;
  const double p = poly(z, -0.1666666666666663, 0.0083333333333220627, -0.00019841269829542807,
                        2.7557313604589275e-06, -2.5050745046983503e-08, 1.5896068012454118e-10);
  return r + fma(r * z, p, fma(-0.5 * z, r_tail, r_tail));
}
FL_MATH_INLINE float cos_reduced(float r, float) {
  const float z = r * r;
  const float p = poly(z, 0.0416666456f, -0.00138873131f, 2.44327862e-05f);
  return fma(z * z, p, fma(z, -0.5f, 1.0f));
}
FL_MATH_INLINE double cos_reduced(double r, double r_tail) {
  const double z = r * r;
  const double p = poly(z, 0.041666666666666595, -0.0013888888888872975, 2.4801587288800197e-05,
                        -2.7557314164020834e-07, 2.0875698714157818e-09, -1.1358423795670207e-11);
  const double head = fma(z, -0.5, 1.0);
  const double error = fma(z, -0.5, 1.0 - head);
  return head + fma(z * z, p, fma(-r, r_tail, error));
}

// sin(x + quarter_turns * pi/2).
template <class T>
FL_MATH_INLINE T sin_shifted(T x, int quarter_turns) {
  using F = Fp<T>;
  const auto reduced = reduce_trig(x);
  const typename F::UInt quadrant = reduced.quadrant + typename F::UInt(quarter_turns);
  const T s = sin_reduced(reduced.r, reduced.r_tail);
  const T c = cos_reduced(reduced.r, reduced.r_tail);
  const T value = select((quadrant & 1) != 0, c, s);
  const typename F::UInt flip = (quadrant << (sizeof(T) * 8 - 2)) & F::sign_mask;
  return from_bits(to_bits(value) ^ flip);
}

template <class T>
FL_MATH_INLINE T sin_impl(T x) {
  return select(x == T(0), x, sin_shifted(x, 0));  // keeps the sign of -0
}
template <class T>
FL_MATH_INLINE T cos_impl(T x) {
  return sin_shifted(x, 1);
}

FL_MATH_INLINE float tan_impl(float x) {
  const auto reduced = reduce_trig(x);
  const float r = reduced.r;
  const float z = r * r;
  const float p = poly(z, 0.333333499f, 0.133326584f, 0.0540604935f, 0.0212791134f, 0.0108440169f,
                       7.88470616e-05f, 0.00438168567f);
  const float t = r + fma(r * z, p, fma(z, reduced.r_tail, reduced.r_tail));
  const float result = select((reduced.quadrant & 1) != 0, -1.0f / t, t);
  return select(x == 0.0f, x, result);
}
FL_MATH_INLINE double tan_impl(double x) {
  const auto reduced = reduce_trig(x);
  const double s = sin_reduced(reduced.r, reduced.r_tail);
  const double c = cos_reduced(reduced.r, reduced.r_tail);
  const bool odd = (reduced.quadrant & 1) != 0;
  const double result = select(odd, -c, s) / select(odd, s, c);
  return select(x == 0.0, x, result);
}

// (asin(s) - s) / s^3 as a polynomial in z = s^2 <= 1/4.
FL_MATH_INLINE float asin_poly(float z) {
  return poly(z, 0.166667527f, 0.0749528871f, 0.0454716017f, 0.0241729825f, 0.0421781723f);
}
FL_MATH_INLINE double asin_poly(double z) {
  return poly(z, 0.1666666666666676, 0.074999999999706371, 0.044642857174776708, 0.030381942699473412,
              0.02237221523232711, 0.017351607440598819, 0.013980877391068352, 0.011398431277258909,
              0.010783034243723568, 0.0036955881006629065, 0.021734519711112291, -0.02103840414556923,
              0.032653857114794092);
}

// asin(s) = s + tail, where s = a for a <= 1/2 and s = sqrt((1 - a) / 2) above; in the second
// case asin(a) = pi/2 - 2 asin(s).
template <class T>
struct AsinReduced {
  T s, tail;
  bool large;
};
template <class T>
FL_MATH_INLINE AsinReduced<T> asin_core(T a) {
  const bool large = a > T(0.5);
  const T half_complement = fma(a, T(-0.5), T(0.5));
  const T z = blend(large, half_complement, a * a);
  const T s = blend(large, sqrt_of(half_complement), a);
  return {s, s * z * asin_poly(z), large};
}
template <class T>
FL_MATH_INLINE T asin_impl(T x) {
  const auto core = asin_core(abs_of(x));
  constexpr T half_pi = T(0.5) * Fp<T>::pi, half_pi_tail = T(0.5) * Fp<T>::pi_tail;
  const T head = fma(T(-2), core.s, half_pi);
  const T error = fma(T(-2), core.s, half_pi - head);
  const T complement = head + fma(T(-2), core.tail, error + half_pi_tail);
  return with_sign_of(select(core.large, complement, core.s + core.tail), x);
}
template <class T>
FL_MATH_INLINE T acos_impl(T x) {
  const auto core = asin_core(abs_of(x));
  const T p = core.s + core.tail;
  const T middle = T(0.5) * Fp<T>::pi - (with_sign_of(p, x) - T(0.5) * Fp<T>::pi_tail);
  const T twice = T(2) * p;
  const T far = select(x < T(0), Fp<T>::pi - (twice - Fp<T>::pi_tail), twice);
  return select(core.large, far, middle);
}

// atan(numerator / denominator) for 0 <= numerator <= denominator.
FL_MATH_INLINE float atan_ratio(float numerator, float denominator) {
  const float q = numerator / denominator;
  const float z = q * q;
  const float p = poly(z, -0.333332991f, 0.199985483f, -0.14264242f, 0.109521874f, -0.0840345486f,
                       0.0579576699f, -0.0311779204f, 0.0109146448f, -0.00179363022f);
  return fma(q * z, p, q);
}
FL_MATH_INLINE double atan_ratio(double numerator, double denominator) {
  // Above tan(pi/8) the argument is turned by pi/4.
  const bool turn = numerator > 0.41421356237309503 * denominator;
  const double q =
      select(turn, numerator - denominator, numerator) / select(turn, numerator + denominator, denominator);
  const double z = q * q;
  const double p =
      poly(z, -0.33333333333333193, 0.19999999999952389, -0.14285714280075779, 0.11111110777427156,
           -0.090908975844814138, 0.076920571362835727, -0.066630690655262836, 0.058476346402753586,
           -0.050381559680219019, 0.038035328895460747, -0.017875135557464453);
  const double tail = q * z * p;
  const double turned = 0.25 * Fp<double>::pi + (q + (tail + 0.25 * Fp<double>::pi_tail));
  return select(turn, turned, q + tail);
}
template <class T>
FL_MATH_INLINE T atan_impl(T x) {
  const T a = abs_of(x);
  const bool inverted = a > T(1);
  // 1/a for infinite a is formed as 0/1.
  const T t = atan_ratio(select(inverted, T(1), a), select(inverted, a, T(1)));
  const T complement = T(0.5) * Fp<T>::pi - (t - T(0.5) * Fp<T>::pi_tail);
  return with_sign_of(select(inverted, complement, t), x);
}
template <class T>
FL_MATH_INLINE T atan2_impl(T y, T x) {
  using F = Fp<T>;
  const T ay = abs_of(y), ax = abs_of(x);
  const bool steep = ay > ax;
  T numerator = select(steep, ax, ay), denominator = select(steep, ay, ax);
  // inf/inf counts as 1 and 0/0 as 0; very large values are scaled so that their sum is finite.
  const bool both_infinite = numerator == infinity<T>();
  const T scale = select(denominator > T(1) / F::min_normal, T(0.25), T(1));
  numerator = select(both_infinite, T(1), numerator * scale);
  denominator = select(both_infinite, T(1), denominator * scale);
  denominator = select(denominator == T(0), T(1), denominator);
  T t = atan_ratio(numerator, denominator);
  t = select(steep, T(0.5) * F::pi - (t - T(0.5) * F::pi_tail), t);
  const bool x_negative = (to_bits(x) & F::sign_mask) != 0;  // also for -0
  t = select(x_negative, F::pi - (t - F::pi_tail), t);
  t = with_sign_of(t, y);
  return select(x == x && y == y, t, x + y);
}

// --- Hyperbolic functions ---

template <class T>
FL_MATH_INLINE T sinh_impl(T x) {
  const T q = quarter_expm1(abs_of(x));
  const T result = with_sign_of(T(2) * (q + q / fma(T(4), q, T(1))), x);
  return select(abs_of(x) < Fp<T>::tiny, x, result);
}
template <class T>
FL_MATH_INLINE T cosh_impl(T x) {
  const auto [n, r] = reduce_exp(at_most(abs_of(x), Fp<T>::sinh_high));
  const T quarter = exp_reduced(r) * power_of_two(n - T(2));  // e^|x| / 4 stays finite
  return T(2) * (quarter + T(0.0625) / quarter);
}
template <class T>
FL_MATH_INLINE T asinh_impl(T x) {
  const T a = abs_of(x);
  const bool large = a > Fp<T>::huge;
  const T square = a * a;
  const T u = a + square / (T(1) + sqrt_of(square + T(1)));
  const T result = log1p_impl(select(large, a, u)) + select(large, Fp<T>::ln2, T(0));
  return with_sign_of(result, x);
}
template <class T>
FL_MATH_INLINE T acosh_impl(T x) {
  const bool large = x > Fp<T>::huge;
  const T t = x - T(1);
  const T u = t + sqrt_of(t * (t + T(2)));
  const T result = log1p_impl(select(large, x, u)) + select(large, Fp<T>::ln2, T(0));
  return select(x < T(1), quiet_nan<T>(), result);
}
template <class T>
FL_MATH_INLINE T atanh_impl(T x) {
  const T a = abs_of(x);
  const T result = T(0.5) * log1p_impl(T(2) * a / (T(1) - a));
  return with_sign_of(select(a < Fp<T>::tiny, a, select(a > T(1), quiet_nan<T>(), result)), x);
}

}  // namespace detail
}  // namespace math
}  // namespace fl
