// What kernels use of the device's header of this name.
#pragma once

#include "cuda/runtime/runtime.h"

inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t(a) * b >> 32);
}
#define __CUDACC__
#include "cuda/engine/geometry.h"
#undef __CUDACC__

using __half = fl::Half;
using __nv_bfloat16 = fl::BFloat16;

namespace fl::cuda {

inline char* shared_memory() {
  return emulated::shared_at(emulated::kShared, 1);
}

template <class T>
T load(const char* p, DType dtype) {
  switch (dtype) {
    case DType::Float:
      return static_cast<T>(*reinterpret_cast<const float*>(p));
    case DType::Half:
      return static_cast<T>(float(*reinterpret_cast<const Half*>(p)));
    default:
      return static_cast<T>(float(*reinterpret_cast<const BFloat16*>(p)));
  }
}

inline float shuffle_xor(float x, int mask) {
  const int lane = threadIdx.x % 32;
  emulated::lanes()[lane].x = x;
  __syncwarp();
  const float y = emulated::lanes()[lane ^ mask].x;
  __syncwarp();
  return y;
}

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};

}  // namespace fl::cuda
