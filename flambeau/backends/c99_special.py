"""Bodies in C of special functions, in the type they are computed in; `c99.py` says how bodies are written. Calls marked with $
are of other bodies, here or there. Series end where a term changes nothing; their methods are those of csrc/math/special.h.
"""

from __future__ import annotations

__all__ = ["HELPERS", "SPECIAL"]

# Functions that others call and that are no operations themselves.
HELPERS = {
    "bessel_sum": (  # of the expansion for large arguments of I (sign -1) or K (sign 1)
        "T bessel_sum(T nu, T x, T sign) { T m = 4 * nu * nu, sum = 1, term = 1; for (int k = 1; k < 40; ++k) { "
        "T odd = 2 * k - 1, next = term * sign * (m - odd * odd) / (8 * k * x); if (@fabs(next) >= @fabs(term)) break; "
        "term = next; if (sum + term == sum) break; sum += term; } return sum; }"
    ),
    "bessel_series": (  # the sum of (x^2/4)^k / (k! (k + order)!)
        "T bessel_series(T order, T x) { T z = x * x / 4, sum = 1, term = 1; for (int k = 1; k < 200; ++k) { "
        "term *= z / ((T)k * (k + order)); if (sum + term == sum) break; sum += term; } return sum; }"
    ),
    "scaled_bessel_i": (
        "T scaled_bessel_i(T order, T x) { T a = @fabs(x); if (a > 30) return $bessel_sum(order, a, -1) / "
        "((T)2.50662827463100050242 * @sqrt(a)); return @exp(-a) * (order == 0 ? 1 : a / 2) * $bessel_series(order, a); }"
    ),
    "times_exp": "T times_exp(T value, T x) { T root = @exp(x / 2); return value * root * root; }",
    "bessel_k0_small": (
        "T bessel_k0_small(T x) { T z = x * x / 4, term = 1, harmonic = 0, sum = 0; for (int k = 1; k < 30; ++k) { "
        "term *= z / ((T)k * k); harmonic += (T)1 / k; sum += term * harmonic; } "
        "return sum - (@log(x / 2) + (T)0.57721566490153286061) * $bessel_series(0, x); }"
    ),
    "bessel_k1_small": (
        "T bessel_k1_small(T x) { T z = x * x / 4, term = 1, psi = 1 - 2 * (T)0.57721566490153286061, sum = psi; "
        "for (int k = 1; k < 30; ++k) { term *= z / ((T)k * (k + 1)); psi += (T)1 / k + (T)1 / (k + 1); sum += term * psi; } "
        "return 1 / x + x / 2 * (@log(x / 2) * $bessel_series(1, x) - sum / 2); }"
    ),
    "bessel_k_integral": (  # of exp(-2x sinh(t/2)^2) cosh(nu t), by the trapezoidal rule
        "T bessel_k_integral(T nu, T x) { T step = (T)0.7 / @sqrt(x), sum = (T)0.5; if (step > (T)0.2) step = (T)0.2; "
        "for (int k = 1; k < 400; ++k) { T t = k * step, s = @sinh(t / 2), term = @exp(-2 * x * s * s) * @cosh(nu * t); "
        "if (sum + term == sum) break; sum += term; } return step * sum; }"
    ),
    "bessel_k": (
        "T bessel_k(T order, T x, int scaled) { if (!(x >= 0)) return (x - x) / (x - x); if (x == 0) return 1 / x; "
        "if (x <= 1) { T k = order == 0 ? $bessel_k0_small(x) : $bessel_k1_small(x); return scaled ? k * @exp(x) : k; } "
        "T k = x > 30 ? @sqrt((T)1.57079632679489661923 / x) * $bessel_sum(order, x, 1) : $bessel_k_integral(order, x); "
        "return scaled ? k : k * @exp(-x); }"
    ),
    "log1p_minus": (  # log(1 + m) - m
        "T log1p_minus(T m) { if (@fabs(m) > (T)0.5) return @log1p(m) - m; T s = m / (2 + m), z = s * s, sum = 0, power = 1; "
        "for (int k = 3; k < 60; k += 2) { T term = power / k; if (sum + term == sum) break; sum += term; power *= z; } "
        "return 2 * s * z * sum - m * s; }"
    ),
    "gamma_prefix": (  # x^a e^-x / gamma(a + 1)
        "T gamma_prefix(T a, T x) { if (a < 20) return @exp(a * @log(x) - x - @lgamma(1 + a)); T z = 1 / (a * a); "
        "T tail = ((T)1 / 12 - z * ((T)1 / 360 - z * ((T)1 / 1260 - z * ((T)1 / 1680 - z / 1188)))) / a; "
        "return @exp(a * $log1p_minus((x - a) / a) - tail) / @sqrt((T)6.28318530717958647692 * a); }"
    ),
    "gamma_lower": (
        "T gamma_lower(T a, T x) { T sum = 1, term = 1; for (int n = 1; n < 5000; ++n) { term *= x / (a + n); "
        "if (sum + term == sum) break; sum += term; } return $gamma_prefix(a, x) * sum; }"
    ),
    "gamma_upper_small": (  # for x <= 1.5, where 1 - lower would cancel if a is small
        "T gamma_upper_small(T a, T x) { T u = -@expm1(a * @log(x) - @lgamma(1 + a)), sum = 0, power = 1; "
        "for (int k = 1; k < 200; ++k) { power *= -x / k; T term = power * a / (a + k); if (sum + term == sum) break; "
        "sum += term; } return u - (1 - u) * sum; }"
    ),
    "gamma_upper": (  # by its continued fraction, for x > a
        "T gamma_upper(T a, T x) { T prefix = $gamma_prefix(a, x); if (prefix == 0) return 0; "
        "T b = x + 1 - a, c = (T)1e30, d = 1 / b, h = d; for (int n = 1; n < 5000; ++n) { T top = -n * (n - a); b += 2; "
        "d = 1 / (top * d + b); c = b + top / c; T factor = c * d; h *= factor; if (h * factor == h) break; } "
        "return prefix * a * h; }"
    ),
    "regularized_gamma": (
        "T regularized_gamma(T a, T x, int upper) { T none = (a - a) / (a - a); if (a < 0 || x < 0) return none; "
        "if (a == 0) return x > 0 ? (T)!upper : none; if (x == 0) return (T)(upper != 0); "
        "if (a == a && a - a != 0) return x == x && x - x != 0 ? none : (T)(upper != 0); "
        "if (x == x && x - x != 0) return (T)!upper; if (a != a || x != x) return none; "
        "if (x <= (T)1.5 && a < (T)1.5) return upper ? $gamma_upper_small(a, x) : $gamma_lower(a, x); "
        "if (x < a + 1) { T low = $gamma_lower(a, x); return upper ? 1 - low : low; } "
        "T tail = $gamma_upper(a, x); return upper ? tail : 1 - tail; }"
    ),
}

SPECIAL = {
    "i0e": "T i0e(T x) { return $scaled_bessel_i(0, x); }",
    "i1e": "T i1e(T x) { return @copysign($scaled_bessel_i(1, x), x); }",
    "i0": "T i0_(T x) { return $times_exp($scaled_bessel_i(0, x), @fabs(x)); }",
    "i1": "T i1_(T x) { return $times_exp(@copysign($scaled_bessel_i(1, x), x), @fabs(x)); }",
    "modified_bessel_i0": "T modified_bessel_i0(T x) { return $i0(x); }",
    "modified_bessel_i1": "T modified_bessel_i1(T x) { return $i1(x); }",
    "modified_bessel_k0": "T modified_bessel_k0(T x) { return $bessel_k(0, x, 0); }",
    "modified_bessel_k1": "T modified_bessel_k1(T x) { return $bessel_k(1, x, 0); }",
    "scaled_modified_bessel_k0": "T scaled_modified_bessel_k0(T x) { return $bessel_k(0, x, 1); }",
    "scaled_modified_bessel_k1": "T scaled_modified_bessel_k1(T x) { return $bessel_k(1, x, 1); }",
    "erfcx": (  # from 2 on by its continued fraction
        "T erfcx(T x) { T a = @fabs(x), p; if (a < 2) p = @exp(a * a) * @erfc(a); else { T t = 0; "
        "for (int k = 60; k > 0; --k) t = (T)0.5 * k / (a + t); p = (T)0.56418958354775628695 / (a + t); } "
        "return x < 0 ? 2 * @exp(a * a) - p : p; }"
    ),
    "log_ndtr": (
        "T log_ndtr(T x) { T t = x * (T)0.70710678118654752440; if (x < -1) return @log($erfcx(-t) / 2) - t * t; "
        "return @log1p(-@erfc(t) / 2); }"
    ),
    "ndtri": (  # a rough start and Halley's steps
        "T ndtri(T p) { if (!(p >= 0 && p <= 1)) return (p - p) / (p * 0); if (p == 0) return -1 / p; if (p == 1) return 1 / (1 - p); "
        "T q = p < (T)0.5 ? p : 1 - p, t = @sqrt(-2 * @log(q)); "
        "T x = ((T)2.30753 + (T)0.27061 * t) / (1 + t * ((T)0.99229 + (T)0.04481 * t)) - t; for (int i = 0; i < 3; ++i) { "
        "T u = (@erfc(-x * (T)0.70710678118654752440) / 2 - q) * (T)2.50662827463100050242 * @exp(x * x / 2); "
        "x -= u / (1 + x * u / 2); } return p < (T)0.5 ? x : -x; }"
    ),
    "zeta": (  # by Euler-Maclaurin summation
        "T zeta(T x, T q) { if (x == 1) return 1 / (x - 1); if (x < 1) return (x - x) / (x - x); "
        "if (q <= 0) { if (q == @floor(q)) return 1 / (q - q); if (x != @floor(x)) return (q - q) / (q - q); } "
        "const T b[10] = {(T)(1.0 / 12), (T)(-1.0 / 720), (T)(1.0 / 30240), (T)(-1.0 / 1209600), (T)(1.0 / 47900160), "
        "(T)(-5.284190138687493e-10), (T)(1.3382536530684679e-11), (T)(-3.3896802963225829e-13), (T)(8.5860620562778446e-15), "
        "(T)(-2.1748686985580619e-16)}; T sum = @pow(q, -x), a = q, term = 0; for (int i = 0; i < 9 || a <= 9; ++i) { a += 1; "
        "term = @pow(a, -x); if (sum + term == sum && sum != 0) return sum; sum += term; } sum += term * a / (x - 1) - term / 2; "
        "T rising = 1, power = term, k = 0; for (int i = 0; i < 10; ++i) { rising *= x + k; power /= a; "
        "T more = rising * power * b[i]; if (sum + more == sum) break; sum += more; rising *= x + k + 1; power /= a; k += 2; } "
        "return sum; }"
    ),
    "polygamma": (
        "T polygamma(T n, T x) { if (n == 0) return $digamma(x); if (n == 1) return $trigamma(x); "
        "T size = @tgamma(n + 1) * $zeta(n + 1, x); return (long)n % 2 ? size : -size; }"
    ),
    "igamma": "T igamma(T a, T x) { return $regularized_gamma(a, x, 0); }",
    "igammac": "T igammac(T a, T x) { return $regularized_gamma(a, x, 1); }",
}
