// From random words to uniform numbers and to the angles of normal ones: the arithmetic that the CPU's loops
// and the device's kernels share, so that they draw the same numbers.
#pragma once

#include <type_traits>

#include "math/math.h"

namespace fl {
namespace random_math {

FL_MATH_INLINE float unit(uint32_t w, int shift, float scale) {
  return static_cast<float>(static_cast<int32_t>(w >> shift)) * scale;
}
// In (0, 1]: safe under a logarithm.
FL_MATH_INLINE float positive_unit(uint32_t w) {
  return static_cast<float>(static_cast<int32_t>((w >> 8) + 1)) * 0x1p-24f;
}
// 52 random bits straight into a mantissa; in [0, 1).
FL_MATH_INLINE double unit(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t(high) << 32 | low) >> 12 | 0x3ff0000000000000ull;
  return math::detail::from_bits(bits) - 1.0;
}
FL_MATH_INLINE double positive_unit(uint32_t high, uint32_t low) {
  return 1.0 - unit(high, low);
}

// sin and cos of 2 pi u for u in [0, 1).
template <class T>
FL_MATH_INLINE void sin_cos_turns(T u, T& s, T& c) {
  const T quarter = u * T(4);
  const T q = math::detail::to_even(quarter);  // 0 to 4
  const T x = (quarter - q) * T(1.57079632679489661923), x2 = x * x;
  T sine, cosine;
  if constexpr (std::is_same_v<T, float>) {
    sine = x * math::detail::poly(x2, 1.0f, -1.0f / 6, 1.0f / 120, -1.0f / 5040, 1.0f / 362880);
    cosine = math::detail::poly(x2, 1.0f, -0.5f, 1.0f / 24, -1.0f / 720, 1.0f / 40320);
  } else {
    sine = x * math::detail::poly(x2, 1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800,
                                  1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000);
    cosine =
        math::detail::poly(x2, 1.0, -0.5, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600,
                           -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000);
  }
  const bool swap = q == T(1) || q == T(3);
  const T first = swap ? cosine : sine, second = swap ? sine : cosine;
  s = (q == T(2) || q == T(3)) ? -first : first;
  c = (q == T(1) || q == T(2)) ? -second : second;
}

}  // namespace random_math
}  // namespace fl
