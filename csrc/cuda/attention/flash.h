// Attention over blocks, without the matrix of scores in memory: half and bfloat16 heads of up to 128
// numbers.
#pragma once

#include "cuda/runtime/runtime.h"

namespace fl::cuda::flash {

// (batch, head, row) of 16-byte aligned rows; strides in bytes, multiples of 16.
struct Operand {
  char* data;
  int64_t batch, head, row;
};

struct Args {
  Operand query, key, value, output;
  Operand grad_output, grad_query, grad_key, grad_value;  // the gradients: of the backward pass only
  const char* mask;  // bool (false hides a key) or floating (added to scores); null when there is none
  int64_t mask_batch, mask_head, mask_query, mask_key;  // in bytes, zero where it is broadcast
  const char* keep;  // bool: which weights dropout keeps, times a factor; null where it keeps all
  int64_t keep_batch, keep_head, keep_query, keep_key;  // in bytes
  char* grad_scores;  // (batch, head, query, key): of the backward pass with a bias whose gradient is wanted;
                      // else null
  float* sums;        // (batch, head, query): the logarithm of a query's summed exponentials of scores
  float* products;    // the same shape: of a row of the output and its gradient; scratch of the backward pass
  int batch, heads, group, queries, keys, depth;  // `group` neighbouring query heads share a key head
  float scale;                                    // positive
  float kept_factor;
  bool causal;  // a query sees the keys up to its own position
  DType mask_dtype;
  bool keep_pairs;  // what is kept of two neighbouring keys, the first at an even place, is read at once
};

// Whether the device multiplies by groups of warps (capability 9.0), and a head is wide enough for it.
bool has_groups(const Args& args);
void forward(const Args& args, bool brain, cudaStream_t stream);
void backward(const Args& args, bool brain, cudaStream_t stream);
// The same by groups of warps.
void forward_by_groups(const Args& args, bool brain, cudaStream_t stream);
void backward_by_groups(const Args& args, bool brain, cudaStream_t stream);

}  // namespace fl::cuda::flash
