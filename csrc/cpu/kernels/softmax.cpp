// Softmax, log-softmax and log-sum-exp: three passes over data that stays in cache.
#include "cpu/softmax.h"

#include <cmath>
#include <limits>

#include "cpu/math.h"

namespace fl {
namespace FL_ARCH {
namespace {

inline float exponential(float x) { return math::exp_fast(x); }
inline double exponential(double x) { return math::exp(x); }

// NaN is left to the sum: the exponential of a row with one is NaN everywhere.
template <class T>
inline T largest(const T* x, int64_t n) {
  T m = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : m)
  for (int64_t i = 0; i < n; ++i) m = x[i] > m ? x[i] : m;
  return m;
}

// A row without a finite maximum: of infinities there is no shift to take, so that inf - inf does not hide exp(-inf).
template <class T>
inline T shift_of(T m) {
  return std::isinf(m) ? T(0) : m;
}

template <class T>
void softmax_rows(SoftmaxKind kind, const T* x, T* y, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const T m = largest(x, n);
    T sum = 0;
    if (kind == SoftmaxKind::Softmax) {
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < n; ++i) {
        const T e = exponential(x[i] - m);
        y[i] = e;
        sum += e;
      }
      const T scale = T(1) / sum;
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] *= scale;
    } else {
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < n; ++i) sum += exponential(x[i] - m);
      const T log_sum = std::log(sum);
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = x[i] - m - log_sum;
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
void softmax_columns(SoftmaxKind kind, const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t n, int64_t width) {
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
  for (int64_t j = 0; j < width; ++j) sum[j] = std::log(sum[j]);
  for (int64_t i = 0; i < n; ++i) {
    const T* row = x + i * x_stride;
    T* out = y + i * y_stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < width; ++j) out[j] = row[j] - m[j] - sum[j];
  }
}

template <class T>
void logsumexp_rows(const T* x, T* out, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, x += n) {
    const T m = shift_of(largest(x, n));
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += exponential(x[i] - m);
    out[r] = m + std::log(sum);
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
  for (int64_t j = 0; j < width; ++j) out[j] = m[j] + std::log(sum[j]);
}

template <class T>
constexpr SoftmaxLoops<T> loops() {
  return {softmax_rows<T>, softmax_columns<T>, logsumexp_rows<T>, logsumexp_columns<T>};
}

}  // namespace

extern const SoftmaxTable softmax_table;
const SoftmaxTable softmax_table = {loops<float>(), loops<double>()};

}  // namespace FL_ARCH
}  // namespace fl
