// Loops of the extremes with their index. NaN is beyond every number; of equal values the first is taken.
#pragma once

#include "cpu/engine/reduce_more.h"
#include "math/record_math.h"

namespace fl {
namespace FL_ARCH {
namespace {

template <class S, class T, bool Max>
struct IndexLoop {
  struct Acc {
    T value;
    int64_t index;  // -1 before the first element
  };
  using Index =
      std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;  // same width as the values, for the vector units
  static constexpr int64_t kLanes = 256 / sizeof(T), kRun = 2048, kColumns = 1024,
                           kMaxRows = int64_t(1) << 30;

  // Whether x, which comes later, replaces v.
  static bool better(T x, T v) {
    if constexpr (std::is_floating_point_v<T>)
      return !(Max ? x <= v : x >= v) & (v == v);
    else
      return Max ? x > v : x < v;
  }
  static T extreme(T a, T b) { return Max ? math::maximum(a, b) : math::minimum(a, b); }

  static void init(void* acc, int64_t n) { std::fill_n(static_cast<Acc*>(acc), n, Acc{T(0), -1}); }

  static void take(Acc& acc, T value, int64_t index) {
    if (acc.index < 0 || better(value, acc.value)) acc = {value, index};
  }

  template <int64_t w>
  static void fold(T* lane) {
    if constexpr (w > 0) {
#pragma GCC ivdep
      for (int64_t l = 0; l < w; ++l) lane[l] = extreme(lane[l], lane[l + w]);
      fold<w / 2>(lane);
    }
  }

  static T block(const S* x, int64_t n) {
    T lane[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) lane[l] = static_cast<T>(x[l]);
    int64_t i = kLanes;
    for (; i + kLanes <= n; i += kLanes)
#pragma GCC ivdep
      for (int64_t l = 0; l < kLanes; ++l) lane[l] = extreme(lane[l], static_cast<T>(x[i + l]));
    // What is left over is covered by a last block that reads some elements twice.
    if (i < n)
      for (int64_t l = 0; l < kLanes; ++l) lane[l] = extreme(lane[l], static_cast<T>(x[n - kLanes + l]));
    fold<kLanes / 2>(lane);
    return lane[0];
  }

  static int64_t find(const S* x, int64_t n, T value) {
    const bool nan = value != value;
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
      int hit = 0;
      for (int64_t l = 0; l < 64; ++l) {
        const T v = static_cast<T>(x[i + l]);
        hit |= nan ? v != v : v == value;
      }
      if (hit) break;
    }
    for (;; ++i) {
      const T v = static_cast<T>(x[i]);
      if (nan ? v != v : v == value) return i;
    }
  }

  static void row(const void* src, int64_t n, void* accs, int64_t base, const Scalar*) {
    const S* x = static_cast<const S*>(src);
    Acc acc = *static_cast<Acc*>(accs);
    int64_t i = 0;
    while (n - i >= kLanes) {
      const int64_t m = std::min(n - i, kRun);
      const T value = block(x + i, m);
      if (acc.index < 0 || better(value, acc.value)) acc = {value, base + i + find(x + i, m, value)};
      i += m;
    }
    for (; i < n; ++i) take(acc, static_cast<T>(x[i]), base + i);
    *static_cast<Acc*>(accs) = acc;
  }

  static void column(const char* src, int64_t stride, int64_t rows, int64_t columns, void* accs, int64_t base,
                     const Scalar*) {
    T value[kColumns];
    Index index[kColumns];
    for (int64_t first = 0; first < rows; first += kMaxRows) {
      const int64_t n = std::min(rows - first, kMaxRows);
      for (int64_t c = 0; c < columns; c += kColumns) {
        const int64_t m = std::min(kColumns, columns - c);
        const char* at = src + first * stride + c * sizeof(S);
        const S* x = reinterpret_cast<const S*>(at);
        for (int64_t j = 0; j < m; ++j) {
          value[j] = static_cast<T>(x[j]);
          index[j] = 0;
        }
        for (int64_t r = 1; r < n; ++r) {
          x = reinterpret_cast<const S*>(at + r * stride);
          const Index here = static_cast<Index>(r);
#pragma GCC ivdep
          for (int64_t j = 0; j < m; ++j) {
            const T v = static_cast<T>(x[j]);
            const bool yes = better(v, value[j]);
            value[j] = yes ? v : value[j];
            index[j] = yes ? here : index[j];
          }
        }
        Acc* acc = static_cast<Acc*>(accs) + c;
        for (int64_t j = 0; j < m; ++j) take(acc[j], value[j], base + first + index[j]);
      }
    }
  }

  static void merge(void* accs, const void* others, int64_t n) {
    Acc* a = static_cast<Acc*>(accs);
    const Acc* b = static_cast<const Acc*>(others);
    for (int64_t i = 0; i < n; ++i)
      if (b[i].index >= 0) take(a[i], b[i].value, b[i].index);
  }

  static void finish(const void* accs, int64_t n, int64_t, void* const* out, const Scalar*) {
    const Acc* a = static_cast<const Acc*>(accs);
    for (int64_t i = 0; i < n; ++i) static_cast<T*>(out[0])[i] = a[i].value;
    for (int64_t i = 0; i < n; ++i) static_cast<int64_t*>(out[1])[i] = a[i].index;
  }
  static void finish_index(const void* accs, int64_t n, int64_t, void* const* out, const Scalar*) {
    const Acc* a = static_cast<const Acc*>(accs);
    for (int64_t i = 0; i < n; ++i) static_cast<int64_t*>(out[0])[i] = a[i].index;
  }

  static constexpr ReduceLoops loops(bool index_only) {
    return {sizeof(Acc), &init, &row, &column, &merge, index_only ? &finish_index : &finish};
  }
};

}  // namespace
}  // namespace FL_ARCH
}  // namespace fl
