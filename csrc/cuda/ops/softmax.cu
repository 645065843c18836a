// softmax, log_softmax and their derivatives along one dimension, and cross entropy over classes.
#include "cuda/engine/rows.cuh"
#include "cuda/runtime/launch.h"
#include "dispatch/kernel.h"

namespace fl::cuda {

namespace {

constexpr float kLowest = -INFINITY;

__global__ void softmax_held(const char* in, char* out, int n, DType dtype, bool logarithm) {
  __shared__ float shared[33];
  const RowReader from(in, blockIdx.x, n, dtype), to(out, blockIdx.x, n, dtype);
  float v[kHold][kVector];
  float most = kLowest;
#pragma unroll
  for (int k = 0; k < kHold; ++k) {
    from.get(k * blockDim.x + threadIdx.x, v[k], kLowest);
#pragma unroll
    for (int j = 0; j < kVector; ++j) most = Most{}(most, v[k][j]);
  }
  most = block_fold(most, Most{}, kLowest, shared);
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kHold; ++k)
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const float e = __expf(v[k][j] - most);
      sum += e;
      v[k][j] = logarithm ? v[k][j] - most : e;
    }
  sum = block_fold(sum, Sum{}, 0.0f, shared);
  const float factor = logarithm ? logf(sum) : 1.0f / sum;
#pragma unroll
  for (int k = 0; k < kHold; ++k) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) v[k][j] = logarithm ? v[k][j] - factor : v[k][j] * factor;
    to.put(k * blockDim.x + threadIdx.x, v[k]);
  }
}

template <class T>
__device__ __forceinline__ T exponential(T x) {
  return exp(x);
}

// Any length, any floating dtype; three passes.
template <class T>
__global__ void softmax_passes(const char* in, char* out, int64_t n, DType dtype, int64_t size,
                               bool logarithm) {
  __shared__ T shared[33];
  const char* from = in + blockIdx.x * n * size;
  char* to = out + blockIdx.x * n * size;
  T most = -INFINITY;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) most = Most{}(most, load<T>(from + i * size, dtype));
  most = block_fold(most, Most{}, T(-INFINITY), shared);
  T sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
    sum += exponential(load<T>(from + i * size, dtype) - most);
  sum = block_fold(sum, Sum{}, T(0), shared);
  const T factor = logarithm ? log(sum) : T(1) / sum;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const T x = load<T>(from + i * size, dtype) - most;
    store<T>(to + i * size, dtype, logarithm ? x - factor : exponential(x) * factor);
  }
}

__global__ void softmax_gradient_held(const char* grad, const char* result, char* out, int n, DType dtype,
                                      bool logarithm) {
  __shared__ float shared[33];
  const RowReader g(grad, blockIdx.x, n, dtype), y(result, blockIdx.x, n, dtype),
      to(out, blockIdx.x, n, dtype);
  float a[kHold][kVector], b[kHold][kVector];
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kHold; ++k) {
    g.get(k * blockDim.x + threadIdx.x, a[k], 0);
    y.get(k * blockDim.x + threadIdx.x, b[k], 0);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum += logarithm ? a[k][j] : a[k][j] * b[k][j];
  }
  sum = block_fold(sum, Sum{}, 0.0f, shared);
#pragma unroll
  for (int k = 0; k < kHold; ++k) {
#pragma unroll
    for (int j = 0; j < kVector; ++j)
      a[k][j] = logarithm ? a[k][j] - __expf(b[k][j]) * sum : b[k][j] * (a[k][j] - sum);
    to.put(k * blockDim.x + threadIdx.x, a[k]);
  }
}

template <class T>
__global__ void softmax_gradient_passes(const char* grad, const char* result, char* out, int64_t n,
                                        DType dtype, int64_t size, bool logarithm) {
  __shared__ T shared[33];
  const int64_t row = blockIdx.x * n * size;
  T sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const T g = load<T>(grad + row + i * size, dtype);
    sum += logarithm ? g : g * load<T>(result + row + i * size, dtype);
  }
  sum = block_fold(sum, Sum{}, T(0), shared);
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const T g = load<T>(grad + row + i * size, dtype), y = load<T>(result + row + i * size, dtype);
    store<T>(out + row + i * size, dtype, logarithm ? g - exponential(y) * sum : y * (g - sum));
  }
}

void check_floating(const char* op, const Tensor& t) {
  FL_CHECK_KIND(is_floating(t.dtype()) && !is_stored_only(t.dtype()), NotImplemented, "[", op,
                "] expected a floating point tensor, got ", name_of(t.dtype()));
}

Tensor softmax_along(const char* op, const Tensor& input, int64_t dim, bool half_to_float, bool logarithm) {
  const Tensor self = half_to_float ? to_dtype(input, DType::Float) : input;
  check_floating(op, self);
  const int64_t d = wrap_dim(op, dim, self.dim());
  if (self.numel() == 0) return empty(self.sizes(), self.options());
  OnDevice on(self.device().index);
  const Tensor x = lines_of(self, d), out = empty(x.sizes(), x.options());
  const int64_t n = self.dim() ? self.size(d) : 1;
  const unsigned rows = static_cast<unsigned>(x.numel() / n);
  const cudaStream_t stream = current_stream();
  if (x.dtype() != DType::Double && n <= kLongestHeld)
    launch(softmax_held, rows, row_threads(n), stream, op, x.raw(), out.raw(), int(n), x.dtype(), logarithm);
  else if (x.dtype() != DType::Double)
    launch(softmax_passes<float>, rows, 1024, stream, op, x.raw(), out.raw(), n, x.dtype(), x.itemsize(),
           logarithm);
  else
    launch(softmax_passes<double>, rows, 256, stream, op, x.raw(), out.raw(), n, x.dtype(), x.itemsize(),
           logarithm);
  return from_lines(out, d);
}

Tensor gradient_along(const char* op, const Tensor& grad, const Tensor& result, int64_t dim,
                      DType input_dtype, bool logarithm) {
  check_floating(op, result);
  FL_CHECK(grad.sizes() == result.sizes() && grad.dtype() == result.dtype(), "[", op,
           "] expected a gradient of shape ", result.sizes(), ", got ", grad.sizes());
  const int64_t d = wrap_dim(op, dim, result.dim());
  if (result.numel() == 0) return empty(result.sizes(), result.options());
  OnDevice on(result.device().index);
  const Tensor g = lines_of(grad, d), y = lines_of(result, d), out = empty(y.sizes(), y.options());
  const int64_t n = y.dim() ? result.size(d) : 1;
  const unsigned rows = static_cast<unsigned>(y.numel() / n);
  const cudaStream_t stream = current_stream();
  if (y.dtype() != DType::Double && n <= kLongestHeld)
    launch(softmax_gradient_held, rows, row_threads(n), stream, op, g.raw(), y.raw(), out.raw(), int(n),
           y.dtype(), logarithm);
  else if (y.dtype() != DType::Double)
    launch(softmax_gradient_passes<float>, rows, 1024, stream, op, g.raw(), y.raw(), out.raw(), n, y.dtype(),
           y.itemsize(), logarithm);
  else
    launch(softmax_gradient_passes<double>, rows, 256, stream, op, g.raw(), y.raw(), out.raw(), n, y.dtype(),
           y.itemsize(), logarithm);
  return to_dtype(laid_as(from_lines(out, d), result), input_dtype);
}

Tensor softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return softmax_along("softmax", self, dim, half_to_float, false);
}
Tensor log_softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return softmax_along("log_softmax", self, dim, half_to_float, true);
}
Tensor softmax_gradient(const Tensor& grad, const Tensor& result, int64_t dim, DType input_dtype) {
  return gradient_along("_softmax_backward_data", grad, result, dim, input_dtype, false);
}
Tensor log_softmax_gradient(const Tensor& grad, const Tensor& result, int64_t dim, DType input_dtype) {
  return gradient_along("_log_softmax_backward_data", grad, result, dim, input_dtype, true);
}

FL_CUDA_KERNEL("_softmax", softmax);
FL_CUDA_KERNEL("_log_softmax", log_softmax);
FL_CUDA_KERNEL("_softmax_backward_data", softmax_gradient);
FL_CUDA_KERNEL("_log_softmax_backward_data", log_softmax_gradient);

// ---------------------------------------------------------------- cross entropy

// One block for each row: log of the sum of exponentials in one pass, then the row's loss and weight.
template <class T>
__global__ void entropy_rows(const char* scores, const int64_t* target, const char* weight, T* log_sums,
                             T* losses, T* weights, int64_t n, DType dtype, int64_t size, DType weight_dtype,
                             int64_t weight_size, int64_t ignored, int* failed) {
  __shared__ T shared[33];
  const char* row = scores + blockIdx.x * n * size;
  T most = -INFINITY, sum = 0;
  const auto take = [&](T x) {
    if (x > most) {
      sum = sum * exponential(most - x) + T(1);
      most = x;
    } else if (x != T(-INFINITY)) {
      sum += exponential(x - most);
    }
  };
  int64_t first = 0;
  if constexpr (std::is_same_v<T, float>) {
    if ((reinterpret_cast<uintptr_t>(row) & 15) == 0) {
      const int64_t vectors = n / kVector;
      for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
        float v[kVector];
        load_vector(v, row + i * kVector * size, dtype);
        float high = v[0];
#pragma unroll
        for (int j = 1; j < kVector; ++j) high = v[j] > high ? v[j] : high;
        if (high > most) {
          sum *= __expf(most - high);
          most = high;
        }
        if (most != -INFINITY)
#pragma unroll
          for (int j = 0; j < kVector; ++j) sum += __expf(v[j] - most);
      }
      first = vectors * kVector;
    }
  }
  for (int64_t i = first + threadIdx.x; i < n; i += blockDim.x) take(load<T>(row + i * size, dtype));
  const T high = block_fold(most, Most{}, T(-INFINITY), shared);
  sum = block_fold(most == T(-INFINITY) ? T(0) : sum * exponential(most - high), Sum{}, T(0), shared);
  if (threadIdx.x != 0) return;
  const T log_sum = high + log(sum);
  log_sums[blockIdx.x] = log_sum;
  const int64_t c = target[blockIdx.x];
  const bool counted = c != ignored && c >= 0 && c < n;
  if (c != ignored && !counted) *failed = 1;
  const T w = !counted ? T(0) : weight ? load<T>(weight + c * weight_size, weight_dtype) : T(1);
  weights[blockIdx.x] = w;
  losses[blockIdx.x] = counted ? (log_sum - load<T>(row + c * size, dtype)) * w : T(0);
}

template <class T>
__global__ void entropy_total(const T* losses, const T* weights, int64_t rows, char* out, char* total,
                              DType dtype, bool mean) {
  __shared__ T shared[33];
  T loss = 0, weight = 0;
  for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
    loss += losses[i];
    weight += weights[i];
  }
  loss = block_fold(loss, Sum{}, T(0), shared);
  weight = block_fold(weight, Sum{}, T(0), shared);
  if (threadIdx.x == 0) {
    if (out) store<T>(out, dtype, mean ? loss / weight : loss);
    store<T>(total, dtype, weight);
  }
}

template <class T>
__global__ void entropy_gradient(const char* grad, int64_t grad_step, const char* scores,
                                 const int64_t* target, const char* weight, const char* total,
                                 const T* log_sums, char* out, int64_t n, DType dtype, int64_t size,
                                 DType grad_dtype, int64_t grad_size, DType weight_dtype, int64_t weight_size,
                                 int64_t ignored, bool mean) {
  const int64_t r = blockIdx.x, c = target[r];
  const bool counted = c != ignored && c >= 0 && c < n;
  T factor = 0;
  if (counted) {
    factor = load<T>(grad + r * grad_step * grad_size, grad_dtype);
    if (weight) factor *= load<T>(weight + c * weight_size, weight_dtype);
    if (mean) factor /= load<T>(total, dtype);
  }
  const T log_sum = log_sums[r];
  const char* row = scores + r * n * size;
  char* to = out + r * n * size;
  int64_t first = 0;
  if constexpr (std::is_same_v<T, float>) {
    if (((reinterpret_cast<uintptr_t>(row) | reinterpret_cast<uintptr_t>(to)) & 15) == 0) {
      const int64_t vectors = n / kVector;
      for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
        float v[kVector];
        load_vector(v, row + i * kVector * size, dtype);
#pragma unroll
        for (int j = 0; j < kVector; ++j)
          v[j] = counted ? (__expf(v[j] - log_sum) - (i * kVector + j == c ? 1.0f : 0.0f)) * factor : 0.0f;
        store_vector<float>(to + i * kVector * size, dtype, v);
      }
      first = vectors * kVector;
    }
  }
  for (int64_t i = first + threadIdx.x; i < n; i += blockDim.x) {
    const T p = exponential(load<T>(row + i * size, dtype) - log_sum) - (i == c ? T(1) : T(0));
    store<T>(to + i * size, dtype, counted ? p * factor : T(0));
  }
}

void check_classes(const Tensor& self, const Tensor& target) {
  FL_CHECK(self.dim() >= 1 && target.dim() == std::max<int64_t>(0, self.dim() - 1),
           "[cross_entropy] expected classes for scores of shape ", self.sizes(), ", got target of shape ",
           target.sizes());
  FL_CHECK(self.dim() == 1 || target.dim() == 0 || target.size(0) == self.size(0),
           "[cross_entropy] expected a target for each of ", self.sizes(), " scores, got ", target.sizes());
  FL_CHECK(target.dtype() == DType::Int64 || target.dtype() == DType::UInt8 || target.dtype() == DType::Int32,
           "[cross_entropy] expected classes of dtype int64, got ", name_of(target.dtype()));
  FL_CHECK(target.device() == self.device(), "[cross_entropy] expected all tensors on one device, got ",
           to_string(self.device()), " and ", to_string(target.device()));
}

std::tuple<Tensor, Tensor, Tensor> cross_entropy(const Tensor& self, const Tensor& target,
                                                 const Tensor& weight, int64_t reduction,
                                                 int64_t ignore_index) {
  check_floating("cross_entropy", self);
  check_classes(self, target);
  const int64_t d = self.dim() == 1 ? 0 : 1, n = self.size(d);
  OnDevice on(self.device().index);
  const DType compute = compute_of(self.dtype());
  const Tensor x = lines_of(self, d), classes = contiguous(to_dtype(target, DType::Int64));
  const Tensor out = reduction == 0 ? empty(target.sizes(), self.options()) : empty({}, self.options());
  const Tensor total = empty({}, self.options()), sums = empty(target.sizes(), {compute, self.device()});
  const int64_t rows = n ? x.numel() / n : 0;
  const Tensor losses = empty({rows}, {compute, self.device()}),
               weights = empty({rows}, {compute, self.device()});
  const Tensor w = weight.defined() ? contiguous(weight) : weight;
  const cudaStream_t stream = current_stream();
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    if (rows)
      launch(entropy_rows<T>, static_cast<unsigned>(rows), n >= 4096 ? 512 : 128, stream, "cross_entropy",
             x.raw(), classes.data<int64_t>(), w.defined() ? w.raw() : nullptr, sums.data<T>(),
             losses.data<T>(), weights.data<T>(), n, x.dtype(), x.itemsize(),
             w.defined() ? w.dtype() : DType::Float, w.defined() ? w.itemsize() : 4, ignore_index,
             failure_flag());
    launch(entropy_total<T>, 1, 1024, stream, "cross_entropy", losses.data<T>(), weights.data<T>(), rows,
           reduction == 0 ? nullptr : out.raw(), total.raw(), out.dtype(), reduction == 1);
  };
  compute == DType::Double ? run(double()) : run(float());
  if (reduction == 0) copy_into(out, alias(losses, target.sizes(), contiguous_strides(target.sizes()), 0));
  return {out, total, sums};
}

Tensor cross_entropy_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                              const Tensor& weight, int64_t reduction, int64_t ignore_index,
                              const Tensor& total_weight, const Tensor& log_sums) {
  check_classes(self, target);
  const int64_t d = self.dim() == 1 ? 0 : 1, n = self.size(d);
  if (self.numel() == 0) return empty(self.sizes(), self.options());
  OnDevice on(self.device().index);
  const DType compute = compute_of(self.dtype());
  const Tensor x = lines_of(self, d), classes = contiguous(to_dtype(target, DType::Int64));
  const Tensor g = contiguous(grad), sums = contiguous(to_dtype(log_sums, compute));
  const Tensor out = empty(x.sizes(), x.options()), w = weight.defined() ? contiguous(weight) : weight;
  const Tensor total = to_dtype(total_weight, self.dtype());
  const int64_t rows = x.numel() / n;
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    launch(entropy_gradient<T>, static_cast<unsigned>(rows), n >= 4096 ? 512 : 128, current_stream(),
           "cross_entropy", g.raw(), g.numel() == 1 ? 0 : 1, x.raw(), classes.data<int64_t>(),
           w.defined() ? w.raw() : nullptr, total.raw(), sums.data<T>(), out.raw(), n, x.dtype(),
           x.itemsize(), g.dtype(), g.itemsize(), w.defined() ? w.dtype() : DType::Float,
           w.defined() ? w.itemsize() : 4, ignore_index, reduction == 1);
  };
  compute == DType::Double ? run(double()) : run(float());
  return from_lines(out, d);
}

FL_CUDA_KERNEL("_cross_entropy_forward", cross_entropy);
FL_CUDA_KERNEL("_cross_entropy_backward", cross_entropy_backward);

}  // namespace
}  // namespace fl::cuda
