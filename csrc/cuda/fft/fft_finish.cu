// What a Fourier transform leaves to be done: the factor of its norm, and the conjugate for the other sign.
#include "cuda/engine/kernels.h"

namespace fl::cuda {

namespace {

template <class T>
__global__ void __launch_bounds__(256) finish(T* data, int64_t n, T even, T odd) {
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < n; i += int64_t(gridDim.x) * 256)
    data[i] *= i & 1 ? odd : even;
}

}  // namespace

void fft_finish(const Tensor& t, double scale, bool conjugate) {
  const int64_t n = t.numel() * (is_complex(t.dtype()) ? 2 : 1);
  if (n == 0) return;
  OnDevice on(t.device().index);
  const unsigned blocks = static_cast<unsigned>(std::min<int64_t>((n + 255) / 256, 1 << 20));
  const double odd = conjugate ? -scale : scale;
  if (real_of(t.dtype()) == DType::Double)
    finish<double><<<blocks, 256, 0, current_stream()>>>(reinterpret_cast<double*>(t.raw()), n, scale, odd);
  else
    finish<float><<<blocks, 256, 0, current_stream()>>>(reinterpret_cast<float*>(t.raw()), n, float(scale),
                                                        float(odd));
  check_launch("fft");
}

}  // namespace fl::cuda
