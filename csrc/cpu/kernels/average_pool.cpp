// Averages of windows and their derivative.
#include "cpu/kernels/pool_loops.h"

namespace fl {
namespace FL_ARCH {

namespace {

void average_pool(const PoolArgs& g) {
  for_type(g.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    g.channels_last ? pool_last<Sum, T, false>(g) : pool_planes<Sum, T>(g);
  });
}

// For each input position the windows [first, last) that hold it. Averages have windows without gaps, whose
// ends never go back.
struct Covers {
  std::vector<int64_t> first, last;
  explicit Covers(const PoolAxis& a) : first(a.in), last(a.in) {
    for (int64_t i = 0, lo = 0, hi = 0; i < a.in; ++i) {
      while (lo < a.out && a.end[lo] <= i) ++lo;
      while (hi < a.out && a.begin[hi] <= i) ++hi;
      first[i] = std::min(lo, hi);
      last[i] = hi;
    }
  }
};

// Channels first. The gradient of an input row is the sum of the output rows that hold it, spread along the
// width: both steps are vector operations.
template <class T>
void average_backward_planes(const PoolArgs& g) {
  using C = compute_t<T>;
  const PoolAxis &D = g.axes[0], &H = g.axes[1], &W = g.axes[2];
  const int64_t in_plane = D.in * H.in * W.in, out_plane = D.out * H.out * W.out;
  const Covers depth(D), height(H), width(W);
  // Where each element of a row takes its values: indices of the sums, of which the last is zero.
  int64_t most = 1;
  for (int64_t i = 0; i < W.in; ++i) most = std::max(most, width.last[i] - width.first[i]);
  std::vector<int32_t> from(most * W.in);
  for (int64_t k = 0; k < most; ++k)
    for (int64_t i = 0; i < W.in; ++i) {
      const int64_t o = width.first[i] + k;
      from[k * W.in + i] = static_cast<int32_t>(o < width.last[i] ? o : W.out);
    }
  const auto inverse = [&](int64_t extent) {
    return g.divisor ? C(1) : extent ? C(1) / static_cast<C>(extent) : C(0);
  };
  const C whole = g.divisor ? C(1) / static_cast<C>(g.divisor) : C(1);
  std::vector<C> share(W.out);
  for (int64_t o = 0; o < W.out; ++o) share[o] = inverse(W.extent[o]) * whole;
  parallel_for(g.batch * g.channels, std::max<int64_t>(1, kGrain / in_plane), [&](int64_t b, int64_t e) {
    std::vector<C> sums(W.out + 1), row(W.in);
    for (int64_t p = b; p < e; ++p) {
      T* in = static_cast<T*>(const_cast<void*>(g.input)) + p * in_plane;
      const T* out = static_cast<const T*>(g.output) + p * out_plane;
      for (int64_t d = 0; d < D.in; ++d)
        for (int64_t h = 0; h < H.in; ++h) {
          T* to = in + (d * H.in + h) * W.in;
          if (h && height.first[h] == height.first[h - 1] && height.last[h] == height.last[h - 1]) {
            std::copy_n(to - W.in, W.in, to);
            continue;
          }
          std::fill(sums.begin(), sums.end(), C(0));
          for (int64_t od = depth.first[d]; od < depth.last[d]; ++od)
            for (int64_t oh = height.first[h]; oh < height.last[h]; ++oh) {
              const C scale = inverse(D.extent[od] * H.extent[oh]);
              const T* x = out + (od * H.out + oh) * W.out;
              for (int64_t o = 0; o < W.out; ++o) sums[o] += static_cast<C>(x[o]) * scale;
            }
          for (int64_t o = 0; o < W.out; ++o) sums[o] *= share[o];
          if (W.out == 1 && W.begin[0] == 0 && W.end[0] == W.in) {
            std::fill_n(to, W.in, static_cast<T>(sums[0]));
            continue;
          }
          for (int64_t i = 0; i < W.in; ++i) row[i] = sums[from[i]];
          for (int64_t k = 1; k < most; ++k)
            for (int64_t i = 0; i < W.in; ++i) row[i] += sums[from[k * W.in + i]];
          for (int64_t i = 0; i < W.in; ++i) to[i] = static_cast<T>(row[i]);
        }
    }
  });
}

// Channels last, split into groups of channels so that threads never meet.
template <class T>
void average_backward_last(const PoolArgs& g) {
  const PoolAxis &D = g.axes[0], &H = g.axes[1], &W = g.axes[2];
  const int64_t in_plane = D.in * H.in * W.in, out_plane = D.out * H.out * W.out, step = g.channels;
  const auto share = [&](int64_t od, int64_t oh, int64_t ow) {
    const int64_t by = g.divisor ? g.divisor : D.extent[od] * H.extent[oh] * W.extent[ow];
    return by ? T(1) / static_cast<T>(by) : T(0);
  };
  const int64_t group = 32, groups = (g.channels + group - 1) / group;
  const int64_t cost = window_cost(g.axes) * group;
  parallel_for(g.batch * groups, std::max<int64_t>(1, kGrain / cost), [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      const int64_t n = p / groups, c0 = p % groups * group, count = std::min(group, g.channels - c0);
      T* in = static_cast<T*>(const_cast<void*>(g.input)) + n * in_plane * step + c0;
      const T* out = static_cast<const T*>(g.output) + n * out_plane * step + c0;
      for (int64_t i = 0; i < in_plane; ++i)
        for (int64_t c = 0; c < count; ++c) in[i * step + c] = T(0);
      for (int64_t od = 0; od < D.out; ++od)
        for (int64_t oh = 0; oh < H.out; ++oh)
          for (int64_t ow = 0; ow < W.out; ++ow) {
            const T* x = out + ((od * H.out + oh) * W.out + ow) * step;
            const T scale = share(od, oh, ow);
            each_row(g.axes, od, oh, [&](int64_t d, int64_t h) {
              T* row = in + (d * H.in + h) * W.in * step;
              for (int64_t i = W.begin[ow]; i < W.end[ow]; ++i)
#pragma GCC ivdep
                for (int64_t c = 0; c < count; ++c) row[i * step + c] += x[c] * scale;
            });
          }
    }
  });
}

void average_pool_backward(const PoolArgs& g) {
  for_type(g.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (!std::is_integral_v<T>) {
      if (!g.channels_last) return average_backward_planes<T>(g);
      if constexpr (!is_reduced_type<T>) average_backward_last<T>(g);
    }
  });
}
}  // namespace

extern const AveragePoolTable average_pool_table;
const AveragePoolTable average_pool_table{&average_pool, &average_pool_backward};

}  // namespace FL_ARCH
}  // namespace fl
