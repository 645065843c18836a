// Sampling at the positions of a grid, in two and three dimensions, and its gradients.
//
// Whatever the mode, a sample is a weighted sum of a few input elements ("taps"); forward and backward only
// differ in what they do with the taps.
#include "core/parallel.h"
#include "dispatch/kernel.h"
#include "ops/grid_sample.h"

namespace fl {

DeviceFunction<void(const GridArgs&)> device::grid_sample{"grid_sampler"};

namespace {

using namespace grid;
using Shape = GridShape;

template <class Narrow>
struct Rounded {
  float operator()(float x) const { return static_cast<float>(Narrow(x)); }
};

// Calls f(rounding) for the steps of a dtype computed in T.
template <class T, class F>
void with_rounding(DType dtype, F&& f) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::BFloat16) return f(Rounded<BFloat16>());
    if (dtype == DType::Half) return f(Rounded<Half>());
  }
  f(Exact());
}

Shape check(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding, int ndim) {
  FL_CHECK(input.dim() == ndim + 2 && grid.dim() == input.dim(), "[grid_sampler] expected input and grid of ",
           ndim + 2, " dimensions, got shapes ", input.sizes(), " and ", grid.sizes());
  FL_CHECK(input.device() == grid.device(), "[grid_sampler] expected input and grid on one device, got ",
           to_string(input.device()), " and ", to_string(grid.device()));
  FL_CHECK(input.dtype() == grid.dtype(), "[grid_sampler] expected input and grid of one dtype, got ",
           name_of(input.dtype()), " and ", name_of(grid.dtype()));
  FL_CHECK_KIND(is_floating(input.dtype()), NotImplemented, "[grid_sampler] expected a floating dtype, got ",
                name_of(input.dtype()));
  FL_CHECK(input.size(0) == grid.size(0), "[grid_sampler] expected input and grid of one batch size, got ",
           input.sizes(), " and ", grid.sizes(), ": expected grid and input to have same batch size");
  FL_CHECK(grid.size(ndim + 1) == ndim, "[grid_sampler] expected a grid with ", ndim,
           " coordinates, got shape ", grid.sizes());
  FL_CHECK(mode >= 0 && mode <= 2 && padding >= 0 && padding <= 2,
           "[grid_sampler] expected mode and padding mode 0, 1 or 2, got ", mode, " and ", padding);
  FL_CHECK(mode != kBicubic || ndim == 2, "[grid_sampler] expected 4 dimensions for bicubic, got ",
           input.sizes());
  Shape s;
  s.ndim = ndim;
  s.batch = input.size(0);
  s.channels = input.size(1);
  s.plane = 1;
  for (int d = 0; d < ndim; ++d) {
    s.size[d] = input.size(ndim + 1 - d);
    FL_CHECK(s.size[d] > 0, "[grid_sampler] expected an input without empty spatial dimensions, got shape ",
             input.sizes());
    s.stride[d] = s.plane;
    s.plane *= s.size[d];
  }
  s.points = 1;
  for (int d = 1; d <= ndim; ++d) s.points *= grid.size(d);
  return s;
}

GridArgs arguments(const Shape& s, const Tensor& in, const Tensor& at, int64_t mode, int64_t padding,
                   bool align, DType dtype) {
  GridArgs g{};
  g.shape = s;
  g.mode = mode;
  g.padding = padding;
  g.align = align;
  g.dtype = dtype;
  g.computed = in.dtype();
  g.input = in.raw();
  g.grid = at.raw();
  g.device = in.device().index;
  return g;
}

// The samples of some points of a plane for all channels, where nothing is rounded on the way: the taps of
// all points first, then channel by channel, so that results are written one after the other.
constexpr int64_t kPoints = 64;

template <class T>
void sample_plane(const Shape& s, const T* position, int64_t points, int64_t mode, int64_t padding,
                  bool align, const T* x, T* y) {
  int64_t offset[4][kPoints];
  T weight[4][kPoints];
  bool seen[4][kPoints];
  const Exact exact;
  bool complete = true;
  const int taps = mode == kNearest ? 1 : 4;
  for (int64_t i = 0; i < points; ++i) {
    T low[2], part[2][2];
    for (int d = 0; d < 2; ++d) {
      const Place<T> p = pad(unnormalise(position[2 * i + d], 2, s.size[d], align, exact), 2, s.size[d],
                             padding, align, exact);
      low[d] = mode == kNearest ? math::round(p.at) : math::floor(p.at);
      part[d][1] = p.at - low[d];
      part[d][0] = mode == kNearest ? T(1) : 1 - part[d][1];
    }
    const bool across[2] = {inside(low[0], s.size[0]), inside(low[0] + 1, s.size[0])},
               down[2] = {inside(low[1], s.size[1]), inside(low[1] + 1, s.size[1])};
    for (int t = 0; t < taps; ++t) {
      const int a = t & 1, d = t >> 1;
      const bool in = across[a] && down[d];
      seen[t][i] = in;
      complete &= in;
      offset[t][i] = in ? (static_cast<int64_t>(low[0]) + a) * s.stride[0] +
                              (static_cast<int64_t>(low[1]) + d) * s.stride[1]
                        : 0;
      weight[t][i] = part[0][a] * part[1][d];
    }
  }
  for (int64_t c = 0; c < s.channels; ++c, x += s.plane, y += s.points) {
    if (taps == 1)
      for (int64_t i = 0; i < points; ++i) y[i] = seen[0][i] ? x[offset[0][i]] : T(0);
    else if (complete)
      for (int64_t i = 0; i < points; ++i) {
        T sum = 0;
        for (int t = 0; t < 4; ++t) sum += weight[t][i] * x[offset[t][i]];
        y[i] = sum;
      }
    else
      for (int64_t i = 0; i < points; ++i) {
        T sum = 0;
        for (int t = 0; t < 4; ++t) sum += seen[t][i] ? weight[t][i] * x[offset[t][i]] : T(0);
        y[i] = sum;
      }
  }
}

template <int N>
Tensor grid_sampler(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding, bool align) {
  const Shape s = check(input, grid, mode, padding, N);
  Dims sizes(input.sizes());
  for (int d = 0; d < N; ++d) sizes[2 + d] = grid.size(1 + d);
  Tensor out = empty(sizes, input.options());
  if (input.is_meta() || out.numel() == 0) return out;
  const DType compute = compute_of(input.dtype());
  const Tensor in = contiguous(to_dtype(input, compute)), at = contiguous(to_dtype(grid, compute));
  const Tensor result = compute == input.dtype() ? out : empty(sizes, {compute, input.device()});
  if (!input.is_cpu()) {
    GridArgs g = arguments(s, in, at, mode, padding, align, input.dtype());
    g.output = result.raw();
    device::grid_sample(input.device().type, g);
    if (!result.same(out)) copy_into(out, result);
    return out;
  }
  dispatch_float(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    if (N == 2 && compute == input.dtype() && mode != kBicubic) {
      const int64_t blocks = (s.points + kPoints - 1) / kPoints;
      return parallel_for(s.batch * blocks, std::max<int64_t>(1, kGrain / (kPoints * (8 + 4 * s.channels))),
                          [&](int64_t b, int64_t e) {
                            for (int64_t i = b; i < e; ++i) {
                              const int64_t n = i / blocks, first = i % blocks * kPoints;
                              sample_plane(s, at.data<T>() + (n * s.points + first) * 2,
                                           std::min(kPoints, s.points - first), mode, padding, align,
                                           in.data<T>() + n * s.channels * s.plane,
                                           result.data<T>() + n * s.channels * s.points + first);
                            }
                          });
    }
    with_rounding<T>(input.dtype(), [&](auto r) {
      parallel_for(s.batch * s.points, std::max<int64_t>(1, kGrain / (8 + 8 * s.channels)),
                   [&](int64_t b, int64_t e) {
                     Taps<T> taps;
                     for (int64_t i = b; i < e; ++i) {
                       const int64_t n = i / s.points, point = i % s.points;
                       find_taps(at.data<T>() + i * N, N, s.size, s.stride, mode, padding, align, r, taps);
                       const T* x = in.data<T>() + n * s.channels * s.plane;
                       T* y = result.data<T>() + n * s.channels * s.points + point;
                       for (int64_t c = 0; c < s.channels; ++c)
                         y[c * s.points] = gather_taps(taps, x + c * s.plane, mode, r);
                     }
                   });
    });
  });
  if (!result.same(out)) copy_into(out, result);
  return out;
}

std::tuple<Tensor, Tensor> grid_sampler_backward(const Tensor& grad, const Tensor& input, const Tensor& grid,
                                                 int64_t mode, int64_t padding, bool align) {
  const int ndim = static_cast<int>(input.dim()) - 2;
  FL_CHECK(ndim == 2 || ndim == 3, "[grid_sampler] expected an input of 4 or 5 dimensions, got shape ",
           input.sizes());
  const Shape s = check(input, grid, mode, padding, ndim);
  FL_CHECK(grad.numel() == s.batch * s.channels * s.points && grad.dtype() == input.dtype(),
           "[grid_sampler] expected a gradient of ", s.batch * s.channels * s.points, " elements, got shape ",
           grad.sizes());
  FL_CHECK(grad.device() == input.device(), "[grid_sampler] expected a gradient on ",
           to_string(input.device()), ", got ", to_string(grad.device()));
  if (input.is_meta()) return {empty(input.sizes(), input.options()), empty(grid.sizes(), grid.options())};
  const DType compute = compute_of(input.dtype());
  const Tensor in = contiguous(to_dtype(input, compute)), at = contiguous(to_dtype(grid, compute)),
               from = contiguous(to_dtype(grad, compute));
  const Tensor grad_input = empty(input.sizes(), {compute, input.device()}),
               grad_grid = empty(grid.sizes(), {compute, input.device()});
  if (!input.is_cpu()) {
    GridArgs g = arguments(s, in, at, mode, padding, align, input.dtype());
    g.grad = from.raw();
    g.grad_input = grad_input.raw();
    g.grad_grid = grad_grid.raw();
    device::grid_sample(input.device().type, g);
    return {to_dtype(grad_input, input.dtype()), to_dtype(grad_grid, input.dtype())};
  }
  dispatch_float(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    // A batch item has its own gradient, so threads split the batch.
    parallel_for(s.batch, 1, [&](int64_t b, int64_t e) {
      Taps<T> taps;
      for (int64_t n = b; n < e; ++n) {
        const T* x = in.data<T>() + n * s.channels * s.plane;
        const T* g = from.data<T>() + n * s.channels * s.points;
        T* dx = grad_input.data<T>() + n * s.channels * s.plane;
        std::fill_n(dx, s.channels * s.plane, T(0));
        for (int64_t point = 0; point < s.points; ++point) {
          const int64_t i = n * s.points + point;
          with_rounding<T>(input.dtype(), [&](auto r) {
            find_taps(at.data<T>() + i * ndim, ndim, s.size, s.stride, mode, padding, align, r, taps);
          });
          T slope[3] = {};
          for (int64_t c = 0; c < s.channels; ++c) {
            const T value = g[c * s.points + point];
            for (int t = 0; t < taps.count; ++t) {
              const int64_t where = c * s.plane + taps.offset[t];
              dx[where] += taps.weight[t] * value;
              for (int d = 0; d < ndim; ++d) slope[d] += taps.slope[t][d] * x[where] * value;
            }
          }
          for (int d = 0; d < ndim; ++d) grad_grid.data<T>()[i * ndim + d] = slope[d] * taps.factor[d];
        }
      }
    });
  });
  return {to_dtype(grad_input, input.dtype()), to_dtype(grad_grid, input.dtype())};
}

FL_KERNEL("grid_sampler_2d", grid_sampler<2>, kDevices);
FL_KERNEL("grid_sampler_3d", grid_sampler<3>, kDevices);
FL_KERNEL("_grid_sampler_backward", grid_sampler_backward, kDevices);

}  // namespace
}  // namespace fl
