// What the kernels of order share. Elements become unsigned keys in the order of the values, of which equal
// ones keep the order of their places.
#pragma once

#include "cuda/engine/kernels.h"
#include "cuda/engine/rows.cuh"
#include "cuda/runtime/launch.h"
#include "dispatch/kernel.h"

namespace fl::cuda {

// ---------------------------------------------------------------- keys

// A key whose unsigned order is that of the values; NaN is above all.
__device__ __forceinline__ uint64_t ordered(double x) {
  if (x != x) return ~uint64_t(0);
  const uint64_t u = static_cast<uint64_t>(__double_as_longlong(x == 0 ? 0.0 : x));
  return u >> 63 ? ~u : u | uint64_t(1) << 63;
}
__device__ __forceinline__ uint32_t ordered(float x) {
  if (x != x) return ~uint32_t(0);
  const uint32_t u = __float_as_uint(x == 0 ? 0.0f : x);
  return u >> 31 ? ~u : u | uint32_t(1) << 31;
}

// Elements as keys. Only the bits from `begin` to `end` tell keys of the dtype apart.
struct Keys {
  const char* in;
  DType dtype;
  int item, begin, end;
  int64_t least;  // of the integers of the dtype
  bool descending;

  Keys(const Tensor& contiguous, bool downward)
      : in(contiguous.raw()),
        dtype(contiguous.dtype()),
        item(static_cast<int>(contiguous.itemsize())),
        begin(dtype == DType::BFloat16 ? 16
              : dtype == DType::Half   ? 13
                                       : 0),
        end(dtype == DType::Bool             ? 1
            : is_floating(dtype) && item < 4 ? 32
                                             : item * 8),
        least(dtype == DType::Bool || dtype == DType::UInt8 ? 0 : -(int64_t(1) << (item * 8 - 2)) * 2),
        descending(downward) {}

  template <class K>
  __device__ __forceinline__ K at(int64_t i) const {
    const char* p = in + i * item;
    K key;
    if constexpr (sizeof(K) == 8)
      key = dtype == DType::Double
                ? ordered(*reinterpret_cast<const double*>(p))
                : static_cast<K>(*reinterpret_cast<const int64_t*>(p)) - static_cast<K>(least);
    else if (is_floating(dtype))
      key = ordered(load<float>(p, dtype));
    else
      key = static_cast<K>(load<int64_t>(p, dtype) - least);
    return descending ? ~key : key;
  }
  __device__ __forceinline__ void move(char* out, int64_t to, int64_t from) const {
    const char* p = in + from * item;
    switch (item) {
      case 1:
        out[to] = *p;
        return;
      case 2:
        reinterpret_cast<uint16_t*>(out)[to] = *reinterpret_cast<const uint16_t*>(p);
        return;
      case 4:
        reinterpret_cast<uint32_t*>(out)[to] = *reinterpret_cast<const uint32_t*>(p);
        return;
      default:
        reinterpret_cast<uint64_t*>(out)[to] = *reinterpret_cast<const uint64_t*>(p);
    }
  }
};

// f(K(0)) for the type of a dtype's keys.
template <class F>
void by_key(const Tensor& t, F&& f) {
  if (t.itemsize() > 4)
    f(uint64_t());
  else
    f(uint32_t());
}

inline void check_ordered(const char* op, const Tensor& self) {
  FL_CHECK_KIND(!is_complex(self.dtype()) && !is_stored_only(self.dtype()), NotImplemented, "[", op,
                "] expected a dtype with an order, got ", name_of(self.dtype()));
}

// Which element of a line in order is wanted: the k-th, or the lower one of the middle; there NaN wins, or is
// left out.
enum class Rank { Given, Median, MedianOfNumbers };

__device__ __forceinline__ int middle(Rank rule, int numbers, int n) {
  return rule == Rank::Median && numbers < n ? numbers : numbers ? (numbers - 1) / 2 : 0;
}
// ---------------------------------------------------------------- very short lines

constexpr int64_t kLongestCompared = 32;

// Lines whose elements are compared with each other, a thread for each: those of `count` ranks from `first`
// on.
template <class K>
__global__ void __launch_bounds__(256)
    compare_lines(const __grid_constant__ Keys from, char* out, int64_t* indices, int64_t lines, int n,
                  int first, int count, Rank rule) {
  __shared__ SharedArray<K, 256> room;
  K* keys = room.get();
  const int each = 256 / n, mine = static_cast<int>(threadIdx.x) / n,
            i = static_cast<int>(threadIdx.x) - mine * n;
  const int64_t line = int64_t(blockIdx.x) * each + mine;
  const bool inside = mine < each && line < lines;
  if (inside) keys[threadIdx.x] = from.at<K>(line * n + i);
  __syncthreads();
  if (!inside) return;
  const K key = keys[threadIdx.x], *all = keys + mine * n;
  int rank = 0, numbers = 0;
  for (int j = 0; j < n; ++j) {
    rank += all[j] < key || (all[j] == key && j < i);
    numbers += all[j] != ~K(0);
  }
  if (rule != Rank::Given) first = middle(rule, is_floating(from.dtype) ? numbers : n, n);
  if (rank < first || rank >= first + count) return;
  from.move(out, line * count + rank - first, line * n + i);
  indices[line * count + rank - first] = i;
}

inline void compare(const char* op, const Tensor& source, bool descending, const Tensor& values,
                    const Tensor& indices, int64_t n, int64_t first, int64_t count, Rank rule) {
  const int64_t lines = source.numel() / n, each = 256 / n;
  by_key(source, [&](auto key) {
    launch(compare_lines<decltype(key)>, static_cast<unsigned>((lines + each - 1) / each), 256,
           current_stream(), op, Keys(source, descending), values.raw(), indices.data<int64_t>(), lines,
           static_cast<int>(n), static_cast<int>(first), static_cast<int>(count), rule);
  });
}
// ---------------------------------------------------------------- short lines and scratch memory

constexpr int64_t kLongestSorted = 4096;  // line of a block

// f(threads, items of a thread), as constants, for a line of n elements.
template <class F>
void by_length(int64_t n, F&& f) {
  if (n <= 64)
    f(std::integral_constant<int, 32>(), std::integral_constant<int, 2>());
  else if (n <= 256)
    f(std::integral_constant<int, 64>(), std::integral_constant<int, 4>());
  else if (n <= 1024)
    f(std::integral_constant<int, 128>(), std::integral_constant<int, 8>());
  else if (n <= 2048)
    f(std::integral_constant<int, 256>(), std::integral_constant<int, 8>());
  else
    f(std::integral_constant<int, 512>(), std::integral_constant<int, 8>());
}
// run(scratch, its size) twice: it asks for its size first.
template <class F>
void with_scratch(const char* op, int device, const F& run) {
  size_t bytes = 0;
  check(run(nullptr, bytes), op);
  Scratch scratch(bytes, device, current_stream());
  check(run(scratch.get(), bytes), op);
}
// Values in order, and their places (`sorting.cu`).
std::tuple<Tensor, Tensor> sort_plain(const Tensor& self, int64_t dim, bool descending);

}  // namespace fl::cuda
