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

template <class T>
void average_backward_typed(const PoolArgs& g) {
  const PoolAxis &D = g.axes[0], &H = g.axes[1], &W = g.axes[2];
  const int64_t in_plane = D.in * H.in * W.in, out_plane = D.out * H.out * W.out;
  const T* grads = static_cast<const T*>(g.output);
  T* to = static_cast<T*>(const_cast<void*>(g.input));
  const auto share = [&](int64_t od, int64_t oh, int64_t ow) {
    const int64_t by = g.divisor ? g.divisor : D.extent[od] * H.extent[oh] * W.extent[ow];
    return by ? T(1) / static_cast<T>(by) : T(0);
  };
  // Channels last splits the channels into groups, so that threads never meet.
  const int64_t group = 32, groups = g.channels_last ? (g.channels + group - 1) / group : g.channels;
  const int64_t cost = window_cost(g.axes) * (g.channels_last ? group : 1);
  parallel_for(g.batch * groups, std::max<int64_t>(1, kGrain / cost), [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      const int64_t n = p / groups;
      const int64_t step = g.channels_last ? g.channels : 1;
      const int64_t c0 = g.channels_last ? p % groups * group : 0;
      const int64_t count = g.channels_last ? std::min(group, g.channels - c0) : 1;
      T* in = to + (g.channels_last ? n * in_plane * g.channels + c0 : p * in_plane);
      const T* out = grads + (g.channels_last ? n * out_plane * g.channels + c0 : p * out_plane);
      for (int64_t i = 0; i < in_plane; ++i)
        for (int64_t c = 0; c < count; ++c) in[i * step + c] = T(0);
      for (int64_t od = 0; od < D.out; ++od)
        for (int64_t oh = 0; oh < H.out; ++oh)
          for (int64_t ow = 0; ow < W.out; ++ow) {
            const T* x = out + ((od * H.out + oh) * W.out + ow) * step;
            const T scale = share(od, oh, ow);
            each_row(g.axes, od, oh, [&](int64_t d, int64_t h) {
              T* row = in + (d * H.in + h) * W.in * step;
              if (count == 1) {
                const T value = x[0] * scale;
                for (int64_t i = W.begin[ow]; i < W.end[ow]; ++i) row[i * step] += value;
              } else {
                for (int64_t i = W.begin[ow]; i < W.end[ow]; ++i)
#pragma GCC ivdep
                  for (int64_t c = 0; c < count; ++c) row[i * step + c] += x[c] * scale;
              }
            });
          }
    }
  });
}

void average_pool_backward(const PoolArgs& g) {
  g.dtype == DType::Double ? average_backward_typed<double>(g) : average_backward_typed<float>(g);
}

}  // namespace

extern const AveragePoolTable average_pool_table;
const AveragePoolTable average_pool_table{&average_pool, &average_pool_backward};

}  // namespace FL_ARCH
}  // namespace fl
