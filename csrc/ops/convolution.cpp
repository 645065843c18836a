// Convolution operators: argument checks, output shapes and layouts, and the call of the device's kernels.
#include "ops/convolution.h"

#include <string>

#include "core/parallel.h"
#include "dispatch/kernel.h"
#include "ops/layout.h"
#include "ops/windows.h"

namespace fl {

DeviceFunction<void(const ConvArgs&)> device::convolution_forward{"convolution"};
DeviceFunction<void(const ConvArgs&)> device::convolution_backward_data{"convolution"};
DeviceFunction<void(const ConvArgs&)> device::convolution_backward_weights{"convolution"};

namespace {

struct Geometry {
  int ndim = 0;
  bool transposed = false;
  int64_t stride[3], padding[3], dilation[3], output_padding[3];
  int64_t groups = 1;
};

std::string name_of_conv(int ndim, bool transposed) {
  return (transposed ? "conv_transpose" : "conv") + std::to_string(ndim) + "d";
}

Geometry geometry(int ndim, IntSpan stride, IntSpan padding, IntSpan dilation, bool transposed,
                  IntSpan output_padding, int64_t groups) {
  Geometry g;
  const std::string op = name_of_conv(ndim, transposed);
  g.ndim = ndim;
  g.transposed = transposed;
  g.groups = groups;
  FL_CHECK(groups > 0, "[", op, "] expected groups greater than zero, got ", groups);
  spread(op, "stride", stride, ndim, 1, g.stride);
  spread(op, "padding", padding, ndim, 0, g.padding);
  spread(op, "dilation", dilation, ndim, 1, g.dilation);
  if (transposed)
    spread(op, "output_padding", output_padding, ndim, 0, g.output_padding);
  else
    std::fill_n(g.output_padding, 3, 0);
  return g;
}

// Sizes and strides of a tensor as (batch, channels, spatial...), whether or not it has a batch.
void batched(const Tensor& t, int ndim, Dims& sizes, Dims& strides) {
  sizes = Dims(t.sizes());
  strides = Dims(t.strides());
  if (t.dim() == ndim + 1) {
    sizes.insert(0, 1);
    strides.insert(0, t.dim() && t.numel() ? t.numel() : 1);
  }
}

// Of a batch of images, in the layout of input or weight.
bool prefers_channels_last(const Geometry& g, const Tensor& input, const Tensor& weight) {
  return input.dim() == g.ndim + 2 && (fl::prefers_channels_last(input) || fl::prefers_channels_last(weight));
}

// Checks the operands and gives the output's sizes (with a batch).
Dims output_sizes(const Geometry& g, const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const std::string op = name_of_conv(g.ndim, g.transposed);
  FL_CHECK(input.dim() == g.ndim + 1 || input.dim() == g.ndim + 2, "[", op, "] expected an input of ",
           g.ndim + 1, " (unbatched) or ", g.ndim + 2, " dimensions, got shape ", input.sizes());
  FL_CHECK(weight.dim() == g.ndim + 2, "[", op, "] expected a weight of ", g.ndim + 2,
           " dimensions, got shape ", weight.sizes());
  FL_CHECK(input.dtype() == weight.dtype(), "[", op, "] expected input and weight of one dtype, got ",
           name_of(input.dtype()), " and ", name_of(weight.dtype()), "; convert the input with .to(",
           name_of(weight.dtype()), ")");
  FL_CHECK(input.dtype() != DType::Bool, "[", op, "] expected a numeric dtype, got bool");
  Dims sizes, strides;
  batched(input, g.ndim, sizes, strides);
  FL_CHECK(weight.size(0) >= g.groups, "[", op, "] expected a weight of at least groups = ", g.groups,
           " in its first dimension, got shape ", weight.sizes());
  FL_CHECK(weight.size(0) % g.groups == 0, "[", op,
           "] expected a weight whose first dimension is divisible by groups = ", g.groups, ", got shape ",
           weight.sizes());
  const int64_t channels = g.transposed ? weight.size(0) : weight.size(1) * g.groups;
  FL_CHECK(sizes[1] == channels, "[", op, "] expected an input of ", channels,
           " channels for a weight of shape ", weight.sizes(), " and groups = ", g.groups, ", got shape ",
           input.sizes(),
           input.size(-1) == channels ? "; its channels are last: permute them to dimension 1" : "");
  const int64_t out_channels = g.transposed ? weight.size(1) * g.groups : weight.size(0);
  if (bias.defined()) {
    FL_CHECK(bias.dim() == 1 && bias.size(0) == out_channels, "[", op, "] expected a bias of shape (",
             out_channels, ",), got ", bias.sizes());
    FL_CHECK(bias.dtype() == input.dtype(), "[", op, "] expected input and bias of one dtype, got ",
             name_of(input.dtype()), " and ", name_of(bias.dtype()));
  }
  Dims out(sizes);
  out[1] = out_channels;
  for (int d = 0; d < g.ndim; ++d) {
    const int64_t in = sizes[2 + d], k = weight.size(2 + d), reach = g.dilation[d] * (k - 1);
    FL_CHECK(k > 0, "[", op, "] expected a kernel without empty dimensions, got weight of shape ",
             weight.sizes());
    FL_CHECK(std::max(in, k) < kWidestWindow, "[", op, "] expected spatial sizes below 2**31, got ",
             input.sizes(), " and ", weight.sizes());
    if (g.transposed) {
      FL_CHECK(g.output_padding[d] < g.stride[d] || g.output_padding[d] < g.dilation[d], "[", op,
               "] expected output_padding below stride or dilation, got ", g.output_padding[d]);
      out[2 + d] = (in - 1) * g.stride[d] - 2 * g.padding[d] + reach + g.output_padding[d] + 1;
      FL_CHECK(out[2 + d] > 0 && in > 0, "[", op, "] expected an output that is not empty, got size ",
               out[2 + d], " in spatial dimension ", d, " for input of shape ", input.sizes());
    } else {
      FL_CHECK(in + 2 * g.padding[d] >= reach + 1, "[", op,
               "] expected a padded input at least as large as the kernel, got ", in + 2 * g.padding[d],
               " against ", reach + 1, " in spatial dimension ", d);
      out[2 + d] = (in + 2 * g.padding[d] - reach - 1) / g.stride[d] + 1;
    }
  }
  return out;
}

// An output of these (batched) sizes, laid out as the operands suggest, without the batch when the input has
// none.
Tensor make_output(const Tensor& like, IntSpan sizes, bool channels_last, bool unbatched) {
  if (unbatched) return empty(IntSpan(sizes.data() + 1, sizes.size() - 1), like.options());
  return empty_laid(sizes, channels_last, like.options());
}

// Fills in the engine's arguments. "small" is the side with strided windows, i.e. the output of a plain
// convolution.
ConvArgs engine_args(const Geometry& g, const Tensor& input, const Tensor& weight, const Tensor& output) {
  ConvArgs a;
  Dims in_sizes, in_strides, out_sizes, out_strides;
  batched(g.transposed ? output : input, g.ndim, in_sizes, in_strides);
  batched(g.transposed ? input : output, g.ndim, out_sizes, out_strides);
  a.dtype = input.dtype();
  a.ndim = g.ndim;
  a.batch = in_sizes[0];
  a.in_channels = in_sizes[1];
  a.out_channels = out_sizes[1];
  a.groups = g.groups;
  for (int d = 0; d < g.ndim; ++d) {
    a.in_size[d] = in_sizes[2 + d];
    a.out_size[d] = out_sizes[2 + d];
    a.kernel[d] = weight.size(2 + d);
    a.stride[d] = g.stride[d];
    a.dilation[d] = g.dilation[d];
    a.padding[d] = g.padding[d];
  }
  std::copy_n(in_strides.data(), g.ndim + 2, a.in_strides);
  std::copy_n(out_strides.data(), g.ndim + 2, a.out_strides);
  return a;
}

Tensor convolve(const Geometry& g, const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Dims sizes = output_sizes(g, input, weight, bias);
  Tensor out = make_output(input, sizes, prefers_channels_last(g, input, weight), input.dim() == g.ndim + 1);
  if (out.is_meta() || out.numel() == 0) return out;
  if (is_integral(input.dtype()) &&
      input.dtype() != DType::Int64) {  // rare, and wraps the same when narrowed
    const auto wide = [](const Tensor& t) { return t.defined() ? to_dtype(t, DType::Int64) : t; };
    return to_dtype(convolve(g, wide(input), wide(weight), wide(bias)), input.dtype());
  }
  const Tensor w = contiguous(weight), b = bias.defined() ? contiguous(bias) : bias;
  ConvArgs a = engine_args(g, input, w, out);
  a.weight = w.raw();
  if (b.defined()) a.bias = b.raw();
  if (g.transposed) {
    a.grad_output = input.raw();
    a.grad_input = out.raw();
    device::convolution_backward_data(input.device().type, a);
  } else {
    a.input = input.raw();
    a.output = out.raw();
    device::convolution_forward(input.device().type, a);
  }
  return out;
}

int spatial_dims(const Tensor& weight) {
  const int ndim = static_cast<int>(weight.dim()) - 2;
  FL_CHECK(ndim >= 1 && ndim <= 3, "[convolution] expected a weight of 3 to 5 dimensions, got shape ",
           weight.sizes());
  return ndim;
}

Tensor convolution(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride,
                   IntSpan padding, IntSpan dilation, bool transposed, IntSpan output_padding,
                   int64_t groups) {
  return convolve(
      geometry(spatial_dims(weight), stride, padding, dilation, transposed, output_padding, groups), input,
      weight, bias);
}

template <int N>
Tensor conv(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride, IntSpan padding,
            IntSpan dilation, int64_t groups) {
  return convolve(geometry(N, stride, padding, dilation, false, {}, groups), input, weight, bias);
}

template <int N>
Tensor conv_transpose(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride,
                      IntSpan padding, IntSpan output_padding, int64_t groups, IntSpan dilation) {
  return convolve(geometry(N, stride, padding, dilation, true, output_padding, groups), input, weight, bias);
}

// Sum over batch and space, in the compute type.
void sum_channels(const Tensor& grad, int ndim, const Tensor& out) {
  Dims sizes, strides;
  batched(grad, ndim, sizes, strides);
  const Tensor whole = contiguous(to_dtype(grad, compute_of(grad.dtype())));
  const Tensor sums = empty({sizes[1]}, {whole.dtype(), whole.device()});
  const int64_t batch = sizes[0], channels = sizes[1],
                space = channels && batch ? whole.numel() / (batch * channels) : 0;
  dispatch_compute(whole.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const T* x = whole.data<T>();
    T* s = sums.data<T>();
    parallel_for(channels, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, batch * space)),
                 [&](int64_t b, int64_t e) {
                   for (int64_t c = b; c < e; ++c) {
                     T total{};
                     for (int64_t n = 0; n < batch; ++n) {
                       const T* row = x + (n * channels + c) * space;
                       T part{};
                       for (int64_t i = 0; i < space; ++i) part += row[i];
                       total += part;
                     }
                     s[c] = total;
                   }
                 });
  });
  copy_into(out, sums);
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& grad_output, const Tensor& input,
                                                        const Tensor& weight, IntSpan stride, IntSpan padding,
                                                        IntSpan dilation, bool transposed,
                                                        IntSpan output_padding, int64_t groups,
                                                        std::vector<bool> mask) {
  const Geometry g =
      geometry(spatial_dims(weight), stride, padding, dilation, transposed, output_padding, groups);
  FL_CHECK(mask.size() == 3, "[_convolution_backward] expected a mask of 3 values, got ",
           static_cast<int64_t>(mask.size()));
  const Dims sizes = output_sizes(g, input, weight, Tensor());
  const bool unbatched = input.dim() == g.ndim + 1;
  FL_CHECK(grad_output.sizes() == (unbatched ? IntSpan(sizes.data() + 1, sizes.size() - 1) : IntSpan(sizes)),
           "[_convolution_backward] expected a gradient of shape ", IntSpan(sizes), ", got ",
           grad_output.sizes());
  FL_CHECK(grad_output.dtype() == input.dtype(), "[_convolution_backward] expected a gradient of dtype ",
           name_of(input.dtype()), ", got ", name_of(grad_output.dtype()));
  const bool last = prefers_channels_last(g, input, weight);
  Dims in_sizes, in_strides;
  batched(input, g.ndim, in_sizes, in_strides);
  const Options options = input.options();
  Tensor grad_input = mask[0] ? make_output(input, in_sizes, last, unbatched) : empty({0}, options);
  Tensor grad_weight = mask[1] ? empty(weight.sizes(), options) : empty({0}, options);
  Tensor grad_bias = mask[2] ? empty({sizes[1]}, options) : empty({0}, options);
  if (input.is_meta()) return {grad_input, grad_weight, grad_bias};
  const Tensor w = contiguous(weight);
  if (mask[0] && grad_input.numel()) {
    ConvArgs a = engine_args(g, grad_input, w, grad_output);
    a.weight = w.raw();
    if (transposed) {
      a.input = grad_output.raw();
      a.output = grad_input.raw();
      device::convolution_forward(input.device().type, a);
    } else {
      a.grad_output = grad_output.raw();
      a.grad_input = grad_input.raw();
      device::convolution_backward_data(input.device().type, a);
    }
  }
  const bool bias_with_weight = mask[2] && !transposed;
  if ((mask[1] && grad_weight.numel()) || bias_with_weight) {
    if (input.numel() == 0 || grad_output.numel() == 0) {
      copy_into(grad_weight, scalar_tensor(Scalar(int64_t(0)), options));
      if (mask[2]) copy_into(grad_bias, scalar_tensor(Scalar(int64_t(0)), options));
    } else {
      ConvArgs a = engine_args(g, input, w, grad_output);
      a.input = transposed ? grad_output.raw() : input.raw();
      a.grad_output = transposed ? input.raw() : grad_output.raw();
      if (mask[1]) a.grad_weight = grad_weight.raw();
      if (bias_with_weight) a.grad_bias = grad_bias.raw();
      device::convolution_backward_weights(input.device().type, a);
    }
  }
  if (mask[2] && transposed) sum_channels(grad_output, g.ndim, grad_bias);
  return {grad_input, grad_weight, grad_bias};
}

FL_KERNEL("convolution", convolution, kCpu);
FL_KERNEL("_convolution", convolution, kCpu);
FL_KERNEL("_convolution_backward", convolution_backward, kCpu);
FL_KERNEL("conv1d", conv<1>, kCpu);
FL_KERNEL("conv2d", conv<2>, kCpu);
FL_KERNEL("conv3d", conv<3>, kCpu);
FL_KERNEL("conv_transpose1d", conv_transpose<1>, kCpu);
FL_KERNEL("conv_transpose2d", conv_transpose<2>, kCpu);
FL_KERNEL("conv_transpose3d", conv_transpose<3>, kCpu);

}  // namespace
}  // namespace fl
