// Gradients of a scaled loss: divides the scale out and tells whether any number is not finite.
#include "cpu/parallel.h"
#include "dispatch/kernel.h"

namespace fl {

namespace {

// Multiplies in place; true when all results, and what they were made from, are finite.
template <class T>
bool scale_run(T* data, int64_t n, float factor) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  int bad = 0;
#pragma omp simd reduction(| : bad)
  for (int64_t i = 0; i < n; ++i) {
    const C x = static_cast<C>(data[i]);
    bad |= !(x - x == C(0));
    data[i] = T(x * static_cast<C>(factor));
  }
  return bad == 0;
}

void unscale(const std::vector<Tensor>& self, const Tensor& found_inf, const Tensor& inv_scale) {
  constexpr const char* name = "_amp_foreach_non_finite_check_and_unscale_";
  FL_CHECK(found_inf.numel() == 1 && inv_scale.numel() == 1, "[", name,
           "] expected found_inf and inv_scale of one element");
  FL_CHECK(found_inf.dtype() == DType::Float && inv_scale.dtype() == DType::Float, "[", name,
           "] expected found_inf and inv_scale in float32");
  for (const Tensor& t : self)
    FL_CHECK(is_floating(t.dtype()), "[", name, "] expected floating point gradients, got ",
             name_of(t.dtype()));
  if (found_inf.is_meta()) return;
  const float factor = *inv_scale.data<float>();
  bool finite = true;
  for (const Tensor& t : self) {
    const bool linear = is_dense(t);
    const Tensor work = linear ? t : contiguous(t);
    dispatch(t.dtype(), [&](auto type) {
      using T = typename decltype(type)::type;
      if constexpr (std::is_floating_point_v<T> || is_reduced_type<T>) {
        std::atomic<bool> fine{true};
        T* data = work.data<T>();
        parallel_for(work.numel(), kGrain, [&](int64_t begin, int64_t end) {
          if (!scale_run(data + begin, end - begin, factor)) fine = false;
        });
        finite &= fine;
      }
    });
    if (!linear) copy_into(t, work);
    t.bump_version();
  }
  if (!finite) *found_inf.data<float>() = 1.0f;
  found_inf.bump_version();
}

}  // namespace

FL_KERNEL("_amp_foreach_non_finite_check_and_unscale_", unscale);

}  // namespace fl
