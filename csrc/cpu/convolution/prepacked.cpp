// Convolutions over images whose weights were laid out before for oneDNN's primitive, with what follows them
// in a network that is evaluated: sums * scale + shift + residual, then relu.
#include "cpu/convolution/passes.h"
#include "dispatch/kernel.h"
#include "ops/layout.h"

namespace fl {
namespace {

using cpu::convolutions::ConvFinish;

struct Settings {
  IntSpan stride, padding, dilation;
  int64_t groups;
};

// The geometry for sizes of input and weight; the output has the sizes that follow.
ConvArgs geometry(const char* op, IntSpan input, IntSpan weight, const Settings& s, DType dtype) {
  FL_CHECK(input.size() == 4 && weight.size() == 4 && s.stride.size() == 2 && s.padding.size() == 2 &&
               s.dilation.size() == 2 && s.groups > 0 && input[1] == weight[1] * s.groups &&
               weight[0] % s.groups == 0,
           "[", op, "] expected a batch of images and weights for their channels in ", s.groups,
           " groups, got shapes ", input, " and ", weight);
  ConvArgs a;
  a.dtype = dtype;
  a.batch = input[0], a.in_channels = input[1], a.out_channels = weight[0], a.groups = s.groups;
  for (int d = 0; d < 2; ++d) {
    const int64_t reach = s.dilation[d] * (weight[2 + d] - 1),
                  room = input[2 + d] + 2 * s.padding[d] - reach - 1;
    FL_CHECK(room >= 0 && s.stride[d] > 0 && s.dilation[d] > 0 && s.padding[d] >= 0, "[", op,
             "] expected padded images not smaller than the kernel, got shapes ", input, " and ", weight);
    a.in_size[d] = input[2 + d];
    a.out_size[d] = room / s.stride[d] + 1;
    a.kernel[d] = weight[2 + d];
    a.stride[d] = s.stride[d], a.dilation[d] = s.dilation[d], a.padding[d] = s.padding[d];
  }
  for (const bool output : {false, true}) {
    const cpu::convolutions::View v = cpu::convolutions::channels_last(cpu::convolutions::view_of(a, output));
    std::copy_n(v.stride, 4, output ? a.out_strides : a.in_strides);
  }
  return a;
}

void check_dtype(const char* op, DType dtype) {
  FL_CHECK(dtype == DType::BFloat16 || dtype == DType::Float, "[", op, "] expected bfloat16 or float32, got ",
           name_of(dtype));
}

// The weight as bytes; none where oneDNN does not compute the case.
Tensor convolution_prepack(const Tensor& weight, IntSpan input_size, IntSpan stride, IntSpan padding,
                           IntSpan dilation, int64_t groups) {
  check_dtype("_convolution_prepack", weight.dtype());
  ConvArgs a = geometry("_convolution_prepack", input_size, weight.sizes(),
                        {stride, padding, dilation, groups}, weight.dtype());
  const int64_t bytes = int64_t(cpu::convolutions::packed_weight_bytes(a));
  const Tensor packed = empty({bytes}, {DType::UInt8, weight.device()});
  if (packed.is_meta() || !bytes) return packed;
  const Tensor w = contiguous(weight);
  a.weight = w.raw();
  cpu::convolutions::pack_weights(a, packed.raw());
  return packed;
}

const float* of_channels(const Tensor& t, int64_t channels) {
  if (!t.defined()) return nullptr;
  FL_CHECK(t.numel() == channels && t.dtype() == DType::Float && t.is_contiguous(),
           "[_convolution_prepacked] expected ", channels, " numbers of float32 in order, got shape ",
           t.sizes());
  return t.is_meta() ? nullptr : t.data<float>();
}

Tensor convolution_prepacked(const Tensor& input, const Tensor& packed, IntSpan weight_size,
                             const Tensor& scale, const Tensor& shift, const Tensor& residual, bool relu,
                             IntSpan stride, IntSpan padding, IntSpan dilation, int64_t groups) {
  check_dtype("_convolution_prepacked", input.dtype());
  ConvArgs a = geometry("_convolution_prepacked", input.sizes(), weight_size,
                        {stride, padding, dilation, groups}, input.dtype());
  const Dims sizes{a.batch, a.out_channels, a.out_size[0], a.out_size[1]};
  FL_CHECK(!residual.defined() || (residual.sizes() == IntSpan(sizes) && residual.dtype() == input.dtype()),
           "[_convolution_prepacked] expected a residual of shape ", IntSpan(sizes), ", got ",
           residual.sizes());
  ConvFinish finish;
  finish.scale = of_channels(scale, a.out_channels), finish.shift = of_channels(shift, a.out_channels);
  finish.relu = relu;
  Tensor out = empty_laid(sizes, true, input.options());
  if (out.is_meta() || out.numel() == 0) return out;
  const Tensor x = laid(input, true), r = residual.defined() ? laid(residual, true) : residual;
  if (r.defined()) finish.residual = r.raw();
  a.input = x.raw(), a.output = out.raw();
  cpu::convolutions::run_packed(a, finish, packed.raw(), size_t(packed.numel()));
  return out;
}

FL_KERNEL("_convolution_prepack", convolution_prepack, kCpu);
FL_KERNEL("_convolution_prepacked", convolution_prepacked, kCpu);

}  // namespace
}  // namespace fl
