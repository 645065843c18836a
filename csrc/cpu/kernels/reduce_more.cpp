// The table of the reductions with structured accumulators.
#include "cpu/kernels/reduce_index.h"
#include "cpu/kernels/reduce_moments.h"

namespace fl {
namespace FL_ARCH {
namespace {

template <class S, class T>
constexpr void fill(ReduceMore& t, int slot) {
  t.max_with_index[slot] = IndexLoop<S, T, true>::loops(false);
  t.min_with_index[slot] = IndexLoop<S, T, false>::loops(false);
  t.argmax[slot] = IndexLoop<S, T, true>::loops(true);
  t.argmin[slot] = IndexLoop<S, T, false>::loops(true);
  if constexpr (std::is_floating_point_v<T>) {
    t.moments[slot] = MomentLoop<S, T>::loops();
    t.logsumexp[slot] = LogSumExpLoop<S, T>::loops();
  }
}

constexpr ReduceMore build() {
  ReduceMore t{};
  fill<float, float>(t, kReduceFloat);
  fill<double, double>(t, kReduceDouble);
  fill<int64_t, int64_t>(t, kReduceInt);
  fill<BFloat16, float>(t, kReduceBFloat16);
  return t;
}

}  // namespace

extern const ReduceMore reduce_more;
const ReduceMore reduce_more = build();

}  // namespace FL_ARCH
}  // namespace fl
