// The resizing loops. Input rows are resampled along the width once and kept while output rows need them,
// then mixed with full vectors. Channels last is the same with pixels in place of elements.
#include "cpu/pooling/resize_table.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"

namespace fl {
namespace FL_ARCH {

namespace {

template <class T>
using resize_compute = std::conditional_t<std::is_same_v<T, uint8_t>, float, compute_t<T>>;

template <class T, class C>
inline T finish(C x) {
  if constexpr (std::is_same_v<T, uint8_t>)
    return static_cast<uint8_t>(std::min(std::max(std::nearbyint(x), C(0)), C(255)));
  else
    return static_cast<T>(x);
}

template <class C>
std::vector<C> weights_as(const ResizeAxis& a) {
  return std::vector<C>(a.weight.begin(), a.weight.end());
}

// One row of pixels, each of `inner` elements, resampled along the width.
template <class T, class C>
void resample_row(const T* row, const ResizeAxis& w, const C* weight, int64_t inner, C* out) {
  const int64_t n = w.out;
  const int32_t* index = w.index.data();
  if (inner > 1) {
    for (int64_t o = 0; o < n; ++o, out += inner) {
      const T* a = row + index[o] * inner;
      const C wa = weight[o];
      if (w.taps == 2) {
        const T* b = row + index[n + o] * inner;
        const C wb = weight[n + o];
#pragma GCC ivdep
        for (int64_t c = 0; c < inner; ++c) out[c] = wa * static_cast<C>(a[c]) + wb * static_cast<C>(b[c]);
        continue;
      }
#pragma GCC ivdep
      for (int64_t c = 0; c < inner; ++c) out[c] = wa * static_cast<C>(a[c]);
      for (int64_t t = 1; t < w.taps; ++t) {
        const T* b = row + index[t * n + o] * inner;
        const C wb = weight[t * n + o];
#pragma GCC ivdep
        for (int64_t c = 0; c < inner; ++c) out[c] += wb * static_cast<C>(b[c]);
      }
    }
  } else if (w.taps == 1) {
#pragma GCC ivdep
    for (int64_t o = 0; o < n; ++o) out[o] = static_cast<C>(row[index[o]]);
  } else if (w.taps == 2) {
    const int32_t* next = index + n;
#pragma GCC ivdep
    for (int64_t o = 0; o < n; ++o)
      out[o] = weight[o] * static_cast<C>(row[index[o]]) + weight[n + o] * static_cast<C>(row[next[o]]);
  } else {
    std::fill_n(out, n, C(0));
    for (int64_t t = 0; t < w.taps; ++t) {
      const int32_t* at = index + t * n;
      const C* by = weight + t * n;
#pragma GCC ivdep
      for (int64_t o = 0; o < n; ++o) out[o] += by[o] * static_cast<C>(row[at[o]]);
    }
  }
}

// `planes` planes of pixels of `inner` elements.
template <class T>
void forward_planes(const ResizeArgs& g, int64_t planes, const ResizeAxis& W, int64_t inner) {
  using C = resize_compute<T>;
  const ResizeAxis &D = g.axes[0], &H = g.axes[1];
  const int64_t in_row = W.in * inner, width = W.out * inner, rows = D.out * H.out, slots = D.taps * H.taps;
  const std::vector<C> wd = weights_as<C>(D), wh = weights_as<C>(H), ww = weights_as<C>(W);
  const bool copies = slots == 1 && W.taps == 1;
  parallel_for(planes * rows, std::max<int64_t>(1, kGrain / (width * (1 + slots))),
               [&](int64_t first, int64_t last) {
                 std::vector<C> filtered(slots * width), sum(slots > 2 ? width : 0);
                 std::vector<int64_t> held(slots, int64_t(-1));
                 std::vector<const C*> from(slots);
                 std::vector<C> by(slots);
                 for (int64_t r = first; r < last; ++r) {
                   const int64_t plane = r / rows, od = r % rows / H.out, oh = r % H.out;
                   const T* in = static_cast<const T*>(g.input) + plane * D.in * H.in * in_row;
                   T* to = static_cast<T*>(g.output) + r * width;
                   if (copies) {
                     const T* row = in + (int64_t(D.index[od]) * H.in + H.index[oh]) * in_row;
                     const int32_t* at = W.index.data();
                     if (inner > 1)
                       for (int64_t o = 0; o < W.out; ++o)
                         std::copy_n(row + at[o] * inner, inner, to + o * inner);
                     else
                       for (int64_t o = 0; o < W.out; ++o) to[o] = row[at[o]];
                     continue;
                   }
                   int64_t used = 0;
                   for (int64_t td = 0; td < D.taps; ++td)
                     for (int64_t th = 0; th < H.taps; ++th) {
                       const int64_t d = D.index[td * D.out + od], h = H.index[th * H.out + oh],
                                     key = (plane * D.in + d) * H.in + h;
                       // Neighbouring taps read neighbouring rows, so these slots never collide within a
                       // window.
                       const int64_t slot = d % D.taps * H.taps + h % H.taps;
                       C* row = filtered.data() + slot * width;
                       if (held[slot] != key) {
                         resample_row(in + (d * H.in + h) * in_row, W, ww.data(), inner, row);
                         held[slot] = key;
                       }
                       from[used] = row;
                       by[used++] = wd[td * D.out + od] * wh[th * H.out + oh];
                     }
                   if (used == 1) {
                     for (int64_t o = 0; o < width; ++o) to[o] = finish<T>(by[0] * from[0][o]);
                   } else if (used == 2) {
                     const C *a = from[0], *b = from[1], wa = by[0], wb = by[1];
#pragma GCC ivdep
                     for (int64_t o = 0; o < width; ++o) to[o] = finish<T>(wa * a[o] + wb * b[o]);
                   } else {
                     for (int64_t o = 0; o < width; ++o) sum[o] = by[0] * from[0][o];
                     for (int64_t t = 1; t < used; ++t) {
                       const C* a = from[t];
                       const C wa = by[t];
#pragma GCC ivdep
                       for (int64_t o = 0; o < width; ++o) sum[o] += wa * a[o];
                     }
                     for (int64_t o = 0; o < width; ++o) to[o] = finish<T>(sum[o]);
                   }
                 }
               });
}

// Pixels of a few elements as single elements, so that the loops run over the whole row.
ResizeAxis flattened(const ResizeAxis& w, int64_t inner) {
  ResizeAxis flat;
  flat.in = w.in * inner;
  flat.out = w.out * inner;
  flat.taps = w.taps;
  flat.index.reserve(w.index.size() * inner);
  flat.weight.reserve(w.weight.size() * inner);
  for (size_t i = 0; i < w.index.size(); ++i)
    for (int64_t c = 0; c < inner; ++c) {
      flat.index.push_back(static_cast<int32_t>(w.index[i] * inner + c));
      flat.weight.push_back(w.weight[i]);
    }
  return flat;
}

template <class T>
void forward_typed(const ResizeArgs& g) {
  if (!g.channels_last)
    forward_planes<T>(g, g.batch * g.channels, g.axes[2], 1);
  else if (g.channels < 16)
    forward_planes<T>(g, g.batch, flattened(g.axes[2], g.channels), 1);
  else
    forward_planes<T>(g, g.batch, g.axes[2], g.channels);
}

// Channels first only: the operator rearranges other layouts.
template <class T>
void backward_planes(const ResizeArgs& g) {
  const ResizeAxis &D = g.axes[0], &H = g.axes[1], &W = g.axes[2];
  const int64_t in_plane = D.in * H.in * W.in, out_plane = D.out * H.out * W.out;
  const std::vector<T> wd = weights_as<T>(D), wh = weights_as<T>(H), ww = weights_as<T>(W);
  parallel_for(
      g.batch * g.channels, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, 4 * out_plane)),
      [&](int64_t first, int64_t last) {
        std::vector<T> spread(W.in);
        for (int64_t p = first; p < last; ++p) {
          const T* grad = static_cast<const T*>(g.input) + p * out_plane;
          T* to = static_cast<T*>(g.output) + p * in_plane;
          std::fill_n(to, in_plane, T(0));
          for (int64_t od = 0; od < D.out; ++od)
            for (int64_t oh = 0; oh < H.out; ++oh) {
              const T* x = grad + (od * H.out + oh) * W.out;
              std::fill(spread.begin(), spread.end(), T(0));
              for (int64_t t = 0; t < W.taps; ++t) {
                const int32_t* at = W.index.data() + t * W.out;
                const T* by = ww.data() + t * W.out;
                for (int64_t o = 0; o < W.out; ++o) spread[at[o]] += by[o] * x[o];
              }
              for (int64_t td = 0; td < D.taps; ++td)
                for (int64_t th = 0; th < H.taps; ++th) {
                  const T by = wd[td * D.out + od] * wh[th * H.out + oh];
                  if (by == T(0)) continue;
                  T* row = to + (int64_t(D.index[td * D.out + od]) * H.in + H.index[th * H.out + oh]) * W.in;
                  const T* s = spread.data();
#pragma GCC ivdep
                  for (int64_t i = 0; i < W.in; ++i) row[i] += by * s[i];
                }
            }
        }
      });
}

void forward(const ResizeArgs& g) {
  const auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    forward_typed<T>(g);
  };
  switch (g.dtype) {
    case DType::Double:
      return run(Type<double>{});
    case DType::Half:
      return run(Type<Half>{});
    case DType::BFloat16:
      return run(Type<BFloat16>{});
    case DType::UInt8:
      return run(Type<uint8_t>{});
    default:
      return run(Type<float>{});
  }
}

void backward(const ResizeArgs& g) {
  g.dtype == DType::Double ? backward_planes<double>(g) : backward_planes<float>(g);
}

}  // namespace

extern const ResizeTable resize_table;
const ResizeTable resize_table{&forward, &backward};

}  // namespace FL_ARCH
}  // namespace fl
