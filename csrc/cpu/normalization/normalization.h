// Loops of the normalisations. S is the stored type (float, double, bfloat16, half), statistics are in
// double.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace fl {

struct NormLoops {
  // Mean and sum of squared deviations of a run.
  void (*moments)(const void* x, int64_t n, double* mean, double* deviations);
  // Sum of squares.
  double (*square_sum)(const void* x, int64_t n);
  // y[i] = x[i] * scale + shift, over a run.
  void (*affine)(const void* x, void* y, int64_t n, double scale, double shift);
  // y[r][i] = (x[r][i] - mean) * rstd * weight[i] + bias[i]; weight and bias of compute type, or null.
  void (*layer_rows)(const void* x, void* y, int64_t rows, int64_t n, const void* weight, const void* bias,
                     double eps, double* mean, double* rstd);
  // y[r][i] = x[r][i] * rsqrt(mean(x[r]^2) + eps) * weight[i].
  void (*rms_rows)(const void* x, void* y, int64_t rows, int64_t n, const void* weight, double eps,
                   double* rstd);
  // Sums and sums of squares of x - shift over planes of n elements, `stride` elements from one to the next.
  // Single precision is summed without rounding that shows, so that these sums and the following do not
  // depend on how a tensor lies in memory.
  void (*plane_sums)(const void* x, int64_t planes, int64_t stride, int64_t n, double shift, double* sum,
                     double* squares);
  // Channels innermost: the same over rows, added to what is there; then y = x * scale + shift.
  void (*channel_sums)(const void* x, int64_t rows, int64_t channels, const double* shift, double* sums,
                       double* squares);
  void (*channel_affine)(const void* x, void* y, int64_t rows, int64_t channels, const void* scale,
                         const void* shift);
};

struct NormTable {
  NormLoops f, d, b, h;
};
}  // namespace fl
