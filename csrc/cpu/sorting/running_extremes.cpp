// cummax and cummin: the largest or smallest element so far along one dimension, and where it was.
#include <algorithm>

#include "core/parallel.h"
#include "cpu/sorting/scan.h"
#include "dispatch/kernel.h"

namespace fl {
namespace {

// A later value that is equal replaces; once a NaN is met only NaNs do.
template <bool Max, class C>
bool replaces(C x, C v) {
  if constexpr (std::is_floating_point_v<C>)
    return x != x || (v == v && (Max ? x >= v : x <= v));
  else
    return Max ? x >= v : x <= v;
}

template <bool Max, class S>
void scan_extreme(const S* src, S* values, int64_t* indices, const Lines& lines) {
  using C = compute_t<S>;
  const int64_t n = lines.n, inner = lines.inner;
  if (inner == 1) {
    parallel_for(lines.outer, std::max<int64_t>(1, kGrain / (4 * n + 1)), [&](int64_t b, int64_t e) {
      for (int64_t at = b * n; at < e * n; at += n) {
        C best = static_cast<C>(src[at]);
        int64_t index = 0;
        for (int64_t i = 0; i < n; ++i) {
          const C x = static_cast<C>(src[at + i]);
          if (replaces<Max>(x, best)) {  // rarely taken: a branch is cheaper than a chain of selections
            best = x;
            index = i;
          }
          values[at + i] = convert<S>(best);
          indices[at + i] = index;
        }
      }
    });
    return;
  }
  constexpr int64_t block = 128;
  const int64_t blocks = (inner + block - 1) / block;
  parallel_for(lines.outer * blocks, std::max<int64_t>(1, kGrain / (4 * n * std::min(inner, block) + 1)),
               [&](int64_t b, int64_t e) {
                 for (int64_t k = b; k < e; ++k) {
                   const int64_t at = k / blocks * n * inner + k % blocks * block,
                                 m = std::min(block, inner - k % blocks * block);
                   C best[block];
                   int64_t index[block];
                   for (int64_t j = 0; j < m; ++j) {
                     best[j] = static_cast<C>(src[at + j]);
                     index[j] = 0;
                   }
                   for (int64_t i = 0; i < n; ++i) {
                     const int64_t row = at + i * inner;
                     for (int64_t j = 0; j < m; ++j) {
                       const C x = static_cast<C>(src[row + j]);
                       const bool yes = replaces<Max>(x, best[j]);
                       best[j] = yes ? x : best[j];
                       index[j] = yes ? i : index[j];
                       values[row + j] = convert<S>(best[j]);
                       indices[row + j] = index[j];
                     }
                   }
                 }
               });
}

template <bool Max>
std::tuple<Tensor, Tensor> running_extreme(const Tensor& self, int64_t dim) {
  const char* op = Max ? "cummax" : "cummin";
  const int64_t d = wrap_dim(op, dim, self.dim());
  FL_CHECK_KIND(!is_complex(self.dtype()), NotImplemented, "[", op, "] expected a dtype with an order, got ",
                name_of(self.dtype()));
  Tensor values = empty(self.sizes(), self.options()),
         indices = empty(self.sizes(), {DType::Int64, self.device()});
  if (!self.is_meta() && self.numel() != 0) {
    const Tensor source = contiguous(self);
    dispatch(self.dtype(), [&](auto type) {
      using S = typename decltype(type)::type;
      if constexpr (!is_complex_type<S>)
        scan_extreme<Max>(source.data<S>(), values.data<S>(), indices.data<int64_t>(), Lines(source, d));
    });
  }
  return {std::move(values), std::move(indices)};
}

FL_KERNEL("cummax", running_extreme<true>, kCpu);
FL_KERNEL("cummin", running_extreme<false>, kCpu);

}  // namespace
}  // namespace fl
