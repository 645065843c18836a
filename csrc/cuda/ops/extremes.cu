// The largest and smallest elements along a dimension and where they are: max, min, argmax, argmin.
#include "cuda/engine/kernels.h"
#include "cuda/engine/reduce.cuh"
#include "cuda/engine/rows.cuh"
#include "dispatch/kernel.h"
#include "math/record_math.h"
#include "ops/reduce.h"

namespace fl::cuda {

namespace {

constexpr uint32_t kNowhere = 0xffffffffu;

template <class T>
struct Found {
  using Second = int64_t;
  static constexpr bool placed = true;
  T value;
  uint32_t at;
};
template <class T>
__device__ __forceinline__ Found<T> shuffle_xor(Found<T> x, int mask) {
  return {cuda::shuffle_xor(x.value, mask), cuda::shuffle_xor(x.at, mask)};
}

// A NaN is beyond all numbers; of equals the first counts.
template <bool kLargest>
struct Extreme {
  template <class A>
  static __device__ __forceinline__ A init() {
    using T = decltype(A::value);
    return {kLargest ? math::least<T>() : math::greatest<T>(), kNowhere};
  }
  template <class T, class P>
  static __device__ __forceinline__ Found<T> load(T x, const P*) {
    return {x, 0};
  }
  template <class A>
  static __device__ __forceinline__ A combine(A a, A b) {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool beyond = (kLargest ? b.value > a.value : b.value < a.value) || (b_nan && !a_nan);
    const bool equal = a.value == b.value || (a_nan && b_nan);
    return beyond || (equal && b.at < a.at) ? b : a;
  }
  // What is no larger than the start is never taken: a line of nothing else keeps no place, which stands for
  // its first.
  template <class A>
  static __device__ __forceinline__ A later(A a, A b) {
    const bool within = kLargest ? b.value <= a.value : b.value >= a.value;
    return within || a.value != a.value ? a : b;
  }
  template <class A, class P>
  static __device__ __forceinline__ auto first(A a, const P*) {
    return a.value;
  }
  template <class A>
  static __device__ __forceinline__ int64_t second(A a) {
    return a.at == kNowhere ? 0 : a.at;
  }
};

template <class F>
const ReduceKernels& kernels_for(DType dtype) {
  static const ReduceKernels of_float = reduce_kernels<F, float, Found<float>, float>(),
                             of_double = reduce_kernels<F, double, Found<double>, double>(),
                             of_int = reduce_kernels<F, int64_t, Found<int64_t>, int64_t>();
  return dtype == DType::Double ? of_double : is_floating(dtype) ? of_float : of_int;
}

void run(const char* op, const Tensor& source, uint64_t mask, const Tensor& values, const Tensor& places,
         bool largest) {
  if (places.numel() == 0) return;
  const DType t = source.dtype();
  reduce_by(largest ? kernels_for<Extreme<true>>(t) : kernels_for<Extreme<false>>(t), op, source, mask,
            values, places, {});
}

int64_t checked_dim(const char* op, const Tensor& self, int64_t dim) {
  FL_CHECK_KIND(!is_complex(self.dtype()) && !is_stored_only(self.dtype()), NotImplemented, "[", op,
                "] expected a dtype with an order, got ", name_of(self.dtype()));
  const int64_t d = wrap_dim(op, dim, self.dim());
  FL_CHECK_KIND(self.dim() == 0 || self.size(d) > 0, Index, "[", op,
                "] expected a reduced dimension that is not empty, got shape ", self.sizes(), " and dim ",
                dim);
  return d;
}

uint64_t mask_of(const Tensor& self, int64_t d) {
  return self.dim() == 0 ? 0 : uint64_t(1) << d;
}

std::tuple<Tensor, Tensor> extreme_dim(const char* op, const Tensor& self, int64_t dim, bool keepdim,
                                       bool largest) {
  const int64_t d = checked_dim(op, self, dim);
  const uint64_t mask = mask_of(self, d);
  const Dims sizes = reduced_sizes(self, mask, keepdim);
  const Tensor values = empty(sizes, self.options()), places = empty(sizes, {DType::Int64, self.device()});
  run(op, self, mask, values, places, largest);
  return {values, places};
}
std::tuple<Tensor, Tensor> max_dim(const Tensor& self, int64_t dim, bool keepdim) {
  return extreme_dim("max", self, dim, keepdim, true);
}
std::tuple<Tensor, Tensor> min_dim(const Tensor& self, int64_t dim, bool keepdim) {
  return extreme_dim("min", self, dim, keepdim, false);
}

Tensor arg_extreme(const char* op, const Tensor& self, std::optional<int64_t> dim, bool keepdim,
                   bool largest) {
  FL_CHECK_KIND(self.dtype() != DType::Bool, NotImplemented, "[", op,
                "] expected a numeric tensor, got bool");
  const int64_t d = checked_dim(op, self, dim.value_or(0));
  const Options whole{DType::Int64, self.device()};
  if (dim) {
    const uint64_t mask = mask_of(self, d);
    const Tensor places = empty(reduced_sizes(self, mask, keepdim), whole);
    run(op, self, mask, Tensor(), places, largest);
    return places;
  }
  FL_CHECK_KIND(self.numel() > 0, Index, "[", op, "] expected dim for a tensor without elements, got None");
  const Tensor places = empty(keepdim ? Dims(self.dim(), 1) : Dims(), whole);
  run(op, contiguous(self), ~uint64_t(0), Tensor(), places, largest);
  return places;
}
Tensor argmax(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  return arg_extreme("argmax", self, dim, keepdim, true);
}
Tensor argmin(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  return arg_extreme("argmin", self, dim, keepdim, false);
}

FL_CUDA_KERNEL("max.dim", max_dim);
FL_CUDA_KERNEL("min.dim", min_dim);
FL_CUDA_KERNEL("argmax", argmax);
FL_CUDA_KERNEL("argmin", argmin);

}  // namespace
}  // namespace fl::cuda
