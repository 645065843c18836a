// The conversion loops, for every pair of dtypes.
#include "cpu/engine/cast.h"

#include <cstring>

#include "cpu/engine/x86.h"

namespace fl {
namespace FL_ARCH {

namespace {

#ifdef FL_X86
// Half precision goes through the conversion instructions, which the compiler does not use on its own.
inline void convert_run(const Half* s, float* d, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(d + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(s + i))));
  for (; i < n; ++i) d[i] = static_cast<float>(s[i]);
}
inline void convert_run(const float* s, Half* d, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(d + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(s + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < n; ++i) d[i] = Half(s[i]);
}
#endif
template <class From, class To>
inline void convert_run(const From* s, To* d, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) d[i] = convert<To>(s[i]);
}

template <class From, class To>
void cast_run(const char* src, int64_t src_stride, char* dst, int64_t dst_stride, int64_t n) {
  constexpr int64_t from_size = sizeof(From), to_size = sizeof(To);
  if (dst_stride == to_size && src_stride == from_size) {
    if constexpr (std::is_same_v<From, To>) {
      if (n > 0) std::memmove(dst, src, n * from_size);  // of nothing, there may be no memory
    } else {
      convert_run(reinterpret_cast<const From*>(src), reinterpret_cast<To*>(dst), n);
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
    if constexpr (std::is_same_v<From, To> && from_size == 4)
      if (src_stride == 2 * from_size) {  // every other element: two vectors make one
        const From* s = reinterpret_cast<const From*>(src);
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) d[i] = s[2 * i];
        return;
      }
    for (int64_t i = 0; i < n; ++i) d[i] = convert<To>(*reinterpret_cast<const From*>(src + i * src_stride));
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<To*>(dst + i * dst_stride) =
        convert<To>(*reinterpret_cast<const From*>(src + i * src_stride));
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
