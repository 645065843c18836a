// Fourier transforms of tensors on the CPU: one dimension after the other, by the strided kernels of
// kernel.h.
#include "ops/fft.h"

#include "cpu/fft/kernel.h"

namespace fl {
namespace {

// For transforms of dimension d of `from` into `to`; `sizes` has the length of the transform.
cpu::FftGeometry geometry(const Tensor& from, const Tensor& to, int64_t d, const Dims& sizes) {
  return {static_cast<int>(sizes.size()), static_cast<int>(d), sizes.data(), from.strides().data(),
          to.strides().data()};
}

// Complex to complex; `from` and `to` may be the same tensor.
template <class T>
void transform(const Tensor& from, const Tensor& to, IntSpan dims, bool forward, double scale) {
  const Dims sizes(to.sizes());
  Tensor source = from;
  for (int64_t d : dims) {
    cpu::fft_c2c<T>(source.data<std::complex<T>>(), to.data<std::complex<T>>(),
                    geometry(source, to, d, sizes), forward, static_cast<T>(scale));
    scale = 1;
    source = to;
  }
}

template <class T>
void transform_real(const Tensor& from, const Tensor& to, IntSpan dims, bool forward, double scale) {
  const int64_t last = dims[dims.size() - 1];
  const Dims sizes(from.sizes());
  const bool onesided = to.size(last) == from.size(last) / 2 + 1;
  cpu::fft_r2c<T>(from.data<T>(), to.data<std::complex<T>>(), geometry(from, to, last, sizes), forward,
                  onesided, static_cast<T>(scale));
  transform<T>(to, to, IntSpan(dims.data(), dims.size() - 1), forward, 1);
}

template <class T>
void transform_to_real(const Tensor& from, const Tensor& to, IntSpan dims, bool forward, double scale) {
  const int64_t last = dims[dims.size() - 1];
  const Dims sizes(to.sizes());
  Tensor source = from;
  if (dims.size() > 1) {
    source = empty(from.sizes(), from.options());
    transform<T>(from, source, IntSpan(dims.data(), dims.size() - 1), forward, 1);
  }
  cpu::fft_c2r<T>(source.data<std::complex<T>>(), to.data<T>(), geometry(source, to, last, sizes), forward,
                  static_cast<T>(scale));
}

void fft(const Tensor& to, const Tensor& from, IntSpan dims, bool forward, double scale) {
  dispatch_float(real_of(from.dtype()), [&](auto type) {
    using T = typename decltype(type)::type;
    if (!is_complex(from.dtype()))
      transform_real<T>(from, to, dims, forward, scale);
    else if (!is_complex(to.dtype()))
      transform_to_real<T>(from, to, dims, forward, scale);
    else
      transform<T>(from, to, dims, forward, scale);
  });
}

FL_ATTACH(fft, CPU, fft);

}  // namespace
}  // namespace fl
