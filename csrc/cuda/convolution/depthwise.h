// Depthwise convolutions of planes: each channel has a filter of its own. For the host's part of
// convolutions, which chooses them.
#pragma once

#include "core/dtype.h"
#include "cuda/runtime/runtime.h"

namespace fl::cuda::depthwise {

// y = conv(x, w), whichever of the three is computed.
struct Problem {
  DType dtype;
  bool last;  // channels are innermost, in x and y; the weight's elements lie by channel, row and column
  int batch, channels;
  struct Axis {
    int x, y, kernel, stride, padding, dilation;
  } height, width;
  int processors;  // of the device
};

// All tensors begin at multiples of 16 bytes and have less than 2**31 elements.
void forward(const Problem& p, const void* x, const void* w, const void* bias, void* y, cudaStream_t stream);
void input_gradient(const Problem& p, const void* grad, const void* w, void* result, cudaStream_t stream);
// `parts` is memory for the sums of blocks, which are added in a fixed order.
void weight_gradient(const Problem& p, const void* x, const void* grad, void* parts, void* result,
                     cudaStream_t stream);
size_t bytes_of_parts(const Problem& p);

}  // namespace fl::cuda::depthwise
