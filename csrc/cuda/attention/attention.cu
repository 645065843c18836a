// Attention. Half and bfloat16 heads go to the kernels over blocks (flash.h). Others, single precision above
// all, are done by products over all scores, with the softmax of a row and its derivative in one pass each:
// scores are kept in single precision, and memory grows with queries times keys; compiled code has a kernel
// where it does not.
#include <cstdlib>

#include "cuda/attention/flash.h"
#include "cuda/engine/rows.cuh"
#include "cuda/runtime/driver.h"
#include "cuda/runtime/launch.h"
#include "dispatch/kernel.h"
#include "ops/attention.h"

namespace fl::cuda {

// FLAMBEAU_FLASH_GROUPS=0 is for the tests of the other kernels on a device that has both.
bool flash::has_groups(const Args& args) {
  if (args.depth <= 32 || properties(current_device()).major != 9 || !driver().tensor_map) return false;
  const char* wanted = std::getenv("FLAMBEAU_FLASH_GROUPS");
  return !wanted || *wanted != '0';
}

namespace {

constexpr int kKeep = 2;  // vectors of a thread

unsigned threads_for(int64_t n) {
  const int64_t per = kKeep * kVector;
  return static_cast<unsigned>(std::max<int64_t>(32, ((n + per - 1) / per + 31) / 32 * 32));
}

struct ScoreArgs {
  const float* scores;
  char* weights;
  float* sums;  // log of the sum of exponentials of a row
  int queries, keys;
  float scale;
  bool causal;
  DType dtype;
};

__global__ void score_softmax(const ScoreArgs a) {
  __shared__ float shared[33];
  const int64_t row = blockIdx.x;
  const int limit = a.causal ? min(a.keys, int(row % a.queries) + 1) : a.keys;
  const RowReader from(a.scores, row, a.keys, DType::Float), to(a.weights, row, a.keys, a.dtype);
  float v[kKeep][kVector];
  float most = -INFINITY;
#pragma unroll
  for (int k = 0; k < kKeep; ++k) {
    const int vector = k * blockDim.x + threadIdx.x;
    if (vector * kVector < limit) {
      from.get(vector, v[k], -INFINITY);
    } else {
#pragma unroll
      for (int j = 0; j < kVector; ++j) v[k][j] = -INFINITY;
    }
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      v[k][j] = vector * kVector + j < limit ? v[k][j] * a.scale : -INFINITY;
      most = fmaxf(most, v[k][j]);
    }
  }
  most = block_fold(most, Most{}, -INFINITY, shared);
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kKeep; ++k)
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      v[k][j] = __expf(v[k][j] - most);
      sum += v[k][j];
    }
  sum = block_fold(sum, Sum{}, 0.0f, shared);
  const float factor = 1.0f / sum;
#pragma unroll
  for (int k = 0; k < kKeep; ++k) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) v[k][j] *= factor;
    to.put(k * blockDim.x + threadIdx.x, v[k]);
  }
  if (threadIdx.x == 0) a.sums[row] = most + logf(sum);
}

// From scores and the gradients of weights: the weights again, and the gradients of scores.
__global__ void score_gradient(const ScoreArgs a, const float* of_weights, char* of_scores) {
  __shared__ float shared[33];
  const int64_t row = blockIdx.x;
  const int limit = a.causal ? min(a.keys, int(row % a.queries) + 1) : a.keys;
  const RowReader s(a.scores, row, a.keys, DType::Float), g(of_weights, row, a.keys, DType::Float),
      w(a.weights, row, a.keys, a.dtype), to(of_scores, row, a.keys, a.dtype);
  const float sums = a.sums[row];
  float v[kKeep][kVector], d[kKeep][kVector];
  float product = 0;
#pragma unroll
  for (int k = 0; k < kKeep; ++k) {
    const int vector = k * blockDim.x + threadIdx.x;
    if (vector * kVector < limit) {
      s.get(vector, v[k], -INFINITY);
      g.get(vector, d[k], 0);
    } else {
#pragma unroll
      for (int j = 0; j < kVector; ++j) v[k][j] = d[k][j] = 0;
    }
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const bool inside = vector * kVector + j < limit;
      v[k][j] = inside ? __expf(v[k][j] * a.scale - sums) : 0.0f;
      product += inside ? v[k][j] * d[k][j] : 0.0f;
    }
  }
  product = block_fold(product, Sum{}, 0.0f, shared);
#pragma unroll
  for (int k = 0; k < kKeep; ++k) {
    const int vector = k * blockDim.x + threadIdx.x;
    w.put(vector, v[k]);
#pragma unroll
    for (int j = 0; j < kVector; ++j) d[k][j] = v[k][j] * (d[k][j] - product) * a.scale;
    to.put(vector, d[k]);
  }
}

// out = a @ b over a batch, all contiguous; a or b may be transposed.
void multiply(const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, const Tensor& out) {
  GemmArgs g;
  g.dtype = a.dtype();
  g.device = a.device().index;
  g.batch = a.numel() / (a.size(-1) * a.size(-2));
  g.m = trans_a ? a.size(-1) : a.size(-2);
  g.k = trans_a ? a.size(-2) : a.size(-1);
  g.n = trans_b ? b.size(-2) : b.size(-1);
  g.a = a.raw();
  g.b = b.raw();
  g.c = out.raw();
  g.a_row = trans_a ? 1 : a.size(-1);
  g.a_col = trans_a ? a.size(-1) : 1;
  g.b_row = trans_b ? 1 : b.size(-1);
  g.b_col = trans_b ? b.size(-1) : 1;
  g.c_row = g.n;
  g.c_col = 1;
  g.a_batch = a.size(-1) * a.size(-2);
  g.b_batch = b.size(-1) * b.size(-2);
  g.c_batch = g.m * g.n;
  gemm(g, out.dtype());
}

bool usable(const Tensor& query, const Tensor& key, const Tensor& mask) {
  return has_blas() && !mask.defined() && query.dim() == 4 && key.dim() == 4 &&
         query.size(1) == key.size(1) && key.size(2) <= 1024 * kKeep * kVector &&
         is_floating(query.dtype()) && query.dtype() != DType::Double && query.numel() > 0 && key.numel() > 0;
}

float scale_of(const Value& scale, const Tensor& query) {
  return scale.is_none() ? 1.0f / sqrtf(static_cast<float>(query.size(3)))
                         : static_cast<float>(scale.to_float());
}

// ---------------------------------------------------------------- over blocks

bool by_blocks(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, float scale) {
  for (const Tensor* t : {&query, &key, &value})
    if (t->dim() != 4 || t->numel() == 0 || t->dtype() != query.dtype()) return false;
  if (query.dtype() != DType::Half && query.dtype() != DType::BFloat16) return false;
  const int64_t b = query.size(0), h = query.size(1), n = query.size(2), d = query.size(3);
  const int64_t groups = key.size(1), m = key.size(2), most = int64_t(1) << 21;  // of rows, as grids have it
  if (key.size(0) != b || value.size(0) != b || value.size(1) != groups || h % groups || value.size(2) != m ||
      key.size(3) != d || value.size(3) != d)
    return false;
  if (d > 128 || n > most || m > most || b * h > INT32_MAX || !(scale > 0)) return false;
  if (mask.defined()) {
    const int64_t full[4] = {b, h, n, m}, lead = 4 - mask.dim();
    if (lead < 0 || !(mask.dtype() == DType::Bool || is_floating(mask.dtype()))) return false;
    for (int64_t i = lead; i < 4; ++i)
      if (mask.size(i - lead) != 1 && mask.size(i - lead) != full[i]) return false;
  }
  return true;
}

// How many numbers rows have that consist of 16-byte pieces, and the first of them as a window.
int64_t whole_pieces(int64_t depth) {
  return (depth + 7) / 8 * 8;
}
Tensor first_columns(const Tensor& t, int64_t depth) {
  return alias(t, {t.size(0), t.size(1), t.size(2), depth},
               {t.stride(0), t.stride(1), t.stride(2), t.stride(3)}, t.offset());
}

// Rows of 16-byte pieces, with zeros at their ends: a copy only where the tensor has none.
Tensor in_pieces(const Tensor& t) {
  if (t.size(3) % 8) {
    const Tensor wide = empty({t.size(0), t.size(1), t.size(2), whole_pieces(t.size(3))}, t.options());
    the_accelerator().fill(wide, "\0\0\0\0\0\0\0");
    copy_into(first_columns(wide, t.size(3)), t);
    return wide;
  }
  bool fits = t.stride(3) == 1 && reinterpret_cast<uintptr_t>(t.raw()) % 16 == 0;
  for (int64_t i = 0; i < 3; ++i) fits = fits && (t.size(i) == 1 || t.stride(i) % 8 == 0);
  if (fits) return t;
  const Tensor copy = empty(t.sizes(), t.options());  // contiguous(t) may be t, at its odd address
  copy_into(copy, t);
  return copy;
}
flash::Operand operand(const Tensor& t) {
  return {t.raw(), 2 * t.stride(0), 2 * t.stride(1), 2 * t.stride(2)};
}
// What an operator says of attention besides its operands.
struct Call {
  Tensor mask, keep;
  Tensor grad_scores;  // undefined where a bias has no gradient
  float scale = 1, kept_factor = 1;
  bool causal = false;
};

void set_kept(flash::Args& a, const Tensor& keep, float factor) {
  a.keep = keep.raw();
  int64_t* strides[] = {&a.keep_batch, &a.keep_head, &a.keep_query, &a.keep_key};
  for (int64_t i = 0; i < 4; ++i)
    if (keep.size(i) != 1) *strides[i] = keep.stride(i);
  a.keep_pairs = a.keep_key == 1 && reinterpret_cast<uintptr_t>(keep.raw()) % 2 == 0 && a.keys % 2 == 0 &&
                 (a.keep_batch | a.keep_head | a.keep_query) % 2 == 0;
  a.kept_factor = factor;
}

flash::Args block_args(const Tensor& q, const Tensor& k, const Tensor& v, const Call& call) {
  const Tensor& mask = call.mask;
  flash::Args a{};
  a.query = operand(q);
  a.key = operand(k);
  a.value = operand(v);
  if (mask.defined()) {
    a.mask = mask.raw();
    a.mask_dtype = mask.dtype();
    int64_t* strides[] = {&a.mask_batch, &a.mask_head, &a.mask_query, &a.mask_key};
    for (int64_t i = 0; i < mask.dim(); ++i)
      if (mask.size(i) != 1) *strides[4 - mask.dim() + i] = mask.stride(i) * size_of(mask.dtype());
  }
  a.batch = int(q.size(0));
  a.heads = int(q.size(1));
  a.group = int(q.size(1) / k.size(1));
  a.queries = int(q.size(2));
  a.keys = int(k.size(2));
  a.depth = int(q.size(3));
  a.scale = call.scale;
  a.causal = call.causal;
  if (call.keep.defined()) set_kept(a, call.keep, call.kept_factor);
  return a;
}

void attention_by_blocks(Value* args, const Call& call, const Tensor& out, Value* results) {
  const Tensor q = in_pieces(args[0].tensor()), k = in_pieces(args[1].tensor()),
               v = in_pieces(args[2].tensor());
  flash::Args a = block_args(q, k, v, call);
  const Tensor sums = empty({q.size(0), q.size(1), q.size(2)}, {DType::Float, q.device()});
  const Tensor rows = out.size(3) % 8 ? empty(q.sizes(), q.options()) : out;
  a.output = operand(rows);
  a.sums = sums.data<float>();
  flash::forward(a, q.dtype() == DType::BFloat16, current_stream());
  if (out.size(3) % 8) copy_into(out, first_columns(rows, out.size(3)));
  results[0] = Value(out);
  results[1] = Value(sums);
}

// `result` is the output of the forward pass, `logarithms` are those of its sums; the results are laid out as
// `make` makes them.
template <class Make>
void gradients_by_blocks(Value* args, const Call& call, const Tensor& result, const Tensor& logarithms,
                         const Make& make, Value* results) {
  const Tensor q = in_pieces(args[1].tensor()), k = in_pieces(args[2].tensor()),
               v = in_pieces(args[3].tensor()), g = in_pieces(args[0].tensor()), out = in_pieces(result),
               sums = contiguous(logarithms);
  flash::Args a = block_args(q, k, v, call);
  const Tensor dq = make(q.sizes(), q.options()), dk = make(k.sizes(), k.options()),
               dv = make(v.sizes(), v.options());
  const Scratch products(sums.numel() * sizeof(float), q.device().index, current_stream());
  a.output = operand(out);
  a.grad_output = operand(g);
  a.grad_query = operand(dq);
  a.grad_key = operand(dk);
  a.grad_value = operand(dv);
  a.sums = sums.data<float>();
  a.products = products.as<float>();
  a.grad_scores = call.grad_scores.defined() ? call.grad_scores.raw() : nullptr;
  flash::backward(a, q.dtype() == DType::BFloat16, current_stream());
  const Tensor* gradients[] = {&dq, &dk, &dv};
  for (int i = 0; i < 3; ++i) {
    const Tensor& given = args[1 + i].tensor();
    const bool whole = given.size(3) % 8 == 0;
    const Tensor narrow = whole ? *gradients[i] : make(given.sizes(), given.options());
    if (!whole) copy_into(narrow, first_columns(*gradients[i], given.size(3)));
    results[i] = Value(narrow);
  }
}

// ---------------------------------------------------------------- the operators

void attention(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Tensor query = args[0].tensor(), key = args[1].tensor(), mask = args[3].tensor();
  if (query.dim() == 4 && by_blocks(query, key, args[2].tensor(), mask, scale_of(args[5], query))) {
    OnDevice on(query.device().index);
    const Call call{mask, Tensor(), Tensor(), scale_of(args[5], query), 1, args[4].to_bool()};
    return attention_by_blocks(args, call, attention_output(query, query.size(3)), results);
  }
  if (!usable(query, key, mask) || args[2].tensor().numel() == 0)
    return by_definition(op, keys, args, results);
  OnDevice on(query.device().index);
  const Tensor q = contiguous(query), k = contiguous(key), v = contiguous(args[2].tensor());
  const int64_t b = q.size(0), h = q.size(1), n = q.size(2), m = k.size(2);
  const Options single{DType::Float, q.device()};
  const Tensor sums = empty({b, h, n}, single), out = empty({b, h, n, v.size(3)}, q.options());
  const Tensor scores = empty({b, h, n, m}, single), weights = empty({b, h, n, m}, q.options());
  multiply(q, false, k, true, scores);
  const ScoreArgs a{scores.data<float>(), weights.raw(),     sums.data<float>(), int(n), int(m),
                    scale_of(args[5], q), args[4].to_bool(), q.dtype()};
  launch(score_softmax, static_cast<unsigned>(b * h * n), threads_for(m), current_stream(),
         "scaled_dot_product_attention", a);
  multiply(weights, false, v, false, out);
  results[0] = Value(out);
  results[1] = Value(sums);
  Described(op, args).lay_out(results);
}

void attention_backward(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Tensor query = args[1].tensor(), key = args[2].tensor(), mask = args[4].tensor();
  if (query.dim() == 4 && args[0].tensor().dtype() == query.dtype() &&
      by_blocks(query, key, args[3].tensor(), mask, scale_of(args[8], query))) {
    OnDevice on(query.device().index);
    const Call call{mask, Tensor(), Tensor(), scale_of(args[8], query), 1, args[7].to_bool()};
    return gradients_by_blocks(args, call, args[5].tensor(), args[6].tensor(), heads_inside, results);
  }
  if (!usable(query, key, mask) || args[3].tensor().numel() == 0)
    return by_definition(op, keys, args, results);
  OnDevice on(query.device().index);
  const Tensor g = contiguous(args[0].tensor()), q = contiguous(query), k = contiguous(key),
               v = contiguous(args[3].tensor()), sums = contiguous(args[6].tensor());
  const int64_t b = q.size(0), h = q.size(1), n = q.size(2), m = k.size(2);
  const Options single{DType::Float, q.device()};
  const Tensor scores = empty({b, h, n, m}, single), of_weights = empty({b, h, n, m}, single);
  const Tensor weights = empty({b, h, n, m}, q.options()), of_scores = empty({b, h, n, m}, q.options());
  multiply(q, false, k, true, scores);
  multiply(g, false, v, true, of_weights);
  const ScoreArgs a{scores.data<float>(), weights.raw(),     sums.data<float>(), int(n), int(m),
                    scale_of(args[8], q), args[7].to_bool(), q.dtype()};
  launch(score_gradient, static_cast<unsigned>(b * h * n), threads_for(m), current_stream(),
         "scaled_dot_product_attention", a, of_weights.data<float>(), of_scores.raw());
  const Tensor dq = empty(q.sizes(), q.options()), dk = empty(k.sizes(), k.options()),
               dv = empty(v.sizes(), v.options());
  multiply(of_scores, false, k, false, dq);
  multiply(of_scores, true, q, false, dk);
  multiply(weights, true, g, false, dv);
  results[0] = Value(dq);
  results[1] = Value(dk);
  results[2] = Value(dv);
  Described(op, args).lay_out(results);
}

// ---------------------------------------------------------------- with dropout

float kept_factor(const Value& dropout) {
  const double p = dropout.to_float();
  return p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f;
}

// Whether the kernels over blocks take what dropout keeps of all weights.
bool takes(const Tensor& query, const Tensor& key, const Tensor& keep) {
  if (!keep.defined()) return true;
  const int64_t full[4] = {query.size(0), query.size(1), query.size(2), key.size(2)};
  for (int64_t i = 0; i < 4; ++i)
    if (keep.dim() != 4 || keep.size(i) != full[i]) return false;
  return keep.dtype() == DType::Bool;
}

// (query, key, value, bias, keep, is_causal, scale, dropout_p)
void biased_attention(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Tensor query = args[0].tensor(), key = args[1].tensor(), bias = args[3].tensor(),
               keep = args[4].tensor();
  if (query.dim() != 4 || !by_blocks(query, key, args[2].tensor(), bias, scale_of(args[6], query)) ||
      !takes(query, key, keep))
    return by_definition(op, keys, args, results);
  OnDevice on(query.device().index);
  const Call call{bias, keep, Tensor(), scale_of(args[6], query), kept_factor(args[7]), args[5].to_bool()};
  attention_by_blocks(args, call, empty(query.sizes(), query.options()), results);
}

// Whether a bias whose gradient is wanted has a number for each query and key; it may be the same for batches
// and heads.
bool has_all_scores(const Tensor& bias, const Tensor& query, const Tensor& key, bool causal) {
  return bias.dim() == 4 && bias.size(2) == query.size(2) && bias.size(3) == key.size(2) && !causal &&
         (bias.size(0) == query.size(0) || bias.size(0) == 1) &&
         (bias.size(1) == query.size(1) || bias.size(1) == 1);
}

// The gradient of a bias: that of the scores, summed over the batches and heads that share it.
Tensor bias_gradient(const Tensor& scores, const Tensor& bias) {
  const int64_t b = scores.size(0), h = scores.size(1), each = scores.size(2) * scores.size(3);
  const bool over_batch = bias.size(0) != b, over_heads = bias.size(1) != h;
  const Tensor sums = empty(bias.sizes(), bias.options());
  if (!over_batch && !over_heads) {
    copy_into(sums, scores);
    return sums;
  }
  const int64_t parts = (over_batch ? b : 1) * (over_heads ? h : 1), batch = over_batch ? 1 : b;
  const Tensor ones = empty({parts}, scores.options());
  const uint16_t one = scores.dtype() == DType::BFloat16 ? 0x3f80 : 0x3c00;
  the_accelerator().fill(ones, &one);
  GemmArgs g;
  g.dtype = scores.dtype();
  g.device = scores.device().index;
  g.batch = batch;
  g.m = 1, g.k = parts, g.n = scores.numel() / (parts * batch);
  g.a = ones.raw(), g.a_row = parts, g.a_col = 1, g.a_batch = 0;
  g.b = scores.raw(), g.b_row = over_heads ? each : g.n, g.b_col = 1, g.b_batch = parts * g.n;
  g.c = sums.raw(), g.c_row = g.n, g.c_col = 1, g.c_batch = g.n;
  gemm(g, sums.dtype());
  return sums;
}

// (grad, query, key, value, bias, keep, output, logsumexp, is_causal, scale, dropout_p, bias_gradient)
void biased_attention_backward(const Operator& op, void*, KeySet keys, Value* args, Value* results) {
  check_on_device(op, args);
  const Tensor query = args[1].tensor(), key = args[2].tensor(), bias = args[4].tensor(),
               keep = args[5].tensor();
  const bool wanted = args[11].to_bool(), causal = args[8].to_bool();
  if (query.dim() != 4 || args[0].tensor().dtype() != query.dtype() ||
      (wanted && !has_all_scores(bias, query, key, causal)) ||
      !by_blocks(query, key, args[3].tensor(), bias, scale_of(args[9], query)) || !takes(query, key, keep))
    return by_definition(op, keys, args, results);
  OnDevice on(query.device().index);
  const Dims full{query.size(0), query.size(1), query.size(2), key.size(2)};
  const Tensor scores = wanted ? empty(full, query.options()) : Tensor();
  const Call call{bias, keep, scores, scale_of(args[9], query), kept_factor(args[10]), causal};
  const auto contiguous_one = [](IntSpan sizes, Options options) { return empty(sizes, options); };
  gradients_by_blocks(args, call, args[6].tensor(), args[7].tensor(), contiguous_one, results);
  results[3] = Value(wanted ? bias_gradient(scores, bias) : empty({0}, query.options()));
}

const detail::Register biased_forward{"_biased_attention", {Key::CUDA}, Kernel{biased_attention, nullptr}};
const detail::Register biased_backward{
    "_biased_attention_backward", {Key::CUDA}, Kernel{biased_attention_backward, nullptr}};
const detail::Register forward{"_flash_attention", {Key::CUDA}, Kernel{attention, nullptr}};
const detail::Register backward{
    "_flash_attention_backward", {Key::CUDA}, Kernel{attention_backward, nullptr}};

}  // namespace
}  // namespace fl::cuda
