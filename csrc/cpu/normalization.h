// Loops of the normalisations. S is the stored type (float, double, bfloat16, half), statistics are in
// double.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "cpu/arch.h"

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
  // Channels innermost: sums and sums of squares of x - shift over rows, added to doubles; then y = x * scale
  // + shift.
  void (*channel_sums)(const void* x, int64_t rows, int64_t channels, const void* shift, double* sums,
                       double* squares);
  void (*channel_affine)(const void* x, void* y, int64_t rows, int64_t channels, const void* scale,
                         const void* shift);
};

struct NormTable {
  NormLoops f, d, b, h;
};
FL_DECLARE_ARCH(const NormTable, norm_table)

inline const NormLoops& norm_loops(DType t) {
  const NormTable& table = picked_norm_table();
  return t == DType::Double ? table.d : t == DType::BFloat16 ? table.b : t == DType::Half ? table.h : table.f;
}

}  // namespace fl
