// Bessel and Airy functions, in double. Private to special.h.
#pragma once

#include "math/special_basics.h"

namespace fl {
namespace math {

// ---------------------------------------------------------------------------------------------
// Modified Bessel functions
// ---------------------------------------------------------------------------------------------
namespace special_detail {

// The sum in the large-argument expansion of I (sign = -1) or K (sign = +1) of order nu:
// 1 + s (4 nu^2 - 1) / (8x) + (4 nu^2 - 1)(4 nu^2 - 9) / (2! (8x)^2) + ...
FL_MATH_FUNCTION double bessel_asymptotic_sum(double nu, double x, double sign) {
  const double m = 4.0 * nu * nu;
  double sum = 1.0, term = 1.0;
  for (int k = 1; k < 40; ++k) {
    const double odd = 2.0 * k - 1.0;
    const double next = term * sign * (m - odd * odd) / (8.0 * k * x);
    if (std::fabs(next) >= std::fabs(term)) break;
    term = next;
    sum += term;
    if (std::fabs(term) < 0.25 * epsilon * std::fabs(sum)) break;
  }
  return sum;
}

// The sum over k of (x^2/4)^k / (k! (k + order)!), for order 0 or 1.
FL_MATH_FUNCTION double bessel_i_series(int order, double x) {
  const double z = 0.25 * x * x;
  double sum = 1.0, term = 1.0;
  for (int k = 1; k < 200; ++k) {
    term *= z / (static_cast<double>(k) * (k + order));
    sum += term;
    if (term < 0.25 * epsilon * sum) break;
  }
  return sum;
}

// e^-|x| I_order(|x|)
FL_MATH_FUNCTION double scaled_bessel_i(int order, double x) {
  const double a = std::fabs(x);
  if (a > 30.0) return bessel_asymptotic_sum(order, a, -1.0) / (std::sqrt(2.0 * pi) * std::sqrt(a));
  const double lead = order == 0 ? 1.0 : 0.5 * a;
  return std::exp(-a) * lead * bessel_i_series(order, a);
}

// e^x K_nu(x) = integral over t > 0 of exp(-2x sinh(t/2)^2) cosh(nu t), by the trapezoidal rule.
FL_MATH_FUNCTION double scaled_bessel_k_integral(double nu, double x) {
  const double step = std::fmin(0.2, 0.7 / std::sqrt(x));
  double sum = 0.5;
  for (int k = 1; k < 400; ++k) {
    const double t = k * step, s = std::sinh(0.5 * t);
    const double term = std::exp(-2.0 * x * s * s) * std::cosh(nu * t);
    sum += term;
    if (term < 0.1 * epsilon * sum) break;
  }
  return step * sum;
}

FL_MATH_FUNCTION double scaled_bessel_k_large(double nu, double x) {
  if (x > 30.0) return std::sqrt(0.5 * pi / x) * bessel_asymptotic_sum(nu, x, 1.0);
  return scaled_bessel_k_integral(nu, x);
}

// K_0 and K_1 for 0 < x <= 1.
FL_MATH_FUNCTION double bessel_k0_small(double x) {
  const double z = 0.25 * x * x;
  double term = 1.0, harmonic = 0.0, sum = 0.0;
  for (int k = 1; k < 30; ++k) {
    term *= z / (static_cast<double>(k) * k);
    harmonic += 1.0 / k;
    sum += term * harmonic;
    if (term < 0.1 * epsilon) break;
  }
  return sum - (std::log(0.5 * x) + euler_gamma) * bessel_i_series(0, x);
}
FL_MATH_FUNCTION double bessel_k1_small(double x) {
  const double z = 0.25 * x * x;
  double term = 1.0, psi_sum = 1.0 - 2.0 * euler_gamma, sum = psi_sum;  // psi(k+1) + psi(k+2)
  for (int k = 1; k < 30; ++k) {
    term *= z / (static_cast<double>(k) * (k + 1));
    psi_sum += 1.0 / k + 1.0 / (k + 1);
    sum += term * psi_sum;
    if (term < 0.1 * epsilon) break;
  }
  return 1.0 / x + 0.5 * x * (std::log(0.5 * x) * bessel_i_series(1, x) - 0.5 * sum);
}

// K_order(x), times e^x if scaled.
FL_MATH_FUNCTION double bessel_k(int order, double x, bool scaled) {
  if (std::isnan(x) || x < 0.0) return nan;
  if (x == 0.0) return inf;
  if (x <= 1.0) {
    const double k = order == 0 ? bessel_k0_small(x) : bessel_k1_small(x);
    return scaled ? k * std::exp(x) : k;
  }
  const double k = scaled_bessel_k_large(order, x);
  return scaled ? k : k * std::exp(-x);
}

// value * e^x where e^x alone may overflow: beyond 700 it is multiplied in two halves.
FL_MATH_FUNCTION double times_exp(double value, double x) {
  if (!(x > 700.0)) return value * std::exp(x);
  const double half = std::exp(0.5 * x);
  return value * half * half;
}

}  // namespace special_detail

FL_MATH_FUNCTION double i0e(double x) {
  return special_detail::scaled_bessel_i(0, x);
}
FL_MATH_FUNCTION double i1e(double x) {
  return std::copysign(special_detail::scaled_bessel_i(1, x), x);
}
FL_MATH_FUNCTION double i0(double x) {
  return special_detail::times_exp(i0e(x), std::fabs(x));
}
FL_MATH_FUNCTION double i1(double x) {
  return special_detail::times_exp(i1e(x), std::fabs(x));
}
FL_MATH_FUNCTION double modified_bessel_i0(double x) {
  return i0(x);
}
FL_MATH_FUNCTION double modified_bessel_i1(double x) {
  return i1(x);
}
FL_MATH_FUNCTION double modified_bessel_k0(double x) {
  return special_detail::bessel_k(0, x, false);
}
FL_MATH_FUNCTION double modified_bessel_k1(double x) {
  return special_detail::bessel_k(1, x, false);
}
FL_MATH_FUNCTION double scaled_modified_bessel_k0(double x) {
  return special_detail::bessel_k(0, x, true);
}
FL_MATH_FUNCTION double scaled_modified_bessel_k1(double x) {
  return special_detail::bessel_k(1, x, true);
}

// ---------------------------------------------------------------------------------------------
// Bessel functions of the first and second kind, Airy function
// ---------------------------------------------------------------------------------------------
namespace special_detail {

struct BesselValues {
  double j0, j1, y0, y1;
};

// All four for 0 < x < 25: the J_n by downward recurrence, normalised by J_0 + 2 sum J_2k = 1, and
// the Y_n by Neumann's expansions in the same J_n.
FL_MATH_FUNCTION BesselValues bessel_by_recurrence(double x) {
  if (x < 1e-8) {
    const double log_term = std::log(x) + (euler_gamma - ln2);  // half of the least number is zero
    return {1.0, 0.5 * x, 2.0 / pi * log_term, -2.0 / pi / x};
  }
  const int start = 2 * static_cast<int>(10.0 + x);
  double upper = 0.0, current = 1e-250;  // J_(n+1) and J_n up to a common factor
  double norm = 0.0, sum_y0 = 0.0, sum_y1 = 0.0;
  for (int n = start; n >= 1; --n) {
    const int k = n / 2;
    const double sign = k % 2 == 0 ? 1.0 : -1.0;
    if (n % 2 == 0) {
      norm += 2.0 * current;
      sum_y0 += sign * current / k;
    } else if (k > 0) {
      sum_y1 += sign * current * (2.0 * k + 1.0) / (static_cast<double>(k) * (k + 1));
    }
    const double lower = 2.0 * n / x * current - upper;
    upper = current;
    current = lower;
  }
  norm += current;
  const double j0 = current / norm, j1 = upper / norm;
  const double log_term = std::log(0.5 * x) + euler_gamma;
  const double y0 = 2.0 / pi * (log_term * j0 - 2.0 * sum_y0 / norm);
  const double y1 = 2.0 / pi * (-j0 / x + (log_term - 1.0) * j1 - sum_y1 / norm);
  return {j0, j1, y0, y1};
}

// Hankel's expansion for large x: amplitude * (P cos(phase) - Q sin(phase)) is J, and
// amplitude * (P sin(phase) + Q cos(phase)) is Y.
struct HankelSums {
  double p, q;
};
FL_MATH_FUNCTION HankelSums hankel_sums(double nu, double x) {
  const double m = 4.0 * nu * nu;
  double p = 1.0, q = 0.0, term = 1.0;
  for (int k = 1; k < 60; ++k) {
    const double odd = 2.0 * k - 1.0;
    const double next = term * (m - odd * odd) / (8.0 * k * x);
    if (std::fabs(next) >= std::fabs(term)) break;
    term = next;
    const double sign = (k / 2) % 2 == 0 ? 1.0 : -1.0;
    (k % 2 == 0 ? p : q) += sign * term;
    if (std::fabs(term) < 0.25 * epsilon) break;
  }
  return {p, q};
}

enum class BesselKind { J, Y };

// Order 0 or 1 for x > 0.
FL_MATH_FUNCTION double bessel_positive(BesselKind kind, int order, double x) {
  if (x < 25.0) {
    const BesselValues v = bessel_by_recurrence(x);
    if (kind == BesselKind::J) return order == 0 ? v.j0 : v.j1;
    return order == 0 ? v.y0 : v.y1;
  }
  const HankelSums sums = hankel_sums(order, x);
  // The phase is x - pi/4 (order 0) or x - 3 pi/4 (order 1), expanded so that x stays exact.
  const double s = std::sin(x), c = std::cos(x);
  const double cosine = sqrt_half * (order == 0 ? c + s : s - c);
  const double sine = sqrt_half * (order == 0 ? s - c : -s - c);
  const double value =
      kind == BesselKind::J ? sums.p * cosine - sums.q * sine : sums.p * sine + sums.q * cosine;
  return std::sqrt(2.0 / (pi * x)) * value;
}

FL_MATH_FUNCTION double bessel_y(int order, double x) {
  if (x == 0.0) return -inf;
  if (!(x > 0.0)) return nan;
  return bessel_positive(BesselKind::Y, order, x);
}

}  // namespace special_detail

FL_MATH_FUNCTION double bessel_j0(double x) {
  using namespace special_detail;
  if (std::isnan(x) || std::isinf(x)) return nan;
  return x == 0.0 ? 1.0 : bessel_positive(BesselKind::J, 0, std::fabs(x));
}
FL_MATH_FUNCTION double bessel_j1(double x) {
  using namespace special_detail;
  if (std::isnan(x) || std::isinf(x)) return nan;
  if (x == 0.0) return x;
  const double value = bessel_positive(BesselKind::J, 1, std::fabs(x));
  return x < 0.0 ? -value : value;
}
FL_MATH_FUNCTION double bessel_y0(double x) {
  return special_detail::bessel_y(0, x);
}
FL_MATH_FUNCTION double bessel_y1(double x) {
  return special_detail::bessel_y(1, x);
}

FL_MATH_FUNCTION double spherical_bessel_j0(double x) {
  if (std::isinf(x)) return 0.0;
  if (std::fabs(x) < 0.5) {
    const double z = x * x;
    return detail::poly(z, 1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800,
                        1.0 / 6227020800.0);
  }
  return std::sin(x) / x;
}

FL_MATH_FUNCTION double airy_ai(double x) {
  using namespace special_detail;
  if (std::isnan(x) || std::isinf(x)) return nan;
  if (x > 110.0) return 0.0;  // below the least number, and the exponent would overflow
  const double a = std::fabs(x);
  const double root = std::sqrt(a);
  // s is 2/3 |x|^(3/2), whose rounding error is carried along.
  const double power = a * root;
  const double s = two_thirds * power;
  const double root_error = std::fma(-root, root, a) / (2.0 * root);
  const double error = two_thirds * (std::fma(a, root, -power) + a * root_error) +
                       std::fma(two_thirds, power, -s) + two_thirds_error * power;
  if (x > 2.0) {
    // sqrt(x/3) K_1/3(s) / pi.
    const double k = scaled_bessel_k_large(1.0 / 3.0, s) * std::exp(-s) * (1.0 - error);
    return std::sqrt(a / 3.0) * k / pi;
  }
  if (x < -8.0) {
    if (std::isinf(s)) return 0.0;  // its amplitude is below 1e-51
    // Oscillating expansion; u holds the coefficients of DLMF 9.7.2.
    double even = 1.0, odd = 0.0, u = 1.0;
    for (int k = 1; k < 40; ++k) {
      const double next = u * (6.0 * k - 5.0) * (6.0 * k - 1.0) / (72.0 * k * s);
      if (next >= u) break;
      u = next;
      const double sign = (k / 2) % 2 == 0 ? 1.0 : -1.0;
      (k % 2 == 0 ? even : odd) += sign * u;
      if (u < 0.25 * epsilon) break;
    }
    // The phase is s + error - pi/4, expanded so that s stays exact.
    const double sine = std::sin(s) * std::cos(error) + std::cos(s) * std::sin(error);
    const double cosine = std::cos(s) * std::cos(error) - std::sin(s) * std::sin(error);
    return sqrt_half * ((cosine + sine) * even + (sine - cosine) * odd) / (std::sqrt(pi) * std::sqrt(root));
  }
  // Power series; extended precision absorbs its cancellation at the left end.
  const long double cube = static_cast<long double>(x) * x * x;
  long double f = 1.0L, g = x, f_term = 1.0L, g_term = x;
  for (int k = 1; k < 120; ++k) {
    f_term *= cube / ((3.0L * k - 1.0L) * (3.0L * k));
    g_term *= cube / ((3.0L * k) * (3.0L * k + 1.0L));
    f += f_term;
    g += g_term;
    if (std::fabs(f_term) + std::fabs(g_term) < 1e-20L) break;
  }
  return static_cast<double>(0.355028053887817239260063L * f - 0.258819403792806798405184L * g);
}

}  // namespace math
}  // namespace fl
