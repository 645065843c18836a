// Loops of the gradients of normalisations. S is the stored type, T the one computed in (float, or double);
// sums leave in double.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace fl {

struct NormGradientLoops {
  // Rows of layer normalisation. xhat = (x - mean) * rstd, or x * rstd where mean is null (RMS); the gradient
  // of x goes to `out` unless null, those of weight and bias are added to the doubles unless null. weight is
  // of compute type, or null.
  void (*layer_rows)(const void* g, const void* x, void* out, int64_t rows, int64_t n, const void* weight,
                     const double* mean, const double* rstd, double* weight_sums, double* bias_sums);
  // Sums of g and of g * (x - mean) over planes of n elements, `stride` elements from one to the next.
  void (*sums)(const void* g, const void* x, int64_t planes, int64_t stride, int64_t n, double mean,
               double* g_sum, double* product_sum);
  // out = g * a + (x - mean) * b + c, over a run.
  void (*gradient)(const void* g, const void* x, void* out, int64_t n, double mean, double a, double b,
                   double c);
  // The same with channels innermost, where sums are added to what is there; mean, a, b and c of the second
  // are of compute type, one for each channel.
  void (*channel_sums)(const void* g, const void* x, int64_t rows, int64_t channels, const double* mean,
                       double* g_sums, double* product_sums);
  void (*channel_gradient)(const void* g, const void* x, void* out, int64_t rows, int64_t channels,
                           const void* mean, const void* a, const void* b, const void* c);
};

struct NormGradientTable {
  NormGradientLoops f, d, b, h;
};
}  // namespace fl
