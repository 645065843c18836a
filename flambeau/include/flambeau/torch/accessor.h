// Elements of strided memory for loops: accessor[i][j].
#pragma once

#include <flambeau/torch/types.h>

namespace at {

template <class T, size_t N>
class TensorAccessor {
 public:
  TensorAccessor(T* data, const int64_t* sizes, const int64_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  decltype(auto) operator[](int64_t i) const {
    if constexpr (N == 1)
      return static_cast<T&>(data_[i * strides_[0]]);
    else
      return TensorAccessor<T, N - 1>(data_ + i * strides_[0], sizes_ + 1, strides_ + 1);
  }
  int64_t size(int64_t d) const { return sizes_[d]; }
  int64_t stride(int64_t d) const { return strides_[d]; }
  c10::ArrayRef<int64_t> sizes() const { return c10::ArrayRef<int64_t>(sizes_, N); }
  T* data() const { return data_; }

 private:
  T* data_;
  const int64_t *sizes_, *strides_;
};

}  // namespace at
