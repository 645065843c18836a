// The conversion loops, for every pair of dtypes.
#include "cpu/cast.h"

#include <cstring>

namespace fl {
namespace FL_ARCH {

namespace {

template <class From, class To>
void cast_run(const char* src, int64_t src_stride, char* dst, int64_t dst_stride, int64_t n) {
  constexpr int64_t from_size = sizeof(From), to_size = sizeof(To);
  if (dst_stride == to_size && src_stride == from_size) {
    if constexpr (std::is_same_v<From, To>) {
      std::memmove(dst, src, n * from_size);
    } else {
      const From* s = reinterpret_cast<const From*>(src);
      To* d = reinterpret_cast<To*>(dst);
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) d[i] = convert<To>(s[i]);
    }
    return;
  }
  if (src_stride == 0) {
    const To x = convert<To>(*reinterpret_cast<const From*>(src));
    if (dst_stride == to_size) {
      To* d = reinterpret_cast<To*>(dst);
      for (int64_t i = 0; i < n; ++i) d[i] = x;
    } else {
      for (int64_t i = 0; i < n; ++i) *reinterpret_cast<To*>(dst + i * dst_stride) = x;
    }
    return;
  }
  if (dst_stride == to_size) {
    To* d = reinterpret_cast<To*>(dst);
    for (int64_t i = 0; i < n; ++i) d[i] = convert<To>(*reinterpret_cast<const From*>(src + i * src_stride));
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<To*>(dst + i * dst_stride) = convert<To>(*reinterpret_cast<const From*>(src + i * src_stride));
}

template <class From>
constexpr void fill_row(CastFn* row) {
#define X(e, c, n, k) row[static_cast<int>(DType::e)] = &cast_run<From, c>;
  FL_FOR_DTYPES(X)
#undef X
}

constexpr CastTable build() {
  CastTable t{};
#define X(e, c, n, k) fill_row<c>(t.fn[static_cast<int>(DType::e)]);
  FL_FOR_DTYPES(X)
#undef X
  return t;
}

}  // namespace

extern const CastTable cast_table;
const CastTable cast_table = build();

}  // namespace FL_ARCH
}  // namespace fl
