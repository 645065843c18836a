// Statistics by blocks that stay in the first cache, combined in double; then one multiply-add for each
// element.
#include "cpu/normalization/normalization.h"

#include <algorithm>
#include <cmath>

namespace fl {
namespace FL_ARCH {
namespace {

constexpr int64_t kRun = 2048;

template <class S>
using Compute = std::conditional_t<std::is_same_v<S, double>, double, float>;

// Mean and squared deviations of one block, in two passes over the cache.
template <class S>
inline void block_moments(const S* x, int64_t n, double inverse, double& mean, double& deviations) {
  using T = Compute<S>;
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<T>(x[i]);
  const T middle = sum * static_cast<T>(inverse);
  T squares = 0, rest = 0;
#pragma omp simd reduction(+ : squares, rest)
  for (int64_t i = 0; i < n; ++i) {
    const T d = static_cast<T>(x[i]) - middle;
    squares += d * d;
    rest += d;
  }
  // `rest` is what rounding left of the mean.
  const double correction = static_cast<double>(rest) * inverse;
  mean = static_cast<double>(middle) + correction;
  deviations = static_cast<double>(squares) - correction * static_cast<double>(rest);
}

template <class S>
void moments_of(const S* x, int64_t n, double* mean, double* deviations) {
  if (n <= kRun) return block_moments(x, n, 1 / static_cast<double>(n), *mean, *deviations);
  double m = 0, d = 0;
  int64_t seen = 0;
  for (int64_t i = 0; i < n; i += kRun) {
    const int64_t count = std::min(kRun, n - i);
    double block_mean, block_deviations;
    block_moments(x + i, count, 1 / static_cast<double>(count), block_mean, block_deviations);
    const double delta = block_mean - m, total = static_cast<double>(seen + count);
    m += delta * static_cast<double>(count) / total;
    d += block_deviations + delta * delta * static_cast<double>(seen) * static_cast<double>(count) / total;
    seen += count;
  }
  *mean = m;
  *deviations = d;
}
template <class S>
void moments(const void* x, int64_t n, double* mean, double* deviations) {
  moments_of(static_cast<const S*>(x), n, mean, deviations);
}

template <class S>
double square_sum(const void* data, int64_t n) {
  using T = Compute<S>;
  const S* x = static_cast<const S*>(data);
  double total = 0;
  for (int64_t i = 0; i < n; i += kRun) {
    const int64_t end = std::min(n, i + kRun);
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = i; j < end; ++j) sum += static_cast<T>(x[j]) * static_cast<T>(x[j]);
    total += static_cast<double>(sum);
  }
  return total;
}

template <class S>
void affine(const void* from, void* to, int64_t n, double scale, double shift) {
  using T = Compute<S>;
  const S* x = static_cast<const S*>(from);
  S* y = static_cast<S*>(to);
  const T a = static_cast<T>(scale), b = static_cast<T>(shift);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<S>(static_cast<T>(x[i]) * a + b);
}

template <class S>
void layer_rows(const void* from, void* to, int64_t rows, int64_t n, const void* weight, const void* bias,
                double eps, double* means, double* rstds) {
  using T = Compute<S>;
  const S* x = static_cast<const S*>(from);
  S* y = static_cast<S*>(to);
  const T *w = static_cast<const T*>(weight), *b = static_cast<const T*>(bias);
  const double inverse = 1 / static_cast<double>(n);
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    double mean, deviations;
    if (n <= kRun)
      block_moments(x, n, inverse, mean, deviations);
    else
      moments_of(x, n, &mean, &deviations);
    const double rstd = 1 / std::sqrt(deviations * inverse + eps);
    means[r] = mean;
    rstds[r] = rstd;
    const T m = static_cast<T>(mean), s = static_cast<T>(rstd);
    if (w && b) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<S>((static_cast<T>(x[i]) - m) * s * w[i] + b[i]);
    } else if (w) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<S>((static_cast<T>(x[i]) - m) * s * w[i]);
    } else if (b) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<S>((static_cast<T>(x[i]) - m) * s + b[i]);
    } else {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<S>((static_cast<T>(x[i]) - m) * s);
    }
  }
}

template <class S>
void rms_rows(const void* from, void* to, int64_t rows, int64_t n, const void* weight, double eps,
              double* rstds) {
  using T = Compute<S>;
  const S* x = static_cast<const S*>(from);
  S* y = static_cast<S*>(to);
  const T* w = static_cast<const T*>(weight);
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    rstds[r] = 1 / std::sqrt(square_sum<S>(x, n) / static_cast<double>(n) + eps);
    const T s = static_cast<T>(rstds[r]);
    if (w) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<S>(static_cast<T>(x[i]) * s * w[i]);
    } else {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<S>(static_cast<T>(x[i]) * s);
    }
  }
}

template <class S>
void plane_sums(const void* from, int64_t planes, int64_t stride, int64_t n, double shift, double* sum,
                double* squares) {
  using T = Compute<S>;
  constexpr int64_t kLanes = 16;
  const S* x = static_cast<const S*>(from);
  double s[kLanes] = {}, q[kLanes] = {};
  const auto add = [&](S value, int64_t k) {
    const double d = static_cast<double>(static_cast<T>(value)) - shift;
    s[k] += d;
    q[k] += d * d;
  };
  for (int64_t p = 0; p < planes; ++p, x += stride) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int64_t k = 0; k < kLanes; ++k) add(x[i + k], k);
    for (int64_t k = 0; i < n; ++i, ++k) add(x[i], k);
  }
  double total = 0, total_squares = 0;
  for (int64_t k = 0; k < kLanes; ++k) {
    total += s[k];
    total_squares += q[k];
  }
  *sum = total;
  *squares = total_squares;
}

template <class S>
void channel_sums(const void* from, int64_t rows, int64_t channels, const double* shift, double* sums,
                  double* squares) {
  using T = Compute<S>;
  constexpr int64_t kWidth = 128;
  const S* x = static_cast<const S*>(from);
  for (int64_t c = 0; c < channels; c += kWidth) {
    const int64_t width = std::min(kWidth, channels - c);
    double *s = sums + c, *q = squares + c;
    const double* origin = shift + c;
    const auto from_origin = [&](const S* row, int64_t i) {
      return static_cast<double>(static_cast<T>(row[i])) - origin[i];
    };
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      const S* row = x + r * channels + c;
#pragma GCC ivdep
      for (int64_t i = 0; i < width; ++i) {
        const double a = from_origin(row, i), b = from_origin(row + channels, i),
                     d = from_origin(row + 2 * channels, i), e = from_origin(row + 3 * channels, i);
        s[i] += (a + b) + (d + e);
        q[i] += (a * a + b * b) + (d * d + e * e);
      }
    }
    for (; r < rows; ++r) {
      const S* row = x + r * channels + c;
#pragma GCC ivdep
      for (int64_t i = 0; i < width; ++i) {
        const double d = from_origin(row, i);
        s[i] += d;
        q[i] += d * d;
      }
    }
  }
}

template <class S>
void channel_affine(const void* from, void* to, int64_t rows, int64_t channels, const void* scale,
                    const void* shift) {
  using T = Compute<S>;
  const S* x = static_cast<const S*>(from);
  S* y = static_cast<S*>(to);
  const T *a = static_cast<const T*>(scale), *b = static_cast<const T*>(shift);
  for (int64_t r = 0; r < rows; ++r, x += channels, y += channels) {
#pragma GCC ivdep
    for (int64_t i = 0; i < channels; ++i) y[i] = static_cast<S>(static_cast<T>(x[i]) * a[i] + b[i]);
  }
}

template <class S>
constexpr NormLoops loops() {
  return {moments<S>,  square_sum<S>, affine<S>,       layer_rows<S>,
          rms_rows<S>, plane_sums<S>, channel_sums<S>, channel_affine<S>};
}

}  // namespace

extern const NormTable norm_table;
const NormTable norm_table = {loops<float>(), loops<double>(), loops<BFloat16>(), loops<Half>()};

}  // namespace FL_ARCH
}  // namespace fl
