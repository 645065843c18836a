// Attention operators over the blocked loops of kernels/attention.cpp.
#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "dispatch/kernel.h"
#include "ops/attention_kernel.h"
#include "ops/iterator.h"

namespace fl {

DeviceFunction<void(const AttentionArgs&)> device::attention_forward{"scaled_dot_product_attention"};
DeviceFunction<void(const AttentionArgs&)> device::attention_backward{"scaled_dot_product_attention"};

namespace {

constexpr const char* kOp = "scaled_dot_product_attention";

// Rows must be contiguous for the loops.
Tensor with_rows(const Tensor& t) {
  return t.stride(3) == 1 || t.size(3) <= 1 ? t : contiguous(t);
}

AttentionOperand operand(const Tensor& t) {
  return {t.raw(), t.stride(0), t.stride(1), t.stride(2)};
}

struct Call {
  AttentionArgs args;
  Tensor query, key, value, mask;  // kept alive
};

// Checks and everything the two passes share. Data pointers are only filled in off meta.
Call prepare(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, bool causal,
             std::optional<double> scale) {
  for (const Tensor* t : {&query, &key, &value}) {
    FL_CHECK(t->dim() == 4, "[", kOp, "] expected operands of 4 dimensions, got shape ", t->sizes());
    FL_CHECK(t->dtype() == query.dtype(), "[", kOp, "] expected operands of one dtype, got ",
             name_of(query.dtype()), " and ", name_of(t->dtype()));
  }
  FL_CHECK(is_floating(query.dtype()) && query.dtype() != DType::Double, "[", kOp,
           "] expected float32, bfloat16 or float16, got ", name_of(query.dtype()));
  FL_CHECK(key.size(0) == query.size(0) && value.size(0) == query.size(0) && key.size(1) == value.size(1) &&
               key.size(2) == value.size(2) && key.size(3) == query.size(3),
           "[", kOp, "] expected query (b, h, l, e), key (b, k, s, e) and value (b, k, s, v), got ",
           query.sizes(), ", ", key.sizes(), " and ", value.sizes());
  FL_CHECK(key.size(1) > 0 ? query.size(1) % key.size(1) == 0 : query.size(1) == 0, "[", kOp,
           "] expected query heads divisible by key heads, got ", query.size(1), " and ", key.size(1));
  Call c;
  AttentionArgs& g = c.args;
  g.dtype = query.dtype();
  g.batch = query.size(0);
  g.heads = query.size(1);
  g.kv_heads = key.size(1);
  g.queries = query.size(2);
  g.keys = key.size(2);
  g.depth = query.size(3);
  g.value_depth = value.size(3);
  g.causal = causal;
  g.scale = static_cast<float>(scale.value_or(g.depth ? 1.0 / std::sqrt(static_cast<double>(g.depth)) : 1.0));
  if (mask.defined()) {
    FL_CHECK(mask.dtype() == DType::Bool || is_floating(mask.dtype()), "[", kOp,
             "] expected a mask of bool or floating dtype, got ", name_of(mask.dtype()));
    const Dims full{g.batch, g.heads, g.queries, g.keys};
    FL_CHECK(mask.dim() <= 4 && broadcast_shapes(kOp, mask.sizes(), full) == full, "[", kOp,
             "] expected a mask that expands to ", IntSpan(full), ", got ", mask.sizes());
  }
  if (query.is_meta()) return c;
  c.query = with_rows(query);
  c.key = with_rows(key);
  c.value = with_rows(value);
  g.query = operand(c.query);
  g.key = operand(c.key);
  g.value = operand(c.value);
  if (mask.defined()) {
    c.mask = mask.dtype() == DType::Bool ? mask : to_dtype(mask, DType::Float);
    g.mask = c.mask.raw();
    g.mask_dtype = c.mask.dtype();
    const int64_t lead = 4 - mask.dim();
    for (int64_t d = lead; d < 4; ++d)
      g.mask_strides[d] = c.mask.size(d - lead) == 1 ? 0 : c.mask.stride(d - lead);
  }
  return c;
}

std::tuple<Tensor, Tensor> flash_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                           const Tensor& mask, bool causal, std::optional<double> scale) {
  Call c = prepare(query, key, value, mask, causal, scale);
  AttentionArgs& g = c.args;
  Tensor out = attention_output(query, g.value_depth);
  Tensor lse = empty({g.batch, g.heads, g.queries}, {DType::Float, query.device()});
  if (query.is_meta() || out.numel() == 0) return {out, lse};
  g.output = operand(out);
  g.logsumexp = lse.data<float>();
  device::attention_forward(query.device().type, g);
  return {out, lse};
}

std::tuple<Tensor, Tensor, Tensor> flash_attention_backward(const Tensor& grad, const Tensor& query,
                                                            const Tensor& key, const Tensor& value,
                                                            const Tensor& mask, const Tensor& output,
                                                            const Tensor& lse, bool causal,
                                                            std::optional<double> scale) {
  Call c = prepare(query, key, value, mask, causal, scale);
  AttentionArgs& g = c.args;
  const Dims result{g.batch, g.heads, g.queries, g.value_depth};
  for (const Tensor* t : {&grad, &output})
    FL_CHECK(t->sizes() == IntSpan(result) && t->dtype() == query.dtype(), "[", kOp,
             "] expected a gradient and a result of shape ", IntSpan(result), " and dtype ",
             name_of(query.dtype()), ", got ", t->sizes(), " and ", name_of(t->dtype()));
  FL_CHECK(lse.dtype() == DType::Float && lse.numel() == g.batch * g.heads * g.queries, "[", kOp,
           "] expected float32 sums for each row of the result, got ", name_of(lse.dtype()), " of shape ",
           lse.sizes());
  Tensor dq = heads_inside(query.sizes(), query.options()), dk = heads_inside(key.sizes(), query.options()),
         dv = heads_inside(value.sizes(), query.options());
  if (query.is_meta()) return {dq, dk, dv};
  if (grad.numel() == 0 || key.numel() == 0) {
    for (const Tensor* t : {&dq, &dk, &dv}) copy_into(*t, scalar_tensor(Scalar(0), query.options()));
    return {dq, dk, dv};
  }
  const Tensor from = with_rows(grad), out = with_rows(output), sums = contiguous(lse);
  g.grad_output = operand(from);
  g.output = operand(out);
  g.logsumexp = sums.data<float>();
  g.grad_query = operand(dq);
  g.grad_key = operand(dk);
  g.grad_value = operand(dv);
  device::attention_backward(query.device().type, g);
  return {dq, dk, dv};
}

// ---------------------------------------------------------------- with dropout and a gradient of the bias

// What the rows of both passes share, in single precision. These loops define the operators; compiled code
// for accelerators has kernels of its own.
struct Biased {
  const AttentionArgs& args;
  Tensor query, key, value, bias, keep;
  float factor;  // of the weights that are kept

  Biased(const Call& c, const Tensor& keep_mask, double dropout)
      : args(c.args),
        query(flat(c.query)),
        key(flat(c.key)),
        value(flat(c.value)),
        bias(c.mask),
        keep(keep_mask.defined() ? contiguous(keep_mask) : keep_mask),
        factor(dropout < 1 ? static_cast<float>(1 / (1 - dropout)) : 0.0f) {}

  static Tensor flat(const Tensor& t) { return contiguous(to_dtype(t, DType::Float)); }
  int64_t visible(int64_t row) const { return args.causal ? std::min(args.keys, row + 1) : args.keys; }
  const float* row_of(const Tensor& t, int64_t batch, int64_t head, int64_t row) const {
    return t.data<float>() + ((batch * t.size(1) + head) * t.size(2) + row) * t.size(3);
  }
  int64_t key_head(int64_t head) const { return head / (args.heads / args.kv_heads); }
  int64_t bias_at(int64_t batch, int64_t head, int64_t row, int64_t column) const {
    const auto& s = args.mask_strides;
    return batch * s[0] + head * s[1] + row * s[2] + column * s[3];
  }
  float kept(int64_t batch, int64_t head, int64_t row, int64_t column) const {
    if (!keep.defined()) return 1.0f;
    const int64_t at = ((batch * args.heads + head) * args.queries + row) * args.keys + column;
    return keep.data<bool>()[at] ? factor : 0.0f;
  }
  // The scores of one query, minus infinity for keys that it does not see.
  void scores(int64_t batch, int64_t head, int64_t row, std::vector<float>& out) const {
    const float* q = row_of(query, batch, head, row);
    for (int64_t j = 0; j < args.keys; ++j) {
      const float* k = row_of(key, batch, key_head(head), j);
      float sum = 0;
      for (int64_t d = 0; d < args.depth; ++d) sum += q[d] * k[d];
      sum *= args.scale;
      if (bias.defined()) {
        const int64_t at = bias_at(batch, head, row, j);
        if (bias.dtype() == DType::Bool)
          sum = bias.data<bool>()[at] ? sum : -INFINITY;
        else
          sum += bias.data<float>()[at];
      }
      out[j] = j < visible(row) ? sum : -INFINITY;
    }
  }
};

template <class F>
void each_row(const AttentionArgs& g, F&& run) {
  for (int64_t b = 0; b < g.batch; ++b)
    for (int64_t h = 0; h < g.heads; ++h)
      for (int64_t i = 0; i < g.queries; ++i) run(b, h, i);
}

void check_keep(const AttentionArgs& g, const Tensor& keep) {
  const Dims full{g.batch, g.heads, g.queries, g.keys};
  FL_CHECK(!keep.defined() || (keep.dtype() == DType::Bool && keep.sizes() == IntSpan(full)), "[", kOp,
           "] expected a bool for each weight of shape ", IntSpan(full), ", got ",
           name_of(keep.defined() ? keep.dtype() : DType::Bool), " of shape ",
           keep.defined() ? keep.sizes() : IntSpan(full));
}

std::tuple<Tensor, Tensor> biased_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                            const Tensor& bias, const Tensor& keep, bool causal,
                                            std::optional<double> scale, double dropout) {
  const Call c = prepare(query, key, value, bias, causal, scale);
  const AttentionArgs& g = c.args;
  check_keep(g, keep);
  const Tensor out = attention_output(query, g.value_depth);
  const Tensor lse = empty({g.batch, g.heads, g.queries}, {DType::Float, query.device()});
  if (query.is_meta() || out.numel() == 0) return {out, lse};
  const Biased p(c, keep, dropout);
  const Tensor products = empty(out.sizes(), lse.options());
  std::vector<float> s(g.keys);
  each_row(g, [&](int64_t b, int64_t h, int64_t i) {
    p.scores(b, h, i, s);
    const float top = *std::max_element(s.begin(), s.end()), base = top == -INFINITY ? 0.0f : top;
    float* row = const_cast<float*>(p.row_of(products, b, h, i));
    std::fill(row, row + g.value_depth, 0.0f);
    float total = 0;
    for (int64_t j = 0; j < g.keys; ++j) {
      const float weight = std::exp(s[j] - base), used = weight * p.kept(b, h, i, j);
      const float* v = p.row_of(p.value, b, p.key_head(h), j);
      total += weight;
      for (int64_t d = 0; d < g.value_depth; ++d) row[d] += used * v[d];
    }
    for (int64_t d = 0; d < g.value_depth; ++d) row[d] = total > 0 ? row[d] / total : 0.0f;
    lse.data<float>()[(b * g.heads + h) * g.queries + i] = total > 0 ? base + std::log(total) : -INFINITY;
  });
  copy_into(out, products);
  return {out, lse};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> biased_attention_backward(const Tensor& grad, const Tensor& query,
                                                                     const Tensor& key, const Tensor& value,
                                                                     const Tensor& bias, const Tensor& keep,
                                                                     const Tensor& output, const Tensor& lse,
                                                                     bool causal, std::optional<double> scale,
                                                                     double dropout, bool bias_gradient) {
  const Call c = prepare(query, key, value, bias, causal, scale);
  const AttentionArgs& g = c.args;
  check_keep(g, keep);
  FL_CHECK(!bias_gradient || (bias.defined() && bias.dim() == 4 && is_floating(bias.dtype())), "[", kOp,
           "] expected a floating bias of 4 dimensions for its gradient, got ",
           bias.defined() ? bias.sizes() : IntSpan());
  const Tensor dq = heads_inside(query.sizes(), query.options()),
               dk = heads_inside(key.sizes(), query.options()),
               dv = heads_inside(value.sizes(), query.options());
  const Tensor db = bias_gradient ? empty(bias.sizes(), bias.options()) : empty({0}, query.options());
  if (query.is_meta()) return {dq, dk, dv, db};
  const Options single{DType::Float, query.device()};
  const Biased p(c, keep, dropout);
  const auto zeros = [&](const Tensor& like) {
    const Tensor zeros = empty(like.sizes(), single);
    copy_into(zeros, scalar_tensor(Scalar(0), single));
    return zeros;
  };
  const Tensor to_q = zeros(dq), to_k = zeros(dk), to_v = zeros(dv), to_b = zeros(db);
  const Tensor gradient = Biased::flat(grad), result = Biased::flat(output), sums = contiguous(lse);
  const auto at = [&](const Tensor& t, int64_t b, int64_t h, int64_t i) {
    return const_cast<float*>(p.row_of(t, b, h, i));
  };
  std::vector<float> s(g.keys);
  each_row(g, [&](int64_t b, int64_t h, int64_t i) {
    p.scores(b, h, i, s);
    const float sum = sums.data<float>()[(b * g.heads + h) * g.queries + i];
    const float *q = at(p.query, b, h, i), *from = at(gradient, b, h, i), *o = at(result, b, h, i);
    float product = 0;
    for (int64_t d = 0; d < g.value_depth; ++d) product += from[d] * o[d];
    for (int64_t j = 0; j < g.keys; ++j) {
      if (s[j] == -INFINITY) continue;
      const int64_t kh = p.key_head(h);
      const float weight = std::exp(s[j] - sum), dropout_factor = p.kept(b, h, i, j);
      const float *k = at(p.key, b, kh, j), *v = at(p.value, b, kh, j);
      float *to_key = at(to_k, b, kh, j), *to_value = at(to_v, b, kh, j), *to_query = at(to_q, b, h, i);
      float of_weight = 0;
      for (int64_t d = 0; d < g.value_depth; ++d) {
        of_weight += from[d] * v[d];
        to_value[d] += weight * dropout_factor * from[d];
      }
      const float of_score = weight * (of_weight * dropout_factor - product);
      for (int64_t d = 0; d < g.depth; ++d) {
        to_query[d] += of_score * g.scale * k[d];
        to_key[d] += of_score * g.scale * q[d];
      }
      if (bias_gradient) {
        int64_t place = 0;
        const int64_t index[] = {b, h, i, j};
        for (int64_t d = 0; d < 4; ++d) place = place * to_b.size(d) + (to_b.size(d) == 1 ? 0 : index[d]);
        to_b.data<float>()[place] += of_score;
      }
    }
  });
  for (const auto& [to, sums] : {std::pair(dq, to_q), std::pair(dk, to_k), std::pair(dv, to_v)})
    copy_into(to, sums);
  if (bias_gradient) copy_into(db, to_b);
  return {dq, dk, dv, db};
}

FL_KERNEL("_biased_attention", biased_attention, kCpu);
FL_KERNEL("_biased_attention_backward", biased_attention_backward, kCpu);
FL_KERNEL("_flash_attention", flash_attention, kCpu);
FL_KERNEL("_flash_attention_backward", flash_attention_backward, kCpu);

}  // namespace
}  // namespace fl
