// Products of matrices of 8-bit floats on the CPU, which multiplies them in single precision.
#include "ops/scaled_product.h"

#include "dispatch/kernel.h"

namespace fl {

namespace {

Tensor scaled_mm(const Tensor& self, const Tensor& mat2, const Tensor& scale_a, const Tensor& scale_b,
                 const Tensor& bias, const Tensor& scale_result, std::optional<DType> out_dtype,
                 bool use_fast_accum) {
  static const Operator& mul = OperatorTable::get().at("mul.Tensor");
  static const Operator& mm = OperatorTable::get().at("mm");
  static const Operator& add = OperatorTable::get().at("add.Tensor");
  const ScaledProduct p =
      checked_scaled_product(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum);
  if (self.is_meta()) return empty({self.size(0), mat2.size(1)}, {p.result, self.device()});
  const auto scaled = [&](const Tensor& matrix, const Tensor& scale) {
    return call_tensor(mul, to_dtype(matrix, DType::Float),
                       p.by_rows ? scale : alias(scale, {}, {}, scale.offset()));
  };
  Tensor product = call_tensor(mm, scaled(self, scale_a), scaled(mat2, scale_b));
  if (bias.defined()) product = call_tensor(add, product, to_dtype(bias, DType::Float), Scalar(int64_t(1)));
  if (scale_result.defined() && is_float8(p.result))
    product = call_tensor(mul, product, alias(scale_result, {}, {}, scale_result.offset()));
  return to_dtype(product, p.result);
}

FL_KERNEL("_scaled_mm", scaled_mm, kCpu);

}  // namespace
}  // namespace fl
