// Loops of variance and log-sum-exp. Both work on blocks that stay in cache, so that a block can be read
// twice: first for its mean (or maximum), then for the deviations from it; blocks are combined exactly.
#pragma once

#include <cmath>

#include "cpu/engine/reduce_more.h"
#include "math/record_math.h"

namespace fl {
namespace FL_ARCH {
namespace {

// Sum over i < n of term(i), in independent lanes.
template <class T, class F>
inline T lane_sum(int64_t n, const F& term) {
  constexpr int64_t lanes = 256 / sizeof(T);
  T total = 0;
  int64_t i = 0;
  if (n >= lanes) {
    T lane[lanes];
    for (int64_t l = 0; l < lanes; ++l) lane[l] = term(l);
    for (i = lanes; i + lanes <= n; i += lanes)
#pragma GCC ivdep
      for (int64_t l = 0; l < lanes; ++l) lane[l] += term(i + l);
    constexpr int64_t part = lanes / 4;
    for (int64_t to = 0; i + part <= n; i += part, to += part)
#pragma GCC ivdep
      for (int64_t l = 0; l < part; ++l) lane[to + l] += term(i + l);
    for (int64_t l = 0; i < n; ++i, ++l) lane[l] += term(i);
    for (int64_t w = lanes / 2; w > 0; w /= 2)
      for (int64_t l = 0; l < w; ++l) lane[l] += lane[l + w];
    total = lane[0];
  }
  for (; i < n; ++i) total += term(i);
  return total;
}

template <class S, class T>
struct MomentLoop {
  struct Acc {
    double mean, square;  // square: sum of squared deviations from the mean
    int64_t n;
  };
  static constexpr int64_t kRun = 1024, kRows = 32, kColumns = 512;

  static void init(void* acc, int64_t n) { std::fill_n(static_cast<Acc*>(acc), n, Acc{0, 0, 0}); }

  static void take(Acc& a, double mean, double square, int64_t n) {
    if (n == 0) return;
    if (a.n == 0) {
      a = {mean, square, n};
      return;
    }
    const int64_t total = a.n + n;
    const double delta = mean - a.mean, share = static_cast<double>(n) / static_cast<double>(total);
    a.mean += delta * share;
    a.square += square + delta * delta * static_cast<double>(a.n) * share;
    a.n = total;
  }

  static void row(const void* src, int64_t n, void* acc, int64_t, const Scalar*) {
    const S* all = static_cast<const S*>(src);
    for (int64_t i = 0; i < n; i += kRun) {
      const S* x = all + i;
      const int64_t m = std::min(kRun, n - i);
      const double mean =
          static_cast<double>(lane_sum<T>(m, [x](int64_t k) { return static_cast<T>(x[k]); })) /
          static_cast<double>(m);
      const T pivot = static_cast<T>(mean);
      const T square = lane_sum<T>(m, [x, pivot](int64_t k) {
        const T d = static_cast<T>(x[k]) - pivot;
        return d * d;
      });
      take(*static_cast<Acc*>(acc), mean, static_cast<double>(square), m);
    }
  }

  static void column(const char* src, int64_t stride, int64_t rows, int64_t columns, void* accs, int64_t,
                     const Scalar*) {
    T mean[kColumns], square[kColumns];
    for (int64_t r = 0; r < rows; r += kRows) {
      const int64_t n = std::min(kRows, rows - r);
      for (int64_t c = 0; c < columns; c += kColumns) {
        const int64_t m = std::min(kColumns, columns - c);
        const char* at = src + r * stride + c * sizeof(S);
        const auto row_at = [&](int64_t k) { return reinterpret_cast<const S*>(at + k * stride); };
        for (int64_t j = 0; j < m; ++j) mean[j] = square[j] = 0;
        int64_t k = 0;
        for (; k + 4 <= n; k += 4) {
          const S *x = row_at(k), *y = row_at(k + 1), *z = row_at(k + 2), *w = row_at(k + 3);
#pragma GCC ivdep
          for (int64_t j = 0; j < m; ++j)
            mean[j] +=
                (static_cast<T>(x[j]) + static_cast<T>(y[j])) + (static_cast<T>(z[j]) + static_cast<T>(w[j]));
        }
        for (; k < n; ++k) {
          const S* x = row_at(k);
#pragma GCC ivdep
          for (int64_t j = 0; j < m; ++j) mean[j] += static_cast<T>(x[j]);
        }
        const T inverse = T(1) / static_cast<T>(n);
        for (int64_t j = 0; j < m; ++j) mean[j] *= inverse;
        k = 0;
        for (; k + 4 <= n; k += 4) {
          const S *x = row_at(k), *y = row_at(k + 1), *z = row_at(k + 2), *w = row_at(k + 3);
#pragma GCC ivdep
          for (int64_t j = 0; j < m; ++j) {
            const T a = static_cast<T>(x[j]) - mean[j], b = static_cast<T>(y[j]) - mean[j];
            const T d = static_cast<T>(z[j]) - mean[j], e = static_cast<T>(w[j]) - mean[j];
            square[j] += (a * a + b * b) + (d * d + e * e);
          }
        }
        for (; k < n; ++k) {
          const S* x = row_at(k);
#pragma GCC ivdep
          for (int64_t j = 0; j < m; ++j) {
            const T a = static_cast<T>(x[j]) - mean[j];
            square[j] += a * a;
          }
        }
        Acc* acc = static_cast<Acc*>(accs) + c;
        for (int64_t j = 0; j < m; ++j)
          take(acc[j], static_cast<double>(mean[j]), static_cast<double>(square[j]), n);
      }
    }
  }

  static void merge(void* accs, const void* others, int64_t n) {
    const Acc* b = static_cast<const Acc*>(others);
    for (int64_t i = 0; i < n; ++i) take(static_cast<Acc*>(accs)[i], b[i].mean, b[i].square, b[i].n);
  }

  static void finish(const void* accs, int64_t n, int64_t count, void* const* out, const Scalar* params) {
    const Acc* a = static_cast<const Acc*>(accs);
    const double divisor = std::max(0.0, static_cast<double>(count) - params[0].to<double>());
    const bool root = params[1].to<bool>();
    T* variance = static_cast<T*>(out[0]);
    for (int64_t i = 0; i < n; ++i) {
      const double v = count == 0 ? std::nan("") : a[i].square / divisor;
      variance[i] = static_cast<T>(root ? std::sqrt(v) : v);
    }
    if (out[1] == nullptr) return;
    for (int64_t i = 0; i < n; ++i)
      static_cast<T*>(out[1])[i] = static_cast<T>(count == 0 ? std::nan("") : a[i].mean);
  }

  static constexpr ReduceLoops loops() { return {sizeof(Acc), &init, &row, &column, &merge, &finish}; }
};

template <class S, class T>
struct LogSumExpLoop {
  struct Acc {
    T max, sum;  // sum of exp(x - pivot(max))
  };
  static constexpr int64_t kRun = 1024, kRows = 32, kColumns = 512;

  // An infinite maximum cannot be subtracted: the exponentials are then 0 or infinite by themselves.
  static T pivot(T max) { return math::isinf(max) ? T(0) : max; }

  static void init(void* acc, int64_t n) {
    std::fill_n(static_cast<Acc*>(acc), n, Acc{math::least<T>(), T(0)});
  }

  static T rescale(T sum, T from, T to) { return sum == T(0) ? T(0) : sum * math::exp(from - to); }
  static void take(Acc& a, T max, T sum) {
    const T both = math::maximum(a.max, max), to = pivot(both);
    a.sum = rescale(a.sum, pivot(a.max), to) + rescale(sum, pivot(max), to);
    a.max = both;
  }

  static void row(const void* src, int64_t n, void* acc, int64_t, const Scalar*) {
    const S* all = static_cast<const S*>(src);
    for (int64_t i = 0; i < n; i += kRun) {
      const S* x = all + i;
      const int64_t m = std::min(kRun, n - i);
      constexpr int64_t lanes = 64;
      T lane[lanes];
      for (int64_t l = 0; l < lanes; ++l) lane[l] = math::least<T>();
      int64_t k = 0;
      for (; k + lanes <= m; k += lanes)
#pragma GCC ivdep
        for (int64_t l = 0; l < lanes; ++l) lane[l] = math::maximum(lane[l], static_cast<T>(x[k + l]));
      T max = lane[0];
      for (int64_t l = 1; l < lanes; ++l) max = math::maximum(max, lane[l]);
      for (; k < m; ++k) max = math::maximum(max, static_cast<T>(x[k]));
      const T p = pivot(max);
      take(*static_cast<Acc*>(acc), max,
           lane_sum<T>(m, [x, p](int64_t j) { return math::exp(static_cast<T>(x[j]) - p); }));
    }
  }

  static void column(const char* src, int64_t stride, int64_t rows, int64_t columns, void* accs, int64_t,
                     const Scalar*) {
    T max[kColumns], from[kColumns], sum[kColumns];
    for (int64_t r = 0; r < rows; r += kRows) {
      const int64_t n = std::min(kRows, rows - r);
      for (int64_t c = 0; c < columns; c += kColumns) {
        const int64_t m = std::min(kColumns, columns - c);
        for (int64_t j = 0; j < m; ++j) {
          max[j] = math::least<T>();
          sum[j] = 0;
        }
        for (int64_t k = 0; k < n; ++k) {
          const S* x = reinterpret_cast<const S*>(src + (r + k) * stride) + c;
#pragma GCC ivdep
          for (int64_t j = 0; j < m; ++j) max[j] = math::maximum(max[j], static_cast<T>(x[j]));
        }
        for (int64_t j = 0; j < m; ++j) from[j] = pivot(max[j]);
        for (int64_t k = 0; k < n; ++k) {
          const S* x = reinterpret_cast<const S*>(src + (r + k) * stride) + c;
#pragma GCC ivdep
          for (int64_t j = 0; j < m; ++j) sum[j] += math::exp(static_cast<T>(x[j]) - from[j]);
        }
        Acc* acc = static_cast<Acc*>(accs) + c;
        for (int64_t j = 0; j < m; ++j) take(acc[j], max[j], sum[j]);
      }
    }
  }

  static void merge(void* accs, const void* others, int64_t n) {
    const Acc* b = static_cast<const Acc*>(others);
    for (int64_t i = 0; i < n; ++i) take(static_cast<Acc*>(accs)[i], b[i].max, b[i].sum);
  }

  static void finish(const void* accs, int64_t n, int64_t, void* const* out, const Scalar*) {
    const Acc* a = static_cast<const Acc*>(accs);
    T* o = static_cast<T*>(out[0]);
    for (int64_t i = 0; i < n; ++i) o[i] = math::log(a[i].sum) + pivot(a[i].max);
  }

  static constexpr ReduceLoops loops() { return {sizeof(Acc), &init, &row, &column, &merge, &finish}; }
};

}  // namespace
}  // namespace FL_ARCH
}  // namespace fl
