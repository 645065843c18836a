// The normal distribution in single precision by one polynomial, for generated kernels whose time gelu
// decides: half the instructions of (1 + erf(x / sqrt 2)) / 2 with an erf that is right to the last bits
// everywhere.
#pragma once

#include "math/math_basics.h"

namespace fl {
namespace math {

// Phi(x), where Phi(x) - 1/2 = x P(x^2) for |x| <= 5.515 and Phi is 0 or 1 to single precision beyond. P was
// fitted to a relative error of 2.3e-8 in s = x^2 / 15.21 - 1, which lies in [-1, 1], so that rounding does
// not grow.
FL_MATH_INLINE float normal_cdf(float x) {
  const float s = detail::fma(x * x, 0.0657462196f, -1.0f);
  const float p = detail::poly(s, 0.12819279f, -0.0639970814f, 0.0476204859f, -0.0387257229f, 0.0320566928f,
                               -0.0260910013f, 0.0204728014f, -0.0151387515f, 0.0103007675f, -0.00687158793f,
                               0.00480154054f, -0.00257590162f, 0.000673804095f, -0.000472698886f,
                               0.000679604103f, -0.000271039139f);
  const float beyond = detail::select(x > 0.0f, 1.0f, 0.0f);
  return detail::select(detail::abs_of(x) > 5.5154f, beyond, detail::fma(x, p, 0.5f));
}

}  // namespace math
}  // namespace fl
