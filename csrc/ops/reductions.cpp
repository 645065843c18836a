// Reductions with structured accumulators: extremes with their index, variance, log-sum-exp.
#include <cmath>

#include "dispatch/kernel.h"
#include "ops/reduce.h"

namespace fl {

DeviceFunction<void(const StructuredReduceCall&)> device::reduce_structured{"reduction"};

namespace {

using Kind = StructuredReduction;

void run(Kind kind, const Tensor& self, uint64_t mask, DType element, const Scalar* params,
         const Tensor* results, int n_results) {
  device::reduce_structured(self.device().type, {kind, self, mask, element, params, results, n_results});
}

void check_ordered(const char* op, const Tensor& self) {
  FL_CHECK_KIND(!is_complex(self.dtype()), NotImplemented, "[", op, "] expected a dtype with an order, got ",
                name_of(self.dtype()));
  FL_CHECK_KIND(self.dtype() != DType::UInt64, NotImplemented, "[", op,
                "] expected a dtype that it compares, got uint64; use .to(int64) or .to(float64)");
}

using Pair = std::tuple<Tensor, Tensor>;

Pair extreme(const char* op, const Tensor& self, int64_t dim, bool keepdim, Kind kind) {
  check_ordered(op, self);
  const int64_t d = wrap_dim(op, dim, self.dim());
  const uint64_t mask = self.dim() == 0 ? 0 : uint64_t(1) << d;
  FL_CHECK_KIND(self.dim() == 0 || self.size(d) > 0, Index, "[", op,
                "] expected a reduced dimension that is not empty, got shape ", self.sizes(), " and dim ",
                dim, ": Expected reduction dim ", d, " to have non-zero size.");
  const Dims sizes = reduced_sizes(self, mask, keepdim);
  const Tensor results[2] = {empty(sizes, self.options()), empty(sizes, {DType::Int64, self.device()})};
  if (!self.is_meta()) run(kind, self, mask, self.dtype(), nullptr, results, 2);
  return {results[0], results[1]};
}

Pair max_dim(const Tensor& self, int64_t dim, bool keepdim) {
  return extreme("max", self, dim, keepdim, Kind::MaxWithIndex);
}
Pair min_dim(const Tensor& self, int64_t dim, bool keepdim) {
  return extreme("min", self, dim, keepdim, Kind::MinWithIndex);
}

Tensor arg_extreme(const char* op, const Tensor& input, std::optional<int64_t> dim, bool keepdim, Kind kind) {
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
  const Tensor result = empty(sizes, {DType::Int64, self.device()});
  if (self.is_meta()) return result;
  Tensor written = result;
  if (!dim) {  // the index into the flattened tensor
    self = contiguous(self);
    self = alias(self, {self.numel()}, {1}, self.offset());
    if (keepdim) written = alias(result, IntSpan(), IntSpan(), 0);
  }
  run(kind, self, mask, self.dtype(), nullptr, &written, 1);
  return result;
}

Tensor argmax(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  return arg_extreme("argmax", self, dim, keepdim, Kind::ArgMax);
}
Tensor argmin(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  return arg_extreme("argmin", self, dim, keepdim, Kind::ArgMin);
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
  Tensor results[2] = {empty(sizes, {real_of(t), self.device()}),
                       with_mean ? empty(sizes, {t, self.device()}) : Tensor()};
  if (!self.is_meta()) {
    const Scalar one(1.0);
    const Scalar params[2] = {correction.value_or(one), Scalar(root && !is_complex(t))};
    if (is_complex(t)) {
      Tensor parts[2][2];  // variance and mean of the real and of the imaginary parts
      for (int k = 0; k < 2; ++k) {
        for (Tensor& moment : parts[k]) moment = empty(sizes, {real_of(t), self.device()});
        run(Kind::Moments, part(self, k == 1), mask, real_of(t), params, parts[k], 2);
      }
      combine_parts(results[0], parts[0][0], parts[1][0], root);
      if (with_mean) combine_parts(results[1], parts[0][1], parts[1][1], false);
    } else {
      run(Kind::Moments, self, mask, t, params, results, with_mean ? 2 : 1);
    }
  }
  return {std::move(results[0]), std::move(results[1])};
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
  FL_KERNEL(#name, name##_all, kCpu);                                                                        \
  FL_KERNEL(#name ".dim", name##_dim, kCpu);                                                                 \
  FL_KERNEL(#name ".correction", name##_correction, kCpu);                                                   \
  FL_KERNEL(#name "_mean", name##_mean_all, kCpu);                                                           \
  FL_KERNEL(#name "_mean.dim", name##_mean_dim, kCpu);                                                       \
  FL_KERNEL(#name "_mean.correction", name##_mean_correction, kCpu);

FL_MOMENTS(var, false)
FL_MOMENTS(std, true)

Tensor logsumexp(const Tensor& self, IntSpan dim, bool keepdim) {
  const DType t = is_integral(self.dtype(), true) ? default_dtype() : self.dtype();
  FL_CHECK_KIND(is_floating(t), NotImplemented, "[logsumexp] expected a real dtype, got ", name_of(t));
  const uint64_t mask = reduced_dims("logsumexp", self, dim);
  const Tensor result = empty(reduced_sizes(self, mask, keepdim), {t, self.device()});
  const DType element = t == DType::BFloat16 && self.dtype() != t ? DType::Float : t;
  if (!self.is_meta()) run(Kind::LogSumExp, self, mask, element, nullptr, &result, 1);
  return result;
}

FL_KERNEL("max.dim", max_dim, kCpu);
FL_KERNEL("min.dim", min_dim, kCpu);
FL_KERNEL("argmax", argmax, kCpu);
FL_KERNEL("argmin", argmin, kCpu);
FL_KERNEL("_logsumexp", logsumexp, kCpu);

}  // namespace
}  // namespace fl
