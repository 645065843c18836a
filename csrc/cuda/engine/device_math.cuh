// Functions of float that the device's own units are quicker at than the polynomials of math/math.h, for the
// generated kernels: as `math::` in fl::cuda these come first, everything else is the CPU's. All are right to
// two units in the last place, but for pow (four) and lgamma (six, and more beside its zeros below -2).
#pragma once

#include <limits>

#include "math/complex_math.h"
#include "math/record_math.h"

namespace fl::cuda::math {

using namespace fl::math;

#define FL_DEVICE_MATH(name, of_float)               \
  template <class T>                                 \
  __device__ __forceinline__ auto name(const T& x) { \
    if constexpr (std::is_same_v<T, float>)          \
      return of_float;                               \
    else                                             \
      return fl::math::name(x);                      \
  }

__device__ __forceinline__ float logistic(float x) {
  const float e = ::expf(-::fabsf(x));
  return __fdividef(x < 0.0f ? e : 1.0f, 1.0f + e);  // the divisor lies between one and two
}

// In double, but with fewer steps than double results need: the fractions of the recurrence up to four are
// brought to one denominator.
__device__ __forceinline__ float digamma_of(float argument) {
  double x = argument, result = 0.0;
  if (argument == 0.0f) return ::copysignf(std::numeric_limits<float>::infinity(), -argument);
  if (argument < 0.0f) {
    if (argument == ::truncf(argument)) return std::numeric_limits<float>::quiet_NaN();
    double s, c;
    ::sincospi(static_cast<double>(argument - ::truncf(argument)), &s, &c);
    result = -3.14159265358979323846 * (c / s);
    x = 1.0 - x;
  }
  double above = 0.0, below = 1.0;
  for (; x < 4.0; x += 1.0) {
    above = ::fma(above, x, below);
    below *= x;
  }
  const double inverse = 1.0 / x, z = inverse * inverse;
  const double tail = z * fl::math::detail::poly(z, 1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132,
                                                 -691.0 / 32760, 1.0 / 12);
  return static_cast<float>(result - above / below + ::log(x) - 0.5 * inverse - tail);
}

FL_DEVICE_MATH(exp, ::expf(x))
FL_DEVICE_MATH(tanh, ::tanhf(x))
FL_DEVICE_MATH(erf, ::erff(x))
FL_DEVICE_MATH(erfinv, ::erfinvf(x))
FL_DEVICE_MATH(rsqrt, ::rsqrtf(x))
FL_DEVICE_MATH(lgamma, ::lgammaf(x))
FL_DEVICE_MATH(digamma, digamma_of(x))
FL_DEVICE_MATH(sigmoid, logistic(x))
FL_DEVICE_MATH(silu, x* logistic(x))
FL_DEVICE_MATH(gelu_erf, 0.5f * x * (1.0f + ::erff(x * 0.70710678118654752440f)))
FL_DEVICE_MATH(gelu_tanh, x* logistic(1.5957691216057307117f * (x * ::fmaf(x * x, 0.044715f, 1.0f))))

#undef FL_DEVICE_MATH

// The polynomials of the CPU where those are accurate; the device's library beyond.
#define FL_DEVICE_FULL_RANGE(name)                   \
  template <class T>                                 \
  __device__ __forceinline__ auto name(const T& x) { \
    if constexpr (std::is_floating_point_v<T>)       \
      return fl::math::name##_any(x);                \
    else                                             \
      return fl::math::name(x);                      \
  }
FL_DEVICE_FULL_RANGE(sin)
FL_DEVICE_FULL_RANGE(cos)
FL_DEVICE_FULL_RANGE(tan)
#undef FL_DEVICE_FULL_RANGE

template <class T, class U>
__device__ __forceinline__ auto pow(const T& x, const U& y) {
  if constexpr (std::is_same_v<T, float> && std::is_same_v<U, float>)
    return ::powf(x, y);
  else
    return fl::math::pow(x, y);
}

}  // namespace fl::cuda::math
