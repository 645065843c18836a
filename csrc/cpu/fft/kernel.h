// Discrete Fourier transforms along one dimension of strided CPU data, float and double, of any
// length. Lengths with small prime factors use a vectorised mixed-radix Stockham transform, other
// lengths Bluestein's algorithm; plans are cached. Multi-dimensional transforms are made by the
// caller, one dimension at a time.
#pragma once

#include <complex>
#include <cstdint>

namespace fl::cpu {

// The shape of one call: `rank` dimensions, the one called `dim` is transformed and all others are
// batch dimensions. Strides count elements of the respective side (complex or real numbers) and may
// be zero or negative (input) or negative (output).
struct FftGeometry {
  int rank;
  int dim;
  const int64_t* sizes;  // sizes[dim] is the transform length n, whatever either side stores
  const int64_t* in_strides;
  const int64_t* out_strides;
};

// out[k] = scale * sum_j in[j] * exp(-+ 2*pi*i*j*k/n), minus for forward.
// in and out may be the same memory with the same strides; other overlaps are not allowed.
template <typename T>
void fft_c2c(const std::complex<T>* in, std::complex<T>* out, const FftGeometry& geometry, bool forward,
             T scale);

// The same for real input. Only the n/2 + 1 independent outputs are written when `onesided`;
// otherwise all n. in and out must not overlap.
template <typename T>
void fft_r2c(const T* in, std::complex<T>* out, const FftGeometry& geometry, bool forward, bool onesided,
             T scale);

// The reverse: n real outputs from the first n/2 + 1 elements of a Hermitian spectrum. The
// imaginary parts of element 0 and (n even) element n/2 are ignored. in and out must not overlap.
template <typename T>
void fft_c2r(const std::complex<T>* in, T* out, const FftGeometry& geometry, bool forward, T scale);

// Drops all cached plans and this thread's scratch memory.
void fft_clear_cache();

}  // namespace fl::cpu
