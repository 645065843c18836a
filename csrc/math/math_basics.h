// Building blocks of the elementary functions: constants of the formats, bits, selection, polynomials, powers
// of two. Private to math.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

// The same arithmetic serves kernels on the device: nvcc compiles every function for both sides.
#if defined(__CUDACC__)
#define FL_MATH_INLINE __host__ __device__ __forceinline__
#define FL_MATH_FUNCTION __host__ __device__ inline
#else
#define FL_MATH_INLINE inline __attribute__((always_inline))
#define FL_MATH_FUNCTION inline
#endif

namespace fl {
namespace math {
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

#if defined(__CUDA_ARCH__)
FL_MATH_INLINE uint32_t to_bits(float x) {
  return __float_as_uint(x);
}
FL_MATH_INLINE uint64_t to_bits(double x) {
  return static_cast<uint64_t>(__double_as_longlong(x));
}
FL_MATH_INLINE float from_bits(uint32_t u) {
  return __uint_as_float(u);
}
FL_MATH_INLINE double from_bits(uint64_t u) {
  return __longlong_as_double(static_cast<long long>(u));
}
#else
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
#endif

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

#if defined(__CUDA_ARCH__)
FL_MATH_INLINE float fma(float a, float b, float c) {
  return ::fmaf(a, b, c);
}
FL_MATH_INLINE double fma(double a, double b, double c) {
  return ::fma(a, b, c);
}
#elif defined(__FMA__) || defined(__AVX512F__) || defined(__ARM_FEATURE_FMA)
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
  return ::sqrtf(x);
}
FL_MATH_INLINE double sqrt_of(double x) {
  return ::sqrt(x);
}
FL_MATH_INLINE float abs_of(float x) {
  return ::fabsf(x);
}
FL_MATH_INLINE double abs_of(double x) {
  return ::fabs(x);
}
FL_MATH_INLINE float with_sign_of(float x, float s) {
  return ::copysignf(x, s);
}
FL_MATH_INLINE double with_sign_of(double x, double s) {
  return ::copysign(x, s);
}
FL_MATH_INLINE float to_even(float x) {
  return ::rintf(x);
}
FL_MATH_INLINE double to_even(double x) {
  return ::rint(x);
}
FL_MATH_INLINE float to_zero(float x) {
  return ::truncf(x);
}
FL_MATH_INLINE double to_zero(double x) {
  return ::trunc(x);
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

}  // namespace detail
}  // namespace math
}  // namespace fl
