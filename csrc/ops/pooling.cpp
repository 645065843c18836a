// Pooling operators: checks, window geometry, output layouts, and the call of the device's loops.
#include <string>

#include "core/bytes.h"
#include "core/parallel.h"
#include "dispatch/kernel.h"
#include "ops/layout.h"
#include "ops/pooling.h"
#include "ops/windows.h"

namespace fl {

using PoolFunction = DeviceFunction<void(const PoolArgs&, int)>;
PoolFunction device::max_pool{"max_pool"}, device::average_pool{"avg_pool"},
    device::max_pool_backward{"max_pool_backward"}, device::average_pool_backward{"avg_pool_backward"};

namespace {

bool on_host(const Tensor& t) {
  return t.device().type != DeviceType::CUDA;
}

std::string op_name(const char* stem, int ndim) {
  return stem + std::to_string(ndim) + "d";
}

// Windows over a tensor of (batch, channels, depth, height, width); what it lacks has size one.
struct Pooling {
  Pooling(std::string name, int ndim, IntSpan sizes);

  Dims output_sizes(IntSpan input) const {
    Dims sizes(input);
    for (int d = 0; d < ndim; ++d) sizes[sizes.size() - ndim + d] = axes[3 - ndim + d].out;
    return sizes;
  }
  // Of a batch whose channels lie side by side; otherwise it is taken plane by plane.
  bool channels_last(const Tensor& t) const { return t.dim() == ndim + 2 && prefers_channels_last(t); }
  // The loops' arguments; those of the CPU look windows up.
  PoolArgs arguments(const Tensor& input, const Tensor& output, bool channels_last);

  std::string op;
  int ndim;
  int64_t batch = 1, channels = 1;
  PoolAxis axes[3];
};

Pooling::Pooling(std::string name, int n, IntSpan sizes) : op(std::move(name)), ndim(n) {
  const int64_t dims = static_cast<int64_t>(sizes.size());
  FL_CHECK(dims == ndim + 1 || dims == ndim + 2, "[", op, "] expected an input of ", ndim + 1, " or ",
           ndim + 2, " dimensions, got shape ", sizes);
  const int lead = static_cast<int>(dims) - ndim;
  if (lead == 2) batch = sizes[0];
  channels = sizes[lead - 1];
  for (int d = 0; d < ndim; ++d) axes[3 - ndim + d].in = sizes[lead + d];
  for (int64_t d = lead - 1; d < dims; ++d)
    FL_CHECK(
        sizes[d] > 0 && sizes[d] < kWidestWindow, "[", op,
        "] expected an input without empty dimensions but the batch, and of sizes below 2**31, got shape ",
        sizes);
}

PoolArgs Pooling::arguments(const Tensor& input, const Tensor& output, bool channels_last) {
  if (on_host(input))
    for (PoolAxis& a : axes) a.list_windows();
  PoolArgs g;
  g.dtype = input.dtype();
  g.batch = batch;
  g.channels = channels;
  g.axes = axes;
  g.input = input.raw();
  g.output = output.raw();
  g.channels_last = channels_last;
  return g;
}

// Types the loops of maxima know; narrow integers travel as int64, but for bytes on the CPU.
DType loop_dtype(const Tensor& self) {
  const DType t = self.dtype();
  const bool known = is_floating(t) || (on_host(self) && (t == DType::UInt8 || t == DType::Int8));
  return known ? t : DType::Int64;
}

std::tuple<Tensor, Tensor> run_max(Pooling p, const Tensor& self, bool indexed) {
  const DType t = self.dtype();
  FL_CHECK_KIND(t != DType::Bool && !is_complex(t), NotImplemented, "[", p.op,
                "] expected a real numeric dtype, got ", name_of(t));
  const bool last = p.channels_last(self);
  const Dims sizes = p.output_sizes(self.sizes());
  Tensor out = empty_laid(sizes, last, self.options());
  Tensor indices = indexed ? empty_laid(sizes, last, {DType::Int64, self.device()}) : Tensor();
  if (self.is_meta() || out.numel() == 0) return {out, indices};
  FL_CHECK(numel_of({p.axes[0].in, p.axes[1].in, p.axes[2].in}) < int64_t(1) << 31, "[", p.op,
           "] expected a plane of less than 2**31 elements, got ", self.sizes());
  const Tensor in = laid(to_dtype(self, loop_dtype(self)), last);
  Tensor result = in.dtype() == t ? out : empty_laid(sizes, last, in.options());
  PoolArgs g = p.arguments(in, result, last);
  if (indexed) g.indices = indices.data<int64_t>();
  device::max_pool(self.device().type, g, self.device().index);
  if (!result.same(out)) copy_into(out, result);
  return {out, indices};
}

Tensor run_average(Pooling p, const Tensor& self, int64_t divisor) {
  const DType t = self.dtype();
  FL_CHECK_KIND(is_floating(t) || t == DType::Int64, NotImplemented, "[", p.op,
                "] expected a floating dtype or int64, got ", name_of(t));
  const bool last = p.channels_last(self);
  Tensor out = empty_laid(p.output_sizes(self.sizes()), last, self.options());
  if (self.is_meta() || out.numel() == 0) return out;
  const Tensor in = laid(self, last);
  PoolArgs g = p.arguments(in, out, last);
  g.divisor = divisor;
  device::average_pool(self.device().type, g, self.device().index);
  return out;
}

// ---------------------------------------------------------------- plain windows

int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

struct Windows {
  int64_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
};

Windows windows_of(const std::string& op, int ndim, IntSpan kernel, std::optional<IntSpan> stride,
                   IntSpan padding, IntSpan dilation) {
  Windows w;
  const int first = 3 - ndim;
  spread(op, "kernel_size", kernel, ndim, 1, w.kernel + first);
  spread(op, "stride", stride && !stride->empty() ? *stride : kernel, ndim, 1, w.stride + first);
  spread(op, "padding", padding, ndim, 0, w.padding + first);
  spread(op, "dilation", dilation, ndim, 1, w.dilation + first);
  for (int d = first; d < 3; ++d)
    FL_CHECK(w.padding[d] <= ((w.kernel[d] - 1) * w.dilation[d] + 1) / 2, "[", op,
             "] expected padding of at most half the kernel's reach, got ", padding, " for kernel_size ",
             kernel);
  return w;
}

Pooling plain(const std::string& op, int ndim, IntSpan sizes, IntSpan kernel, std::optional<IntSpan> stride,
              IntSpan padding, IntSpan dilation, bool ceil_mode, bool count_include_pad) {
  const Windows w = windows_of(op, ndim, kernel, stride, padding, dilation);
  Pooling p(op, ndim, sizes);
  for (int d = 0; d < 3; ++d) {
    PoolAxis& a = p.axes[d];
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
  }
  return p;
}

template <int N>
std::tuple<Tensor, Tensor> max_pool_with_indices(const Tensor& self, IntSpan kernel,
                                                 std::optional<IntSpan> stride, IntSpan padding,
                                                 IntSpan dilation, bool ceil_mode, bool) {
  const std::string op = op_name("max_pool", N);
  return run_max(plain(op, N, self.sizes(), kernel, stride, padding, dilation, ceil_mode, false), self, true);
}

template <int N>
Tensor max_pool(const Tensor& self, IntSpan kernel, std::optional<IntSpan> stride, IntSpan padding,
                IntSpan dilation, bool ceil_mode) {
  const std::string op = op_name("max_pool", N);
  const Pooling p = plain(op, N, self.sizes(), kernel, stride, padding, dilation, ceil_mode, false);
  return std::get<0>(run_max(p, self, false));
}

int64_t checked_divisor(const std::string& op, std::optional<int64_t> divisor) {
  FL_CHECK(!divisor || *divisor != 0, "[", op, "] expected divisor_override other than zero, got 0");
  return divisor.value_or(0);
}

template <int N>
Tensor avg_pool(const Tensor& self, IntSpan kernel, std::optional<IntSpan> stride, IntSpan padding,
                bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor) {
  const std::string op = op_name("avg_pool", N);
  return run_average(plain(op, N, self.sizes(), kernel, stride, padding, {1}, ceil_mode, count_include_pad),
                     self, checked_divisor(op, divisor));
}

Tensor avg_pool1d(const Tensor& self, IntSpan kernel, std::optional<IntSpan> stride, IntSpan padding,
                  bool ceil_mode, bool count_include_pad) {
  return avg_pool<1>(self, kernel, stride, padding, ceil_mode, count_include_pad, std::nullopt);
}

// ---------------------------------------------------------------- adaptive windows

Pooling adaptive(const std::string& op, int ndim, IntSpan sizes, IntSpan output_size) {
  int64_t out[3] = {1, 1, 1};
  spread(op, "output_size", output_size, ndim, 0, out + 3 - ndim);
  Pooling p(op, ndim, sizes);
  for (int d = 0; d < 3; ++d) {
    PoolAxis& a = p.axes[d];
    a.out = out[d];
    a.adaptive = true;
    a.regular = a.out > 0 && a.in % a.out == 0;
    if (a.regular) a.stride = a.kernel = a.in / a.out;
  }
  return p;
}

template <int N>
Tensor adaptive_avg_pool(const Tensor& self, IntSpan output_size) {
  const std::string op = op_name("adaptive_avg_pool", N);
  FL_CHECK_KIND(N == 1 || self.dim() > N, Value, "[", op, "] expected an input of ", N + 1, " or ", N + 2,
                " dimensions, got shape ", self.sizes());
  return run_average(adaptive(op, N, self.sizes(), output_size), self, 0);
}

template <int N>
std::tuple<Tensor, Tensor> adaptive_max_pool(const Tensor& self, IntSpan output_size) {
  return run_max(adaptive(op_name("adaptive_max_pool", N), N, self.sizes(), output_size), self, true);
}

// ---------------------------------------------------------------- fractional windows

// Window starts along an axis, as the sample u in [0, 1) places them; the last window ends with the input.
void fractional_axis(PoolAxis& a, int64_t kernel, double u, bool single) {
  const int64_t in = a.in, out = a.out;
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
  spread(op, "kernel_size", kernel_size, N, 1, kernel + 3 - N);
  spread(op, "output_size", output_size, N, 1, out + 3 - N);
  Pooling p(op, N, self.sizes());
  FL_CHECK_KIND(is_floating(self.dtype()), NotImplemented, "[", op, "] expected a floating dtype, got ",
                name_of(self.dtype()));
  FL_CHECK(samples.dtype() == self.dtype(), "[", op, "] expected random samples of dtype ",
           name_of(self.dtype()), ", got ", name_of(samples.dtype()));
  FL_CHECK(samples.dim() == 3, "[", op, "] expected random samples of 3 dimensions, got shape ",
           samples.sizes());
  FL_CHECK(samples.size(0) >= p.batch && samples.size(1) == p.channels && samples.size(2) == N, "[", op,
           "] expected random samples of shape (", p.batch, ", ", p.channels, ", ", N, "), got ",
           samples.sizes());
  for (int d = 0; d < 3; ++d) {
    p.axes[d].out = out[d];
    FL_CHECK(out[d] + kernel[d] - 1 <= p.axes[d].in, "[", op,
             "] expected kernel_size and output_size that fit in ", p.axes[d].in, ", got ", kernel_size,
             " and ", output_size);
  }
  const Dims sizes = p.output_sizes(self.sizes());
  Tensor result = empty(sizes, self.options()), indices = empty(sizes, {DType::Int64, self.device()});
  if (self.is_meta() || result.numel() == 0) return {result, indices};
  const Tensor in = contiguous(self), u = contiguous(to_dtype(samples, DType::Double));
  const int64_t planes = p.batch * p.channels, in_plane = in.numel() / planes,
                out_plane = result.numel() / planes;
  for (int64_t plane = 0; plane < planes; ++plane) {
    const double* sample = u.data<double>() + plane * N;
    for (int d = 0; d < 3; ++d)
      // Of volumes they come outermost first, of images innermost first.
      fractional_axis(p.axes[d], kernel[d], d < 3 - N ? 0 : sample[N == 3 ? d : 2 - d],
                      self.dtype() != DType::Double);
    PoolArgs g;
    g.dtype = in.dtype();
    g.batch = g.channels = 1;
    g.axes = p.axes;
    g.input = in.raw() + plane * in_plane * in.itemsize();
    g.output = result.raw() + plane * out_plane * in.itemsize();
    g.indices = indices.data<int64_t>() + plane * out_plane;
    device::max_pool(self.device().type, g, self.device().index);
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
  for (int d = 0; d < ndim; ++d) sizes[self.dim() - ndim + d] = output_size[d];
  const int64_t space = numel_of(output_size);
  const bool last = self.dim() == ndim + 2 && prefers_channels_last(self);
  Tensor out = empty_laid(sizes, last, self.options());
  if (self.is_meta() || out.numel() == 0) return out;
  const DType compute = compute_of(self.dtype());
  const Tensor in = laid(to_dtype(self, compute), last), where = laid(indices, last);
  Tensor sums = compute == self.dtype() ? out : empty_laid(sizes, last, in.options());
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

// The number of dimensions of windows that lists describe, each with one number for all or one for each.
int dims_of_windows(std::initializer_list<IntSpan> lists) {
  size_t most = 0;
  for (const IntSpan list : lists) most = std::max(most, list.size());
  return static_cast<int>(most);
}

// The gradient of maxima, by their indices. The CPU adds each to its place; an accelerator looks, for each
// element, at the windows that it lies in, and adds nothing at the same time as somebody else.
Tensor max_pool_backward(const Tensor& grad, const Tensor& indices, IntSpan input_size, IntSpan kernel,
                         std::optional<IntSpan> stride, IntSpan padding, IntSpan dilation, bool ceil_mode) {
  const std::string op = "_max_pool_backward";
  const int ndim = dims_of_windows({kernel, stride.value_or(IntSpan()), padding, dilation});
  FL_CHECK(ndim >= 1 && ndim <= 3, "[", op, "] expected 1 to 3 kernel sizes, got ", kernel);
  Pooling p = plain(op, ndim, input_size, kernel, stride, padding, dilation, ceil_mode, false);
  const Dims expected = p.output_sizes(input_size);
  FL_CHECK(grad.sizes() == IntSpan(expected) && indices.sizes() == IntSpan(expected), "[", op,
           "] expected a gradient and indices of shape ", IntSpan(expected), ", got ", grad.sizes(), " and ",
           indices.sizes());
  FL_CHECK(is_floating(grad.dtype()) && indices.dtype() == DType::Int64, "[", op,
           "] expected a floating dtype and indices of dtype int64, got ", name_of(grad.dtype()), " and ",
           name_of(indices.dtype()));
  if (on_host(grad))
    return pool_scatter(grad, indices, {input_size.data() + input_size.size() - ndim, size_t(ndim)}, true);
  const bool last = p.channels_last(grad);
  Tensor out = empty_laid(input_size, last, grad.options());
  if (grad.is_meta() || out.numel() == 0) return out;
  const Tensor from = laid(grad, last), where = laid(indices, last);
  PoolArgs g = p.arguments(out, from, last);
  g.indices = where.data<int64_t>();
  device::max_pool_backward(grad.device().type, g, grad.device().index);
  return out;
}

// ---------------------------------------------------------------- gradients of averages

Tensor run_average_backward(Pooling p, const Tensor& grad, IntSpan input_size, int64_t divisor) {
  FL_CHECK(is_floating(grad.dtype()), "[", p.op, "] expected a floating dtype, got ", name_of(grad.dtype()));
  const Dims expected = p.output_sizes(input_size);
  FL_CHECK(grad.sizes() == IntSpan(expected), "[", p.op, "] expected a gradient of shape ", IntSpan(expected),
           ", got ", grad.sizes());
  const bool last = p.channels_last(grad);
  Tensor out = empty_laid(input_size, last, grad.options());
  if (grad.is_meta() || out.numel() == 0) return out;
  const bool host = on_host(grad);
  const Tensor from = laid(last && host ? to_dtype(grad, compute_of(grad.dtype())) : grad, last);
  Tensor sums = from.dtype() == grad.dtype() ? out : empty_laid(input_size, last, from.options());
  PoolArgs g = p.arguments(sums, from, last);
  g.divisor = divisor;
  device::average_pool_backward(grad.device().type, g, grad.device().index);
  if (!sums.same(out)) copy_into(out, sums);
  return out;
}

Tensor avg_pool_backward(const Tensor& grad, IntSpan input_size, IntSpan kernel,
                         std::optional<IntSpan> stride, IntSpan padding, bool ceil_mode,
                         bool count_include_pad, std::optional<int64_t> divisor) {
  const std::string op = "_avg_pool_backward";
  const int ndim = dims_of_windows({kernel, stride.value_or(IntSpan()), padding});
  FL_CHECK(ndim >= 1 && ndim <= 3, "[", op, "] expected 1 to 3 kernel sizes, got ", kernel);
  return run_average_backward(
      plain(op, ndim, input_size, kernel, stride, padding, {1}, ceil_mode, count_include_pad), grad,
      input_size, checked_divisor(op, divisor));
}

Tensor adaptive_avg_pool_backward(const Tensor& grad, IntSpan input_size, int64_t ndim) {
  const std::string op = "_adaptive_avg_pool_backward";
  FL_CHECK(
      ndim >= 1 && ndim <= 3 && grad.dim() > ndim && grad.dim() == static_cast<int64_t>(input_size.size()),
      "[", op, "] expected a gradient of ", static_cast<int64_t>(input_size.size()),
      " dimensions, got shape ", grad.sizes());
  const IntSpan output_size(grad.sizes().data() + grad.dim() - ndim, static_cast<size_t>(ndim));
  return run_average_backward(adaptive(op, static_cast<int>(ndim), input_size, output_size), grad, input_size,
                              0);
}

FL_KERNEL("max_pool1d", max_pool<1>, kDevices);
FL_KERNEL("max_pool2d", max_pool<2>, kDevices);
FL_KERNEL("max_pool3d", max_pool<3>, kDevices);
FL_KERNEL("max_pool1d_with_indices", max_pool_with_indices<1>, kDevices);
FL_KERNEL("max_pool2d_with_indices", max_pool_with_indices<2>, kDevices);
FL_KERNEL("max_pool3d_with_indices", max_pool_with_indices<3>, kDevices);
FL_KERNEL("avg_pool1d", avg_pool1d, kDevices);
FL_KERNEL("avg_pool2d", avg_pool<2>, kDevices);
FL_KERNEL("avg_pool3d", avg_pool<3>, kDevices);
FL_KERNEL("adaptive_avg_pool1d", adaptive_avg_pool<1>, kDevices);
FL_KERNEL("adaptive_avg_pool2d", adaptive_avg_pool<2>, kDevices);
FL_KERNEL("adaptive_avg_pool3d", adaptive_avg_pool<3>, kDevices);
FL_KERNEL("adaptive_max_pool1d", adaptive_max_pool<1>, kDevices);
FL_KERNEL("_adaptive_max_pool2d", adaptive_max_pool<2>, kDevices);
FL_KERNEL("_adaptive_max_pool3d", adaptive_max_pool<3>, kDevices);
FL_KERNEL("_fractional_max_pool2d", fractional_max_pool<2>, kCpu);
FL_KERNEL("_fractional_max_pool3d", fractional_max_pool<3>, kCpu);
FL_KERNEL("_pool_scatter", pool_scatter, kCpu);
FL_KERNEL("_pool_gather", pool_gather, kCpu);
FL_KERNEL("_max_pool_backward", max_pool_backward, kDevices);
FL_KERNEL("_avg_pool_backward", avg_pool_backward, kDevices);
FL_KERNEL("_adaptive_avg_pool_backward", adaptive_avg_pool_backward, kDevices);

}  // namespace
}  // namespace fl
