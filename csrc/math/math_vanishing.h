// The exponential for generated kernels, in which masks of minus infinity are common: a product that
// underflows takes the processor over a hundred cycles, so where nothing is left the last factor is zero.
#pragma once

#include "math/math_exponential.h"

namespace fl {
namespace math {

template <class T>
FL_MATH_INLINE T exp_vanishing(T x) {
  using F = detail::Fp<T>;
  const T bounded = detail::clamp_magnitude(x, F::exp_limit);
  const auto exponent = detail::round_exponent(bounded, F::log2e);
  const T r = detail::fma(exponent.n, -F::ln2_tail, detail::fma(exponent.n, -F::ln2, bounded));
  const auto last = exponent.half_ceil << F::mantissa_bits;
  return detail::exp_reduced(r) * detail::from_bits(exponent.half_floor << F::mantissa_bits) *
         detail::from_bits(x <= -F::exp_limit ? typename F::UInt(0) : last);
}

}  // namespace math
}  // namespace fl
