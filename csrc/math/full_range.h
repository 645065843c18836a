// Loops over sin, cos and tan that are right for every argument.
//
// The vectorised functions reduce their argument accurately up to trig_limit only. A loop therefore goes in
// strips: a first pass over a strip looks for arguments beyond the limit; such a strip is computed one
// element at a time with the C library's functions, every other one by vector code. The first pass costs a
// load and a comparison.
#pragma once

#include <algorithm>
#include <type_traits>

#include "math/record_math.h"

namespace fl::math {

// Three answers to "what is sin?", of one interface, for the three passes.
struct WithinLimit {
#define FL_FULL_RANGE(name)           \
  template <class T>                  \
  static FL_MATH_INLINE T name(T x) { \
    return fl::math::name(x);         \
  }
  FL_FULL_RANGE(sin)
  FL_FULL_RANGE(cos)
  FL_FULL_RANGE(tan)
#undef FL_FULL_RANGE
};

struct AnyArgument {
#define FL_FULL_RANGE(name)                    \
  template <class T>                           \
  static T name(T x) {                         \
    if constexpr (std::is_floating_point_v<T>) \
      return name##_any(x);                    \
    else                                       \
      return fl::math::name(x);                \
  }
  FL_FULL_RANGE(sin)
  FL_FULL_RANGE(cos)
  FL_FULL_RANGE(tan)
#undef FL_FULL_RANGE
};

struct ArgumentCheck {
  uint32_t beyond = 0;
#define FL_FULL_RANGE(name)                                                                 \
  template <class T>                                                                        \
  FL_MATH_INLINE T name(T x) {                                                              \
    if constexpr (std::is_floating_point_v<T>) beyond |= detail::abs_of(x) > T(trig_limit); \
    return fl::math::name(x);                                                               \
  }
  FL_FULL_RANGE(sin)
  FL_FULL_RANGE(cos)
  FL_FULL_RANGE(tan)
#undef FL_FULL_RANGE
};

// out[i] = value(functions, i). `value` calls sin, cos and tan through `functions` and has no other effect.
template <class R, class Value>
inline void full_range_loop(R* out, int64_t n, const Value& value) {
  constexpr int64_t strip = 512;
  for (int64_t begin = 0; begin < n; begin += strip) {
    const int64_t end = std::min(begin + strip, n);
    ArgumentCheck check;
    for (int64_t i = begin; i < end; ++i) (void)value(check, i);
    if (__builtin_expect(check.beyond, 0)) {
      AnyArgument any;
      for (int64_t i = begin; i < end; ++i) out[i] = value(any, i);
    } else {
      WithinLimit within;
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) out[i] = value(within, i);
    }
  }
}

}  // namespace fl::math
