// Arguments of windows that slide over an image: sizes, strides, paddings and dilations.
#pragma once

#include <string_view>

#include "core/dims.h"
#include "core/error.h"

namespace fl {

// Above all windows that are meant; sums and products of two such numbers do not overflow.
constexpr int64_t kWidestWindow = int64_t(1) << 31;

// Paddings above it cannot be meant, and must not overflow.
constexpr int64_t kMostPadding = int64_t(1) << 48;

// A number for each of `ndim` dimensions, of at least `least`; one number stands for all.
inline void spread(std::string_view op, const char* what, IntSpan from, int ndim, int64_t least,
                   int64_t* to) {
  const int n = static_cast<int>(from.size());
  FL_CHECK(n == ndim || n == 1, "[", op, "] expected one or ", ndim, " values for ", what, ", got ", from);
  for (int d = 0; d < ndim; ++d) {
    to[d] = from[n == 1 ? 0 : d];
    FL_CHECK(to[d] >= least && to[d] < kWidestWindow, "[", op, "] expected ", what, " of at least ", least,
             " and below 2**31, got ", from);
  }
}

}  // namespace fl
