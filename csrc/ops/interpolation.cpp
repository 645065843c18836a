// Interpolation operators: where each output element samples the input, for every mode, and the call of the
// loops.
#include <cmath>
#include <string>

#include "core/parallel.h"
#include "dispatch/kernel.h"
#include "ops/layout.h"
#include "ops/resize.h"

namespace fl {

DeviceFunction<void(const ResizeArgs&, bool)> device::resize{"interpolate"};

namespace {

ResizeMode mode_of(std::string_view name) {
  if (name == "nearest") return ResizeMode::Nearest;
  if (name == "nearest-exact") return ResizeMode::NearestExact;
  if (name == "linear") return ResizeMode::Linear;
  if (name == "cubic") return ResizeMode::Cubic;
  if (name == "lanczos") return ResizeMode::Lanczos;
  fail(ErrorKind::Value, "[interpolate] expected mode nearest, nearest-exact, linear, cubic or lanczos, got ",
       name);
}

// Counts an axis's taps and, where the CPU is to use them, lists them.
template <class C>
void sample(ResizeAxis& a, bool list) {
  a.taps = resize::count_taps<C>(a);
  if (!list) return;
  a.index.assign(a.taps * a.out, 0);
  a.weight.assign(a.taps * a.out, 0);
  for (int64_t o = 0; o < a.out; ++o) resize::find_taps<C>(a, o, a.index.data(), a.weight.data());
}

int set_axes(IntSpan in, IntSpan out, std::string_view mode, bool align_corners,
             const std::optional<std::vector<double>>& factors, bool antialias, DType compute, bool list,
             ResizeAxis* axes) {
  const int ndim = static_cast<int>(out.size());
  FL_CHECK(ndim >= 1 && ndim <= 3 && static_cast<int>(in.size()) == ndim + 2,
           "[interpolate] expected an input of ", ndim + 2, " dimensions for ", ndim,
           " output sizes, got shape ", in);
  FL_CHECK(!factors || static_cast<int>(factors->size()) == ndim, "[interpolate] expected ", ndim,
           " scale factors, got ", static_cast<int64_t>(factors ? factors->size() : 0));
  const ResizeMode m = mode_of(mode);
  for (int d = 0; d < ndim; ++d) {
    FL_CHECK(in[2 + d] > 0 && out[d] > 0,
             "[interpolate] expected input and output sizes greater than zero, got ", in, " and ", out);
    FL_CHECK(std::max(in[2 + d], out[d]) < int64_t(1) << 31, "[interpolate] expected sizes below 2**31, got ",
             in, " and ", out);
    axes[3 - ndim + d].in = in[2 + d];
    axes[3 - ndim + d].out = out[d];
  }
  FL_CHECK(in[1] > 0, "[interpolate] expected an input with channels, got shape ", in);
  for (int d = 0; d < 3; ++d) {
    if (d >= 3 - ndim) {
      axes[d].mode = m;
      axes[d].align_corners = align_corners;
      axes[d].antialias = antialias;
      axes[d].factor = factors ? (*factors)[d - (3 - ndim)] : 0;
    }
    if (compute == DType::Double || compute == DType::UInt8)
      sample<double>(axes[d], list);
    else
      sample<float>(axes[d], list);
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
  const int ndim =
      set_axes(self.sizes(), output_size, mode, align_corners, factors, antialias, t, self.is_cpu(), axes);
  FL_CHECK_KIND(is_floating(t) || t == DType::UInt8, NotImplemented,
                "[interpolate] expected a floating dtype or uint8, got ", name_of(t),
                ": it is not implemented for it");
  Dims sizes(self.sizes());
  for (int d = 0; d < ndim; ++d) sizes[2 + d] = output_size[d];
  const bool last = prefers_channels_last(self);
  Tensor out = empty_laid(sizes, last, self.options());
  if (self.is_meta() || out.numel() == 0) return out;
  if (self.is_cpu() && t == DType::UInt8 && ndim == 2 && axes[2].taps > 1) {
    const Tensor dense = out.is_contiguous() ? out : empty(sizes, self.options());
    resize_bytes(contiguous(self), dense, axes[1], axes[2]);
    if (!dense.same(out)) copy_into(out, dense);
    return out;
  }
  const Tensor in = laid(self, last);
  ResizeArgs g;
  g.dtype = t;
  g.batch = self.size(0);
  g.channels = self.size(1);
  g.axes = axes;
  g.input = in.raw();
  g.output = out.raw();
  g.channels_last = last;
  g.device = self.device().index;
  device::resize(self.device().type, g, false);
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
           antialias, grad.dtype(), grad.is_cpu(), axes);
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
  g.device = grad.device().index;
  if (!grad.is_cpu() || sums.numel()) device::resize(grad.device().type, g, true);
  return to_dtype(sums, grad.dtype());
}

FL_KERNEL("_interpolate", interpolate, kDevices);
FL_KERNEL("_interpolate_backward", interpolate_backward, kDevices);

}  // namespace
}  // namespace fl
