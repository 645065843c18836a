// Pooling operators: checks, window geometry, output layouts, and the call of the loops in
// kernels/pooling.cpp.
#include <string>

#include "cpu/bytes.h"
#include "cpu/parallel.h"
#include "cpu/pool_kernel.h"
#include "dispatch/kernel.h"

namespace fl {

DevicePools& device_pools() {
  static DevicePools pools;
  return pools;
}

namespace {

bool on_host(const Tensor& t) {
  return t.device().type != DeviceType::CUDA;
}

struct Windows {
  int64_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
};

// Values for ndim dimensions, right-aligned in three; one value stands for all.
void spread(const std::string& op, const char* what, IntSpan from, int ndim, int64_t* to) {
  const int n = static_cast<int>(from.size());
  FL_CHECK(n == ndim || n == 1, "[", op, "] expected one or ", ndim, " values for ", what, ", got ", from);
  for (int d = 0; d < ndim; ++d) to[3 - ndim + d] = from[n == 1 ? 0 : d];
}

Windows windows_of(const std::string& op, int ndim, IntSpan kernel, std::optional<IntSpan> stride,
                   IntSpan padding, IntSpan dilation) {
  Windows w;
  spread(op, "kernel_size", kernel, ndim, w.kernel);
  spread(op, "stride", stride && !stride->empty() ? *stride : kernel, ndim, w.stride);
  spread(op, "padding", padding, ndim, w.padding);
  spread(op, "dilation", dilation, ndim, w.dilation);
  for (int d = 3 - ndim; d < 3; ++d) {
    FL_CHECK(w.kernel[d] > 0, "[", op, "] expected kernel_size greater than zero, got ", kernel);
    FL_CHECK(w.stride[d] > 0, "[", op, "] expected stride greater than zero, got ", w.stride[d]);
    FL_CHECK(w.dilation[d] > 0, "[", op, "] expected dilation greater than zero, got ", dilation);
    FL_CHECK(w.padding[d] >= 0 && w.padding[d] <= ((w.kernel[d] - 1) * w.dilation[d] + 1) / 2, "[", op,
             "] expected padding between zero and half the kernel's reach, got ", padding,
             " for kernel_size ", kernel);
  }
  return w;
}

// Where the tensor's dimensions are: sizes as (batch, channels, depth, height, width).
struct Layout5 {
  int64_t batch = 1, channels = 1, space[3] = {1, 1, 1};
  bool batched = true;
};

Layout5 layout_of(const std::string& op, const Tensor& t, int ndim) {
  FL_CHECK(t.dim() == ndim + 1 || t.dim() == ndim + 2, "[", op, "] expected an input of ", ndim + 1, " or ",
           ndim + 2, " dimensions, got shape ", t.sizes());
  Layout5 l;
  l.batched = t.dim() == ndim + 2;
  const int lead = l.batched ? 2 : 1;
  if (l.batched) l.batch = t.size(0);
  l.channels = t.size(lead - 1);
  for (int d = 0; d < ndim; ++d) l.space[3 - ndim + d] = t.size(lead + d);
  for (int d = l.batched ? 1 : 0; d < t.dim(); ++d)
    FL_CHECK(t.size(d) > 0, "[", op, "] expected an input without empty dimensions but the batch, got shape ",
             t.sizes());
  return l;
}

bool prefers_channels_last(const Tensor& t, int ndim) {
  if (t.dim() != ndim + 2 || t.is_contiguous()) return false;
  return ndim == 2 ? t.is_contiguous(MemoryFormat::ChannelsLast)
                   : ndim == 3 && t.is_contiguous(MemoryFormat::ChannelsLast3d);
}

Dims output_shape(const Tensor& like, int ndim, const PoolAxis* axes) {
  Dims sizes(like.sizes());
  for (int d = 0; d < ndim; ++d) sizes[like.dim() - ndim + d] = axes[3 - ndim + d].out;
  return sizes;
}

Tensor make(IntSpan sizes, Options options, bool channels_last) {
  numel_of(sizes);
  return channels_last ? empty_strided(sizes, channels_last_strides(sizes), options) : empty(sizes, options);
}

int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

void plain_axes(const std::string& op, const Layout5& l, const Windows& w, bool ceil_mode,
                bool count_include_pad, int ndim, PoolAxis* axes) {
  for (int d = 0; d < 3; ++d) {
    PoolAxis& a = axes[d];
    a.in = l.space[d];
    a.step = w.dilation[d];
    a.stride = w.stride[d];
    a.pad = w.padding[d];
    a.kernel = w.kernel[d];
    a.regular = true;
    a.padded = count_include_pad;
    const int64_t reach = a.step * (a.kernel - 1) + 1;
    a.out = floor_div(a.in + 2 * a.pad - reach + (ceil_mode ? a.stride - 1 : 0), a.stride) + 1;
    // The last window of ceil_mode must begin inside the input or the padding before it.
    if (ceil_mode && (a.out - 1) * a.stride >= a.in + a.pad) --a.out;
    FL_CHECK(a.out >= 1, "[", op, "] expected an output that is not empty, got size ", a.out,
             " in spatial dimension ", d - (3 - ndim), " for input size ", a.in);
    a.begin.resize(a.out);
    a.end.resize(a.out);
    a.extent.resize(a.out);
    for (int64_t o = 0; o < a.out; ++o) {
      const int64_t first = o * a.stride - a.pad;
      const int64_t padded_end = std::min(first + a.kernel, a.in + a.pad);
      a.begin[o] = first >= 0 ? first : first + (-first + a.step - 1) / a.step * a.step;
      a.end[o] = std::min(first + reach, a.in);
      a.extent[o] = std::max<int64_t>(count_include_pad ? padded_end - first : a.end[o] - a.begin[o], 0);
    }
  }
}

void adaptive_axes(const Layout5& l, const int64_t* out, PoolAxis* axes) {
  for (int d = 0; d < 3; ++d) {
    PoolAxis& a = axes[d];
    a.in = l.space[d];
    a.out = out[d];
    a.adaptive = true;
    a.begin.resize(a.out);
    a.end.resize(a.out);
    a.extent.resize(a.out);
    for (int64_t o = 0; o < a.out; ++o) {
      a.begin[o] = o * a.in / a.out;
      a.end[o] = ((o + 1) * a.in + a.out - 1) / a.out;
      a.extent[o] = a.end[o] - a.begin[o];
    }
    a.regular = a.out > 0 && a.in % a.out == 0;
    if (a.regular) a.stride = a.kernel = a.in / a.out;
  }
}

Tensor dense(const Tensor& t, bool channels_last) {
  if (!channels_last ||
      t.is_contiguous(t.dim() == 4 ? MemoryFormat::ChannelsLast : MemoryFormat::ChannelsLast3d))
    return channels_last ? t : contiguous(t);
  Tensor copy = empty_strided(t.sizes(), channels_last_strides(t.sizes()), t.options());
  copy_into(copy, t);
  return copy;
}

// Types the loops know; narrow integers travel as int64.
DType loop_dtype(DType t) {
  return is_floating(t) ? t : DType::Int64;
}

PoolArgs arguments(const Layout5& l, const PoolAxis* axes, const Tensor& input, const Tensor& output,
                   bool channels_last) {
  PoolArgs g;
  g.dtype = input.dtype();
  g.batch = l.batch;
  g.channels = l.channels;
  g.axes = axes;
  g.input = input.raw();
  g.output = output.raw();
  g.channels_last = channels_last;
  return g;
}

std::tuple<Tensor, Tensor> run_max(const std::string& op, const Tensor& self, int ndim, const Layout5& l,
                                   const PoolAxis* axes, bool indexed) {
  const DType t = self.dtype();
  FL_CHECK_KIND(t != DType::Bool && !is_complex(t), NotImplemented, "[", op,
                "] expected a real numeric dtype, got ", name_of(t));
  const bool last = prefers_channels_last(self, ndim);
  const Dims sizes = output_shape(self, ndim, axes);
  Tensor out = make(sizes, self.options(), last);
  Tensor indices = indexed ? make(sizes, {DType::Int64, self.device()}, last) : Tensor();
  if (self.is_meta() || out.numel() == 0) return {out, indices};
  FL_CHECK(axes[0].in * axes[1].in * axes[2].in < (int64_t(1) << 31), "[", op,
           "] expected a plane of less than 2**31 elements, got ", self.sizes());
  const Tensor in = dense(to_dtype(self, loop_dtype(t)), last);
  Tensor result = in.dtype() == t ? out : make(sizes, in.options(), last);
  PoolArgs g = arguments(l, axes, in, result, last);
  if (indexed) g.indices = indices.data<int64_t>();
  if (on_host(self))
    picked_max_pool_table().run(g);
  else
    device_pools().max(g, self.device().index);
  if (!result.same(out)) copy_into(out, result);
  return {out, indices};
}

Tensor run_average(const std::string& op, const Tensor& self, int ndim, const Layout5& l,
                   const PoolAxis* axes, int64_t divisor) {
  const DType t = self.dtype();
  FL_CHECK_KIND(is_floating(t) || t == DType::Int64, NotImplemented, "[", op,
                "] expected a floating dtype or int64, got ", name_of(t));
  const bool last = prefers_channels_last(self, ndim);
  Tensor out = make(output_shape(self, ndim, axes), self.options(), last);
  if (self.is_meta() || out.numel() == 0) return out;
  const Tensor in = dense(self, last);
  PoolArgs g = arguments(l, axes, in, out, last);
  g.divisor = divisor;
  if (on_host(self))
    picked_average_pool_table().run(g);
  else
    device_pools().average(g, self.device().index);
  return out;
}

// ---------------------------------------------------------------- plain windows

std::string op_name(const char* stem, int ndim) {
  return stem + std::to_string(ndim) + "d";
}

template <int N>
std::tuple<Tensor, Tensor> max_pool_with_indices(const Tensor& self, IntSpan kernel,
                                                 std::optional<IntSpan> stride, IntSpan padding,
                                                 IntSpan dilation, bool ceil_mode, bool) {
  const std::string op = op_name("max_pool", N);
  const Windows w = windows_of(op, N, kernel, stride, padding, dilation);
  const Layout5 l = layout_of(op, self, N);
  PoolAxis axes[3];
  plain_axes(op, l, w, ceil_mode, false, N, axes);
  return run_max(op, self, N, l, axes, true);
}

template <int N>
Tensor max_pool(const Tensor& self, IntSpan kernel, std::optional<IntSpan> stride, IntSpan padding,
                IntSpan dilation, bool ceil_mode) {
  const std::string op = op_name("max_pool", N);
  const Windows w = windows_of(op, N, kernel, stride, padding, dilation);
  const Layout5 l = layout_of(op, self, N);
  PoolAxis axes[3];
  plain_axes(op, l, w, ceil_mode, false, N, axes);
  return std::get<0>(run_max(op, self, N, l, axes, false));
}

int64_t checked_divisor(const std::string& op, std::optional<int64_t> divisor) {
  FL_CHECK(!divisor || *divisor != 0, "[", op, "] expected divisor_override other than zero, got 0");
  return divisor.value_or(0);
}

template <int N>
Tensor avg_pool(const Tensor& self, IntSpan kernel, std::optional<IntSpan> stride, IntSpan padding,
                bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor) {
  const std::string op = op_name("avg_pool", N);
  const Windows w = windows_of(op, N, kernel, stride, padding, {1});
  const Layout5 l = layout_of(op, self, N);
  PoolAxis axes[3];
  plain_axes(op, l, w, ceil_mode, count_include_pad, N, axes);
  return run_average(op, self, N, l, axes, checked_divisor(op, divisor));
}

Tensor avg_pool1d(const Tensor& self, IntSpan kernel, std::optional<IntSpan> stride, IntSpan padding,
                  bool ceil_mode, bool count_include_pad) {
  return avg_pool<1>(self, kernel, stride, padding, ceil_mode, count_include_pad, std::nullopt);
}

// ---------------------------------------------------------------- adaptive windows

void adaptive_sizes(const std::string& op, IntSpan output_size, int ndim, int64_t* out) {
  std::fill_n(out, 3, 1);
  spread(op, "output_size", output_size, ndim, out);
  for (int d = 0; d < 3; ++d)
    FL_CHECK(out[d] >= 0, "[", op, "] expected output_size not below zero, got ", output_size);
}

template <int N>
Tensor adaptive_avg_pool(const Tensor& self, IntSpan output_size) {
  const std::string op = op_name("adaptive_avg_pool", N);
  FL_CHECK_KIND(N == 1 || self.dim() > N, Value, "[", op, "] expected an input of ", N + 1, " or ", N + 2,
                " dimensions, got shape ", self.sizes());
  int64_t out[3];
  adaptive_sizes(op, output_size, N, out);
  const Layout5 l = layout_of(op, self, N);
  PoolAxis axes[3];
  adaptive_axes(l, out, axes);
  return run_average(op, self, N, l, axes, 0);
}

template <int N>
std::tuple<Tensor, Tensor> adaptive_max_pool(const Tensor& self, IntSpan output_size) {
  const std::string op = op_name("adaptive_max_pool", N);
  int64_t out[3];
  adaptive_sizes(op, output_size, N, out);
  const Layout5 l = layout_of(op, self, N);
  PoolAxis axes[3];
  adaptive_axes(l, out, axes);
  return run_max(op, self, N, l, axes, true);
}

// ---------------------------------------------------------------- fractional windows

// Window starts along an axis, as the sample u in [0, 1) places them; the last window ends with the input.
void fractional_axis(PoolAxis& a, int64_t in, int64_t out, int64_t kernel, double u, bool single) {
  a.in = in;
  a.out = out;
  a.begin.resize(out);
  a.end.resize(out);
  const double alpha = out > 1 ? static_cast<double>(in - kernel) / static_cast<double>(out - 1) : 0;
  for (int64_t o = 0; o < out; ++o) {
    if (o == out - 1)
      a.begin[o] = in - kernel;
    else if (single)
      a.begin[o] =
          static_cast<int64_t>((static_cast<float>(o) + static_cast<float>(u)) * static_cast<float>(alpha)) -
          static_cast<int64_t>(static_cast<float>(u) * static_cast<float>(alpha));
    else
      a.begin[o] =
          static_cast<int64_t>((static_cast<double>(o) + u) * alpha) - static_cast<int64_t>(u * alpha);
    a.end[o] = a.begin[o] + kernel;
  }
}

template <int N>
std::tuple<Tensor, Tensor> fractional_max_pool(const Tensor& self, IntSpan kernel_size, IntSpan output_size,
                                               const Tensor& samples) {
  const std::string op = op_name("fractional_max_pool", N);
  int64_t kernel[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  spread(op, "kernel_size", kernel_size, N, kernel);
  spread(op, "output_size", output_size, N, out);
  const Layout5 l = layout_of(op, self, N);
  FL_CHECK_KIND(is_floating(self.dtype()), NotImplemented, "[", op, "] expected a floating dtype, got ",
                name_of(self.dtype()));
  FL_CHECK(samples.dtype() == self.dtype(), "[", op, "] expected random samples of dtype ",
           name_of(self.dtype()), ", got ", name_of(samples.dtype()));
  FL_CHECK(samples.dim() == 3, "[", op, "] expected random samples of 3 dimensions, got shape ",
           samples.sizes());
  FL_CHECK(samples.size(0) >= l.batch && samples.size(1) == l.channels && samples.size(2) == N, "[", op,
           "] expected random samples of shape (", l.batch, ", ", l.channels, ", ", N, "), got ",
           samples.sizes());
  for (int d = 3 - N; d < 3; ++d)
    FL_CHECK(kernel[d] > 0 && out[d] > 0 && out[d] + kernel[d] - 1 <= l.space[d], "[", op,
             "] expected kernel_size and output_size that fit in ", l.space[d], ", got ", kernel_size,
             " and ", output_size);
  Dims sizes(self.sizes());
  for (int d = 0; d < N; ++d) sizes[self.dim() - N + d] = out[3 - N + d];
  Tensor result = empty(sizes, self.options()), indices = empty(sizes, {DType::Int64, self.device()});
  if (self.is_meta() || result.numel() == 0) return {result, indices};
  const Tensor in = contiguous(self), u = contiguous(to_dtype(samples, DType::Double));
  const int64_t in_plane = l.space[0] * l.space[1] * l.space[2], out_plane = out[0] * out[1] * out[2];
  for (int64_t p = 0; p < l.batch * l.channels; ++p) {
    PoolAxis axes[3];
    for (int d = 0; d < 3; ++d) {
      // Samples come innermost first.
      const double sample = d >= 3 - N ? u.data<double>()[p * N + (2 - d)] : 0;
      fractional_axis(axes[d], l.space[d], out[d], kernel[d],
                      N == 3 && d >= 3 - N ? u.data<double>()[p * N + d] : sample,
                      self.dtype() != DType::Double);
    }
    PoolArgs g;
    g.dtype = in.dtype();
    g.batch = g.channels = 1;
    g.axes = axes;
    g.input = in.raw() + p * in_plane * in.itemsize();
    g.output = result.raw() + p * out_plane * in.itemsize();
    g.indices = indices.data<int64_t>() + p * out_plane;
    picked_max_pool_table().run(g);
  }
  return {result, indices};
}

// ---------------------------------------------------------------- moving elements by their index

// out[plane][index] = (or +=) self[plane]: the gradient of a maximum, and unpooling.
Tensor pool_scatter(const Tensor& self, const Tensor& indices, IntSpan output_size, bool accumulate) {
  const int ndim = static_cast<int>(output_size.size());
  const std::string op = "max_unpool";
  FL_CHECK(ndim >= 1 && ndim <= 3, "[", op, "] expected 1 to 3 output sizes, got ", output_size);
  FL_CHECK(indices.dtype() == DType::Int64, "[", op, "] expected indices of dtype int64, got ",
           name_of(indices.dtype()));
  FL_CHECK(self.sizes() == indices.sizes(), "[", op, "] expected indices of shape ", self.sizes(), ", got ",
           indices.sizes());
  FL_CHECK(self.dim() == ndim + 1 || self.dim() == ndim + 2, "[", op, "] expected an input of ", ndim + 1,
           " or ", ndim + 2, " dimensions, got shape ", self.sizes());
  Dims sizes(self.sizes());
  int64_t space = 1;
  for (int d = 0; d < ndim; ++d) space *= sizes[self.dim() - ndim + d] = output_size[d];
  numel_of(sizes);
  const bool last = prefers_channels_last(self, ndim);
  Tensor out = make(sizes, self.options(), last);
  if (self.is_meta() || out.numel() == 0) return out;
  const DType compute = compute_of(self.dtype());
  const Tensor in = dense(to_dtype(self, compute), last), where = dense(indices, last);
  Tensor sums = compute == self.dtype() ? out : make(sizes, in.options(), last);
  const int64_t channels = self.size(self.dim() - ndim - 1),
                batch = self.dim() == ndim + 2 ? self.size(0) : 1;
  const int64_t planes = batch * channels, count = planes ? self.numel() / planes : 0;
  const int64_t group = 16, groups = (channels + group - 1) / group;
  dispatch_compute(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* x = in.data<T>();
    const int64_t* at = where.data<int64_t>();
    T* y = sums.data<T>();
    const auto put = [&](T* plane, int64_t stride, int64_t index, T value) {
      FL_CHECK(index >= 0 && index < space, "[", op, "] expected indices in [0, ", space, "), got ", index);
      plane[index * stride] = accumulate ? plane[index * stride] + value : value;
    };
    if (!last) {
      parallel_for(planes, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, space)),
                   [&](int64_t b, int64_t e) {
                     std::fill(y + b * space, y + e * space, T(0));
                     for (int64_t p = b; p < e; ++p)
                       for (int64_t i = 0; i < count; ++i)
                         put(y + p * space, 1, at[p * count + i], x[p * count + i]);
                   });
    } else {
      parallel_for(batch * groups, 1, [&](int64_t b, int64_t e) {
        for (int64_t g = b; g < e; ++g) {
          const int64_t n = g / groups, c0 = g % groups * group, c1 = std::min(c0 + group, channels);
          T* image = y + n * space * channels;
          for (int64_t i = 0; i < space; ++i)
            std::fill(image + i * channels + c0, image + i * channels + c1, T(0));
          for (int64_t i = 0; i < count; ++i)
            for (int64_t c = c0; c < c1; ++c) {
              const int64_t from = (n * count + i) * channels + c;
              put(image + c, channels, at[from], x[from]);
            }
        }
      });
    }
  });
  if (!sums.same(out)) copy_into(out, sums);
  return out;
}

// out[plane] = self[plane][index]: the gradient of unpooling.
Tensor pool_gather(const Tensor& self, const Tensor& indices, int64_t ndim) {
  FL_CHECK(self.dim() == indices.dim() && (self.dim() == ndim + 1 || self.dim() == ndim + 2),
           "[_pool_gather] expected ", ndim + 1, " or ", ndim + 2, " dimensions, got shapes ", self.sizes(),
           " and ", indices.sizes());
  FL_CHECK(ndim > 0 && indices.dtype() == DType::Int64,
           "[_pool_gather] expected int64 indices over at least one ", "dimension, got ",
           name_of(indices.dtype()), " over ", ndim);
  for (int64_t d = 0; d < self.dim() - ndim; ++d)
    FL_CHECK(self.size(d) == indices.size(d), "[_pool_gather] expected equal batch and channels, got ",
             self.sizes(), " and ", indices.sizes());
  Tensor out = empty(indices.sizes(), self.options());
  if (self.is_meta() || out.numel() == 0) return out;
  const Tensor in = contiguous(self), where = contiguous(indices);
  int64_t space = 1, count = 1;
  for (int64_t d = self.dim() - ndim; d < self.dim(); ++d) {
    space *= self.size(d);
    count *= indices.size(d);
  }
  dispatch_bytes(self.itemsize(), [&](auto type) {
    using T = typename decltype(type)::type;
    const T* x = reinterpret_cast<const T*>(in.raw());
    const int64_t* at = where.data<int64_t>();
    T* y = reinterpret_cast<T*>(out.raw());
    parallel_for(out.numel() / count, std::max<int64_t>(1, kGrain / count), [&](int64_t b, int64_t e) {
      for (int64_t p = b; p < e; ++p)
        for (int64_t i = 0; i < count; ++i) {
          const int64_t index = at[p * count + i];
          FL_CHECK(index >= 0 && index < space, "[_pool_gather] expected indices in [0, ", space, "), got ",
                   index);
          y[p * count + i] = x[p * space + index];
        }
    });
  });
  return out;
}

// ---------------------------------------------------------------- gradients of averages

Tensor run_average_backward(const Tensor& grad, IntSpan input_size, int ndim, const Layout5& l,
                            const PoolAxis* axes, int64_t divisor) {
  const std::string op = "_avg_pool_backward";
  FL_CHECK(is_floating(grad.dtype()), "[", op, "] expected a floating dtype, got ", name_of(grad.dtype()));
  const bool last = prefers_channels_last(grad, ndim);
  Tensor out = make(input_size, grad.options(), last);
  FL_CHECK(grad.sizes() == IntSpan(output_shape(out, ndim, axes)), "[", op, "] expected a gradient of shape ",
           IntSpan(output_shape(out, ndim, axes)), ", got ", grad.sizes());
  if (grad.is_meta() || out.numel() == 0) return out;
  const bool host = on_host(grad);
  const Tensor from = dense(last && host ? to_dtype(grad, compute_of(grad.dtype())) : grad, last);
  Tensor sums = from.dtype() == grad.dtype() ? out : make(input_size, from.options(), last);
  PoolArgs g = arguments(l, axes, sums, from, last);
  g.divisor = divisor;
  if (host)
    picked_average_pool_table().backward(g);
  else
    device_pools().average_backward(g, grad.device().index);
  if (!sums.same(out)) copy_into(out, sums);
  return out;
}

Layout5 layout_of_sizes(const std::string& op, IntSpan sizes, int ndim) {
  return layout_of(op, empty(sizes, {DType::Float, Device{DeviceType::Meta}}), ndim);
}

Tensor avg_pool_backward(const Tensor& grad, IntSpan input_size, IntSpan kernel,
                         std::optional<IntSpan> stride, IntSpan padding, bool ceil_mode,
                         bool count_include_pad, std::optional<int64_t> divisor) {
  const std::string op = "_avg_pool_backward";
  const int ndim = static_cast<int>(kernel.size());
  FL_CHECK(ndim >= 1 && ndim <= 3, "[", op, "] expected 1 to 3 kernel sizes, got ", kernel);
  const Windows w = windows_of(op, ndim, kernel, stride, padding, {1});
  const Layout5 l = layout_of_sizes(op, input_size, ndim);
  PoolAxis axes[3];
  plain_axes(op, l, w, ceil_mode, count_include_pad, ndim, axes);
  return run_average_backward(grad, input_size, ndim, l, axes, checked_divisor(op, divisor));
}

Tensor adaptive_avg_pool_backward(const Tensor& grad, IntSpan input_size, int64_t ndim) {
  const std::string op = "_adaptive_avg_pool_backward";
  FL_CHECK(ndim >= 1 && ndim <= 3 && grad.dim() == static_cast<int64_t>(input_size.size()), "[", op,
           "] expected a gradient of ", static_cast<int64_t>(input_size.size()), " dimensions, got shape ",
           grad.sizes());
  const Layout5 l = layout_of_sizes(op, input_size, static_cast<int>(ndim));
  int64_t out[3] = {1, 1, 1};
  for (int64_t d = 0; d < ndim; ++d) out[3 - ndim + d] = grad.size(grad.dim() - ndim + d);
  PoolAxis axes[3];
  adaptive_axes(l, out, axes);
  return run_average_backward(grad, input_size, static_cast<int>(ndim), l, axes, 0);
}

FL_KERNEL_DEVICES("max_pool1d", max_pool<1>);
FL_KERNEL_DEVICES("max_pool2d", max_pool<2>);
FL_KERNEL_DEVICES("max_pool3d", max_pool<3>);
FL_KERNEL_DEVICES("max_pool1d_with_indices", max_pool_with_indices<1>);
FL_KERNEL_DEVICES("max_pool2d_with_indices", max_pool_with_indices<2>);
FL_KERNEL_DEVICES("max_pool3d_with_indices", max_pool_with_indices<3>);
FL_KERNEL_DEVICES("avg_pool1d", avg_pool1d);
FL_KERNEL_DEVICES("avg_pool2d", avg_pool<2>);
FL_KERNEL_DEVICES("avg_pool3d", avg_pool<3>);
FL_KERNEL_DEVICES("adaptive_avg_pool1d", adaptive_avg_pool<1>);
FL_KERNEL_DEVICES("adaptive_avg_pool2d", adaptive_avg_pool<2>);
FL_KERNEL_DEVICES("adaptive_avg_pool3d", adaptive_avg_pool<3>);
FL_KERNEL_DEVICES("adaptive_max_pool1d", adaptive_max_pool<1>);
FL_KERNEL_DEVICES("_adaptive_max_pool2d", adaptive_max_pool<2>);
FL_KERNEL_DEVICES("_adaptive_max_pool3d", adaptive_max_pool<3>);
FL_KERNEL("_fractional_max_pool2d", fractional_max_pool<2>);
FL_KERNEL("_fractional_max_pool3d", fractional_max_pool<3>);
FL_KERNEL("_pool_scatter", pool_scatter);
FL_KERNEL("_pool_gather", pool_gather);
FL_KERNEL_DEVICES("_avg_pool_backward", avg_pool_backward);
FL_KERNEL_DEVICES("_adaptive_avg_pool_backward", adaptive_avg_pool_backward);

}  // namespace
}  // namespace fl
