// Row and column loops of softmax and its relatives, for float and double.
#pragma once

#include <cstdint>

namespace fl {

enum class SoftmaxKind { Softmax, LogSoftmax };

template <class T>
struct SoftmaxLoops {
  // `rows` contiguous rows of n. x and y may be the same memory.
  void (*rows)(SoftmaxKind kind, const T* x, T* y, int64_t rows, int64_t n);
  // Along columns: n rows of `width` elements, `stride` apart. width is at most kSoftmaxWidth.
  void (*columns)(SoftmaxKind kind, const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t n,
                  int64_t width);
  // out[i] = log(sum(exp(row i))).
  void (*logsumexp_rows)(const T* x, T* out, int64_t rows, int64_t n);
  void (*logsumexp_columns)(const T* x, int64_t stride, T* out, int64_t n, int64_t width);
  // Gradients from those of the result, g, and the result y. out may be the memory of g or y.
  void (*gradient_rows)(SoftmaxKind kind, const T* g, const T* y, T* out, int64_t rows, int64_t n);
  void (*gradient_columns)(SoftmaxKind kind, const T* g, const T* y, T* out, int64_t stride, int64_t n,
                           int64_t width);
  // out = exp(x - shift) * factor, with one shift and factor for each row, or for each column.
  void (*scaled_rows)(const T* x, const T* shift, const T* factor, T* out, int64_t rows, int64_t n);
  void (*scaled_columns)(const T* x, const T* shift, const T* factor, T* out, int64_t stride, int64_t n,
                         int64_t width);
};
constexpr int64_t kSoftmaxWidth = 128;

struct SoftmaxTable {
  SoftmaxLoops<float> f;
  SoftmaxLoops<double> d;
};
template <class T>
const SoftmaxLoops<T>& softmax_loops();
template <>
const SoftmaxLoops<float>& softmax_loops<float>();
template <>
const SoftmaxLoops<double>& softmax_loops<double>();

}  // namespace fl
