// Distances between all pairs of rows: the p-norms by direct loops, the Euclidean one also through a matrix
// product.
#include <cmath>

#include "core/parallel.h"
#include "cpu/gemm/gemm.h"
#include "dispatch/kernel.h"
#include "ops/iterator.h"

namespace fl {
namespace {

enum class Norm { Count, Sum, Euclid, Largest, Power };

Norm norm_of(double p) {
  if (p == 0) return Norm::Count;
  if (p == 1) return Norm::Sum;
  if (p == 2) return Norm::Euclid;
  return std::isinf(p) ? Norm::Largest : Norm::Power;
}

template <Norm kind, class T>
T distance(const T* x, const T* y, int64_t n, T p) {
  T total = 0;
  if constexpr (kind == Norm::Largest) {
    for (int64_t i = 0; i < n; ++i) {
      const T d = std::abs(x[i] - y[i]);
      total = d > total || d != d ? d : total;
    }
    return total;
  } else {
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; ++i) {
      const T d = x[i] - y[i];
      if constexpr (kind == Norm::Count) total += d != 0 ? T(1) : T(0);
      if constexpr (kind == Norm::Sum) total += std::abs(d);
      if constexpr (kind == Norm::Euclid) total += d * d;
      if constexpr (kind == Norm::Power) total += std::pow(std::abs(d), p);
    }
    if constexpr (kind == Norm::Euclid) return std::sqrt(total);
    if constexpr (kind == Norm::Power) return std::pow(total, 1 / p);
    return total;
  }
}

// out[b, i, j] for rows i of x1[b] and j of x2[b], all contiguous.
template <Norm kind, class T>
void direct(const T* x1, const T* x2, T* out, int64_t batch, int64_t m, int64_t n, int64_t k, T p) {
  const int64_t cost = std::max<int64_t>(n * k * (kind == Norm::Power ? 16 : 1), 1);
  parallel_for(batch * m, std::max<int64_t>(kGrain / cost, 1), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T *x = x1 + r * k, *y = x2 + r / m * n * k;
      for (int64_t j = 0; j < n; ++j) out[r * n + j] = distance<kind>(x, y + j * k, k, p);
    }
  });
}

// |x - y|^2 = |x|^2 + |y|^2 - 2 x.y, the last by gemm.
template <class T>
void euclid(const T* x1, const T* x2, T* out, int64_t batch, int64_t m, int64_t n, int64_t k) {
  GemmArgs g;
  g.dtype = dtype_for<T>::value;
  g.batch = batch;
  g.m = m;
  g.n = n;
  g.k = k;
  g.a = x1;
  g.a_batch = m * k;
  g.a_row = k;
  g.b = x2;
  g.b_batch = n * k;
  g.b_row = 1;
  g.b_col = k;
  g.c = out;
  g.c_batch = m * n;
  g.c_row = n;
  g.alpha = -2;
  cpu::gemm(g);
  std::vector<T> left(batch * m), right(batch * n);
  const auto squares = [k](const T* x, std::vector<T>& to) {
    for (size_t r = 0; r < to.size(); ++r, x += k) {
      T total = 0;
#pragma omp simd reduction(+ : total)
      for (int64_t i = 0; i < k; ++i) total += x[i] * x[i];
      to[r] = total;
    }
  };
  squares(x1, left);
  squares(x2, right);
  parallel_for(batch * m, std::max<int64_t>(kGrain / std::max<int64_t>(n, 1), 1),
               [&](int64_t begin, int64_t end) {
                 for (int64_t r = begin; r < end; ++r) {
                   T* row = out + r * n;
                   const T* y = right.data() + r / m * n;
                   const T x = left[r];
                   for (int64_t j = 0; j < n; ++j) {
                     const T square = row[j] + x + y[j];
                     row[j] = std::sqrt(square > 0 || square != square ? square : T(0));
                   }
                 }
               });
}

Tensor cdist(const Tensor& x1, const Tensor& x2, double p, bool through_matmul) {
  FL_CHECK(is_floating(x1.dtype()) && is_floating(x2.dtype()), "[cdist] expected floating tensors, got ",
           name_of(x1.dtype()), " and ", name_of(x2.dtype()));
  FL_CHECK(x1.dtype() == x2.dtype(), "[cdist] expected tensors of one dtype, got ", name_of(x1.dtype()),
           " and ", name_of(x2.dtype()));
  FL_CHECK(x1.device() == x2.device(), "[cdist] expected tensors on one device, got ", to_string(x1.device()),
           " and ", to_string(x2.device()));
  FL_CHECK(x1.dim() >= 2 && x2.dim() >= 2, "[cdist] expected tensors of at least two dimensions, got ",
           x1.sizes(), " and ", x2.sizes());
  FL_CHECK(x1.size(-1) == x2.size(-1), "[cdist] expected rows of one length, got ", x1.sizes(), " and ",
           x2.sizes());
  FL_CHECK(p >= 0, "[cdist] expected p that is not negative, got ", p);
  const int64_t m = x1.size(-2), n = x2.size(-2), k = x1.size(-1);
  const auto batch_of = [](const Tensor& t) { return IntSpan(t.sizes().data(), t.dim() - 2); };
  const Dims lead = broadcast_shapes("cdist", batch_of(x1), batch_of(x2));
  const int64_t batch = numel_of(lead);
  Dims sizes = lead;
  sizes.push_back(m);
  sizes.push_back(n);
  const Tensor out = empty(sizes, x1.options());
  if (out.is_meta() || out.numel() == 0) return out;
  const DType compute = compute_of(x1.dtype());
  const auto prepared = [&](const Tensor& t) {
    Dims full = lead, strides(lead.size());
    const int64_t extra = static_cast<int64_t>(lead.size()) - (t.dim() - 2);
    for (int64_t d = extra; d < static_cast<int64_t>(lead.size()); ++d)
      strides[d] = t.size(d - extra) == 1 ? 0 : t.stride(d - extra);
    for (int64_t d = -2; d < 0; ++d) {
      full.push_back(t.size(d));
      strides.push_back(t.stride(d));
    }
    return contiguous(to_dtype(alias(t, full, strides, t.offset()), compute));
  };
  const Tensor a = prepared(x1), b = prepared(x2);
  const Tensor result = compute == out.dtype() ? out : empty(sizes, {compute, out.device()});
  dispatch_float(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    const T *x = a.data<T>(), *y = b.data<T>();
    T *z = result.data<T>(), power = static_cast<T>(p);
    if (through_matmul) return euclid<T>(x, y, z, batch, m, n, k);
    switch (norm_of(p)) {
      case Norm::Count:
        return direct<Norm::Count>(x, y, z, batch, m, n, k, power);
      case Norm::Sum:
        return direct<Norm::Sum>(x, y, z, batch, m, n, k, power);
      case Norm::Euclid:
        return direct<Norm::Euclid>(x, y, z, batch, m, n, k, power);
      case Norm::Largest:
        return direct<Norm::Largest>(x, y, z, batch, m, n, k, power);
      case Norm::Power:
        return direct<Norm::Power>(x, y, z, batch, m, n, k, power);
    }
  });
  if (!result.same(out)) copy_into(out, result);
  return out;
}

FL_KERNEL("_cdist", cdist, kCpu);

}  // namespace
}  // namespace fl
