// Loops of a reduction from its scalar arithmetic: many independent lanes for the vector units, pairwise over
// long runs so that the rounding error grows with the logarithm of the length.
#pragma once

#include "cpu/engine/cascade_sum.h"
#include "ops/reduce_loops.h"

namespace fl {
namespace FL_ARCH {
namespace {

template <class T>
struct real_part {
  using type = T;
};
template <class T>
struct real_part<std::complex<T>> {
  using type = T;
};

// F: init<A>(), load(T, const P*) -> A, combine(A, A), finish(A, A n, const P*) -> R. S is stored, T
// computed, A accumulated.
template <class F, class S, class T, class A, class R>
struct ReduceLoop {
  using P = typename real_part<T>::type;
  static constexpr int64_t kLanes = 256 / sizeof(A) < 8 ? 8 : 256 / sizeof(A) > 64 ? 64 : 256 / sizeof(A);
  static constexpr int64_t kPart = kLanes / 4;  // one vector: the step of what is left over
  static constexpr int64_t kRun = 4096;         // elements summed by lanes alone
  static constexpr int64_t kRows = 512;         // rows taken into one set of column accumulators
  static constexpr int64_t kColumns = 1024;
  static constexpr bool kCascade = F::plain_sum && std::is_same_v<S, A> && std::is_floating_point_v<A>;

  struct Params {
    P p[2];
    explicit Params(const Scalar* s) {
      if (s)
        for (int i = 0; i < 2; ++i) p[i] = s[i].to<P>();
    }
  };

  static A load(S x, const Params& p) { return static_cast<A>(F::template load<T>(static_cast<T>(x), p.p)); }

  // Halves the lanes until one is left; widths are constants so that each step is a few vector instructions.
  template <int64_t w>
  static void fold(A* lane) {
    if constexpr (w > 0) {
#pragma GCC ivdep
      for (int64_t l = 0; l < w; ++l) lane[l] = F::template combine<A>(lane[l], lane[l + w]);
      fold<w / 2>(lane);
    }
  }

  // At least kLanes elements. Long loops stand once in each instance, which halves the time to compile them.
  // Parameters come by value: accumulators could lie over what a pointer names.
  [[gnu::noinline]] static A run(const S* x, int64_t n, Params p) {
    if (n > kRun) {
      const int64_t half = (n / 2 + kLanes - 1) / kLanes * kLanes;
      return F::template combine<A>(run(x, half, p), run(x + half, n - half, p));
    }
    A lane[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) lane[l] = F::template init<A>();
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
#pragma GCC ivdep
      for (int64_t l = 0; l < kLanes; ++l) lane[l] = F::template combine<A>(lane[l], load(x[i + l], p));
    for (int64_t to = 0; i + kPart <= n; i += kPart, to += kPart)
#pragma GCC ivdep
      for (int64_t l = 0; l < kPart; ++l)
        lane[to + l] = F::template combine<A>(lane[to + l], load(x[i + l], p));
    for (int64_t l = 0; i < n; ++i, ++l) lane[l] = F::template combine<A>(lane[l], load(x[i], p));
    fold<kLanes / 2>(lane);
    return lane[0];
  }

  static void init(void* acc, int64_t n) { std::fill_n(static_cast<A*>(acc), n, F::template init<A>()); }

  static void row(const void* src, int64_t n, void* acc, int64_t, const Scalar* params) {
    const Params p(params);
    A& a = *static_cast<A*>(acc);
    const S* x = static_cast<const S*>(src);
    if constexpr (kCascade) {
      a += CascadeSum<A>::row(x, n);
    } else if (n >= kLanes) {
      a = F::template combine<A>(a, run(x, n, p));
    } else {
      A total = F::template init<A>();
      for (int64_t i = 0; i < n; ++i) total = F::template combine<A>(total, load(x[i], p));
      a = F::template combine<A>(a, total);
    }
  }

  // Whole rows, each of n contiguous elements, into one accumulator each.
  static void many(const char* src, int64_t stride, int64_t rows, int64_t n, void* accs) {
    A* acc = static_cast<A*>(accs);
    if constexpr (kCascade) CascadeSum<A>::rows(src, stride, rows, n, acc);
  }

  [[gnu::noinline]] static void rows(const char* src, int64_t stride, int64_t n, int64_t columns, A* acc,
                                     Params p) {
    const auto at = [&](int64_t r) { return reinterpret_cast<const S*>(src + r * stride); };
    int64_t r = 0;
    for (; r + 8 <= n; r += 8) {
      const S *a = at(r), *b = at(r + 1), *c = at(r + 2), *d = at(r + 3), *e = at(r + 4), *f = at(r + 5),
              *g = at(r + 6), *h = at(r + 7);
#pragma GCC ivdep
      for (int64_t j = 0; j < columns; ++j) {
        const A x = F::template combine<A>(load(a[j], p), load(b[j], p)),
                y = F::template combine<A>(load(c[j], p), load(d[j], p));
        const A z = F::template combine<A>(load(e[j], p), load(f[j], p)),
                w = F::template combine<A>(load(g[j], p), load(h[j], p));
        acc[j] = F::template combine<A>(
            acc[j], F::template combine<A>(F::template combine<A>(x, y), F::template combine<A>(z, w)));
      }
    }
    for (; r < n; ++r) {
      const S* a = at(r);
#pragma GCC ivdep
      for (int64_t j = 0; j < columns; ++j) acc[j] = F::template combine<A>(acc[j], load(a[j], p));
    }
  }

  static void column(const char* src, int64_t stride, int64_t n, int64_t columns, void* accs, int64_t,
                     const Scalar* params) {
    const Params p(params);
    A* acc = static_cast<A*>(accs);
    if constexpr (kCascade) {
      // Many rows of few columns are faster in another order.
      constexpr int64_t strip = CascadeSum<A>::kStrip;
      const int64_t whole = columns / strip * strip;
      const int64_t now = n <= kRows * 8 || whole == columns ? columns : whole >= 8 * strip ? whole : 0;
      CascadeSum<A>::columns(reinterpret_cast<const S*>(src), stride / int64_t(sizeof(S)), n, now, acc);
      if (now == columns) return;
      src += now * sizeof(S), acc += now, columns -= now;
    }
    // A few short columns lying side by side: several rows are taken as one wide row, and reduced to the
    // columns at the end.
    if (columns < 32 && n >= 64 && stride == columns * static_cast<int64_t>(sizeof(S))) {
      const int64_t fold = 256 / columns, wide = fold * columns;
      if (n >= 2 * fold) {
        A partial[256];
        std::fill_n(partial, wide, F::template init<A>());
        column(src, wide * sizeof(S), n / fold, wide, partial, 0, params);
        for (int64_t k = 0; k < fold; ++k)
          for (int64_t j = 0; j < columns; ++j)
            acc[j] = F::template combine<A>(acc[j], partial[k * columns + j]);
        const int64_t done = n / fold * fold;
        rows(src + done * stride, stride, n - done, columns, acc, p);
        return;
      }
    }
    if (n <= kRows) return rows(src, stride, n, columns, acc, p);
    for (int64_t c = 0; c < columns; c += kColumns) {
      const int64_t m = std::min(kColumns, columns - c);
      A partial[kColumns];
      for (int64_t r = 0; r < n; r += kRows) {
        std::fill_n(partial, m, F::template init<A>());
        rows(src + r * stride + c * sizeof(S), stride, std::min(kRows, n - r), m, partial, p);
        merge(acc + c, partial, m);
      }
    }
  }

  [[gnu::noinline]] static void merge(void* acc, const void* other, int64_t n) {
    A* a = static_cast<A*>(acc);
    const A* b = static_cast<const A*>(other);
    for (int64_t i = 0; i < n; ++i) a[i] = F::template combine<A>(a[i], b[i]);
  }

  static void finish(const void* acc, int64_t n, int64_t count, void* const* out, const Scalar* params) {
    const Params p(params);
    const A* a = static_cast<const A*>(acc);
    R* o = static_cast<R*>(out[0]);
    for (int64_t i = 0; i < n; ++i)
      o[i] = static_cast<R>(F::template finish<A>(a[i], static_cast<A>(count), p.p));
  }

  static constexpr ReduceLoops loops() {
    return {sizeof(A), &init, &row, &column, &merge, &finish, kCascade ? &many : nullptr};
  }
};

}  // namespace
}  // namespace FL_ARCH
}  // namespace fl
