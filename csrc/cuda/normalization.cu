// layer_norm and its derivative. Rows of up to 32768 elements are held in registers; the sums over rows that
// the gradients of weight and bias are go through partial sums of blocks of rows, in a fixed order.
#include "cuda/launch.h"
#include "cuda/rows.cuh"
#include "dispatch/kernel.h"

namespace fl::cuda {

namespace {

struct LayerArgs {
  const char *in, *weight, *bias;
  char *out, *mean, *rstd;
  int n;
  DType dtype, weight_dtype, statistics;
  float eps;
};

__device__ __forceinline__ void get_parameter(const char* p, DType dtype, int vector, int n,
                                              float (&v)[kVector], float without) {
  if (!p) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) v[j] = without;
    return;
  }
  RowReader(p, 0, n, dtype).get(vector, v, without);
}

__global__ void layer_norm_held(const LayerArgs a) {
  __shared__ float shared[33];
  const int n = a.n;
  const RowReader from(a.in, blockIdx.x, n, a.dtype), to(a.out, blockIdx.x, n, a.dtype);
  float v[kHold][kVector];
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kHold; ++k) {
    from.get(k * blockDim.x + threadIdx.x, v[k], 0);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum += v[k][j];
  }
  const float mean = block_fold(sum, Sum{}, 0.0f, shared) / n;
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kHold; ++k)
#pragma unroll
    for (int j = 0; j < kVector; ++j) v[k][j] -= mean;
#pragma unroll
  for (int k = 0; k < kHold; ++k) {
    const int first = (k * blockDim.x + threadIdx.x) * kVector;
    if (first + kVector <= n) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) squares += v[k][j] * v[k][j];
    } else {
#pragma unroll
      for (int j = 0; j < kVector; ++j) squares += first + j < n ? v[k][j] * v[k][j] : 0.0f;
    }
  }
  const float rstd = rsqrtf(block_fold(squares, Sum{}, 0.0f, shared) / n + a.eps);
#pragma unroll
  for (int k = 0; k < kHold; ++k) {
    const int vector = k * blockDim.x + threadIdx.x;
    if (vector * kVector >= n) break;
#pragma unroll
    for (int j = 0; j < kVector; ++j) v[k][j] *= rstd;
    if (a.weight) {
      float w[kVector];
      get_parameter(a.weight, a.weight_dtype, vector, n, w, 1);
#pragma unroll
      for (int j = 0; j < kVector; ++j) v[k][j] *= w[j];
    }
    if (a.bias) {
      float b[kVector];
      get_parameter(a.bias, a.weight_dtype, vector, n, b, 0);
#pragma unroll
      for (int j = 0; j < kVector; ++j) v[k][j] += b[j];
    }
    to.put(vector, v[k]);
  }
  if (threadIdx.x == 0) {
    const int size = a.statistics == DType::Float ? 4 : 2;
    store<float>(a.mean + int64_t(blockIdx.x) * size, a.statistics, mean);
    store<float>(a.rstd + int64_t(blockIdx.x) * size, a.statistics, rstd);
  }
}

// dx = rstd (gw - mean(gw) - xhat mean(gw xhat)), gw = g * weight; without a mean (rms_norm) the first is
// absent.
__global__ void layer_norm_input_gradient(const char* grad, const LayerArgs a) {
  __shared__ float shared[33];
  const int n = a.n, size = a.statistics == DType::Float ? 4 : 2;
  const RowReader g(grad, blockIdx.x, n, a.dtype), x(a.in, blockIdx.x, n, a.dtype),
      to(a.out, blockIdx.x, n, a.dtype);
  const float mean = a.mean ? load<float>(a.mean + int64_t(blockIdx.x) * size, a.statistics) : 0.0f,
              rstd = load<float>(a.rstd + int64_t(blockIdx.x) * size, a.statistics);
  float gw[kHold][kVector], h[kHold][kVector];
  float sum = 0, product = 0;
#pragma unroll
  for (int k = 0; k < kHold; ++k) {
    const int vector = k * blockDim.x + threadIdx.x;
    float w[kVector];
    g.get(vector, gw[k], 0);
    x.get(vector, h[k], mean);
    if (vector * kVector < n)
      get_parameter(a.weight, a.weight_dtype, vector, n, w, 1);
    else
      for (int j = 0; j < kVector; ++j) w[j] = 0;
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      gw[k][j] *= w[j];
      h[k][j] = (h[k][j] - mean) * rstd;
      sum += gw[k][j];
      product += gw[k][j] * h[k][j];
    }
  }
  sum = a.mean ? block_fold(sum, Sum{}, 0.0f, shared) / n : 0.0f;
  product = block_fold(product, Sum{}, 0.0f, shared) / n;
#pragma unroll
  for (int k = 0; k < kHold; ++k) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) gw[k][j] = rstd * (gw[k][j] - sum - h[k][j] * product);
    to.put(k * blockDim.x + threadIdx.x, gw[k]);
  }
}

// block: (32, 8) on 32 columns of a piece of the rows.
__global__ void layer_norm_parameter_gradients(const char* grad, const char* in, const char* mean,
                                               const char* rstd, float* weight_parts, float* bias_parts,
                                               int64_t rows, int n, int64_t piece, DType dtype,
                                               DType statistics) {
  __shared__ float of_weight[8][33], of_bias[8][33];
  const int column = blockIdx.x * 32 + threadIdx.x, size = dtype == DType::Float ? 4 : 2,
            step = statistics == DType::Float ? 4 : 2;
  float w = 0, b = 0;
  const int64_t last = min(rows, (blockIdx.y + 1) * piece);
  if (column < n)
    for (int64_t r = blockIdx.y * piece + threadIdx.y; r < last; r += 8) {
      const float g = load<float>(grad + (r * n + column) * size, dtype),
                  x = load<float>(in + (r * n + column) * size, dtype);
      w += g * (x - (mean ? load<float>(mean + r * step, statistics) : 0.0f)) *
           load<float>(rstd + r * step, statistics);
      b += g;
    }
  of_weight[threadIdx.y][threadIdx.x] = w;
  of_bias[threadIdx.y][threadIdx.x] = b;
  __syncthreads();
  if (threadIdx.y == 0 && column < n) {
    for (int k = 1; k < 8; ++k) {
      w += of_weight[k][threadIdx.x];
      b += of_bias[k][threadIdx.x];
    }
    weight_parts[int64_t(blockIdx.y) * n + column] = w;
    bias_parts[int64_t(blockIdx.y) * n + column] = b;
  }
}

__global__ void fold_parts(const float* parts, int64_t count, int n, char* out, DType dtype) {
  const int column = blockIdx.x * 256 + threadIdx.x;
  if (column >= n) return;
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += parts[i * n + column];
  store<float>(out + int64_t(column) * (dtype == DType::Float ? 4 : 2), dtype, sum);
}

int64_t length_of(const Tensor& input, IntSpan shape) {
  FL_CHECK(shape.size() >= 1 && static_cast<int64_t>(shape.size()) <= input.dim(),
           "[layer_norm] expected a normalized_shape of at least one dimension, got ", shape);
  int64_t n = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    FL_CHECK(
        input.size(input.dim() - static_cast<int64_t>(shape.size()) + static_cast<int64_t>(i)) == shape[i],
        "[layer_norm] expected an input whose last dimensions are ", shape, ", got ", input.sizes());
    n *= shape[i];
  }
  return n;
}

// What the kernels here do not take goes by the operator's definition.
bool held(const Tensor& input, int64_t n) {
  return is_floating(input.dtype()) && input.dtype() != DType::Double && n > 0 && n <= kLongestHeld &&
         input.numel() > 0;
}

Tensor prepared(const Tensor& t) {
  return t.defined() ? contiguous(t) : t;
}

void layer_norm(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Tensor input = args[0].tensor();
  const IntSpan shape = args[1].ints();
  const int64_t n = length_of(input, shape);
  const Tensor weight = prepared(args[2].tensor()), bias = prepared(args[3].tensor());
  const DType parameters = weight.defined() ? weight.dtype() : bias.defined() ? bias.dtype() : input.dtype();
  const bool alike = !weight.defined() || !bias.defined() || weight.dtype() == bias.dtype();
  if (!held(input, n) || !alike || parameters == DType::Double) return by_definition(op, keys, args, results);
  OnDevice on(input.device().index);
  const Tensor x = contiguous(input), out = empty(input.sizes(), input.options());
  Dims statistics(input.sizes());
  for (size_t i = 0; i < shape.size(); ++i) statistics[statistics.size() - 1 - i] = 1;
  const Options single{DType::Float, input.device()};
  const Tensor mean = empty(statistics, single), rstd = empty(statistics, single);
  const LayerArgs a{x.raw(),
                    weight.defined() ? weight.raw() : nullptr,
                    bias.defined() ? bias.raw() : nullptr,
                    out.raw(),
                    mean.raw(),
                    rstd.raw(),
                    int(n),
                    x.dtype(),
                    parameters,
                    DType::Float,
                    float(args[4].to_float())};
  launch(layer_norm_held, static_cast<unsigned>(x.numel() / n), row_threads(n), current_stream(),
         "layer_norm", a);
  results[0] = Value(out);
  results[1] = Value(mean);
  results[2] = Value(rstd);
}

void layer_norm_backward(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Tensor given = args[0].tensor(), input = args[1].tensor();
  const Tensor mean = prepared(args[2].tensor()), rstd = prepared(args[3].tensor());
  const Tensor weight = prepared(args[4].tensor());
  const int64_t lead = input.dim() - args[5].to_int();
  const IntSpan shape(input.sizes().begin() + lead, input.sizes().end() - input.sizes().begin() - lead);
  const int64_t n = numel_of(shape);
  const bool* mask = args[6].bools();
  const bool fits = held(input, n) && given.dtype() == input.dtype() && rstd.dtype() != DType::Double &&
                    (!mean.defined() || mean.dtype() == rstd.dtype()) &&
                    (!weight.defined() || weight.dtype() != DType::Double);
  if (!fits) return by_definition(op, keys, args, results);
  OnDevice on(input.device().index);
  const Tensor g = contiguous(given), x = contiguous(input);
  const int64_t rows = x.numel() / n;
  const cudaStream_t stream = current_stream();
  const Tensor none = empty({0}, input.options());
  Tensor by_input = none, by_weight = none, by_bias = none;
  LayerArgs a{x.raw(),
              weight.defined() ? weight.raw() : nullptr,
              nullptr,
              nullptr,
              mean.defined() ? mean.raw() : nullptr,
              rstd.raw(),
              int(n),
              x.dtype(),
              weight.defined() ? weight.dtype() : DType::Float,
              rstd.dtype(),
              0};
  if (mask[0]) {
    by_input = empty(input.sizes(), input.options());
    a.out = by_input.raw();
    launch(layer_norm_input_gradient, static_cast<unsigned>(rows), row_threads(n), stream, "layer_norm",
           g.raw(), a);
  }
  if (mask[1] || mask[2]) {
    const DType parameters = weight.defined() ? weight.dtype() : input.dtype();
    const unsigned across = static_cast<unsigned>((n + 31) / 32);
    const int64_t pieces = std::max<int64_t>(1, std::min<int64_t>((rows + 63) / 64, 512 / across + 8));
    const int64_t piece = (rows + pieces - 1) / pieces;
    Scratch parts(2 * pieces * n * sizeof(float), input.device().index, stream);
    float *w = parts.as<float>(), *b = w + pieces * n;
    launch(layer_norm_parameter_gradients, dim3(across, static_cast<unsigned>(pieces)), dim3(32, 8), stream,
           "layer_norm", g.raw(), x.raw(), a.mean, rstd.raw(), w, b, rows, int(n), piece, x.dtype(),
           rstd.dtype());
    const unsigned blocks = static_cast<unsigned>((n + 255) / 256);
    if (mask[1]) {
      by_weight = empty(shape, {parameters, input.device()});
      launch(fold_parts, blocks, 256, stream, "layer_norm", w, pieces, int(n), by_weight.raw(), parameters);
    }
    if (mask[2]) {
      by_bias = empty(shape, {parameters, input.device()});
      launch(fold_parts, blocks, 256, stream, "layer_norm", b, pieces, int(n), by_bias.raw(), parameters);
    }
  }
  results[0] = Value(by_input);
  results[1] = Value(by_weight);
  results[2] = Value(by_bias);
}

const detail::Register forward{"native_layer_norm", {Key::CUDA}, Kernel{layer_norm, nullptr}};
const detail::Register backward{"_layer_norm_backward", {Key::CUDA}, Kernel{layer_norm_backward, nullptr}};

}  // namespace
}  // namespace fl::cuda
