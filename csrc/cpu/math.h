// Elementary functions for the CPU kernels and for the code the fusing compiler generates.
//
// Every function here that is not marked "scalar" is branch-free straight-line arithmetic, so a
// plain loop such as `for (i < n) out[i] = fl::math::exp(in[i]);` is turned into vector code by
// the compiler itself. Expected flags: -O3, at least -march=x86-64-v3 (FMA is required for the
// stated accuracy), -fno-math-errno -fno-trapping-math -ffp-contract=fast. Never -ffast-math:
// the handling of NaN, infinity, signed zero and denormals relies on IEEE semantics.
//
// The polynomial coefficients are our own minimax (Remez) fits; hexadecimal constants are exact
// splittings of well known numbers into a rounded head and a small tail.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#define FL_MATH_INLINE inline __attribute__((always_inline))

namespace fl {
namespace math {

// ---------------------------------------------------------------------------------------------
// Building blocks
// ---------------------------------------------------------------------------------------------
namespace detail {

template <class T>
struct Fp;

template <>
struct Fp<float> {
  using Int = int32_t;
  using UInt = uint32_t;
  static constexpr int mantissa_bits = 23;
  static constexpr int bias = 127;
  static constexpr float integer_shift = 12582912.0f;   // 1.5 * 2^23: adding it rounds to an integer
  static constexpr float two_to_mantissa = 8388608.0f;  // 2^23
  static constexpr float min_normal = 0x1p-126f;
  static constexpr float denormal_scale = 0x1p25f;
  static constexpr float denormal_shift = 25.0f;
  static constexpr uint32_t sign_mask = 0x80000000u;
  static constexpr uint32_t mantissa_mask = 0x007fffffu;
  static constexpr uint32_t one_bits = 0x3f800000u;
  static constexpr uint32_t two_thirds_bits = 0x3f2aaaabu;
  static constexpr float exp_limit = 104.0f, exp2_limit = 151.0f;  // exp is 0 or inf beyond
  static constexpr float expm1_low = -20.0f;                       // expm1 is -1 below
  static constexpr float sinh_high = 89.5f;                        // sinh and cosh are inf above
  static constexpr float tanh_high = 10.0f;                        // tanh is 1 above
  static constexpr float tiny = 0x1p-60f;                          // f(x) == x for odd f below
  static constexpr float huge = 0x1p30f;                           // 1 + x*x == x*x above
  static constexpr float log2e = 0x1.715476p+0f, log2e_tail = 0x1.4ae0c0p-26f;
  static constexpr float log10e = 0x1.bcb7b2p-2f, log10e_tail = -0x1.5b235ep-27f;
  static constexpr float ln2 = 0x1.62e430p-1f, ln2_tail = -0x1.05c610p-29f;
  static constexpr float log10_2 = 0x1.344p-2f, log10_2_tail = 0x1.3509f8p-18f;  // head: 12 bits
  static constexpr float pi = 0x1.921fb6p+1f, pi_tail = -0x1.777a5cp-24f;
};

template <>
struct Fp<double> {
  using Int = int64_t;
  using UInt = uint64_t;
  static constexpr int mantissa_bits = 52;
  static constexpr int bias = 1023;
  static constexpr double integer_shift = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double two_to_mantissa = 4503599627370496.0;
  static constexpr double min_normal = 0x1p-1022;
  static constexpr double denormal_scale = 0x1p54;
  static constexpr double denormal_shift = 54.0;
  static constexpr uint64_t sign_mask = 0x8000000000000000ull;
  static constexpr uint64_t mantissa_mask = 0x000fffffffffffffull;
  static constexpr uint64_t one_bits = 0x3ff0000000000000ull;
  static constexpr uint64_t two_thirds_bits = 0x3fe5555555555555ull;
  static constexpr double exp_limit = 746.0, exp2_limit = 1076.0;
  static constexpr double expm1_low = -40.0;
  static constexpr double sinh_high = 710.6;
  static constexpr double tanh_high = 22.0;
  static constexpr double tiny = 0x1p-200;
  static constexpr double huge = 0x1p60;
  static constexpr double log2e = 0x1.71547652b82fep+0, log2e_tail = 0x1.777d0ffda0d24p-56;
  static constexpr double log10e = 0x1.bcb7b1526e50ep-2, log10e_tail = 0x1.95355baaafad3p-57;
  static constexpr double ln2 = 0x1.62e42fefa39efp-1, ln2_tail = 0x1.abc9e3b39803fp-56;
  static constexpr double log10_2 = 0x1.34413509f6p-2, log10_2_tail = 0x1.9fef311f12b36p-42;
  static constexpr double pi = 0x1.921fb54442d18p+1, pi_tail = 0x1.1a62633145c07p-53;
};

template <class T>
constexpr T infinity() {
  return std::numeric_limits<T>::infinity();
}
template <class T>
constexpr T quiet_nan() {
  return std::numeric_limits<T>::quiet_NaN();
}

FL_MATH_INLINE uint32_t to_bits(float x) {
  return __builtin_bit_cast(uint32_t, x);
}
FL_MATH_INLINE uint64_t to_bits(double x) {
  return __builtin_bit_cast(uint64_t, x);
}
FL_MATH_INLINE float from_bits(uint32_t u) {
  return __builtin_bit_cast(float, u);
}
FL_MATH_INLINE double from_bits(uint64_t u) {
  return __builtin_bit_cast(double, u);
}

template <class T>
FL_MATH_INLINE T select(bool take_first, T first, T second) {
  return take_first ? first : second;
}

// The same by masking. Needed where `first` is a square root: GCC would move the root into the
// branch of an ordinary select, and then cannot convert that branch back to vector code.
template <class T>
FL_MATH_INLINE T blend(bool take_first, T first, T second) {
  using UInt = typename Fp<T>::UInt;
  const UInt mask = UInt(0) - UInt(take_first);
  return from_bits((to_bits(first) & mask) | (to_bits(second) & ~mask));
}

#if defined(__FMA__) || defined(__AVX512F__) || defined(__ARM_FEATURE_FMA)
FL_MATH_INLINE float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
FL_MATH_INLINE double fma(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
#else  // a library call per element would be far worse than the lost accuracy
FL_MATH_INLINE float fma(float a, float b, float c) {
  return a * b + c;
}
FL_MATH_INLINE double fma(double a, double b, double c) {
  return a * b + c;
}
#endif

// Horner evaluation, coefficients in ascending order.
template <class T>
FL_MATH_INLINE T poly(T, T c0) {
  return c0;
}
template <class T, class... Rest>
FL_MATH_INLINE T poly(T x, T c0, Rest... rest) {
  return fma(poly<T>(x, rest...), x, c0);
}

FL_MATH_INLINE float sqrt_of(float x) {
  return __builtin_sqrtf(x);
}
FL_MATH_INLINE double sqrt_of(double x) {
  return __builtin_sqrt(x);
}
FL_MATH_INLINE float abs_of(float x) {
  return __builtin_fabsf(x);
}
FL_MATH_INLINE double abs_of(double x) {
  return __builtin_fabs(x);
}
FL_MATH_INLINE float with_sign_of(float x, float s) {
  return __builtin_copysignf(x, s);
}
FL_MATH_INLINE double with_sign_of(double x, double s) {
  return __builtin_copysign(x, s);
}
FL_MATH_INLINE float to_even(float x) {
  return __builtin_rintf(x);
}
FL_MATH_INLINE double to_even(double x) {
  return __builtin_rint(x);
}
FL_MATH_INLINE float to_zero(float x) {
  return __builtin_truncf(x);
}
FL_MATH_INLINE double to_zero(double x) {
  return __builtin_trunc(x);
}

// Clamps that let NaN through.
template <class T>
FL_MATH_INLINE T at_most(T x, T high) {
  return x > high ? high : x;
}
template <class T>
FL_MATH_INLINE T at_least(T x, T low) {
  return x < low ? low : x;
}
// To [-limit, limit]; cheaper than the two clamps in turn, which GCC tangles into mask logic.
template <class T>
FL_MATH_INLINE T clamp_magnitude(T x, T limit) {
  return with_sign_of(at_most(abs_of(x), limit), x);
}

// 2^n for an integer-valued n whose result is a normal number (or n == bias + 1: infinity).
// The addition leaves n + bias in the low mantissa bits, and the shift moves it into the
// exponent field; there is no float/integer conversion, which 64-bit lanes lack before AVX-512.
template <class T>
FL_MATH_INLINE T power_of_two(T n) {
  const T biased = n + (Fp<T>::integer_shift + T(Fp<T>::bias));
  return from_bits(to_bits(biased) << Fp<T>::mantissa_bits);
}

// Rounds y to an integer n and makes 2^n available as the product of two factors, of which each
// is a normal number. Multiplying by one after the other also gives denormal results and overflow
// with a single rounding. Twice the bias rides along in the rounding constant, so that halving the
// integer in the low mantissa bits yields the two biased exponents directly.
template <class T>
struct RoundedExponent {
  T n;
  typename Fp<T>::UInt half_floor, half_ceil;  // biased exponents in the low bits
  FL_MATH_INLINE T scale(T x) const {
    return x * from_bits(half_floor << Fp<T>::mantissa_bits) * from_bits(half_ceil << Fp<T>::mantissa_bits);
  }
};
template <class T>
FL_MATH_INLINE RoundedExponent<T> round_exponent(T x, T factor) {
  constexpr T shift = Fp<T>::integer_shift + T(2 * Fp<T>::bias);
  const T shifted = fma(x, factor, shift);
  const typename Fp<T>::UInt bits = to_bits(shifted);
  return {shifted - shift, bits >> 1, bits - (bits >> 1)};
}

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
inline T remainder_impl(T x, T y) {
  const T r = std::fmod(x, y);
  return (r != T(0) && (r < T(0)) != (y < T(0))) ? r + y : r;
}
template <class T>
inline T floor_divide_impl(T x, T y) {
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

// ---------------------------------------------------------------------------------------------
// Public functions, each for float and double
// ---------------------------------------------------------------------------------------------
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
constexpr double trig_limit = 0x1p50;

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
// sin(pi x) / (pi x).
FL_MATH_T sinc(T x) {
  const T angle = detail::Fp<T>::pi * x;
  return detail::select(x == T(0), T(1), sin(angle) / angle);
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
