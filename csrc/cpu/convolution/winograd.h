// Convolutions with 3 x 3 kernels by Winograd's algorithm for 2 x 2 outputs: 16 products of transformed tiles
// instead of 36, and what follows the convolution is applied while the outputs are written.
//
// The loops over channels here, transforms of one tile each; the walk over tiles is in winograd.cpp.
#pragma once

#include <cstdint>

namespace fl {

constexpr int kWinogradProducts = 16;  // a transformed tile has 4 x 4 elements

// What is done to results of a channel c: x * factor[c] + offset[c] (+ residual), then max(0, .) if relu.
struct WinogradFinish {
  const float* factor;
  const float* offset;
  bool relu;
};

struct WinogradLoops {
  // to[p * step + c] = product p's weights, of `channels` kernels of nine elements, `apart` from each other.
  void (*weights)(const float* kernels, int64_t apart, int64_t channels, float* to, int64_t step);
  // The same of a tile of 4 x 4 positions, each a row of channels.
  void (*input)(const float* const* positions, int64_t channels, float* to, int64_t step);
  // The 2 x 2 outputs of a tile from its 16 products. `residuals` are null, or a row for each output.
  void (*output)(const float* products, int64_t step, int64_t channels, const WinogradFinish& finish,
                 const float* const* residuals, float* const* outputs);
};
}  // namespace fl
