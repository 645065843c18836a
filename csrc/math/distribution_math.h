// One draw from a distribution with given parameters, from the stream of one element; on the CPU and in
// kernels.
#pragma once

#include <cmath>
#include <limits>

#include "core/dtype.h"
#include "core/philox.h"
#include "math/math_basics.h"

namespace fl {
namespace distributions {

using philox::Stream;

FL_MATH_FUNCTION double normal(Stream& s) {
  const double radius = std::sqrt(-2 * std::log(s.uniform()));
  return radius * std::cos(6.28318530717958647692 * s.uniform());
}

// Marsaglia and Tsang, for a shape of at least 1.
FL_MATH_FUNCTION double gamma_of_large_shape(Stream& s, double alpha) {
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    double x, v;
    do {
      x = normal(s);
      v = 1 + c * x;
    } while (v <= 0);
    v = v * v * v;
    const double u = s.uniform(), x2 = x * x;
    if (u < 1 - 0.0331 * x2 * x2 || std::log(u) < 0.5 * x2 + d * (1 - v + std::log(v))) return d * v;
  }
}
// A shape below 1 is raised by 1 and the draw scaled by a power of a uniform number.
FL_MATH_FUNCTION double gamma(Stream& s, double alpha) {
  if (!(alpha > 0)) return alpha == 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
  if (alpha >= 1) return gamma_of_large_shape(s, alpha);
  const double scale = std::pow(s.uniform(), 1 / alpha);
  return scale * gamma_of_large_shape(s, alpha + 1);
}
// The logarithm of the same draw, which stays finite where the draw itself underflows.
FL_MATH_FUNCTION double log_gamma(Stream& s, double alpha) {
  if (!(alpha > 0)) return alpha == 0 ? -std::numeric_limits<double>::infinity() : alpha;
  if (alpha >= 1) return std::log(gamma_of_large_shape(s, alpha));
  const double log_scale = std::log(s.uniform()) / alpha;
  return log_scale + std::log(gamma_of_large_shape(s, alpha + 1));
}

// Turns a row of log_gamma draws into probabilities: a Dirichlet draw.
FL_MATH_FUNCTION void normalize_logarithms(double* row, int64_t n) {
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
  for (int64_t i = 0; i < n; ++i) largest = row[i] > largest ? row[i] : largest;
  if (largest == -std::numeric_limits<double>::infinity()) largest = 0;
  for (int64_t i = 0; i < n; ++i) total += row[i] = std::exp(row[i] - largest);
  if (total == 0) total = 1;
  for (int64_t i = 0; i < n; ++i) row[i] /= total;
}

// Small rates by multiplication; large ones by Hörmann's transformed rejection (PTRS).
FL_MATH_FUNCTION double poisson(Stream& s, double rate) {
  if (!(rate > 0)) return rate == 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
  if (rate < 10) {
    const double limit = std::exp(-rate);
    double product = s.uniform();
    int64_t k = 0;
    while (product > limit) {
      ++k;
      product *= s.uniform();
    }
    return static_cast<double>(k);
  }
  const double root = std::sqrt(rate), log_rate = std::log(rate);
  const double b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double u = s.uniform() - 0.5, v = s.uniform();
    const double us = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= v_r) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (std::log(v) + std::log(inverse_alpha) - std::log(a / (us * us) + b) <=
        -rate + k * log_rate - std::lgamma(k + 1))
      return k;
  }
}

// Inversion by geometric gaps for a small mean; Hörmann's BTRS for a large one.
FL_MATH_FUNCTION double rare_binomial(Stream& s, double count, double p) {
  if (count * p < 10) {
    const double scale = 1 / std::log1p(-p);
    double position = 0, successes = 0;
    for (;;) {
      position += std::ceil(std::log(s.uniform()) * scale);
      if (position > count) return successes;
      ++successes;
    }
  }
  const double root = std::sqrt(count * p * (1 - p));
  const double b = 1.15 + 2.53 * root, a = -0.0873 + 0.0248 * b + 0.01 * p, c = count * p + 0.5;
  const double v_r = 0.92 - 4.2 / b, r = p / (1 - p), alpha = (2.83 + 5.1 / b) * root,
               m = std::floor((count + 1) * p);
  for (;;) {
    const double u = s.uniform() - 0.5;
    double v = s.uniform();
    const double us = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / us + b) * u + c);
    if (us >= 0.07 && v <= v_r) return k;
    if (k < 0 || k > count) continue;
    v = std::log(v * alpha / (a / (us * us) + b));
    const double bound = std::lgamma(m + 1) + std::lgamma(count - m + 1) - std::lgamma(k + 1) -
                         std::lgamma(count - k + 1) + (k - m) * std::log(r);
    if (v <= bound) return k;
  }
}
FL_MATH_FUNCTION double binomial(Stream& s, double count, double p) {
  if (count != count || p != p) return std::numeric_limits<double>::quiet_NaN();
  if (!(count > 0) || p <= 0) return 0;
  if (p >= 1) return count;
  return p > 0.5 ? count - rare_binomial(s, count, 1 - p) : rare_binomial(s, count, p);
}

// What draws that round to zero become.
inline double least_gamma(DType dtype) {
  return dtype == DType::Double ? std::numeric_limits<double>::min()
         : dtype == DType::Half ? 6.103515625e-05
                                : static_cast<double>(std::numeric_limits<float>::min());
}

}  // namespace distributions
}  // namespace fl
