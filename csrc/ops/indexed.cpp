// What operators on indexed elements share, on every device.
#include "ops/indexed.h"

#include <limits>

namespace fl {

Scalar identity_of(Combine how, DType dtype) {
  if (how == Combine::Add) return Scalar(0);
  if (how == Combine::Mul) return Scalar(1);
  const bool lowest = how == Combine::Max;
  if (dtype == DType::Bool) return Scalar(!lowest);
  return dispatch(dtype, [&](auto type) -> Scalar {
    using T = typename decltype(type)::type;
    using Limits = std::numeric_limits<std::conditional_t<std::is_integral_v<T>, T, double>>;
    if constexpr (std::is_integral_v<T>)
      return Scalar(static_cast<int64_t>(lowest ? Limits::lowest() : Limits::max()));
    else
      return Scalar(lowest ? -Limits::infinity() : Limits::infinity());
  });
}

Tensor copied(const Tensor& t) {
  Tensor out = empty_like(t, t.dtype());
  copy_into(out, t);
  return out;
}

Tensor copied_contiguous(const Tensor& t) {
  Tensor out = empty(t.sizes(), t.options());
  copy_into(out, t);
  return out;
}

Tensor at_least_1d(const Tensor& t) {
  return t.dim() ? t : alias(t, IntSpan({1}), IntSpan({1}), t.offset());
}

}  // namespace fl
