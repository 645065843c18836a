// Type promotion as PyTorch has it.
#include "ops/promotion.h"

#include "core/scalar_range.h"

namespace fl {
namespace {

// A higher category (tensors with dimensions over zero-dim tensors over numbers) decides unless its kind is
// lower.
DType combine(int higher, int lower) {
  if (higher < 0) return static_cast<DType>(lower);
  const DType h = static_cast<DType>(higher);
  if (lower < 0) return h;
  const DType l = static_cast<DType>(lower);
  if (is_complex(h)) return h;
  if (is_floating(h)) return is_complex(l) ? complex_of(h) : h;
  if (h == DType::Bool || is_floating(l) || is_complex(l)) return promote(h, l);
  return h;
}

DType wrapped_dtype(DType t) {
  if (is_complex(t)) return complex_of(default_dtype());
  return is_floating(t) ? default_dtype() : t;
}

void merge(int& slot, DType t) {
  slot = slot < 0 ? static_cast<int>(t) : static_cast<int>(promote(static_cast<DType>(slot), t));
}

}  // namespace

DType result_type(const Value* const* operands, int count) {
  int dims = -1, zero = -1, number = -1;
  for (int i = 0; i < count; ++i) {
    const Value& v = *operands[i];
    if (v.is_tensor()) {
      const TensorImpl* t = v.tensor_impl();
      if (t->wrapped_number)
        merge(number, wrapped_dtype(t->dtype));
      else
        merge(t->sizes.empty() ? zero : dims, t->dtype);
    } else {
      merge(number, number_dtype(v.to_scalar()));
    }
  }
  DType low = DType::Bool;
  if (zero >= 0 || number >= 0) low = combine(zero, number);
  return dims >= 0 ? combine(dims, zero >= 0 || number >= 0 ? static_cast<int>(low) : -1) : low;
}

}  // namespace fl
