// Where the results of attention lie, on every device.
#pragma once

#include "core/tensor.h"

namespace fl {

// (batch, heads, rows, columns) stored as (batch, rows, heads, columns), the order in which heads are joined
// again.
inline Tensor heads_inside(IntSpan s, Options options) {
  return empty_strided(s, {s[1] * s[2] * s[3], s[3], s[1] * s[3], 1}, options);
}

// As the query lies: with its heads inside of its rows, as projections leave them, or contiguous.
inline Tensor attention_output(const Tensor& query, int64_t value_depth) {
  const bool inside = query.stride(1) != 0 && query.stride(1) < query.stride(2) && query.stride(3) == 1;
  const Dims sizes{query.size(0), query.size(1), query.size(2), value_depth};
  return inside ? heads_inside(sizes, query.options()) : empty(sizes, query.options());
}

}  // namespace fl
