// The matrix product by a plain tiled kernel: integers, and machines without cuBLASLt.
#include "cuda/device.cuh"
#include "cuda/kernels.h"

namespace fl::cuda {

namespace {

constexpr int kTile = 16;

template <class T>
__global__ void __launch_bounds__(kTile* kTile) tiled(const __grid_constant__ cpu::GemmArgs g, int item) {
  __shared__ T left[kTile][kTile + 1], right[kTile][kTile + 1];
  const int64_t batch = blockIdx.z, row = int64_t(blockIdx.y) * kTile + threadIdx.y,
                column = int64_t(blockIdx.x) * kTile + threadIdx.x;
  const char* a = static_cast<const char*>(g.a) + batch * g.a_batch * item;
  const char* b = static_cast<const char*>(g.b) + batch * g.b_batch * item;
  T sum = 0;
  for (int64_t k = 0; k < g.k; k += kTile) {
    const int64_t ka = k + threadIdx.x, kb = k + threadIdx.y;
    left[threadIdx.y][threadIdx.x] =
        row < g.m && ka < g.k ? load<T>(a + (row * g.a_row + ka * g.a_col) * item, g.dtype) : T(0);
    right[threadIdx.y][threadIdx.x] =
        column < g.n && kb < g.k ? load<T>(b + (kb * g.b_row + column * g.b_col) * item, g.dtype) : T(0);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  if (row >= g.m || column >= g.n) return;
  // Factors are complex numbers whose imaginary part is zero here.
  const double* alpha = reinterpret_cast<const double*>(&g.alpha);
  const double* beta = reinterpret_cast<const double*>(&g.beta);
  char* c = static_cast<char*>(g.c) + (batch * g.c_batch + row * g.c_row + column * g.c_col) * item;
  T value = sum * static_cast<T>(alpha[0]);
  if (beta[0] != 0) value += static_cast<T>(beta[0]) * load<T>(c, g.dtype);
  if (g.bias) value += load<T>(static_cast<const char*>(g.bias) + column * g.bias_stride * item, g.dtype);
  store<T>(c, g.dtype, g.relu && value < T(0) ? T(0) : value);
}

}  // namespace

void gemm_plain(const cpu::GemmArgs& g) {
  FL_CHECK_KIND(!is_complex(g.dtype), NotImplemented, "[matmul] expected a real dtype on CUDA, got ",
                name_of(g.dtype));
  const int item = static_cast<int>(size_of(g.dtype));
  for (int64_t first = 0; first < g.batch; first += 65535) {
    cpu::GemmArgs part = g;
    part.batch = std::min<int64_t>(65535, g.batch - first);
    part.a = static_cast<const char*>(g.a) + first * g.a_batch * item;
    part.b = static_cast<const char*>(g.b) + first * g.b_batch * item;
    part.c = static_cast<char*>(g.c) + first * g.c_batch * item;
    const dim3 grid(static_cast<unsigned>((g.n + kTile - 1) / kTile),
                    static_cast<unsigned>((g.m + kTile - 1) / kTile), static_cast<unsigned>(part.batch));
    const dim3 block(kTile, kTile);
    if (g.dtype == DType::Double)
      tiled<double><<<grid, block, 0, current_stream()>>>(part, item);
    else if (is_floating(g.dtype))
      tiled<float><<<grid, block, 0, current_stream()>>>(part, item);
    else
      tiled<int64_t><<<grid, block, 0, current_stream()>>>(part, item);
  }
  check_launch("matmul");
}

}  // namespace fl::cuda
