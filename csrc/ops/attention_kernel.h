// Attention over blocks of queries and keys with a running softmax: the scores are never stored whole.
#pragma once

#include <cstdint>

#include "core/device_function.h"
#include "core/dtype.h"

namespace fl {

// A (batch, head, row, column) operand with contiguous columns; strides count elements.
struct AttentionOperand {
  void* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;
};

struct AttentionArgs {
  DType dtype = DType::Float;  // of query, key, value, output and gradients: Float, BFloat16 or Half
  int64_t batch = 0, heads = 0, kv_heads = 0;  // consecutive query heads share a key head
  int64_t queries = 0, keys = 0, depth = 0, value_depth = 0;
  AttentionOperand query, key, value, output;
  // Added to the scores (Float), or false where a key is hidden (Bool); null: none.
  const void* mask = nullptr;
  DType mask_dtype = DType::Float;
  int64_t mask_strides[4] = {};  // batch, head, query, key
  bool causal = false;
  float scale = 1;
  float* logsumexp = nullptr;  // (batch, heads, queries), contiguous; read by the backward pass
  // Backward only.
  AttentionOperand grad_output, grad_query, grad_key, grad_value;
};

namespace device {
extern DeviceFunction<void(const AttentionArgs&)> attention_forward, attention_backward;
}

}  // namespace fl
