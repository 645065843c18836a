// What convolution fronts ask of a device, 1 to 3 spatial dimensions: forward and both backward passes.
//
// The layer takes raw pointers, sizes and element strides, already validated by the caller.  float,
// bfloat16 and half run through oneDNN in channels-last order (the faster one there: other layouts
// are rearranged on the way in and out); every other type, and a machine without oneDNN, uses
// an unfolded copy of the input and a matrix product.
#pragma once

#include <cstdint>

#include "core/device_function.h"
#include "core/dtype.h"

namespace fl {

// The geometry and the operands of one convolution.  Activations may have any strides; weights and
// their gradient are contiguous [out_channels, in_channels / groups, kernel...].
struct ConvArgs {
  DType dtype = DType::Float;
  int ndim = 2;  // spatial dimensions; only the first ndim entries of the arrays below count
  int64_t batch = 0, in_channels = 0, out_channels = 0, groups = 1;
  int64_t in_size[3] = {1, 1, 1}, out_size[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
  int64_t padding[3] = {0, 0, 0};  // before the first element; what follows the last is implied

  int64_t in_strides[5] = {};   // batch, channel, spatial...: of input or grad_input
  int64_t out_strides[5] = {};  // the same, of output or grad_output

  const void* input = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;  // out_channels values, or null
  const void* grad_output = nullptr;

  void* output = nullptr;
  void* grad_input = nullptr;
  void* grad_weight = nullptr;
  void* grad_bias = nullptr;
};

namespace device {
// output = conv(input, weight) + bias.
extern DeviceFunction<void(const ConvArgs&)> convolution_forward;

// grad_input from grad_output and weight.  This is transposed convolution too: pass the transposed
// convolution's input as grad_output and its output as grad_input (in_size = the size wanted,
// output_padding included; a bias goes in `bias`, of in_channels values, and is added to grad_input).
extern DeviceFunction<void(const ConvArgs&)> convolution_backward_data;

// grad_weight and grad_bias (either may be null) from input and grad_output.
extern DeviceFunction<void(const ConvArgs&)> convolution_backward_weights;
}  // namespace device

}  // namespace fl
