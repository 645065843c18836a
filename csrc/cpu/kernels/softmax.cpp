// Softmax, log-softmax and log-sum-exp: three passes over data that stays in cache.
#include "cpu/normalization/softmax.h"

#include <cmath>
#include <limits>

#include "math/math.h"

namespace fl {
namespace FL_ARCH {
namespace {

inline float exponential(float x) {
  return math::exp_fast(x);
}
inline double exponential(double x) {
  return math::exp(x);
}

constexpr int64_t kLanes = 16;
constexpr int64_t kRowBlock = 32;  // rows whose logarithms are taken together

// NaN is left to the sum: the exponential of a row with one is NaN everywhere.
template <class T>
inline T largest(const T* x, int64_t n) {
  T m = -std::numeric_limits<T>::infinity();
  const int64_t whole = n < kLanes ? n : n - n % kLanes;
#pragma omp simd reduction(max : m)
  for (int64_t i = 0; i < whole; ++i) m = x[i] > m ? x[i] : m;
  if (whole < n) {
    const T* last = x + n - kLanes;
#pragma omp simd reduction(max : m)
    for (int64_t i = 0; i < kLanes; ++i) m = last[i] > m ? last[i] : m;
  }
  return m;
}

// A row without a finite maximum: of infinities there is no shift to take, so that inf - inf does not hide
// exp(-inf).
template <class T>
inline T shift_of(T m) {
  return std::isinf(m) ? T(0) : m;
}

// Sum of exp(x[i] - m); keeps the terms in y when it is not null. What fills no vector at the end of a row is
// computed with a vector that overlaps the one before, instead of a scalar exponential for each element.
template <bool Keep, class T>
inline T exponential_sum(const T* x, T* y, int64_t n, T m) {
  T sum = 0;
  if (n < kLanes) {
    for (int64_t i = 0; i < n; ++i) {
      const T e = exponential(x[i] - m);
      if (Keep) y[i] = e;
      sum += e;
    }
    return sum;
  }
  const int64_t rest = n % kLanes, whole = n - rest;
  alignas(64) T last[kLanes];
  if (rest) {  // first, because y may be x
    const T* from = x + n - kLanes;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < kLanes; ++i) {
      const T e = exponential(from[i] - m);
      last[i] = e;
      sum += i >= kLanes - rest ? e : T(0);
    }
  }
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < whole; ++i) {
    const T e = exponential(x[i] - m);
    if (Keep) y[i] = e;
    sum += e;
  }
  if (Keep && rest) {
    T* to = y + n - kLanes;
    for (int64_t i = 0; i < kLanes; ++i) to[i] = last[i];
  }
  return sum;
}

template <class T>
void softmax_rows(SoftmaxKind kind, const T* x, T* y, int64_t rows, int64_t n) {
  if (kind == SoftmaxKind::Softmax) {
    for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
      const T scale = T(1) / exponential_sum<true>(x, y, n, largest(x, n));
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] *= scale;
    }
    return;
  }
  for (int64_t first = 0; first < rows; first += kRowBlock) {
    const int64_t count = rows - first < kRowBlock ? rows - first : kRowBlock;
    alignas(64) T m[kRowBlock], sum[kRowBlock];
    for (int64_t r = count; r < kRowBlock; ++r) sum[r] = 1;
    for (int64_t r = 0; r < count; ++r) {
      m[r] = largest(x + r * n, n);
      sum[r] = exponential_sum<false>(x + r * n, static_cast<T*>(nullptr), n, m[r]);
    }
#pragma GCC ivdep
    for (int64_t r = 0; r < kRowBlock; ++r) sum[r] = math::log(sum[r]);
    for (int64_t r = 0; r < count; ++r, x += n, y += n) {
      const T a = m[r], b = sum[r];
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = x[i] - a - b;
    }
  }
}

// The maximum of each column, and the sum of exponentials after subtracting it.
template <class T>
inline void column_maxima(const T* x, int64_t stride, int64_t n, int64_t width, T* m) {
  for (int64_t j = 0; j < width; ++j) m[j] = -std::numeric_limits<T>::infinity();
  for (int64_t i = 0; i < n; ++i) {
    const T* row = x + i * stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < width; ++j) m[j] = row[j] > m[j] ? row[j] : m[j];
  }
}

template <class T>
void softmax_columns(SoftmaxKind kind, const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t n,
                     int64_t width) {
  alignas(64) T m[kSoftmaxWidth], sum[kSoftmaxWidth];
  column_maxima(x, x_stride, n, width, m);
  for (int64_t j = 0; j < width; ++j) sum[j] = 0;
  if (kind == SoftmaxKind::Softmax) {
    for (int64_t i = 0; i < n; ++i) {
      const T* row = x + i * x_stride;
      T* out = y + i * y_stride;
#pragma GCC ivdep
      for (int64_t j = 0; j < width; ++j) {
        const T e = exponential(row[j] - m[j]);
        out[j] = e;
        sum[j] += e;
      }
    }
    for (int64_t j = 0; j < width; ++j) sum[j] = T(1) / sum[j];
    for (int64_t i = 0; i < n; ++i) {
      T* out = y + i * y_stride;
#pragma GCC ivdep
      for (int64_t j = 0; j < width; ++j) out[j] *= sum[j];
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const T* row = x + i * x_stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < width; ++j) sum[j] += exponential(row[j] - m[j]);
  }
#pragma GCC ivdep
  for (int64_t j = 0; j < width; ++j) sum[j] = math::log(sum[j]);
  for (int64_t i = 0; i < n; ++i) {
    const T* row = x + i * x_stride;
    T* out = y + i * y_stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < width; ++j) out[j] = row[j] - m[j] - sum[j];
  }
}

template <class T>
void logsumexp_rows(const T* x, T* out, int64_t rows, int64_t n) {
  for (int64_t first = 0; first < rows; first += kRowBlock, out += kRowBlock) {
    const int64_t count = rows - first < kRowBlock ? rows - first : kRowBlock;
    alignas(64) T m[kRowBlock], sum[kRowBlock];
    for (int64_t r = count; r < kRowBlock; ++r) sum[r] = 1;
    for (int64_t r = 0; r < count; ++r, x += n) {
      m[r] = shift_of(largest(x, n));
      sum[r] = exponential_sum<false>(x, static_cast<T*>(nullptr), n, m[r]);
    }
#pragma GCC ivdep
    for (int64_t r = 0; r < kRowBlock; ++r) sum[r] = math::log(sum[r]);
    for (int64_t r = 0; r < count; ++r) out[r] = m[r] + sum[r];
  }
}

template <class T>
void logsumexp_columns(const T* x, int64_t stride, T* out, int64_t n, int64_t width) {
  alignas(64) T m[kSoftmaxWidth], sum[kSoftmaxWidth];
  column_maxima(x, stride, n, width, m);
  for (int64_t j = 0; j < width; ++j) {
    m[j] = shift_of(m[j]);
    sum[j] = 0;
  }
  for (int64_t i = 0; i < n; ++i) {
    const T* row = x + i * stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < width; ++j) sum[j] += exponential(row[j] - m[j]);
  }
#pragma GCC ivdep
  for (int64_t j = 0; j < width; ++j) out[j] = m[j] + math::log(sum[j]);
}

template <class T>
void gradient_rows(SoftmaxKind kind, const T* g, const T* y, T* out, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, g += n, y += n, out += n) {
    T sum = 0;
    if (kind == SoftmaxKind::Softmax) {
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < n; ++i) sum += g[i] * y[i];
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) out[i] = y[i] * (g[i] - sum);
    } else {
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < n; ++i) sum += g[i];
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) out[i] = g[i] - exponential(y[i]) * sum;
    }
  }
}

template <class T>
void gradient_columns(SoftmaxKind kind, const T* g, const T* y, T* out, int64_t stride, int64_t n,
                      int64_t width) {
  alignas(64) T sum[kSoftmaxWidth];
  for (int64_t j = 0; j < width; ++j) sum[j] = 0;
  const bool plain = kind == SoftmaxKind::Softmax;
  for (int64_t i = 0; i < n; ++i) {
    const T *gi = g + i * stride, *yi = y + i * stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < width; ++j) sum[j] += plain ? gi[j] * yi[j] : gi[j];
  }
  for (int64_t i = 0; i < n; ++i) {
    const T *gi = g + i * stride, *yi = y + i * stride;
    T* to = out + i * stride;
    if (plain) {
#pragma GCC ivdep
      for (int64_t j = 0; j < width; ++j) to[j] = yi[j] * (gi[j] - sum[j]);
    } else {
#pragma GCC ivdep
      for (int64_t j = 0; j < width; ++j) to[j] = gi[j] - exponential(yi[j]) * sum[j];
    }
  }
}

template <class T>
void scaled_rows(const T* x, const T* shift, const T* factor, T* out, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    const T a = shift[r], b = factor[r];
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = exponential(x[i] - a) * b;
  }
}

template <class T>
void scaled_columns(const T* x, const T* shift, const T* factor, T* out, int64_t stride, int64_t n,
                    int64_t width) {
  for (int64_t i = 0; i < n; ++i) {
    const T* row = x + i * stride;
    T* to = out + i * stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < width; ++j) to[j] = exponential(row[j] - shift[j]) * factor[j];
  }
}

template <class T>
constexpr SoftmaxLoops<T> loops() {
  return {softmax_rows<T>,  softmax_columns<T>,  logsumexp_rows<T>, logsumexp_columns<T>,
          gradient_rows<T>, gradient_columns<T>, scaled_rows<T>,    scaled_columns<T>};
}

}  // namespace

extern const SoftmaxTable softmax_table;
const SoftmaxTable softmax_table = {loops<float>(), loops<double>()};

}  // namespace FL_ARCH
}  // namespace fl
