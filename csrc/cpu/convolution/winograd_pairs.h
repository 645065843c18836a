// 3 x 3 convolutions of bfloat16 with 2.25 times fewer multiplications: see winograd_pairs.cpp.
#pragma once

#include "core/dtype.h"
#include "cpu/convolution/winograd_walk.h"

namespace fl::cpu::winograd {

// The packed form of kernels (outputs, channels, 3, 3): 32-bit units, 0 where there is none; and the packing.
int64_t packed_pair_units(int64_t outputs, int64_t channels);
void pack_pair_kernels(const BFloat16* kernels, int64_t outputs, int64_t channels, uint32_t* to);

// What follows the sums of channel c: sum * factor[c] + offset[c] + residual, then max(0, .) if relu.
struct PairFinish {
  const float* factor;
  const float* offset;
  const BFloat16* residual;  // or null
  bool relu;
  BFloat16* output;
};

// False where the operands do not suit it: some are not finite, or some activations that are quantized
// together are so much larger than the rest that it would lose digits. The output is to be computed otherwise
// then.
bool convolve_pairs(const Planes& planes, const BFloat16* input, const uint32_t* packed,
                    const PairFinish& finish);

}  // namespace fl::cpu::winograd
