// Exponentials, logarithms, tanh and the error function. Private to math.h.
#pragma once

#include "math/math_basics.h"

namespace fl {
namespace math {
namespace detail {

// (e^r - 1 - r) / r^2 for |r| <= ln(2)/2.
FL_MATH_INLINE float exp_tail_poly(float r) {
  return poly(r, 0.499999982f, 0.166665436f, 0.0416671999f, 0.00836652044f, 0.0013882519f);
}
FL_MATH_INLINE double exp_tail_poly(double r) {
  return poly(r, 0.50000000000000056, 0.16666666666666588, 0.041666666666576757, 0.0083333333333895226,
              0.0013888888931563835, 0.00019841269719080281, 2.4801505274947779e-05, 2.7557407470095599e-06,
              2.7626037460176047e-07, 2.5053799511092794e-08);
}

// (2^r - 1) / r for |r| <= 1/2.
FL_MATH_INLINE float exp2_poly(float r) {
  return poly(r, 0.693147203f, 0.240226479f, 0.0555033241f, 0.0096184376f, 0.00133989004f, 0.000153533427f);
}
FL_MATH_INLINE double exp2_poly(double r) {
  return poly(r, 0.69314718055994529, 0.2402265069591013, 0.055504108664820077, 0.0096181291075940652,
              0.0013333558146775206, 0.00015403530457187622, 1.5252733492730257e-05, 1.3215435241562662e-06,
              1.0178199670676154e-07, 7.0737907208200215e-09, 4.4347660124464983e-10);
}

// x = n ln2 + r.
template <class T>
struct ExpReduced {
  T n, r;
};
template <class T>
FL_MATH_INLINE ExpReduced<T> reduce_exp(T x) {
  const T n = fma(x, Fp<T>::log2e, Fp<T>::integer_shift) - Fp<T>::integer_shift;
  const T r = fma(n, -Fp<T>::ln2_tail, fma(n, -Fp<T>::ln2, x));
  return {n, r};
}
// e^r of a reduced argument.
template <class T>
FL_MATH_INLINE T exp_reduced(T r) {
  return fma(r, fma(r, exp_tail_poly(r), T(1)), T(1));
}

template <class T>
FL_MATH_INLINE T exp_impl(T x) {
  x = clamp_magnitude(x, Fp<T>::exp_limit);
  const auto exponent = round_exponent(x, Fp<T>::log2e);
  const T r = fma(exponent.n, -Fp<T>::ln2_tail, fma(exponent.n, -Fp<T>::ln2, x));
  return exponent.scale(exp_reduced(r));
}

template <class T>
FL_MATH_INLINE T exp2_impl(T x) {
  x = clamp_magnitude(x, Fp<T>::exp2_limit);
  const auto exponent = round_exponent(x, T(1));
  const T r = x - exponent.n;
  return exponent.scale(fma(r, exp2_poly(r), T(1)));
}

// (e^x - 1) / 4; the division keeps the whole range of sinh and expm1 finite.
template <class T>
FL_MATH_INLINE T quarter_expm1(T x) {
  x = at_most(at_least(x, Fp<T>::expm1_low), Fp<T>::sinh_high);
  const auto [n, r] = reduce_exp(x);
  const T s = power_of_two(n - T(2));
  // s * e^r - 1/4, where s * r is exact: the sum of the two large terms is kept with its error.
  const T offset = s - T(0.25);
  const T head = fma(s, r, offset);
  const T error = fma(s, r, offset - head);
  return head + fma(s, r * r * exp_tail_poly(r), error);
}

template <class T>
FL_MATH_INLINE T expm1_impl(T x) {
  const T result = T(4) * quarter_expm1(x);
  return select(abs_of(x) < Fp<T>::tiny, x, result);
}

// A positive normal x = 2^e (1 + f) with 1 + f in [2/3, 4/3).
template <class T>
struct LogReduced {
  T e, f;
};
template <class T>
FL_MATH_INLINE LogReduced<T> reduce_log_normal(T x) {
  using F = Fp<T>;
  const typename F::UInt shifted = to_bits(x) + (F::one_bits - F::two_thirds_bits);
  // The exponent field placed in the low mantissa bits of 2^mantissa_bits, read as a number.
  const T e = from_bits((shifted >> F::mantissa_bits) | to_bits(F::two_to_mantissa)) -
              (F::two_to_mantissa + T(F::bias));
  const T m = from_bits((shifted & F::mantissa_mask) + F::two_thirds_bits);
  return {e, m - T(1)};
}
template <class T>
FL_MATH_INLINE LogReduced<T> reduce_log(T x) {
  using F = Fp<T>;
  const bool denormal = x < F::min_normal;
  auto reduced = reduce_log_normal(denormal ? x * F::denormal_scale : x);
  reduced.e -= denormal ? F::denormal_shift : T(0);
  return reduced;
}

// log(1 + f) - f for 1 + f in [2/3, 4/3].
FL_MATH_INLINE float log1p_tail(float f) {
  const float p = poly(f, 0.33333216f, -0.249997977f, 0.200104056f, -0.166804861f, 0.140058742f,
                       -0.121842782f, 0.139844099f, -0.128916118f);
  return f * f * fma(f, p, -0.5f);
}
FL_MATH_INLINE double log1p_tail(double f) {
  // With s = f / (2 + f): log(1 + f) = 2 atanh(s) = f - (h - s (h + R)), h = f^2 / 2.
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double r =
      z * poly(z, 0.66666666666672714, 0.39999999996161578, 0.28571429395304132, 0.22222138500617308,
               0.18186356100586282, 0.15250188069433213, 0.15368194288426371);
  const double h = 0.5 * f * f;
  return fma(s, h + r, -h);
}

// log(2^e (1 + f)).
template <class T>
FL_MATH_INLINE T log_of_reduced(T e, T f) {
  return fma(e, Fp<T>::ln2, f + fma(e, Fp<T>::ln2_tail, log1p_tail(f)));
}

// Values of a logarithm at the arguments where it is not a plain number.
template <class T>
FL_MATH_INLINE T log_special(T x, T result) {
  result = select(x == T(0), -infinity<T>(), result);
  result = select(x < infinity<T>(), result, x);  // inf and NaN
  return select(x < T(0), quiet_nan<T>(), result);
}

template <class T>
FL_MATH_INLINE T log_impl(T x) {
  const auto [e, f] = reduce_log(x);
  return log_special(x, log_of_reduced(e, f));
}

// Logarithm to another base: c = 1/ln(base) and k = log_base(2), each as head + tail, where
// e * k_head is exact.
template <class T>
FL_MATH_INLINE T log_base(T x, T c, T c_tail, T k, T k_tail) {
  const auto [e, f] = reduce_log(x);
  const T exponent_part = e * k;
  const T head = fma(f, c, exponent_part);
  const T error = fma(f, c, exponent_part - head);
  const T tail = fma(log1p_tail(f), c, fma(f, c_tail, e * k_tail));
  return log_special(x, head + (error + tail));
}

template <class T>
FL_MATH_INLINE T log1p_impl(T x) {
  using F = Fp<T>;
  const T u = T(1) + x;
  const auto reduced = reduce_log_normal(u);
  // f is recomputed from x, because forming u has lost the low bits of x.
  const bool large = x > F::huge;
  const T scale = power_of_two(select(large, T(0), -reduced.e));
  const T f = select(large, reduced.f, fma(x, scale, scale - T(1)));
  T result = log_of_reduced(reduced.e, f);
  result = select(abs_of(x) < F::tiny, x, result);
  result = select(x == T(-1), -infinity<T>(), result);
  result = select(x < infinity<T>(), result, x);
  return select(x < T(-1), quiet_nan<T>(), result);
}

// tanh|x| = t / (t + 2) with t = expm1(2|x|). The rounding errors of t and of t + 2 are carried
// into one correction of the quotient.
FL_MATH_INLINE double tanh_impl(double x) {
  using T = double;
  const T a = T(2) * at_most(abs_of(x), Fp<T>::tanh_high);
  const auto [n, r] = reduce_exp(a);
  const T s = power_of_two(n);
  const T offset = s - T(1);
  const T head = fma(s, r, offset);
  const T rest = fma(s, r * r * exp_tail_poly(r), fma(s, r, offset - head));
  const T t = head + rest;
  const T t_error = (head - t) + rest;
  const T d = t + T(2);
  const T d_error = select(t > T(2), (t - d) + T(2), (T(2) - d) + t) + t_error;
  const T inverse = T(1) / d;
  const T q = t * inverse;
  const T residual = fma(-q, d, t) + fma(-q, d_error, t_error);
  return with_sign_of(fma(residual, inverse, q), x);
}
// Single precision needs no such care: a short odd polynomial near zero, and 1 - 2 / (e^2a + 1),
// where half the error of the quotient is lost in the subtraction.
FL_MATH_INLINE float tanh_impl(float x) {
  using F = Fp<float>;
  const float z = x * x;
  const float small =
      fma(x * z, poly(z, -0.333333175f, 0.133325851f, -0.053852197f, 0.0210711805f, -0.00627348959f), x);
  const float a = at_most(abs_of(x), F::tanh_high);
  constexpr float shift = F::integer_shift + float(F::bias);
  const float shifted = fma(a, 2.0f * F::log2e, shift);
  const float r = fma(shifted - shift, -0.5f * F::ln2, a);
  const float p =
      poly(r, 1.0f, 2.0f, 1.99999974f, 1.33332165f, 0.666694219f, 0.267799157f, 0.0884133429f);  // e^2r
  const float scale = from_bits(to_bits(shifted) << F::mantissa_bits);
  const float large = fma(-2.0f, 1.0f / fma(p, scale, 1.0f), 1.0f);
  return with_sign_of(select(abs_of(x) < 0.55f, small, large), x);
}

template <class T>
FL_MATH_INLINE T sigmoid_impl(T x) {
  const T e = exp_impl(-abs_of(x));
  return select(x < T(0), e, T(1)) / (T(1) + e);
}

// erf(x) / x - 1 as a polynomial in x^2, for |x| <= 1.
FL_MATH_INLINE float erf_small_poly(float z) {
  return poly(z, 0.128379167f, -0.376126258f, 0.112835852f, -0.026853812f, 0.00518832787f, -0.00080101954f,
              7.85386752e-05f);
}
FL_MATH_INLINE double erf_small_poly(double z) {
  return poly(z, 0.12837916709551257, -0.37612638903183748, 0.11283791670954857, -0.026866170645072896,
              0.0052239776247808636, -0.0008548326978741849, 0.00012055331036881506, -1.4925593506354743e-05,
              1.646097280718597e-06, -1.6350025108435534e-07, 1.4657879026030043e-08, -1.1365662680255592e-09,
              5.9452560624495206e-11);
}

// (1 + 2a) e^(a^2) erfc(a) for a >= 0, a smooth bounded function of q = (a - k) / (a + k).
FL_MATH_INLINE float erfcx_poly(float a) {
  const float q = (a - 2.0f) / (a + 2.0f);
  return poly(q, 1.27697839f, -0.0927639808f, -0.166031425f, 0.164055347f, -0.0542042995f, -0.00805987502f,
              0.00863168464f, 0.00131352407f, -0.00122993124f, -0.000400579308f);
}
FL_MATH_INLINE double erfcx_poly(double a) {
  const double q = (a - 4.0) / (a + 4.0);
  return poly(q, 1.2329951186255526, -0.13962111684056286, 0.01537965210262014, 0.068097054254733544,
              -0.10103906603632355, 0.093732834996914566, -0.066330365812038938, 0.037167515560700345,
              -0.016197734054720275, 0.0050319697706214042, -0.0007577733614278449, -0.00019925557960174959,
              0.00015062229015604215, -2.4402953686427387e-05, -1.1224821448192733e-05,
              5.7174982014771782e-06, 3.0127321684666345e-07, -8.3476574887378266e-07, 6.2888340788304212e-08,
              1.1516008862872043e-07, -7.8420625410611911e-09, -1.3649944590384003e-08,
              -1.8001495074768561e-09);
}

FL_MATH_INLINE float erfc_limit(float) {
  return 10.5f;
}
FL_MATH_INLINE double erfc_limit(double) {
  return 28.0;
}

// erfc(a) for a >= 0, as e^(-a^2) times a quotient. Each factor carries its rounding error along;
// that of a^2 in particular is magnified by the exponential.
template <class T>
FL_MATH_INLINE T erfc_positive(T a) {
  a = at_most(a, erfc_limit(a));
  const T square = a * a;
  const T square_error = fma(a, a, -square);
  const auto exponent = round_exponent(-square, Fp<T>::log2e);
  const T r = fma(exponent.n, -Fp<T>::ln2, -square);
  const T r_tail = fma(exponent.n, -Fp<T>::ln2_tail, -square_error);
  const T w = fma(r * r, exp_tail_poly(r), r);
  const T e = T(1) + w;
  const T e_tail = fma(e, r_tail, (T(1) - e) + w);

  const T numerator = erfcx_poly(a);
  const T d = fma(T(2), a, T(1));
  const T d_error = fma(T(2), a, T(1) - d);
  const T inverse = T(1) / d;
  const T g = numerator * inverse;
  const T g_tail = inverse * (fma(-g, d, numerator) - g * d_error);

  const T product = e * g;
  const T product_tail = fma(e, g, -product) + fma(e, g_tail, e_tail * g);
  return exponent.scale(product + product_tail);
}

template <class T>
FL_MATH_INLINE T erfc_impl(T x) {
  const T a = abs_of(x);
  const T positive = erfc_positive(a);
  const T middle = T(1) - fma(x, erf_small_poly(x * x), x);
  return select(a < T(0.5), middle, select(x < T(0), T(2) - positive, positive));
}

FL_MATH_INLINE float erf_impl(float x) {
  const float a = abs_of(x);
  const float small = fma(x, erf_small_poly(x * x), x);
  // log(erfc(a)) on [1, 4]; erf rounds to one beyond.
  const float b = at_most(a, 4.0f);
  const float y = poly(b, 0.000188467518f, -1.12958031f, -0.633216402f, -0.108422094f, 0.0252103355f,
                       -0.00420528302f, 0.000441472275f, -2.16975802e-05f);
  const float n = fma(y, Fp<float>::log2e, Fp<float>::integer_shift) - Fp<float>::integer_shift;
  const float r = fma(n, -Fp<float>::ln2, y);
  const float e = fma(r * r, poly(r, 0.499992315f, 0.166671147f, 0.0418901557f, 0.0083125193f), r);
  const float scale = power_of_two(n);
  const float large = with_sign_of(1.0f - fma(scale, e, scale), x);
  return select(a < 1.0f, small, large);
}
FL_MATH_INLINE double erf_impl(double x) {
  const double a = abs_of(x);
  const double small = fma(x, erf_small_poly(x * x), x);
  const double large = with_sign_of(1.0 - erfc_positive(a), x);
  return select(a < 1.0, small, large);
}

}  // namespace detail
}  // namespace math
}  // namespace fl
