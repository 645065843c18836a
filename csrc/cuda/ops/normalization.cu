// layer_norm, rms_norm (which is without a mean) and their derivative. Rows of up to 32768 elements are held
// in registers; the sums over rows that the gradients of weight and bias are go through partial sums of
// blocks of rows, in a fixed order.
//
// Rows of whole 16-byte words have kernels for their dtype, short ones a warp each; the others look at the
// dtype and at the end of the row for every vector.
#include "cuda/engine/packs.cuh"
#include "cuda/engine/rows.cuh"
#include "cuda/runtime/launch.h"
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

__global__ void __launch_bounds__(1024) layer_norm_held(const LayerArgs a) {
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
  const float mean = a.mean ? block_fold(sum, Sum{}, 0.0f, shared) / n : 0.0f;
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
    if (a.mean) store<float>(a.mean + int64_t(blockIdx.x) * size, a.statistics, mean);
    store<float>(a.rstd + int64_t(blockIdx.x) * size, a.statistics, rstd);
  }
}

// dx = rstd (gw - mean(gw) - xhat mean(gw xhat)), gw = g * weight; without a mean (rms_norm) the first is
// absent.
__global__ void __launch_bounds__(1024) layer_norm_input_gradient(const char* grad, const LayerArgs a) {
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

// ---------------------------------------------------------------- rows of whole words

constexpr unsigned kRowThreads = 512;  // of a row, at most
constexpr int kMostWords = 4;          // that a thread holds

// Threads of a row, words that each holds, and rows of a block.
struct RowShape {
  explicit RowShape(int64_t words)
      : threads(static_cast<unsigned>((words + 32 * kMostWords - 1) / (32 * kMostWords) * 32)),
        hold(static_cast<int>((words + threads - 1) / threads)),
        rows(threads == 32 ? 4 : 1) {}
  unsigned threads;
  int hold;
  unsigned rows;
};

// The sums of a row's threads: a warp, or the block.
__device__ __forceinline__ float row_sum(float x, float* shared) {
  return blockDim.x == 32 ? warp_fold(x, Sum{}) : block_fold(x, Sum{}, 0.0f, shared);
}

// Those of a word of the row, in its dtype or in float.
template <class W, int V>
__device__ __forceinline__ void read_parameters(const char* p, int word, float (&v)[V]) {
  constexpr int width = 16 / sizeof(W);
#pragma unroll
  for (int k = 0; k < V / width; ++k) {
    float part[width];
    read_pack<W, width>(p, int64_t(word) * V + k * width).get(part);
#pragma unroll
    for (int j = 0; j < width; ++j) v[k * width + j] = part[j];
  }
}

template <class T, class W, int H>
__global__ void __launch_bounds__(kRowThreads) word_layer_norm(const LayerArgs a, const int64_t rows) {
  constexpr int V = 16 / sizeof(T);
  __shared__ float shared[33];
  const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const int words = a.n / V;
  Pack<T, V> held[H];
  float sum = 0;
#pragma unroll
  for (int k = 0; k < H; ++k) {
    const int word = k * blockDim.x + threadIdx.x;
    if (word < words) held[k] = read_pack<T, V>(a.in, row * a.n + word * V);
  }
#pragma unroll
  for (int k = 0; k < H; ++k) {
    if (int(k * blockDim.x + threadIdx.x) >= words) break;
    float x[V];
    held[k].get(x);
#pragma unroll
    for (int j = 0; j < V; ++j) sum += x[j];
  }
  const float mean = a.mean ? row_sum(sum, shared) / a.n : 0.0f;
  float squares = 0;
#pragma unroll
  for (int k = 0; k < H; ++k) {
    if (int(k * blockDim.x + threadIdx.x) >= words) break;
    float x[V];
    held[k].get(x);
#pragma unroll
    for (int j = 0; j < V; ++j) squares += (x[j] - mean) * (x[j] - mean);
  }
  const float rstd = rsqrtf(row_sum(squares, shared) / a.n + a.eps);
#pragma unroll
  for (int k = 0; k < H; ++k) {
    const int word = k * blockDim.x + threadIdx.x;
    if (word >= words) break;
    float x[V], by[V];
    held[k].get(x);
#pragma unroll
    for (int j = 0; j < V; ++j) x[j] = (x[j] - mean) * rstd;
    if (a.weight) {
      read_parameters<W, V>(a.weight, word, by);
#pragma unroll
      for (int j = 0; j < V; ++j) x[j] *= by[j];
    }
    if (a.bias) {
      read_parameters<W, V>(a.bias, word, by);
#pragma unroll
      for (int j = 0; j < V; ++j) x[j] += by[j];
    }
    write_pack<T, V>(a.out, row * a.n + word * V, x);
  }
  if (threadIdx.x == 0) {
    if (a.mean) reinterpret_cast<float*>(a.mean)[row] = mean;
    reinterpret_cast<float*>(a.rstd)[row] = rstd;
  }
}

template <class T, class W, int H>
__global__ void __launch_bounds__(kRowThreads)
    word_input_gradient(const char* grad, const LayerArgs a, const int64_t rows) {
  constexpr int V = 16 / sizeof(T);
  __shared__ float shared[33];
  const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const int words = a.n / V;
  Pack<T, V> in[H], grads[H];
#pragma unroll
  for (int k = 0; k < H; ++k) {
    const int word = k * blockDim.x + threadIdx.x;
    if (word >= words) break;
    grads[k] = read_pack<T, V>(grad, row * a.n + word * V);
    in[k] = read_pack<T, V>(a.in, row * a.n + word * V);
  }
  const float mean = a.mean ? reinterpret_cast<const float*>(a.mean)[row] : 0.0f,
              rstd = reinterpret_cast<const float*>(a.rstd)[row];
  float g[H][V];
  float sum = 0, product = 0;
#pragma unroll
  for (int k = 0; k < H; ++k) {
    const int word = k * blockDim.x + threadIdx.x;
    if (word >= words) break;
    float x[V];
    grads[k].get(g[k]);
    in[k].get(x);
    if (a.weight) {
      float w[V];
      read_parameters<W, V>(a.weight, word, w);
#pragma unroll
      for (int j = 0; j < V; ++j) g[k][j] *= w[j];
    }
#pragma unroll
    for (int j = 0; j < V; ++j) {
      sum += g[k][j];
      product += g[k][j] * (x[j] - mean);
    }
  }
  sum = a.mean ? row_sum(sum, shared) / a.n : 0.0f;
  const float slope = row_sum(product, shared) / a.n * rstd * rstd;
#pragma unroll
  for (int k = 0; k < H; ++k) {
    const int word = k * blockDim.x + threadIdx.x;
    if (word >= words) break;
    float x[V];
    in[k].get(x);
#pragma unroll
    for (int j = 0; j < V; ++j) x[j] = rstd * (g[k][j] - sum - (x[j] - mean) * slope);
    write_pack<T, V>(a.out, row * a.n + word * V, x);
  }
}

// block: (32, 8) on 32 words of a piece of the rows.
template <class T>
__global__ void __launch_bounds__(256)
    word_parameter_gradients(const char* grad, const LayerArgs a, float* weight_parts, float* bias_parts,
                             const int64_t rows, const int64_t piece) {
  constexpr int V = 16 / sizeof(T), together = 4;
  __shared__ float of_weight[8][32 * V + 1], of_bias[8][32 * V + 1];
  const int column = (blockIdx.x * 32 + threadIdx.x) * V;
  float w[V], b[V];
#pragma unroll
  for (int j = 0; j < V; ++j) w[j] = b[j] = 0;
  const int64_t last = min(rows, (blockIdx.y + 1) * piece);
  if (column < a.n)
    for (int64_t r = blockIdx.y * piece + threadIdx.y; r < last; r += 8 * together) {
      Pack<T, V> g[together], x[together];
      float mean[together], rstd[together];
#pragma unroll
      for (int u = 0; u < together; ++u) {
        const int64_t row = r + 8 * u;
        if (row >= last) break;
        g[u] = read_pack<T, V>(grad, row * a.n + column);
        x[u] = read_pack<T, V>(a.in, row * a.n + column);
        mean[u] = a.mean ? reinterpret_cast<const float*>(a.mean)[row] : 0.0f;
        rstd[u] = reinterpret_cast<const float*>(a.rstd)[row];
      }
#pragma unroll
      for (int u = 0; u < together; ++u) {
        if (r + 8 * u >= last) break;
        float by[V], at[V];
        g[u].get(by);
        x[u].get(at);
#pragma unroll
        for (int j = 0; j < V; ++j) {
          w[j] += by[j] * ((at[j] - mean[u]) * rstd[u]);
          b[j] += by[j];
        }
      }
    }
#pragma unroll
  for (int j = 0; j < V; ++j) {
    of_weight[threadIdx.y][threadIdx.x * V + j] = w[j];
    of_bias[threadIdx.y][threadIdx.x * V + j] = b[j];
  }
  __syncthreads();
  const int c = threadIdx.y * 32 + threadIdx.x;
  const int64_t of = int64_t(blockIdx.x) * 32 * V + c;
  if (c >= 32 * V || of >= a.n) return;
  float weight = 0, bias = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    weight += of_weight[k][c];
    bias += of_bias[k][c];
  }
  weight_parts[int64_t(blockIdx.y) * a.n + of] = weight;
  bias_parts[int64_t(blockIdx.y) * a.n + of] = bias;
}

// ---------------------------------------------------------------- any rows

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

// block: (32, 8) on 32 columns; the second dimension of the grid is weight and bias.
__global__ void __launch_bounds__(256)
    fold_parts(const float* weight_parts, const float* bias_parts, int64_t count, int n, char* by_weight,
               char* by_bias, DType dtype) {
  __shared__ float shared[8][33];
  const float* parts = blockIdx.y ? bias_parts : weight_parts;
  char* out = blockIdx.y ? by_bias : by_weight;
  if (!out) return;
  const int column = blockIdx.x * 32 + threadIdx.x;
  float sum = 0;
  if (column < n)
    for (int64_t i = threadIdx.y; i < count; i += 8) sum += parts[i * n + column];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y || column >= n) return;
#pragma unroll
  for (int k = 1; k < 8; ++k) sum += shared[k][threadIdx.x];
  store<float>(out + int64_t(column) * (dtype == DType::Float ? 4 : 2), dtype, sum);
}

// Calls f with the dtype's element type, that of the parameters and the words that a thread holds.
template <class T, class W, class F>
void by_words(int hold, const F& f) {
  switch (hold) {
    case 1:
      return f(T(), W(), std::integral_constant<int, 1>());
    case 2:
      return f(T(), W(), std::integral_constant<int, 2>());
    case 3:
      return f(T(), W(), std::integral_constant<int, 3>());
    default:
      return f(T(), W(), std::integral_constant<int, 4>());
  }
}
template <class F>
void by_rows(DType dtype, DType parameters, int hold, const F& f) {
  const bool wide = parameters == DType::Float;
  if (dtype == DType::Float) return by_words<float, float>(hold, f);
  if (dtype == DType::BFloat16)
    return wide ? by_words<__nv_bfloat16, float>(hold, f) : by_words<__nv_bfloat16, __nv_bfloat16>(hold, f);
  return wide ? by_words<__half, float>(hold, f) : by_words<__half, __half>(hold, f);
}

bool of_words(const Tensor& t) {
  return !t.defined() || is_aligned(t.raw());
}
// Whether rows of x are whole words that a block's threads hold, with parameters of a dtype they are read in.
bool has_words(const Tensor& x, int64_t n, DType parameters, std::initializer_list<Tensor> others) {
  const int64_t width = 16 / x.itemsize();
  bool whole = n % width == 0 && n / width <= kRowThreads * kMostWords && of_words(x) &&
               (parameters == x.dtype() || parameters == DType::Float);
  for (const Tensor& t : others) whole &= of_words(t);
  return whole;
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

void check_shape(const char* name, const Tensor& parameter, IntSpan shape) {
  FL_CHECK(!parameter.defined() || parameter.sizes() == shape, "[layer_norm] expected a ", name, " of shape ",
           shape, ", got ", parameter.sizes());
}

// What the kernels here do not take goes by the operator's definition.
bool held(const Tensor& input, int64_t n) {
  return is_floating(input.dtype()) && input.dtype() != DType::Double && n > 0 && n <= kLongestHeld &&
         input.numel() > 0;
}

Tensor prepared(const Tensor& t) {
  return t.defined() ? contiguous(t) : t;
}

// Launches the forward kernel for what is contiguous; without a mean: rms_norm.
void normalise(const Tensor& x, const Tensor& weight, const Tensor& bias, DType parameters, const Tensor& out,
               const Tensor& mean, const Tensor& rstd, int64_t n, double eps) {
  const LayerArgs a{x.raw(),
                    weight.defined() ? weight.raw() : nullptr,
                    bias.defined() ? bias.raw() : nullptr,
                    out.raw(),
                    mean.defined() ? mean.raw() : nullptr,
                    rstd.raw(),
                    int(n),
                    x.dtype(),
                    parameters,
                    DType::Float,
                    float(eps)};
  const int64_t rows = x.numel() / n;
  const cudaStream_t stream = current_stream();
  if (!has_words(x, n, parameters, {weight, bias, out}))
    return launch(layer_norm_held, static_cast<unsigned>(rows), row_threads(n), stream, "layer_norm", a);
  const RowShape shape(n * x.itemsize() / 16);
  by_rows(x.dtype(), parameters, shape.hold, [&](auto t, auto w, auto hold) {
    launch(word_layer_norm<decltype(t), decltype(w), decltype(hold)::value>,
           static_cast<unsigned>((rows + shape.rows - 1) / shape.rows), dim3(shape.threads, shape.rows),
           stream, "layer_norm", a, rows);
  });
}

Dims statistics_shape(const Tensor& input, IntSpan shape) {
  Dims statistics(input.sizes());
  for (size_t i = 0; i < shape.size(); ++i) statistics[statistics.size() - 1 - i] = 1;
  return statistics;
}

void layer_norm(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Tensor input = args[0].tensor();
  const IntSpan shape = args[1].ints();
  const int64_t n = length_of(input, shape);
  check_shape("weight", args[2].tensor(), shape);
  check_shape("bias", args[3].tensor(), shape);
  const Tensor weight = prepared(args[2].tensor()), bias = prepared(args[3].tensor());
  const DType parameters = weight.defined() ? weight.dtype() : bias.defined() ? bias.dtype() : input.dtype();
  const bool alike = !weight.defined() || !bias.defined() || weight.dtype() == bias.dtype();
  const bool known = parameters == input.dtype() || (is_reduced(input.dtype()) && parameters == DType::Float);
  if (!held(input, n) || !alike || !known) return by_definition(op, keys, args, results);
  OnDevice on(input.device().index);
  const Tensor x = contiguous(input), out = empty(input.sizes(), input.options());
  const Dims statistics = statistics_shape(input, shape);
  const Options single{DType::Float, input.device()};
  const Tensor mean = empty(statistics, single), rstd = empty(statistics, single);
  normalise(x, weight, bias, parameters, out, mean, rstd, n, args[4].to_float());
  results[0] = Value(out);
  results[1] = Value(mean);
  results[2] = Value(rstd);
}

void rms_norm(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Tensor input = args[0].tensor();
  const IntSpan shape = args[1].ints();
  const int64_t n = length_of(input, shape);
  check_shape("weight", args[2].tensor(), shape);
  const Tensor weight = prepared(args[2].tensor());
  const DType parameters = weight.defined() ? weight.dtype() : input.dtype();
  if (!held(input, n) || parameters == DType::Double) return by_definition(op, keys, args, results);
  OnDevice on(input.device().index);
  const Tensor x = contiguous(input), out = empty(input.sizes(), input.options());
  const Tensor rstd = empty(statistics_shape(input, shape), {DType::Float, input.device()});
  const double eps =
      args[3].is_none() ? static_cast<double>(std::numeric_limits<float>::epsilon()) : args[3].to_float();
  normalise(x, weight, Tensor(), parameters, out, Tensor(), rstd, n, eps);
  results[0] = Value(out);
  results[1] = Value(rstd);
}

void layer_norm_backward(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Tensor gradient = args[0].tensor(), input = args[1].tensor();
  const Tensor mean = prepared(args[2].tensor()), rstd = prepared(args[3].tensor());
  const Tensor weight = prepared(args[4].tensor());
  const int64_t lead = input.dim() - args[5].to_int();
  const IntSpan shape(input.sizes().begin() + lead, input.sizes().end() - input.sizes().begin() - lead);
  const int64_t n = numel_of(shape);
  const bool* mask = args[6].bools();
  const bool fits = held(input, n) && gradient.dtype() == input.dtype() && rstd.dtype() != DType::Double &&
                    (!mean.defined() || mean.dtype() == rstd.dtype()) &&
                    (!weight.defined() || weight.dtype() != DType::Double);
  if (!fits) return by_definition(op, keys, args, results);
  OnDevice on(input.device().index);
  const Tensor g = contiguous(gradient), x = contiguous(input);
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
  const bool words = rstd.dtype() == DType::Float && has_words(x, n, a.weight_dtype, {weight, g});
  if (mask[0]) {
    by_input = empty(input.sizes(), input.options());
    a.out = by_input.raw();
    if (words) {
      const RowShape lines(n * x.itemsize() / 16);
      by_rows(x.dtype(), a.weight_dtype, lines.hold, [&](auto t, auto w, auto hold) {
        launch(word_input_gradient<decltype(t), decltype(w), decltype(hold)::value>,
               static_cast<unsigned>((rows + lines.rows - 1) / lines.rows), dim3(lines.threads, lines.rows),
               stream, "layer_norm", g.raw(), a, rows);
      });
    } else {
      launch(layer_norm_input_gradient, static_cast<unsigned>(rows), row_threads(n), stream, "layer_norm",
             g.raw(), a);
    }
  }
  if (mask[1] || mask[2]) {
    const DType parameters = weight.defined() ? weight.dtype() : input.dtype();
    const int64_t wide = words ? 32 * (16 / x.itemsize()) : 32;
    const unsigned across = static_cast<unsigned>((n + wide - 1) / wide);
    const int64_t most = words ? 132 * 4 / across + 1 : 512 / across + 8;
    const int64_t pieces = std::max<int64_t>(1, std::min<int64_t>((rows + 31) / 32, most));
    const int64_t piece = (rows + pieces - 1) / pieces;
    Scratch parts(2 * pieces * n * sizeof(float), input.device().index, stream);
    float *w = parts.as<float>(), *b = w + pieces * n;
    const dim3 grid(across, static_cast<unsigned>(pieces)), block(32, 8);
    if (words)
      by_rows(x.dtype(), x.dtype(), 1, [&](auto t, auto, auto) {
        launch(word_parameter_gradients<decltype(t)>, grid, block, stream, "layer_norm", g.raw(), a, w, b,
               rows, piece);
      });
    else
      launch(layer_norm_parameter_gradients, grid, block, stream, "layer_norm", g.raw(), x.raw(), a.mean,
             rstd.raw(), w, b, rows, int(n), piece, x.dtype(), rstd.dtype());
    if (mask[1]) by_weight = empty(shape, {parameters, input.device()});
    if (mask[2]) by_bias = empty(shape, {parameters, input.device()});
    launch(fold_parts, dim3(static_cast<unsigned>((n + 31) / 32), 2), block, stream, "layer_norm", w, b,
           pieces, int(n), mask[1] ? by_weight.raw() : nullptr, mask[2] ? by_bias.raw() : nullptr,
           parameters);
  }
  results[0] = Value(by_input);
  results[1] = Value(by_weight);
  results[2] = Value(by_bias);
}

const detail::Register forward{"native_layer_norm", {Key::CUDA}, Kernel{layer_norm, nullptr}};
const detail::Register forward_rms{"_fused_rms_norm", {Key::CUDA}, Kernel{rms_norm, nullptr}};
const detail::Register backward{"_layer_norm_backward", {Key::CUDA}, Kernel{layer_norm_backward, nullptr}};

}  // namespace
}  // namespace fl::cuda
