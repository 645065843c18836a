// The pooling loops. Channels first: a window's rows are combined into one padded row with full vectors, then
// that row is combined along the width. Channels last: every step is a vector operation over the channels.
#pragma once

#include <algorithm>
#include <limits>

#include "core/parallel.h"
#include "cpu/pooling/tables.h"

namespace fl {
namespace FL_ARCH {

namespace {

// The type that elements are combined in. Bytes are only compared, and need no room for sums.
template <class T>
using pooled_t = std::conditional_t<sizeof(T) == 1, T, compute_t<T>>;

template <class C>
constexpr C lowest() {
  if constexpr (std::is_floating_point_v<C>)
    return -std::numeric_limits<C>::infinity();
  else
    return std::numeric_limits<C>::lowest();
}

struct Max {
  template <class C>
  static constexpr C start() {
    return lowest<C>();
  }
  template <class C>
  static inline C join(C a, C x) {
    const C most = a > x ? a : x;  // x when it is a NaN
    return a != a ? a : most;      // in this form, unlike with one condition, strided loops vectorise
  }
};
struct Sum {
  template <class C>
  static constexpr C start() {
    return C(0);
  }
  template <class C>
  static inline C join(C a, C x) {
    return a + x;
  }
};

// A row's room along the width: windows never leave it.
struct RowPlan {
  int64_t width, offset, columns;  // padded width, where input column 0 lies, columns copied
  explicit RowPlan(const PoolAxis& w) {
    if (w.regular) {
      offset = w.pad;
      width = std::max<int64_t>((w.out - 1) * w.stride + (w.kernel - 1) * w.step + 1, offset + 1);
    } else {
      offset = 0;
      width = w.in;
    }
    columns = std::min(w.in, width - offset);
  }
};

template <class Op, int S, class C>
void join_along(const C* row, int64_t n, int64_t kernel, int64_t stride, int64_t step, C* out) {
  const int64_t s = S ? S : stride;
  if (kernel == 3 && S) {
    const C *a = row, *b = row + step, *c = row + 2 * step;
#pragma GCC ivdep
    for (int64_t o = 0; o < n; ++o) out[o] = Op::join(Op::join(a[o * s], b[o * s]), c[o * s]);
    return;
  }
  if (kernel == 2 && S) {
    const C *a = row, *b = row + step;
#pragma GCC ivdep
    for (int64_t o = 0; o < n; ++o) out[o] = Op::join(a[o * s], b[o * s]);
    return;
  }
#pragma GCC ivdep
  for (int64_t o = 0; o < n; ++o) out[o] = row[o * s];
  for (int64_t k = 1; k < kernel; ++k) {
    const C* from = row + k * step;
#pragma GCC ivdep
    for (int64_t o = 0; o < n; ++o) out[o] = Op::join(out[o], from[o * s]);
  }
}

// Combines a padded row along the width into `out`.
template <class Op, class C>
void join_width(const PoolAxis& w, const C* row, C* out) {
  if (!w.regular) {
    for (int64_t o = 0; o < w.out; ++o) {
      C value = Op::template start<C>();
      for (int64_t i = w.begin[o]; i < w.end[o]; i += w.step) value = Op::join(value, row[i]);
      out[o] = value;
    }
  } else if (w.stride == 1) {
    join_along<Op, 1>(row, w.out, w.kernel, 1, w.step, out);
  } else if (w.stride == 2) {
    join_along<Op, 2>(row, w.out, w.kernel, 2, w.step, out);
  } else {
    join_along<Op, 0>(row, w.out, w.kernel, w.stride, w.step, out);
  }
}

// Calls f(d, h) for every row of the window of output row (od, oh).
template <class F>
inline void each_row(const PoolAxis* axes, int64_t od, int64_t oh, const F& f) {
  for (int64_t d = axes[0].begin[od]; d < axes[0].end[od]; d += axes[0].step)
    for (int64_t h = axes[1].begin[oh]; h < axes[1].end[oh]; h += axes[1].step) f(d, h);
}

int64_t window_cost(const PoolAxis* axes) {
  int64_t cost = 1;
  for (int a = 0; a < 3; ++a)
    cost *=
        axes[a].out * std::max<int64_t>(1, axes[a].regular ? axes[a].kernel
                                                           : axes[a].in / std::max<int64_t>(1, axes[a].out));
  return std::max<int64_t>(cost, 1);
}

// Finishes a row: stores it, for an average after the division.
template <class T, class C>
void store_row(const PoolArgs& g, const C* values, const C* inverse, int64_t outer, T* out, bool average) {
  const PoolAxis& w = g.axes[2];
  if (!average) {
    for (int64_t o = 0; o < w.out; ++o) out[o] = static_cast<T>(values[o]);
  } else if constexpr (std::is_integral_v<C>) {
    for (int64_t o = 0; o < w.out; ++o) {
      const C by = g.divisor ? g.divisor : outer * w.extent[o];
      out[o] = by ? static_cast<T>(values[o] / by) : T(0);
    }
  } else {
    const C scale = g.divisor ? C(1) / static_cast<C>(g.divisor)
                    : outer   ? C(1) / static_cast<C>(outer)
                              : C(0);
    for (int64_t o = 0; o < w.out; ++o) out[o] = static_cast<T>(values[o] * scale * inverse[o]);
  }
}

template <class Op, class T>
void pool_planes(const PoolArgs& g) {
  using C = pooled_t<T>;
  constexpr bool average = std::is_same_v<Op, Sum>;
  const PoolAxis &D = g.axes[0], &H = g.axes[1], &W = g.axes[2];
  const RowPlan plan(W);
  const int64_t in_plane = D.in * H.in * W.in, out_plane = D.out * H.out * W.out;
  const bool whole = out_plane == 1 && D.end[0] - D.begin[0] == D.in && H.end[0] - H.begin[0] == H.in &&
                     W.end[0] - W.begin[0] == W.in && D.step * H.step * W.step == 1;
  std::vector<C> inverse(W.out, C(1));
  if constexpr (average && !std::is_integral_v<C>)
    if (!g.divisor)
      for (int64_t o = 0; o < W.out; ++o)
        inverse[o] = W.extent[o] ? C(1) / static_cast<C>(W.extent[o]) : C(0);
  parallel_for(g.batch * g.channels, std::max<int64_t>(1, kGrain / window_cost(g.axes)),
               [&](int64_t first, int64_t last) {
                 std::vector<C> row(std::max(plan.width, plan.offset + plan.columns),
                                    Op::template start<C>()),
                     joined(W.out + 1);
                 C* center = row.data() + plan.offset;
                 for (int64_t p = first; p < last; ++p) {
                   const T* in = static_cast<const T*>(g.input) + p * in_plane;
                   T* out = static_cast<T*>(g.output) + p * out_plane;
                   if (whole) {
                     // Independent partial results, one for each lane.
                     constexpr int64_t lanes = 16;
                     C part[lanes];
                     std::fill_n(part, lanes, Op::template start<C>());
                     int64_t i = 0;
                     for (; i + lanes <= in_plane; i += lanes)
                       for (int64_t l = 0; l < lanes; ++l)
                         part[l] = Op::join(part[l], static_cast<C>(in[i + l]));
                     C value = Op::template start<C>();
                     for (; i < in_plane; ++i) value = Op::join(value, static_cast<C>(in[i]));
                     for (int64_t l = 0; l < lanes; ++l) value = Op::join(value, part[l]);
                     joined[0] = value;
                     store_row(g, joined.data(), inverse.data(),
                               D.extent.empty() ? 1 : D.extent[0] * H.extent[0], out, average);
                     continue;
                   }
                   for (int64_t od = 0; od < D.out; ++od)
                     for (int64_t oh = 0; oh < H.out; ++oh) {
                       bool fresh = true;
                       each_row(g.axes, od, oh, [&](int64_t d, int64_t h) {
                         const T* from = in + (d * H.in + h) * W.in;
                         if (fresh) {
#pragma GCC ivdep
                           for (int64_t i = 0; i < plan.columns; ++i) center[i] = static_cast<C>(from[i]);
                         } else {
#pragma GCC ivdep
                           for (int64_t i = 0; i < plan.columns; ++i)
                             center[i] = Op::join(center[i], static_cast<C>(from[i]));
                         }
                         fresh = false;
                       });
                       if (fresh) std::fill_n(center, plan.columns, Op::template start<C>());
                       T* to = out + (od * H.out + oh) * W.out;
                       const int64_t outer = average ? D.extent[od] * H.extent[oh] : 1;
                       if constexpr (std::is_same_v<T, C> && !average) {
                         join_width<Op>(W, row.data(), to);
                       } else {
                         join_width<Op>(W, row.data(), joined.data());
                         store_row(g, joined.data(), inverse.data(), outer, to, average);
                       }
                     }
                 }
               });
}

template <class Op, class T, bool Indexed>
void pool_last(const PoolArgs& g) {
  using C = pooled_t<T>;
  constexpr bool average = std::is_same_v<Op, Sum>;
  const PoolAxis &D = g.axes[0], &H = g.axes[1], &W = g.axes[2];
  const int64_t channels = g.channels, rows = D.out * H.out;
  const int64_t cost = std::max<int64_t>(1, window_cost(g.axes) / std::max<int64_t>(1, rows) * channels);
  parallel_for(g.batch * rows, std::max<int64_t>(1, kGrain / cost), [&](int64_t first, int64_t last) {
    std::vector<C> values(channels);
    std::vector<int32_t> where(Indexed ? channels : 0);
    C* v = values.data();
    int32_t* at = where.data();
    for (int64_t r = first; r < last; ++r) {
      const int64_t n = r / rows, od = r % rows / H.out, oh = r % H.out;
      const T* in = static_cast<const T*>(g.input) + n * D.in * H.in * W.in * channels;
      for (int64_t ow = 0; ow < W.out; ++ow) {
        bool fresh = true;
        if (Indexed) {
          std::fill_n(v, channels, lowest<C>());
          std::fill_n(at, channels,
                      static_cast<int32_t>((D.begin[od] * H.in + H.begin[oh]) * W.in + W.begin[ow]));
        }
        each_row(g.axes, od, oh, [&](int64_t d, int64_t h) {
          for (int64_t i = W.begin[ow]; i < W.end[ow]; i += W.step) {
            const int64_t pixel = (d * H.in + h) * W.in + i;
            const T* x = in + pixel * channels;
            if constexpr (Indexed) {
              const int32_t here = static_cast<int32_t>(pixel);
#pragma GCC ivdep
              for (int64_t c = 0; c < channels; ++c) {
                const C value = static_cast<C>(x[c]);
                const bool take = (value > v[c]) | (value != value);
                v[c] = take ? value : v[c];
                at[c] = take ? here : at[c];
              }
            } else {
              // Stores of bytes may change anything that is not local, such as captured variables.
              C* const to = v;
              const int64_t count = channels;
              if (fresh) {
#pragma GCC ivdep
                for (int64_t c = 0; c < count; ++c) to[c] = static_cast<C>(x[c]);
              } else {
#pragma GCC ivdep
                for (int64_t c = 0; c < count; ++c) to[c] = Op::join(to[c], static_cast<C>(x[c]));
              }
            }
            fresh = false;
          }
        });
        if (fresh && !Indexed) std::fill_n(v, channels, Op::template start<C>());
        const int64_t to = (r * W.out + ow) * channels;
        T* out = static_cast<T*>(g.output) + to;
        if constexpr (average) {
          const int64_t by = g.divisor ? g.divisor : D.extent[od] * H.extent[oh] * W.extent[ow];
          if constexpr (std::is_integral_v<C>) {
            for (int64_t c = 0; c < channels; ++c) out[c] = by ? static_cast<T>(v[c] / by) : T(0);
          } else {
            const C scale = by ? C(1) / static_cast<C>(by) : C(0);
            for (int64_t c = 0; c < channels; ++c) out[c] = static_cast<T>(v[c] * scale);
          }
        } else {
          for (int64_t c = 0; c < channels; ++c) out[c] = static_cast<T>(v[c]);
        }
        if constexpr (Indexed)
          for (int64_t c = 0; c < channels; ++c) g.indices[to + c] = at[c];
      }
    }
  });
}

template <class F>
void for_type(DType t, const F& f) {
  switch (t) {
    case DType::Double:
      return f(Type<double>{});
    case DType::Half:
      return f(Type<Half>{});
    case DType::BFloat16:
      return f(Type<BFloat16>{});
    case DType::Int64:
      return f(Type<int64_t>{});
    default:
      return f(Type<float>{});
  }
}

}  // namespace
}  // namespace FL_ARCH
}  // namespace fl
