// The sizes of a convolution of eight bits, and its way without gathered windows.
#pragma once

#include "cpu/gemm/bytes.h"

namespace fl::cpu::quantized {

// A convolution widened to three spatial dimensions. Activations lie channels-last.
struct Geometry {
  int64_t batch, channels, outputs, groups;
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, padding[3] = {0, 0, 0};

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t positions() const { return out[0] * out[1] * out[2]; }
  int64_t group_channels() const { return channels / groups; }
  bool is_depthwise() const { return groups == channels && outputs == channels && channels > 1; }
  bool is_padded() const { return padding[0] || padding[1] || padding[2]; }
  bool is_pointwise() const {
    for (int d = 0; d < 3; ++d)
      if (kernel[d] != 1 || stride[d] != 1 || padding[d] != 0) return false;
    return groups == 1;
  }
  // The place in the input under a tap at an output index, along dimension d.
  int64_t under(int d, int64_t index, int64_t tap) const {
    return index * stride[d] - padding[d] + tap * dilation[d];
  }
  bool inside(int d, int64_t at) const { return at >= 0 && at < in[d]; }
};

constexpr int64_t kRunMultiple = 4;  // elements: runs of packed weights end with zeros up to a multiple

// The elements of a packed line of a kernel.
inline int64_t packed_run(int64_t kernel_width, int64_t group_channels) {
  return (kernel_width * group_channels + kRunMultiple - 1) / kRunMultiple * kRunMultiple;
}

// Whether multiply_direct computes it, and is quicker than products of gathered windows.
bool is_direct(const Geometry& g, bool has_weight_zeros);

// One group of a convolution. `data` are the bytes of the input, `weights` and `finish` those of the group.
void multiply_direct(const Geometry& g, const void* data, bool is_signed, products::RowGrid grid,
                     int64_t group, const products::PackedBytes& weights, const products::ByteFinish& finish);

// Kernels of 3 x 3 that are transformed for it (winograd.cpp): the 32-bit units they take, 0 where the
// processor has better; packing of rows of (3, 3, channels); whether a convolution is computed so, and its
// computation.
int64_t winograd_units(int64_t outputs, int64_t channels);
void pack_winograd(const int8_t* rows, int64_t outputs, int64_t channels, uint32_t* panels);
bool is_winograd(const Geometry& g, bool has_weight_zeros);
void multiply_winograd(const Geometry& g, const void* data, bool is_signed, products::RowGrid grid,
                       const uint32_t* panels, const products::ByteFinish& finish);

}  // namespace fl::cpu::quantized
