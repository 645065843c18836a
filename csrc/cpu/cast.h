// Conversion of strided runs of elements between any two dtypes: the loads and stores of every kernel.
#pragma once

#include "core/dtype.h"
#include "cpu/arch.h"

namespace fl {

// dst[i] = convert(src[i]) for i < n; strides in bytes, a source stride of 0 repeats one element.
using CastFn = void (*)(const char* src, int64_t src_stride, char* dst, int64_t dst_stride, int64_t n);

struct CastTable {
  CastFn fn[kDTypes][kDTypes];  // [from][to]
};

FL_DECLARE_ARCH(const CastTable, cast_table)

inline CastFn cast_fn(DType from, DType to) {
  return picked_cast_table().fn[static_cast<int>(from)][static_cast<int>(to)];
}

}  // namespace fl
