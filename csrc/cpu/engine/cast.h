// Conversion of strided runs of elements between any two dtypes: the loads and stores of every kernel.
#pragma once

#include "core/dtype.h"

namespace fl {

// dst[i] = convert(src[i]) for i < n; strides in bytes, a source stride of 0 repeats one element.
using CastFn = void (*)(const char* src, int64_t src_stride, char* dst, int64_t dst_stride, int64_t n);

struct CastTable {
  CastFn fn[kDTypes][kDTypes];  // [from][to]
};

CastFn cast_fn(DType from, DType to);

}  // namespace fl
