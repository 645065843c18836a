// The front of reduction records: dimensions, dtypes and the result.
#include "ops/reduce.h"

#include <cstring>

namespace fl {

DeviceFunction<void(const ReduceCall&)> device::reduce{"reduction"};

uint64_t reduced_dims(const char* op, const Tensor& self, std::optional<IntSpan> dims) {
  const int64_t nd = self.dim();
  FL_CHECK(nd <= 64, "[", op, "] expected at most 64 dimensions, got ", nd,
           ": only tensors with up to 64 dims are supported");
  if (!dims || dims->empty()) return nd == 64 ? ~uint64_t(0) : (uint64_t(1) << nd) - 1;
  uint64_t mask = 0;
  for (int64_t d : *dims) {
    const uint64_t bit = uint64_t(1) << wrap_dim(op, d, nd);
    FL_CHECK(!(mask & bit), "[", op, "] expected each dimension once, got dim ", *dims);
    mask |= bit;
  }
  return nd == 0 ? 0 : mask;
}

Dims reduced_sizes(const Tensor& self, uint64_t mask, bool keepdim) {
  Dims sizes;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!(mask >> d & 1))
      sizes.push_back(self->sizes[d]);
    else if (keepdim)
      sizes.push_back(1);
  }
  return sizes;
}

ReduceSlot reduce_slot(DType t) {
  switch (t) {
    case DType::Bool:
      return kReduceByte;
    case DType::Half:
    case DType::Float:
      return kReduceFloat;
    case DType::BFloat16:
      return kReduceBFloat16;
    case DType::Double:
      return kReduceDouble;
    case DType::ComplexFloat:
      return kReduceComplexFloat;
    case DType::ComplexDouble:
      return kReduceComplexDouble;
    default:
      return is_floating(t) ? kReduceFloat : kReduceInt;
  }
}

DType reduce_element(ReduceSlot slot) {
  constexpr DType elements[] = {DType::Float,    DType::Double,       DType::Int64,        DType::Bool,
                                DType::BFloat16, DType::ComplexFloat, DType::ComplexDouble};
  return elements[slot];
}

void reduce_kernel(const Operator&, void* definition, KeySet, Value* args, Value* results) {
  const ReduceDef& def = *static_cast<const ReduceDef*>(definition);
  const Tensor self = args[0].tensor();
  std::optional<IntSpan> dims;
  int64_t one;
  if (def.dim_arg >= 0 && !args[def.dim_arg].is_none()) {
    const Value& v = args[def.dim_arg];
    if (v.tag() == Value::Tag::Int) {
      one = v.to_int();
      dims = IntSpan(&one, 1);
    } else {
      dims = v.ints();
    }
  }
  const bool keepdim = def.keepdim_arg >= 0 && args[def.keepdim_arg].to_bool();
  const uint64_t mask = reduced_dims(def.name, self, dims);
  // The dtype in which to reduce: the wanted one, else the input's.
  DType from = self.dtype();
  bool wanted = false;
  if (def.dtype_arg >= 0 && !args[def.dtype_arg].is_none()) {
    from = args[def.dtype_arg].to_dtype();
    wanted = true;
  }
  if (!std::strchr(def.classes, class_of(from))) {
    const bool mean = def.result == 's' && std::strcmp(def.classes, "fc") == 0;
    FL_CHECK_KIND(mean, NotImplemented, "[", def.name, "] expected a dtype it is defined for, got ",
                  name_of(from));
    fail(ErrorKind::Runtime, "[", def.name, "] expected a floating point or complex dtype, got ",
         name_of(from), "; convert it with .float() or pass dtype=");
  }
  FL_CHECK_KIND(def.result != 's' || self.dtype() != DType::UInt64, NotImplemented, "[", def.name,
                "] expected a dtype that it compares, got uint64; use .to(int64) or .to(float64)");
  DType result = from;
  switch (def.result) {
    case 'i':
      result = is_integral(from, true) && !wanted ? DType::Int64 : from;
      break;
    case 'b':
      result = from == DType::UInt8 ? DType::UInt8 : DType::Bool;
      break;
    case 'l':
      result = DType::Int64;
      break;
    case 'r':
      result = real_of(from);
      break;
    default:
      break;
  }
  if (!def.identity) {
    for (int64_t d = 0; d < self.dim(); ++d)
      if (mask >> d & 1 && self->sizes[d] == 0) {
        FL_CHECK_KIND(!dims || dims->empty(), Index, "[", def.name,
                      "] expected a reduced dimension that is not empty, got shape ", self.sizes(),
                      ": Expected reduction dim ", d, " to have non-zero size.");
        fail(ErrorKind::Runtime, "[", def.name, "] expected a tensor that is not empty, got shape ",
             self.sizes(), "; pass dim to reduce a dimension that is not empty");
      }
  }
  Tensor out = empty(reduced_sizes(self, mask, keepdim), {result, self.device()});
  if (!self.is_meta()) {
    Scalar params[2];
    for (int p = 0; p < def.params; ++p) params[p] = args[def.param_arg[p]].to_scalar();
    // An unsigned or narrow dtype asked for truncates each element before it is summed, and a real one drops
    // imaginary parts, so convert in two steps.
    const bool narrows = wanted && from != self.dtype() &&
                         (from == DType::Bool || (is_integral(from) && !is_integral(self.dtype(), true)) ||
                          (is_complex(self.dtype()) && !is_complex(from)));
    const Tensor source = narrows ? to_dtype(self, from) : self;
    const ReduceSlot slot =
        reduce_slot(from == DType::BFloat16 && source.dtype() != from ? DType::Float : from);
    if (out.numel() || self.is_cpu())
      device::reduce(self.device().type, {def, slot, source, mask, out, params});
  }
  results[0] = Value(std::move(out));
}

}  // namespace fl
