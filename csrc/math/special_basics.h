// What the special functions share. Private to special.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "math/math.h"

namespace fl {
namespace math {

namespace special_detail {

constexpr double epsilon = std::numeric_limits<double>::epsilon();
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double pi = 3.14159265358979323846;
constexpr double euler_gamma = 0.57721566490153286061;
constexpr double ln2 = 0.69314718055994530942;
// Constants with what rounding left of them.
constexpr double sqrt_half = 0.70710678118654752440, sqrt_half_error = -4.833646656726457e-17;
constexpr double two_thirds = 2.0 / 3.0, two_thirds_error = 3.700743415417188e-17;

}  // namespace special_detail

}  // namespace math
}  // namespace fl
