// Conversion of strided runs of elements between any two dtypes: the loads and stores of every kernel.
#pragma once

#include "core/dtype.h"
#include "cpu/engine/arch.h"

namespace fl {

// dst[i] = convert(src[i]) for i < n; strides in bytes, a source stride of 0 repeats one element.
using CastFn = void (*)(const char* src, int64_t src_stride, char* dst, int64_t dst_stride, int64_t n);

struct CastTable {
  CastFn fn[kDTypes][kDTypes];  // [from][to]
};

FL_DECLARE_ARCH(const CastTable, cast_table)

// The same where one of the two is a dtype that is only stored.
CastFn stored_cast(DType from, DType to);

inline CastFn cast_fn(DType from, DType to) {
  if (__builtin_expect(is_stored_only(from) || is_stored_only(to), 0)) return stored_cast(from, to);
  return picked_cast_table().fn[static_cast<int>(from)][static_cast<int>(to)];
}

}  // namespace fl
