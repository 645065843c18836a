// Maxima of windows, with or without their positions.
#include "cpu/kernels/pool_loops.h"

namespace fl {
namespace FL_ARCH {

namespace {

// As pool_planes for the maximum, with the position of the first element that reaches it.
template <class T>
void max_planes_indexed(const PoolArgs& g) {
  using C = pooled_t<T>;
  const PoolAxis &D = g.axes[0], &H = g.axes[1], &W = g.axes[2];
  const RowPlan plan(W);
  const int64_t in_plane = D.in * H.in * W.in, out_plane = D.out * H.out * W.out;
  parallel_for(g.batch * g.channels, std::max<int64_t>(1, kGrain / (2 * window_cost(g.axes))),
               [&](int64_t first, int64_t last) {
                 std::vector<C> row(std::max(plan.width, plan.offset + plan.columns), lowest<C>()),
                     best(W.out + 1);
                 std::vector<int32_t> where(W.out + 1);
                 C* center = row.data() + plan.offset;
                 for (int64_t p = first; p < last; ++p) {
                   const T* in = static_cast<const T*>(g.input) + p * in_plane;
                   for (int64_t od = 0; od < D.out; ++od)
                     for (int64_t oh = 0; oh < H.out; ++oh) {
                       const int32_t start = static_cast<int32_t>((D.begin[od] * H.in + H.begin[oh]) * W.in);
                       C* b = best.data();
                       int32_t* at = where.data();
                       for (int64_t o = 0; o < W.out; ++o) {
                         b[o] = lowest<C>();
                         at[o] = start + static_cast<int32_t>(W.begin[o]);
                       }
                       each_row(g.axes, od, oh, [&](int64_t d, int64_t h) {
                         const int32_t base = static_cast<int32_t>((d * H.in + h) * W.in);
                         const T* from = in + base;
#pragma GCC ivdep
                         for (int64_t i = 0; i < plan.columns; ++i) center[i] = static_cast<C>(from[i]);
                         if (!W.regular) {
                           for (int64_t o = 0; o < W.out; ++o)
                             for (int64_t i = W.begin[o]; i < W.end[o]; i += W.step) {
                               const C x = row[i];
                               if (x > b[o] || x != x) {
                                 b[o] = x;
                                 at[o] = base + static_cast<int32_t>(i);
                               }
                             }
                           return;
                         }
                         const int32_t stride = static_cast<int32_t>(W.stride);
                         for (int64_t k = 0; k < W.kernel; ++k) {
                           const C* x = row.data() + k * W.step;
                           const int32_t shift = base + static_cast<int32_t>(k * W.step - W.pad);
                           const auto scan = [&](auto s) {
#pragma GCC ivdep
                             for (int32_t o = 0; o < static_cast<int32_t>(W.out); ++o) {
                               const C v = x[o * s];
                               const bool take = (v > b[o]) | (v != v);
                               b[o] = take ? v : b[o];
                               at[o] = take ? shift + o * s : at[o];
                             }
                           };
                           if (stride == 1)
                             scan(std::integral_constant<int32_t, 1>{});
                           else if (stride == 2)
                             scan(std::integral_constant<int32_t, 2>{});
                           else
                             scan(stride);
                         }
                       });
                       const int64_t to = p * out_plane + (od * H.out + oh) * W.out;
                       T* out = static_cast<T*>(g.output) + to;
                       int64_t* indices = g.indices + to;
                       for (int64_t o = 0; o < W.out; ++o) out[o] = static_cast<T>(b[o]);
                       for (int64_t o = 0; o < W.out; ++o) indices[o] = at[o];
                     }
                 }
               });
}

void max_pool(const PoolArgs& g) {
  const auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    if (g.channels_last)
      g.indices ? pool_last<Max, T, true>(g) : pool_last<Max, T, false>(g);
    else
      g.indices ? max_planes_indexed<T>(g) : pool_planes<Max, T>(g);
  };
  if (g.dtype == DType::UInt8) return run(Type<uint8_t>{});
  if (g.dtype == DType::Int8) return run(Type<int8_t>{});
  for_type(g.dtype, run);
}

}  // namespace

extern const MaxPoolTable max_pool_table;
const MaxPoolTable max_pool_table{&max_pool};

}  // namespace FL_ARCH
}  // namespace fl
