// The matrix product by plain kernels: integers, products of complex vectors, and machines without cuBLASLt.
#include "cuda/engine/complex.cuh"
#include "cuda/engine/kernels.h"

namespace fl::cuda {

namespace {

constexpr int kTile = 16;

template <class T>
__device__ __forceinline__ T factor(const std::complex<double>& number) {
  const double* parts = reinterpret_cast<const double*>(&number);
  if constexpr (std::is_same_v<T, Complex>)
    return Complex(parts[0], parts[1]);
  else
    return static_cast<T>(parts[0]);
}

template <class T>
__global__ void __launch_bounds__(kTile* kTile) tiled(const __grid_constant__ GemmArgs g, int item) {
  __shared__ SharedArray<T, kTile*(kTile + 1)> left_memory, right_memory;
  T(*const left)[kTile + 1] = reinterpret_cast<T(*)[kTile + 1]>(left_memory.get());
  T(*const right)[kTile + 1] = reinterpret_cast<T(*)[kTile + 1]>(right_memory.get());
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
  char* c = static_cast<char*>(g.c) + (batch * g.c_batch + row * g.c_row + column * g.c_col) * item;
  T value = sum * factor<T>(g.alpha);
  if (factor<T>(g.beta) != T(0)) value += factor<T>(g.beta) * load<T>(c, g.dtype);
  if (g.bias) value += load<T>(static_cast<const char*>(g.bias) + column * g.bias_stride * item, g.dtype);
  if constexpr (!std::is_same_v<T, Complex>)
    if (g.relu && value < T(0)) value = T(0);
  store<T>(c, g.dtype, value);
}

// One product of two complex vectors for each block.
__global__ void __launch_bounds__(256) dot_complex(const __grid_constant__ GemmArgs g, int item) {
  __shared__ SharedArray<Complex, 33> memory;
  const char* a = static_cast<const char*>(g.a) + blockIdx.x * g.a_batch * item;
  const char* b = static_cast<const char*>(g.b) + blockIdx.x * g.b_batch * item;
  Complex sum(0.0);
  for (int64_t k = threadIdx.x; k < g.k; k += 256)
    sum += load<Complex>(a + k * g.a_col * item, g.dtype) * load<Complex>(b + k * g.b_row * item, g.dtype);
  sum = block_fold(sum, Sum(), Complex(0.0), memory.get());
  if (threadIdx.x != 0) return;
  char* c = static_cast<char*>(g.c) + blockIdx.x * g.c_batch * item;
  sum *= factor<Complex>(g.alpha);
  if (factor<Complex>(g.beta) != Complex(0.0)) sum += factor<Complex>(g.beta) * load<Complex>(c, g.dtype);
  if (g.bias) sum += load<Complex>(static_cast<const char*>(g.bias), g.dtype);
  store<Complex>(c, g.dtype, sum);
}

}  // namespace

void gemm_plain(const GemmArgs& g) {
  const int item = static_cast<int>(size_of(g.dtype));
  for (int64_t first = 0; first < g.batch; first += 65535) {
    GemmArgs part = g;
    part.batch = std::min<int64_t>(65535, g.batch - first);
    part.a = static_cast<const char*>(g.a) + first * g.a_batch * item;
    part.b = static_cast<const char*>(g.b) + first * g.b_batch * item;
    part.c = static_cast<char*>(g.c) + first * g.c_batch * item;
    const dim3 grid(static_cast<unsigned>((g.n + kTile - 1) / kTile),
                    static_cast<unsigned>((g.m + kTile - 1) / kTile), static_cast<unsigned>(part.batch));
    const dim3 block(kTile, kTile);
    if (is_complex(g.dtype) && g.m == 1 && g.n == 1)
      dot_complex<<<static_cast<unsigned>(part.batch), 256, 0, current_stream()>>>(part, item);
    else if (is_complex(g.dtype))
      tiled<Complex><<<grid, block, 0, current_stream()>>>(part, item);
    else if (g.dtype == DType::Double)
      tiled<double><<<grid, block, 0, current_stream()>>>(part, item);
    else if (is_floating(g.dtype))
      tiled<float><<<grid, block, 0, current_stream()>>>(part, item);
    else
      tiled<int64_t><<<grid, block, 0, current_stream()>>>(part, item);
  }
  check_launch("matmul");
}

}  // namespace fl::cuda
