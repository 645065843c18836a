// Sums of floating point numbers in PyTorch's order of additions, so that losses agree to the last bit:
// vectors of 32 bytes, four sums side by side, and after each 16 terms or more a carry into the sums of a
// level above, of which there are three. Every carry begins a sum anew, so two of them are made at the same
// time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace fl {
namespace FL_ARCH {
namespace {

template <class T>
struct CascadeSum {
  static constexpr int64_t kVector = 32 / sizeof(T);
  static constexpr int64_t kStrip = 4 * kVector;  // columns summed side by side
  static constexpr int kLevels = 3;

  template <int64_t W>
  struct vector {
    typedef T type __attribute__((vector_size(W * sizeof(T))));
  };

  // Four vectors of W sums.
  template <int64_t W>
  struct Four {
    using V = typename vector<W>::type;
    V v[4] = {};

    // Adds four vectors that begin `part` elements from each other.
    void add(const T* x, int64_t part) {
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        V value;
        std::memcpy(&value, x + q * part, sizeof(V));
        v[q] += value;
      }
    }
    void add(const Four& other) {
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) v[q] += other.v[q];
    }
  };

  // After how many of n terms sums are carried, as a power of two.
  static int power(int64_t n) {
    const int bits = n <= 1 ? 0 : 64 - __builtin_clzll(static_cast<uint64_t>(n - 1));
    return std::max(4, bits / (kLevels + 1));
  }

  // Takes the sums of the terms before term i into the levels.
  template <int64_t W>
  static void carry(Four<W> sum, Four<W>* level, int64_t i, int p) {
    const int64_t mask = (int64_t(1) << p) - 1;
    for (int j = 0; j < kLevels; ++j) {
      level[j].add(sum);
      if (j + 1 == kLevels || (i & mask << (j + 1) * p)) return;
      sum = level[j];
      level[j] = Four<W>{};
    }
  }

  // n terms of four vectors each, `step` elements from each other.
  template <int64_t W>
  static Four<W> sum(const T* x, int64_t part, int64_t step, int64_t n) {
    Four<W> last;
    if (n < 16) {
      for (int64_t i = 0; i < n; ++i) last.add(x + i * step, part);
      return last;
    }
    Four<W> level[kLevels];
    const int p = power(n);
    const int64_t length = int64_t(1) << p;
    int64_t i = 0;
    for (; i + 2 * length <= n; i += 2 * length) {
      Four<W> first, second;
      const T *a = x + i * step, *b = a + length * step;
      for (int64_t k = 0; k < length; ++k) {
        first.add(a + k * step, part);
        second.add(b + k * step, part);
      }
      carry<W>(first, level, i + length, p);
      carry<W>(second, level, i + 2 * length, p);
    }
    if (i + length <= n) {
      Four<W> first;
      for (int64_t k = 0; k < length; ++k) first.add(x + (i + k) * step, part);
      i += length;
      carry<W>(first, level, i, p);
    }
    for (; i < n; ++i) last.add(x + i * step, part);
    for (int j = 0; j < kLevels; ++j) last.add(level[j]);
    return last;
  }

  // n vectors, `stride` elements from each other, in four sums by turns.
  template <int64_t W>
  static typename vector<W>::type by_turns(const T* x, int64_t stride, int64_t n) {
    Four<W> sums = sum<W>(x, stride, 4 * stride, n / 4);
    typename vector<W>::type value;
    for (int64_t i = n / 4 * 4; i < n; ++i) {
      std::memcpy(&value, x + i * stride, sizeof(value));
      sums.v[0] += value;
    }
    return ((sums.v[0] + sums.v[1]) + sums.v[2]) + sums.v[3];
  }

  // A row that fills no vector.
  template <int N>
  static T brief(const T* x) {
    T total = 0;
    if constexpr (N > 0) total += x[0];
    for (int i = 4; i < N; ++i) total += x[i];
    for (int i = 1; i < std::min(N, 4); ++i) total += x[i];
    return total;
  }

  static T row(const T* x, int64_t n) {
    if (n < kVector) return by_turns<1>(x, 1, n)[0];
    const auto lanes = by_turns<kVector>(x, kVector, n / kVector);
    T total = 0;
    for (int64_t i = n / kVector * kVector; i < n; ++i) total += x[i];
    for (int64_t l = 0; l < kVector; ++l) total += lanes[l];
    return total;
  }

  // n rows of at most kBlock whole strips into acc, a carry of all of them at a time, so that memory is read
  // along rows.
  static constexpr int64_t kBlock = 16;
  static void strips(const T* x, int64_t stride, int64_t n, int64_t count, T* acc) {
    using Sums = Four<kVector>;
    Sums level[kBlock][kLevels];
    const int p = power(n);
    const int64_t length = int64_t(1) << p;
    int64_t i = 0;
    for (; i + length <= n; i += length)
      for (int64_t s = 0; s < count; ++s) {
        Sums sum;
        for (int64_t k = 0; k < length; ++k) sum.add(x + (i + k) * stride + s * kStrip, kVector);
        carry<kVector>(sum, level[s], i + length, p);
      }
    for (int64_t s = 0; s < count; ++s) {
      Sums sum;
      for (int64_t k = i; k < n; ++k) sum.add(x + k * stride + s * kStrip, kVector);
      for (int j = 0; j < kLevels; ++j) sum.add(level[s][j]);
      for (int64_t l = 0; l < kStrip; ++l) acc[s * kStrip + l] += sum.v[l / kVector][l % kVector];
    }
  }

  // n rows of columns into acc. Columns that fill no strip are summed as single ones are.
  static void columns(const T* x, int64_t stride, int64_t n, int64_t count, T* acc) {
    int64_t c = 0;
    const auto narrow = [&](auto width) {
      constexpr int64_t W = decltype(width)::value;
      const auto sum = by_turns<W>(x + c, stride, n);
      for (int64_t l = 0; l < W; ++l) acc[c + l] += sum[l];
      c += W;
    };
    if (count >= kVector) {
      for (int64_t left = count / kStrip; left > 0;) {
        const int64_t now = std::min(left, kBlock);
        strips(x + c, stride, n, now, acc + c);
        c += now * kStrip;
        left -= now;
      }
      while (c + kVector <= count) narrow(std::integral_constant<int64_t, kVector>());
    } else {
      for (; c + 4 <= count; c += 4) {
        const auto sum = CascadeSum::sum<1>(x + c, 1, stride, n);
        for (int64_t l = 0; l < 4; ++l) acc[c + l] += sum.v[l][0];
      }
    }
    while (c < count) narrow(std::integral_constant<int64_t, 1>());
  }

  // Rows of n elements, `stride` bytes from each other, each into one of acc.
  static void rows(const char* x, int64_t stride, int64_t count, int64_t n, T* acc) {
    const auto all = [&](auto sum) {
      for (int64_t r = 0; r < count; ++r) acc[r] += sum(reinterpret_cast<const T*>(x + r * stride));
    };
    switch (n < kVector ? n : -1) {
      case 1:
        return all(&brief<1>);
      case 2:
        return all(&brief<2>);
      case 3:
        return all(&brief<3>);
      case 4:
        return all(&brief<4>);
      case 5:
        return all(&brief<5>);
      case 6:
        return all(&brief<6>);
      case 7:
        return all(&brief<7>);
      default:
        return all([n](const T* at) { return row(at, n); });
    }
  }
};

}  // namespace
}  // namespace FL_ARCH
}  // namespace fl
