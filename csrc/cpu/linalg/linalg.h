// What the linear algebra kernels share: checks of batches of matrices, column-major copies for LAPACK, and
// the loop over the matrices of a batch.
#pragma once

#include "core/accelerator.h"
#include "core/parallel.h"
#include "cpu/linalg/lapack.h"
#include "dispatch/kernel.h"
#include "ops/iterator.h"
#include "ops/solver.h"

namespace fl::linalg {

inline void check_floating(const char* op, const Tensor& t) {
  FL_CHECK(!is_integral(t.dtype(), true), "[", op, "] expected a floating or complex tensor, got ",
           name_of(t.dtype()));
  FL_CHECK_KIND(!is_reduced(t.dtype()), NotImplemented, "[", op,
                "] expected float32, float64 or complex, got ", name_of(t.dtype()));
}
inline void check_matrix(const char* op, const Tensor& t) {
  FL_CHECK(t.dim() >= 2, "[", op, "] expected a tensor of at least two dimensions, got ", t.sizes(),
           ": The input tensor A must have at least 2 dimensions.");
}
inline void check_square(const char* op, const Tensor& t) {
  check_matrix(op, t);
  FL_CHECK(t.size(-1) == t.size(-2), "[", op, "] expected square matrices, got ", t.sizes(),
           ": A must be batches of square matrices, but they are ", t.size(-2), " by ", t.size(-1),
           " matrices");
}
inline void check_same(const char* op, const Tensor& a, const Tensor& b) {
  FL_CHECK(a.dtype() == b.dtype(), "[", op, "] expected tensors of one dtype, got ", name_of(a.dtype()),
           " and ", name_of(b.dtype()));
  FL_CHECK(a.device() == b.device(), "[", op, "] expected tensors on one device, got ", to_string(a.device()),
           " and ", to_string(b.device()));
}

// The sizes without the last `drop` dimensions.
inline Dims batch_sizes(const Tensor& t, int64_t drop = 2) {
  return Dims(IntSpan(t.sizes().data(), t.dim() - drop));
}

inline Dims join(Dims lead, std::initializer_list<int64_t> last) {
  for (int64_t n : last) lead.push_back(n);
  return lead;
}

// A new batch of m x n matrices, each stored by columns as LAPACK wants it.
inline Tensor columns(const Dims& lead, int64_t m, int64_t n, Options options) {
  const Dims sizes = join(lead, {m, n});
  Dims strides = contiguous_strides(join(lead, {n, m}));
  std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
  return empty_strided(sizes, strides, options);
}

// `t` expanded to a batch shape it broadcasts to, its last `keep` dimensions as they are.
inline Tensor expand_batch(const Tensor& t, const Dims& lead, int64_t keep = 2) {
  const int64_t n = static_cast<int64_t>(lead.size()), extra = n + keep - t.dim();
  Dims sizes(lead), strides(n);
  for (int64_t d = std::max<int64_t>(extra, 0); d < n; ++d)
    strides[d] = t.size(d - extra) == 1 ? 0 : t.stride(d - extra);
  for (int64_t d = t.dim() - keep; d < t.dim(); ++d) {
    sizes.push_back(t.size(d));
    strides.push_back(t.stride(d));
  }
  return alias(t, sizes, strides, t.offset());
}

// A copy by columns of a batch of matrices, expanded to a batch shape.
inline Tensor column_copy(const Tensor& t, const Dims& lead) {
  const Tensor copy = columns(lead, t.size(-2), t.size(-1), t.options());
  if (!copy.is_meta() && copy.numel() > 0) copy_into(copy, expand_batch(t, lead));
  return copy;
}
inline Tensor column_copy(const Tensor& t) {
  return column_copy(t, batch_sizes(t));
}

// Matrix i of a batch made by columns() (or contiguous).
template <class T>
T* matrix(const Tensor& t, int64_t i) {
  return t.data<T>() + i * t.size(-2) * t.size(-1);
}
template <class T>
T* vector(const Tensor& t, int64_t i) {
  return t.data<T>() + i * t.size(-1);
}

// Calls f(Type<T>) for float, double, complex64 or complex128.
template <class F>
void dispatch_lapack(DType dtype, F&& f) {
  switch (dtype) {
    case DType::Float:
      return f(Type<float>{});
    case DType::Double:
      return f(Type<double>{});
    case DType::ComplexFloat:
      return f(Type<complex64>{});
    default:
      return f(Type<complex128>{});
  }
}

// Calls f(i) for every matrix; small ones on several threads, large ones one by one so that LAPACK can use
// them.
template <class F>
void each(int64_t batch, int64_t work, const F& f) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(work, 1));
  parallel_for(batch, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

// Whether the accelerator's solver computes instead of LAPACK.
inline bool elsewhere(const Tensor& t) {
  return t.device().type == DeviceType::CUDA;
}
inline Solver& solver() {
  return device::solver(DeviceType::CUDA);
}

inline void set_zero(const Tensor& t) {
  const int64_t zero[2] = {0, 0};
  if (t.is_meta() || t.numel() == 0) return;
  if (elsewhere(t))
    the_accelerator().fill(t, zero);
  else
    std::memset(t.raw(), 0, t.numel() * t.itemsize());
}
inline Tensor zeros(IntSpan sizes, Options options) {
  const Tensor t = empty(sizes, options);
  set_zero(t);
  return t;
}
inline Tensor info_tensor(const Dims& lead, Device device) {
  return zeros(lead, {DType::Int32, device});
}

inline int64_t cube(const Tensor& t) {
  return t.size(-1) * t.size(-2) * std::max(t.size(-1), t.size(-2));
}

// Writes the identity into a batch of matrices stored by columns.
inline void fill_identity(const Tensor& t) {
  if (t.is_meta() || t.numel() == 0) return;
  if (elsewhere(t)) return solver().copy_part(t, {}, Part::All, true);
  const int64_t m = t.size(-2), n = t.size(-1);
  std::memset(t.raw(), 0, t.numel() * t.itemsize());
  dispatch_lapack(t.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t i = 0; i < t.numel() / (m * n); ++i)
      for (int64_t d = 0; d < std::min(m, n); ++d) matrix<T>(t, i)[d * m + d] = T(1);
  });
}

}  // namespace fl::linalg
