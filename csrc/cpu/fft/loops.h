// What the driver of the Fourier transforms (fft_kernel.cpp) asks of their loops (kernels/fft_passes.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace fl::cpu::fft_detail {

constexpr int kMaxGenericRadix = 61;  // larger primes always go through Bluestein

template <typename T>
struct Pass {
  int radix;
  int64_t m;
  const T* twiddles;       // [p][k - 1] interleaved
  const T* line_twiddles;  // [k - 1][re, im][p]; first pass only
  const T* roots;          // (cos, sin) of 2*pi*j/radix, j < radix
};

// The inner loops for one instruction set; see kernels/fft_passes.h for what each does.
template <typename T>
struct FftLoops {
  bool (*run_planar)(const Pass<T>*, int, int64_t, T*, T*, T*, T*);
  bool (*run_line)(const Pass<T>*, int, const T*, T*, bool, T, T*, T*, T*, T*);
  void (*deinterleave)(const T*, int64_t, T*, T*);
  void (*interleave)(const T*, const T*, int64_t, T, T*);
  void (*transpose_in)(const T*, const int64_t*, int, int64_t, T*, T*);
  void (*transpose_out)(const T*, const T*, int, int64_t, T, T*, const int64_t*);
  void (*multiply_rows)(const T*, const T*, const T*, bool, int64_t, int64_t, T*, T*);
  void (*real_post_line)(const T*, const T*, int64_t, const T*, T, T, T*);
  void (*real_post_rows)(const T*, const T*, int64_t, int64_t, const T*, T*, T*);
  void (*real_pre_rows)(const T*, const T*, int64_t, int64_t, const T*, T*, T*);
};

}  // namespace fl::cpu::fft_detail
