// Attention operators over the blocked loops of kernels/attention.cpp.
#include "ops/attention.h"

#include <cmath>

#include "cpu/attention/kernel.h"
#include "dispatch/kernel.h"
#include "ops/iterator.h"

namespace fl {
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
  picked_attention_table().forward(g);
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
  picked_attention_table().backward(g);
  return {dq, dk, dv};
}

FL_KERNEL("_flash_attention", flash_attention);
FL_KERNEL("_flash_attention_backward", flash_attention_backward);

}  // namespace
}  // namespace fl
