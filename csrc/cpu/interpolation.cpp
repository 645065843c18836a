// Interpolation operators: where each output element samples the input, for every mode, and the call of the
// loops.
#include <cmath>
#include <string>

#include "cpu/parallel.h"
#include "cpu/resize_kernel.h"
#include "dispatch/kernel.h"

namespace fl {
namespace {

enum class Mode { Nearest, NearestExact, Linear, Cubic, Lanczos };

Mode mode_of(std::string_view name) {
  if (name == "nearest") return Mode::Nearest;
  if (name == "nearest-exact") return Mode::NearestExact;
  if (name == "linear") return Mode::Linear;
  if (name == "cubic") return Mode::Cubic;
  if (name == "lanczos") return Mode::Lanczos;
  fail(ErrorKind::Value, "[interpolate] expected mode nearest, nearest-exact, linear, cubic or lanczos, got ",
       name);
}

// The cubic convolution kernel with parameter a.
template <class C>
C cubic(C x, C a) {
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// The sinc function windowed by a three times wider one.
template <class C>
C lanczos(C x) {
  if (x == 0) return 1;
  if (std::abs(x) >= 3) return 0;
  const C t = x * static_cast<C>(3.14159265358979323846);
  return 3 * std::sin(t) * std::sin(t / 3) / (t * t);
}

void resize_taps(ResizeAxis& a, int64_t taps) {
  a.taps = taps;
  a.index.assign(taps * a.out, 0);
  a.weight.assign(taps * a.out, 0);
}

// Fills an axis, computing positions in the precision of the elements so that borders fall where they do
// elsewhere.
template <class C>
void sample(ResizeAxis& a, Mode mode, bool align_corners, double factor, bool antialias) {
  const int64_t in = a.in, out = a.out;
  if (mode == Mode::Nearest || mode == Mode::NearestExact) {
    resize_taps(a, 1);
    const float scale =
        factor > 0 ? static_cast<float>(1.0 / factor) : static_cast<float>(in) / static_cast<float>(out);
    const float shift = mode == Mode::Nearest ? 0.0f : 0.5f;
    for (int64_t o = 0; o < out; ++o) {
      a.index[o] = static_cast<int32_t>(std::min<int64_t>(
          static_cast<int64_t>(std::floor((static_cast<float>(o) + shift) * scale)), in - 1));
      a.weight[o] = 1;
    }
    return;
  }
  C scale;
  if (align_corners)
    scale = out > 1 ? static_cast<C>(in - 1) / static_cast<C>(out - 1) : C(0);
  else
    scale = factor > 0 ? static_cast<C>(1.0 / factor) : static_cast<C>(in) / static_cast<C>(out);
  if (antialias) {
    const C size = mode == Mode::Linear ? 2 : mode == Mode::Cubic ? 4 : 6;
    const C support = scale >= 1 ? size / 2 * scale : size / 2, inverse = scale >= 1 ? 1 / scale : C(1);
    resize_taps(
        a, std::min<int64_t>(static_cast<int64_t>(std::ceil(support)) * 2 + 1, std::max<int64_t>(in, 1)));
    for (int64_t o = 0; o < out; ++o) {
      const C center = scale * (static_cast<C>(o) + C(0.5));
      const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + C(0.5)), 0);
      const int64_t count = std::min<int64_t>(
          std::min<int64_t>(static_cast<int64_t>(center + support + C(0.5)), in) - first, a.taps);
      C total = 0;
      std::vector<C> w(a.taps, C(0));
      for (int64_t t = 0; t < count; ++t) {
        const C x = (static_cast<C>(t + first) - center + C(0.5)) * inverse;
        w[t] = mode == Mode::Linear  ? std::max(C(0), 1 - std::abs(x))
               : mode == Mode::Cubic ? cubic<C>(x, C(-0.5))
                                     : lanczos<C>(x);
        total += w[t];
      }
      for (int64_t t = 0; t < a.taps; ++t) {
        a.index[t * out + o] = static_cast<int32_t>(std::min(first + t, in - 1));
        a.weight[t * out + o] = total != 0 ? w[t] / total : C(0);
      }
    }
    return;
  }
  resize_taps(a, mode == Mode::Linear ? 2 : 4);
  for (int64_t o = 0; o < out; ++o) {
    C at = align_corners ? scale * static_cast<C>(o) : scale * (static_cast<C>(o) + C(0.5)) - C(0.5);
    if (mode == Mode::Linear) {
      if (in == out) at = static_cast<C>(o);
      at = std::max(at, C(0));
      const int64_t low = std::min(static_cast<int64_t>(at), in - 1);
      const C high = std::min(std::max(at - static_cast<C>(low), C(0)), C(1));
      a.index[o] = static_cast<int32_t>(low);
      a.index[out + o] = static_cast<int32_t>(std::min(low + 1, in - 1));
      a.weight[o] = 1 - high;
      a.weight[out + o] = high;
    } else {
      const int64_t low = std::min(static_cast<int64_t>(std::floor(at)), in - 1);
      const C t = std::min(std::max(at - static_cast<C>(low), C(0)), C(1));
      for (int64_t k = 0; k < 4; ++k) {
        a.index[k * out + o] = static_cast<int32_t>(std::min(std::max<int64_t>(low - 1 + k, 0), in - 1));
        a.weight[k * out + o] = cubic<C>(t + 1 - static_cast<C>(k), C(-0.75));
      }
    }
  }
}

bool prefers_channels_last(const Tensor& t, int ndim) {
  if (t.is_contiguous()) return false;
  return ndim == 2 ? t.is_contiguous(MemoryFormat::ChannelsLast)
                   : ndim == 3 && t.is_contiguous(MemoryFormat::ChannelsLast3d);
}

int set_axes(IntSpan in, IntSpan out, std::string_view mode, bool align_corners,
             const std::optional<std::vector<double>>& factors, bool antialias, DType compute,
             ResizeAxis* axes) {
  const int ndim = static_cast<int>(out.size());
  FL_CHECK(ndim >= 1 && ndim <= 3 && static_cast<int>(in.size()) == ndim + 2,
           "[interpolate] expected an input of ", ndim + 2, " dimensions for ", ndim,
           " output sizes, got shape ", in);
  FL_CHECK(!factors || static_cast<int>(factors->size()) == ndim, "[interpolate] expected ", ndim,
           " scale factors, got ", static_cast<int64_t>(factors ? factors->size() : 0));
  const Mode m = mode_of(mode);
  for (int d = 0; d < ndim; ++d) {
    FL_CHECK(in[2 + d] > 0 && out[d] > 0,
             "[interpolate] expected input and output sizes greater than zero, got ", in, " and ", out);
    FL_CHECK(in[2 + d] < (int64_t(1) << 31), "[interpolate] expected sizes below 2**31, got ", in);
    axes[3 - ndim + d].in = in[2 + d];
    axes[3 - ndim + d].out = out[d];
  }
  FL_CHECK(in[1] > 0, "[interpolate] expected an input with channels, got shape ", in);
  for (int d = 0; d < 3; ++d) {
    if (d < 3 - ndim) {
      resize_taps(axes[d], 1);
      axes[d].weight[0] = 1;
      continue;
    }
    const double factor = factors ? (*factors)[d - (3 - ndim)] : 0;
    if (compute == DType::Double || compute == DType::UInt8)
      sample<double>(axes[d], m, align_corners, factor, antialias);
    else
      sample<float>(axes[d], m, align_corners, factor, antialias);
  }
  return ndim;
}

// ---------------------------------------------------------------- images of bytes

// The taps of an axis as 16-bit integers of a common binary precision, equal positions merged: bytes are
// filtered in integers, one axis after the other, as image libraries do.
struct ByteAxis {
  std::vector<std::vector<std::pair<int32_t, int32_t>>> taps;  // (index, weight) by output element
  int precision = 0;
};

ByteAxis quantise(const ResizeAxis& a) {
  ByteAxis q;
  std::vector<std::vector<std::pair<int32_t, double>>> merged(a.out);
  double most = 0;
  for (int64_t o = 0; o < a.out; ++o) {
    for (int64_t t = 0; t < a.taps; ++t) {
      const int32_t at = a.index[t * a.out + o];
      const double w = a.weight[t * a.out + o];
      if (!merged[o].empty() && merged[o].back().first == at)
        merged[o].back().second += w;
      else
        merged[o].push_back({at, w});
    }
    for (const auto& [at, w] : merged[o]) most = std::max(most, w);
  }
  while (q.precision < 22 &&
         static_cast<int64_t>(0.5 + most * static_cast<double>(int64_t(1) << (q.precision + 1))) < (1 << 15))
    ++q.precision;
  const double unit = static_cast<double>(int64_t(1) << q.precision);
  q.taps.resize(a.out);
  for (int64_t o = 0; o < a.out; ++o)
    for (const auto& [at, w] : merged[o])
      q.taps[o].push_back({at, static_cast<int32_t>(w * unit + (w < 0 ? -0.5 : 0.5))});
  return q;
}

// One filtered line of elements that lie a stride apart.
void filter_bytes(const uint8_t* in, int64_t in_stride, const ByteAxis& q, uint8_t* out, int64_t out_stride) {
  for (size_t o = 0; o < q.taps.size(); ++o) {
    int64_t sum = q.precision ? int64_t(1) << (q.precision - 1) : 0;
    for (const auto& [at, w] : q.taps[o]) sum += int64_t(in[at * in_stride]) * w;
    out[o * out_stride] =
        static_cast<uint8_t>(std::min<int64_t>(std::max<int64_t>(sum >> q.precision, 0), 255));
  }
}

void resize_bytes(const Tensor& in, const Tensor& out, const ResizeAxis& height, const ResizeAxis& width) {
  const ByteAxis qh = quantise(height), qw = quantise(width);
  const int64_t planes = in.size(0) * in.size(1);
  parallel_for(planes, 1, [&](int64_t b, int64_t e) {
    std::vector<uint8_t> rows(height.in * width.out);
    for (int64_t p = b; p < e; ++p) {
      const uint8_t* x = in.data<uint8_t>() + p * height.in * width.in;
      uint8_t* y = out.data<uint8_t>() + p * height.out * width.out;
      for (int64_t h = 0; h < height.in; ++h)
        filter_bytes(x + h * width.in, 1, qw, rows.data() + h * width.out, 1);
      for (int64_t w = 0; w < width.out; ++w) filter_bytes(rows.data() + w, width.out, qh, y + w, width.out);
    }
  });
}

Tensor interpolate(const Tensor& self, IntSpan output_size, std::string_view mode, bool align_corners,
                   std::optional<std::vector<double>> factors, bool antialias) {
  const DType t = self.dtype();
  ResizeAxis axes[3];
  const int ndim = set_axes(self.sizes(), output_size, mode, align_corners, factors, antialias, t, axes);
  FL_CHECK_KIND(is_floating(t) || t == DType::UInt8, NotImplemented,
                "[interpolate] expected a floating dtype or uint8, got ", name_of(t));
  Dims sizes(self.sizes());
  for (int d = 0; d < ndim; ++d) sizes[2 + d] = output_size[d];
  numel_of(sizes);
  const bool last = prefers_channels_last(self, ndim);
  Tensor out = last ? empty_strided(sizes, channels_last_strides(sizes), self.options())
                    : empty(sizes, self.options());
  if (self.is_meta() || out.numel() == 0) return out;
  if (t == DType::UInt8 && ndim == 2 && axes[2].taps > 1) {
    const Tensor dense = out.is_contiguous() ? out : empty(sizes, self.options());
    resize_bytes(contiguous(self), dense, axes[1], axes[2]);
    if (!dense.same(out)) copy_into(out, dense);
    return out;
  }
  const Tensor in = last ? self : contiguous(self);
  ResizeArgs g;
  g.dtype = t;
  g.batch = self.size(0);
  g.channels = self.size(1);
  g.axes = axes;
  g.input = in.raw();
  g.output = out.raw();
  g.channels_last = last;
  picked_resize_table().forward(g);
  return out;
}

Tensor interpolate_backward(const Tensor& grad, IntSpan input_size, std::string_view mode, bool align_corners,
                            std::optional<std::vector<double>> factors, bool antialias) {
  FL_CHECK(grad.dim() >= 3 && grad.dim() == static_cast<int64_t>(input_size.size()),
           "[_interpolate_backward] expected a gradient of ", static_cast<int64_t>(input_size.size()),
           " dimensions, got shape ", grad.sizes());
  FL_CHECK(is_floating(grad.dtype()), "[_interpolate_backward] expected a floating dtype, got ",
           name_of(grad.dtype()));
  FL_CHECK(grad.size(0) == input_size[0] && grad.size(1) == input_size[1],
           "[_interpolate_backward] expected a gradient of batch and channels as in ", input_size, ", got ",
           grad.sizes());
  ResizeAxis axes[3];
  set_axes(input_size, IntSpan(grad.sizes().data() + 2, grad.dim() - 2), mode, align_corners, factors,
           antialias, grad.dtype(), axes);
  const DType compute = compute_of(grad.dtype());
  Tensor sums = empty(input_size, {compute, grad.device()});
  if (grad.is_meta()) return empty(input_size, grad.options());
  const Tensor from = contiguous(to_dtype(grad, compute));
  ResizeArgs g;
  g.dtype = compute;
  g.batch = grad.size(0);
  g.channels = grad.size(1);
  g.axes = axes;
  g.input = from.raw();
  g.output = sums.raw();
  if (sums.numel()) picked_resize_table().backward(g);
  return to_dtype(sums, grad.dtype());
}

FL_KERNEL("_interpolate", interpolate);
FL_KERNEL("_interpolate_backward", interpolate_backward);

}  // namespace
}  // namespace fl
