// Products of matrices of 8-bit floats that carry scales: what every device checks of them.
#pragma once

#include <optional>

#include "core/error.h"
#include "core/tensor.h"

namespace fl {

struct ScaledProduct {
  Tensor a, b, scale_a, scale_b, bias, scale_result;
  DType result;
  bool by_rows;  // a scale for each row of a and each column of b, otherwise one for each matrix
  bool fast;     // sums may lose bits
};

inline ScaledProduct checked_scaled_product(const Tensor& a, const Tensor& b, const Tensor& scale_a,
                                            const Tensor& scale_b, const Tensor& bias,
                                            const Tensor& scale_result, std::optional<DType> result,
                                            bool fast) {
  FL_CHECK(a.dim() == 2 && b.dim() == 2, "[_scaled_mm] expected two matrices, got ", a.sizes(), " and ",
           b.sizes());
  FL_CHECK(a.size(1) == b.size(0), "[_scaled_mm] expected matrices whose inner sizes agree, got ", a.sizes(),
           " and ", b.sizes());
  const int64_t m = a.size(0), n = b.size(1);
  const bool narrow = is_float8(a.dtype()) && is_float8(b.dtype());
  const bool singles = scale_a.numel() == 1 && scale_b.numel() == 1;
  const bool rows = scale_a.dim() == 2 && scale_b.dim() == 2 && scale_a.size(0) == m &&
                    scale_a.size(1) == 1 && scale_b.size(0) == 1 && scale_b.size(1) == n &&
                    scale_a.is_contiguous() && scale_b.is_contiguous();
  FL_CHECK_KIND(
      narrow && scale_a.dtype() == DType::Float && scale_b.dtype() == DType::Float && (singles || rows),
      Value, "[_scaled_mm] expected matrices of 8-bit floats with float32 scales of one element, or of [", m,
      ", 1] and [1, ", n, "], got ", name_of(a.dtype()), " and ", name_of(b.dtype()), " with scales of ",
      name_of(scale_a.dtype()), " ", scale_a.sizes(), " and ", name_of(scale_b.dtype()), " ",
      scale_b.sizes());
  FL_CHECK(!bias.defined() || bias.numel() == n, "[_scaled_mm] expected a bias of ", n, " elements, got ",
           bias.defined() ? bias.numel() : 0);
  FL_CHECK(!scale_result.defined() || (scale_result.numel() == 1 && scale_result.dtype() == DType::Float),
           "[_scaled_mm] expected a float32 scale_result of one element, got another");
  return {a, b, scale_a, scale_b, bias, scale_result, result.value_or(a.dtype()), rows && !singles, fast};
}

}  // namespace fl
