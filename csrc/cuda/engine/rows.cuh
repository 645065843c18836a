// Rows held in registers: kernels that look at a row several times read it from memory once. A thread holds
// up to kHold vectors of eight; longer rows, and those in double precision, are read again on each pass.
#pragma once

#include "cuda/engine/device.cuh"
#include "cuda/engine/kernels.h"
#include "dispatch/kernel.h"

namespace fl::cuda {

constexpr int kHold = 4;
constexpr int64_t kLongestHeld = int64_t(1024) * kHold * kVector;

inline unsigned row_threads(int64_t n) {
  const int64_t per = kHold * kVector;
  const int64_t wanted = (n + per - 1) / per;
  return static_cast<unsigned>(std::min<int64_t>(1024, std::max<int64_t>(32, (wanted + 31) / 32 * 32)));
}

// Elements of one row of float values, eight by eight; what lies beyond the end is `rest`.
struct RowReader {
  const char* data;
  DType dtype;
  int size;
  int n;
  bool aligned;
  __device__ __forceinline__ RowReader(const void* base, int64_t row, int length, DType t)
      : dtype(t), size(t == DType::Float ? 4 : 2), n(length) {
    data = static_cast<const char*>(base) + row * length * size;
    aligned = (reinterpret_cast<uintptr_t>(data) & 15) == 0;
  }
  __device__ __forceinline__ void get(int vector, float (&v)[kVector], float rest) const {
    const int first = vector * kVector;
    if (first >= n) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) v[j] = rest;
      return;
    }
    if (aligned && first + kVector <= n) {
      load_vector(v, data + int64_t(first) * size, dtype);
      return;
    }
#pragma unroll
    for (int j = 0; j < kVector; ++j)
      v[j] = first + j < n ? load<float>(data + int64_t(first + j) * size, dtype) : rest;
  }
  __device__ __forceinline__ void put(int vector, const float (&v)[kVector]) const {
    const int first = vector * kVector;
    if (first >= n) return;
    char* to = const_cast<char*>(data);
    if (aligned && first + kVector <= n) {
      store_vector<float>(to + int64_t(first) * size, dtype, v);
      return;
    }
#pragma unroll
    for (int j = 0; j < kVector; ++j)
      if (first + j < n) store<float>(to + int64_t(first + j) * size, dtype, v[j]);
  }
};

// The tensor with a dimension moved last, contiguous; and the other way, for results.
inline Tensor lines_of(const Tensor& t, int64_t dim) {
  if (t.dim() < 2) return contiguous(t);
  Dims sizes(t.sizes()), strides(t.strides());
  const int64_t n = sizes[dim], step = strides[dim];
  sizes.erase(dim);
  strides.erase(dim);
  sizes.push_back(n);
  strides.push_back(step);
  return contiguous(alias(t, sizes, strides, t.offset()));
}
inline Tensor from_lines(const Tensor& lines, int64_t dim) {
  if (lines.dim() < 2) return lines;
  Dims sizes(lines.sizes()), strides(lines.strides());
  const int64_t last = lines.dim() - 1, n = sizes[last], step = strides[last];
  sizes.erase(last);
  strides.erase(last);
  sizes.insert(dim, n);
  strides.insert(dim, step);
  const Tensor moved = alias(lines, sizes, strides, lines.offset());
  return moved.is_contiguous() ? alias(lines, sizes, contiguous_strides(sizes), lines.offset())
                               : contiguous(moved);
}

// A result in the layout that operators on the CPU give it: that of `like`, where it has no holes.
inline Tensor laid_as(const Tensor& result, const Tensor& like) {
  if (like.is_contiguous()) return result;
  const Tensor out = empty_like(like, result.dtype());
  if (out.strides() == result.strides()) return result;
  copy_into(out, result);
  return out;
}

template <auto F>
void checked(const Operator& op, void* context, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Described described(op, args);
  kernel_of<F>().fn(op, context, keys, args, results);
  if (!(op.flags & (kInplace | kOut))) described.lay_out(results);
}

// A kernel of an operator on the device, registered under the operator's name; arguments are checked and
// results laid out as by the operator's own. FL_CUDA_KERNEL_MIXED: it takes tensors of the CPU among its
// arguments, or the result's shape depends on values; it checks by itself.
#define FL_CUDA_KERNEL(name, function)                                 \
  static ::fl::detail::Register FL_CONCAT(fl_register_, __COUNTER__) { \
    name, {::fl::Key::CUDA}, ::fl::Kernel {                            \
      &::fl::cuda::checked<&function>, nullptr                         \
    }                                                                  \
  }
#define FL_CUDA_KERNEL_MIXED(name, function)                           \
  static ::fl::detail::Register FL_CONCAT(fl_register_, __COUNTER__) { \
    name, {::fl::Key::CUDA}, ::fl::kernel_of<&function>()              \
  }

}  // namespace fl::cuda
