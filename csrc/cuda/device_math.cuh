// Functions of float that the device's own units are quicker at than the polynomials of cpu/math.h, for the
// generated kernels: as `math::` in fl::cuda these come first, everything else is the CPU's. All are right to
// two units in the last place.
#pragma once

#include "cpu/complex_math.h"
#include "cpu/record_math.h"

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

FL_DEVICE_MATH(exp, ::expf(x))
FL_DEVICE_MATH(tanh, ::tanhf(x))
FL_DEVICE_MATH(erf, ::erff(x))
FL_DEVICE_MATH(sigmoid, logistic(x))
FL_DEVICE_MATH(silu, x* logistic(x))
FL_DEVICE_MATH(gelu_erf, 0.5f * x * (1.0f + ::erff(x * 0.70710678118654752440f)))
FL_DEVICE_MATH(gelu_tanh, x* logistic(1.5957691216057307117f * (x * ::fmaf(x * x, 0.044715f, 1.0f))))

#undef FL_DEVICE_MATH

}  // namespace fl::cuda::math
