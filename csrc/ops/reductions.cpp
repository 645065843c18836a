// Reductions that are more than a fold of numbers: extremes with their index, variance, log-sum-exp.
#include <cmath>

#include "cpu/engine/reduce_more.h"
#include "dispatch/kernel.h"

namespace fl {
namespace {

// The slot among those that reduce_more has.
ReduceSlot slot_of(DType t) {
  if (t == DType::Double) return kReduceDouble;
  if (t == DType::BFloat16) return kReduceBFloat16;
  return is_floating(t) ? kReduceFloat : kReduceInt;
}
DType computed_of(ReduceSlot slot) {
  return slot == kReduceDouble ? DType::Double : slot == kReduceInt ? DType::Int64 : DType::Float;
}

void check_ordered(const char* op, const Tensor& self) {
  FL_CHECK_KIND(!is_complex(self.dtype()), NotImplemented, "[", op, "] expected a dtype with an order, got ",
                name_of(self.dtype()));
}

using Pair = std::tuple<Tensor, Tensor>;

Pair extreme(const char* op, const Tensor& self, int64_t dim, bool keepdim, const ReduceLoops* table) {
  check_ordered(op, self);
  const int64_t d = wrap_dim(op, dim, self.dim());
  const uint64_t mask = self.dim() == 0 ? 0 : uint64_t(1) << d;
  FL_CHECK_KIND(self.dim() == 0 || self.size(d) > 0, Index, "[", op,
                "] expected a reduced dimension that is not empty, got shape ", self.sizes(), " and dim ",
                dim);
  const Dims sizes = reduced_sizes(self, mask, keepdim);
  const ReduceSlot slot = slot_of(self.dtype());
  ReduceOutput out[2] = {{empty(sizes, self.options()), computed_of(slot)},
                         {empty(sizes, {DType::Int64, self.device()}), DType::Int64}};
  if (!self.is_meta()) reduce(self, mask, reduce_element(slot), table[slot], nullptr, out, 2);
  return {std::move(out[0].tensor), std::move(out[1].tensor)};
}

Pair max_dim(const Tensor& self, int64_t dim, bool keepdim) {
  return extreme("max", self, dim, keepdim, picked_reduce_more().max_with_index);
}
Pair min_dim(const Tensor& self, int64_t dim, bool keepdim) {
  return extreme("min", self, dim, keepdim, picked_reduce_more().min_with_index);
}

Tensor arg_extreme(const char* op, const Tensor& input, std::optional<int64_t> dim, bool keepdim,
                   const ReduceLoops* table) {
  check_ordered(op, input);
  FL_CHECK_KIND(input.dtype() != DType::Bool, NotImplemented, "[", op,
                "] expected a numeric tensor, got bool");
  Tensor self = input;
  uint64_t mask;
  Dims sizes;
  if (dim) {
    const int64_t d = wrap_dim(op, *dim, self.dim());
    FL_CHECK_KIND(self.dim() == 0 || self.size(d) > 0, Index, "[", op,
                  "] expected a reduced dimension that is not empty, got shape ", self.sizes(), " and dim ",
                  *dim);
    mask = self.dim() == 0 ? 0 : uint64_t(1) << d;
    sizes = reduced_sizes(self, mask, keepdim);
  } else {
    FL_CHECK_KIND(self.numel() > 0, Index, "[", op, "] expected dim for a tensor without elements, got None");
    if (keepdim) sizes = Dims(self.dim(), 1);
    mask = 1;
  }
  ReduceOutput out{empty(sizes, {DType::Int64, self.device()}), DType::Int64};
  if (self.is_meta()) return out.tensor;
  const Tensor result = out.tensor;
  if (!dim) {  // the index into the flattened tensor
    self = contiguous(self);
    self = alias(self, {self.numel()}, {1}, self.offset());
    if (keepdim) out.tensor = alias(result, IntSpan(), IntSpan(), 0);
  }
  const ReduceSlot slot = slot_of(self.dtype());
  reduce(self, mask, reduce_element(slot), table[slot], nullptr, &out, 1);
  return result;
}

Tensor argmax(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  return arg_extreme("argmax", self, dim, keepdim, picked_reduce_more().argmax);
}
Tensor argmin(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  return arg_extreme("argmin", self, dim, keepdim, picked_reduce_more().argmin);
}

// ---------------------------------------------------------------- variance

// The real or imaginary parts of a complex tensor, as a strided window on it.
Tensor part(const Tensor& self, bool imaginary) {
  Dims strides(self.strides());
  for (auto& s : strides) s *= 2;
  Tensor t = alias(self, self.sizes(), strides, self.offset() * 2 + imaginary);
  t->dtype = real_of(self.dtype());
  return t;
}

void combine_parts(const Tensor& out, const Tensor& re, const Tensor& im, bool root) {
  dispatch_float(re.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const T *a = re.data<T>(), *b = im.data<T>();
    for (int64_t i = 0; i < out.numel(); ++i) {
      if (is_complex(out.dtype()))
        out.data<std::complex<T>>()[i] = {a[i], b[i]};
      else
        out.data<T>()[i] = root ? std::sqrt(a[i] + b[i]) : a[i] + b[i];
    }
  });
}

Pair moments(const char* op, const Tensor& self, std::optional<IntSpan> dim,
             const std::optional<Scalar>& correction, bool keepdim, bool root, bool with_mean) {
  const DType t = self.dtype();
  FL_CHECK(is_floating(t) || is_complex(t), "[", op, "] expected a floating point or complex dtype, got ",
           name_of(t));
  const uint64_t mask = reduced_dims(op, self, dim);
  const Dims sizes = reduced_sizes(self, mask, keepdim);
  ReduceOutput out[2];
  out[0].tensor = empty(sizes, {real_of(t), self.device()});
  if (with_mean) out[1].tensor = empty(sizes, {t, self.device()});
  if (!self.is_meta()) {
    const Scalar one(1.0);
    Scalar params[2] = {correction.value_or(one), Scalar(root && !is_complex(t))};
    const ReduceSlot slot = slot_of(real_of(t));
    const ReduceLoops& loops = picked_reduce_more().moments[slot];
    if (is_complex(t)) {
      ReduceOutput parts[2][2];
      for (int k = 0; k < 2; ++k) {
        for (auto& o : parts[k]) o = {empty(sizes, {real_of(t), self.device()}), computed_of(slot)};
        reduce(part(self, k == 1), mask, reduce_element(slot), loops, params, parts[k], 2);
      }
      combine_parts(out[0].tensor, parts[0][0].tensor, parts[1][0].tensor, root);
      if (with_mean) combine_parts(out[1].tensor, parts[0][1].tensor, parts[1][1].tensor, false);
    } else {
      out[0].computed = out[1].computed = computed_of(slot);
      reduce(self, mask, reduce_element(slot), loops, params, out, with_mean ? 2 : 1);
    }
  }
  return {std::move(out[0].tensor), std::move(out[1].tensor)};
}

Scalar correction_of(bool unbiased) {
  return Scalar(unbiased ? 1.0 : 0.0);
}

// The overloads of var, std, var_mean and std_mean: all elements; over dim; with a correction of the count.
#define FL_MOMENTS(name, root)                                                                               \
  Tensor name##_all(const Tensor& self, bool unbiased) {                                                     \
    return std::get<0>(moments(#name, self, std::nullopt, correction_of(unbiased), false, root, false));     \
  }                                                                                                          \
  Tensor name##_dim(const Tensor& self, std::optional<IntSpan> dim, bool unbiased, bool keepdim) {           \
    return std::get<0>(moments(#name, self, dim, correction_of(unbiased), keepdim, root, false));            \
  }                                                                                                          \
  Tensor name##_correction(const Tensor& self, std::optional<IntSpan> dim, std::optional<Scalar> correction, \
                           bool keepdim) {                                                                   \
    return std::get<0>(moments(#name, self, dim, correction, keepdim, root, false));                         \
  }                                                                                                          \
  Pair name##_mean_all(const Tensor& self, bool unbiased) {                                                  \
    return moments(#name "_mean", self, std::nullopt, correction_of(unbiased), false, root, true);           \
  }                                                                                                          \
  Pair name##_mean_dim(const Tensor& self, std::optional<IntSpan> dim, bool unbiased, bool keepdim) {        \
    return moments(#name "_mean", self, dim, correction_of(unbiased), keepdim, root, true);                  \
  }                                                                                                          \
  Pair name##_mean_correction(const Tensor& self, std::optional<IntSpan> dim,                                \
                              std::optional<Scalar> correction, bool keepdim) {                              \
    return moments(#name "_mean", self, dim, correction, keepdim, root, true);                               \
  }                                                                                                          \
  FL_KERNEL(#name, name##_all);                                                                              \
  FL_KERNEL(#name ".dim", name##_dim);                                                                       \
  FL_KERNEL(#name ".correction", name##_correction);                                                         \
  FL_KERNEL(#name "_mean", name##_mean_all);                                                                 \
  FL_KERNEL(#name "_mean.dim", name##_mean_dim);                                                             \
  FL_KERNEL(#name "_mean.correction", name##_mean_correction);

FL_MOMENTS(var, false)
FL_MOMENTS(std, true)

Tensor logsumexp(const Tensor& self, IntSpan dim, bool keepdim) {
  const DType t = is_integral(self.dtype(), true) ? default_dtype() : self.dtype();
  FL_CHECK_KIND(is_floating(t), NotImplemented, "[logsumexp] expected a real dtype, got ", name_of(t));
  const uint64_t mask = reduced_dims("logsumexp", self, dim);
  const ReduceSlot slot = slot_of(t == DType::BFloat16 && self.dtype() != t ? DType::Float : t);
  ReduceOutput out{empty(reduced_sizes(self, mask, keepdim), {t, self.device()}), computed_of(slot)};
  if (!self.is_meta())
    reduce(self, mask, reduce_element(slot), picked_reduce_more().logsumexp[slot], nullptr, &out, 1);
  return out.tensor;
}

FL_KERNEL("max.dim", max_dim);
FL_KERNEL("min.dim", min_dim);
FL_KERNEL("argmax", argmax);
FL_KERNEL("argmin", argmin);
FL_KERNEL("_logsumexp", logsumexp);

}  // namespace
}  // namespace fl
