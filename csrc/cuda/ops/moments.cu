// Variance, its root and the mean of a tensor, read once: counts, means and sums of squares around them are
// combined as those of parts.
#include <limits>

#include "cuda/engine/kernels.h"
#include "cuda/engine/reduce.cuh"
#include "dispatch/kernel.h"
#include "ops/reduce.h"

namespace fl::cuda {

namespace {

template <class T>
struct Moments {
  using Second = T;
  static constexpr bool placed = false;
  T count, mean, spread;
};
template <class T>
__device__ __forceinline__ Moments<T> shuffle_xor(Moments<T> x, int mask) {
  return {cuda::shuffle_xor(x.count, mask), cuda::shuffle_xor(x.mean, mask),
          cuda::shuffle_xor(x.spread, mask)};
}

__device__ __forceinline__ float ratio(float a, float b) {
  return __fdividef(a, b);
}
__device__ __forceinline__ double ratio(double a, double b) {
  return a / b;
}

// Parameters: what the spread is divided by, and whether the root is taken.
struct Variance {
  template <class A>
  static __device__ __forceinline__ A init() {
    return {0, 0, 0};
  }
  template <class T, class P>
  static __device__ __forceinline__ Moments<T> load(T x, const P*) {
    return {1, x, 0};
  }
  template <class A>
  static __device__ __forceinline__ A combine(A a, A b) {
    const auto count = a.count + b.count;
    const auto share = count > 0 ? ratio(b.count, count) : count;
    const auto apart = b.mean - a.mean;
    return {count, a.mean + apart * share, a.spread + b.spread + apart * apart * (a.count * share)};
  }
  template <class A, class P>
  static __device__ __forceinline__ auto first(A a, const P* p) {
    const auto variance = a.spread / p[0];
    return p[1] != 0 ? sqrt(variance) : variance;
  }
  template <class A>
  static __device__ __forceinline__ auto second(A a) {
    return a.count > 0 ? a.mean : std::numeric_limits<typename A::Second>::quiet_NaN();
  }
};

// All overloads: of all elements or over dimensions, with a correction of the count or a flag for it.
void moments(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  const Tensor& self = args[0].tensor();
  if (is_complex(self.dtype())) return by_definition(op, keys, args, results);
  const Described checked(op, args);
  std::optional<IntSpan> dims;
  double correction = 1;
  bool keepdim = false;
  for (size_t i = 1; i < op.schema.args.size(); ++i) {
    const std::string& name = op.schema.args[i].name;
    if (args[i].is_none()) continue;
    if (name == "dim") dims = args[i].ints();
    if (name == "keepdim") keepdim = args[i].to_bool();
    if (name == "unbiased") correction = args[i].to_bool();
    if (name == "correction") correction = args[i].to_scalar().to<double>();
  }
  const char* what = op.schema.name.c_str();
  const uint64_t mask = reduced_dims(what, self, dims);
  const Dims sizes = reduced_sizes(self, mask, keepdim);
  int64_t count = 1;
  for (int64_t d = 0; d < self.dim(); ++d) count *= mask >> d & 1 ? self.size(d) : 1;
  const bool two = op.n_results() == 2;
  const Tensor variance = empty(sizes, self.options()), mean = two ? empty(sizes, self.options()) : Tensor();
  const double params[2] = {std::max(double(count) - correction, 0.0), double(what[0] == 's')};
  static const ReduceKernels of_float = reduce_kernels<Variance, float, Moments<float>, float>(),
                             of_double = reduce_kernels<Variance, double, Moments<double>, double>();
  if (variance.numel())
    reduce_by(self.dtype() == DType::Double ? of_double : of_float, what, self, mask, variance, mean, params);
  results[0] = Value(variance);
  if (two) results[1] = Value(mean);
}

#define FL_MOMENTS(name)                                                           \
  const detail::Register name##_all{#name, {Key::CUDA}, Kernel{moments, nullptr}}, \
      name##_dim{#name ".dim", {Key::CUDA}, Kernel{moments, nullptr}},             \
      name##_correction{#name ".correction", {Key::CUDA}, Kernel{moments, nullptr}};
FL_MOMENTS(var)
FL_MOMENTS(std)
FL_MOMENTS(var_mean)
FL_MOMENTS(std_mean)
#undef FL_MOMENTS

}  // namespace
}  // namespace fl::cuda
