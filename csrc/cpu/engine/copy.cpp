// Copies between any two strided CPU tensors, with conversion and broadcasting.
#include "ops/copy.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include <cstring>

#include "core/bytes.h"
#include "core/parallel.h"
#include "cpu/engine/cast.h"
#include "ops/iterator.h"

namespace fl {
namespace {

// A copy between two orders of dimensions, `fast` being the dimension in which the source is contiguous.
struct Transposition {
  const char* src;
  char* dst;
  int64_t rows, src_row;  // dimension 0: contiguous in the destination
  int64_t cols, dst_col;  // dimension `fast`: contiguous in the source; strides in bytes
};

// to[c * step + r] = rows' elements, for a square of as many elements as fit in a vector; false: no such
// loop.
#ifdef __AVX2__
inline bool transpose_square(const uint32_t* from, int64_t row, uint32_t* to, int64_t step) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(from + i * row));
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int k = 0; k < 2; ++k) {
      r[i + 2 * k] = _mm256_shuffle_ps(t[i + k], t[i + k + 2], 0x44);
      r[i + 2 * k + 1] = _mm256_shuffle_ps(t[i + k], t[i + k + 2], 0xee);
    }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(reinterpret_cast<float*>(to + i * step), _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(reinterpret_cast<float*>(to + (i + 4) * step),
                     _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
  return true;
}
inline bool transpose_square(const uint16_t* from, int64_t row, uint16_t* to, int64_t step) {
  __m128i r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * row));
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm_unpacklo_epi16(r[i], r[i + 4]);
    t[2 * i + 1] = _mm_unpackhi_epi16(r[i], r[i + 4]);
  }
  // Three rounds of joining what lies half the rows apart turn the square.
  for (int i = 0; i < 4; ++i) {
    r[2 * i] = _mm_unpacklo_epi16(t[i], t[i + 4]);
    r[2 * i + 1] = _mm_unpackhi_epi16(t[i], t[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i * step), _mm_unpacklo_epi16(r[i], r[i + 4]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + (2 * i + 1) * step), _mm_unpackhi_epi16(r[i], r[i + 4]));
  }
  return true;
}
#endif
template <class T>
bool transpose_square(const T*, int64_t, T*, int64_t) {
  return false;
}

// Goes tile by tile through a small buffer: whole cache lines are read, then whole lines are written, so that
// strides which are powers of two do not fight for the same lines of the cache.
template <class T>
void transpose_tile(const Transposition& t, int64_t r0, int64_t nr, int64_t c0, int64_t nc) {
  constexpr int64_t K = 64 / sizeof(T);
  alignas(64) T tile[K][K];
  const auto row = [&](int64_t r) { return reinterpret_cast<const T*>(t.src + (r0 + r) * t.src_row) + c0; };
  const auto column = [&](int64_t c) { return t.dst + (c0 + c) * t.dst_col + r0 * sizeof(T); };
  if (nr == K && nc == K) {
    constexpr int64_t side = 8;
    bool done = K % side == 0;
    for (int64_t r = 0; done && r < K; r += side)
      for (int64_t c = 0; done && c < K; c += side)
        done = transpose_square(row(r) + c, t.src_row / int64_t(sizeof(T)), &tile[c][r], K);
    if (!done)
      for (int64_t r = 0; r < K; ++r)
        for (int64_t c = 0; c < K; ++c) tile[c][r] = row(r)[c];
    for (int64_t c = 0; c < K; ++c) std::memcpy(column(c), tile[c], 64);
    return;
  }
  for (int64_t r = 0; r < nr; ++r)
    for (int64_t c = 0; c < nc; ++c) tile[c][r] = row(r)[c];
  for (int64_t c = 0; c < nc; ++c) std::memcpy(column(c), tile[c], nr * sizeof(T));
}

// Some of the columns, in blocks that touch few enough pages at a time.
template <class T>
void transpose_columns(const Transposition& t, int64_t first, int64_t last) {
  constexpr int64_t K = 64 / sizeof(T), block = 128;
  for (int64_t rb = 0; rb < t.rows; rb += block)
    for (int64_t cb = first; cb < last; cb += block)
      for (int64_t c = cb; c < std::min(last, cb + block); c += K)
        for (int64_t r = rb; r < std::min(t.rows, rb + block); r += K)
          transpose_tile<T>(t, r, std::min(K, t.rows - r), c, std::min(K, last - c));
}

template <class T>
void transpose(const StridedIterator& it, int fast) {
  constexpr int64_t K = 64 / sizeof(T);
  const auto& dst = it.operand(0);
  const auto& src = it.operand(1);
  const Dims& sizes = it.sizes();
  const int64_t blocks = (sizes[fast] + K - 1) / K, outer = it.numel() / (sizes[0] * sizes[fast]);
  parallel_for(
      outer * blocks, std::max<int64_t>(1, kGrain / (K * sizes[0])), [&](int64_t begin, int64_t end) {
        while (begin < end) {
          int64_t rest = begin / blocks;
          const int64_t block = begin % blocks, count = std::min(blocks - block, end - begin);
          Transposition t{src.data, dst.data, sizes[0], src.strides[0], sizes[fast], dst.strides[fast]};
          for (int d = 1; d < it.ndim(); ++d) {
            if (d == fast) continue;
            const int64_t i = rest % sizes[d];
            rest /= sizes[d];
            t.src += i * src.strides[d];
            t.dst += i * dst.strides[d];
          }
          transpose_columns<T>(t, block * K, std::min(sizes[fast], (block + count) * K));
          begin += count;
        }
      });
}

bool try_transpose(const StridedIterator& it) {
  const auto& dst = it.operand(0);
  const auto& src = it.operand(1);
  const int64_t item = size_of(dst.dtype);
  if (it.ndim() < 2 || dst.dtype != src.dtype || dst.strides[0] != item || src.strides[0] == item ||
      src.strides[0] == 0)
    return false;
  int fast = 1;
  while (fast < it.ndim() && src.strides[fast] != item) ++fast;
  if (fast == it.ndim() || it.sizes()[0] < 4 || it.sizes()[fast] < 4) return false;
  dispatch_bytes(item, [&](auto type) { transpose<typename decltype(type)::type>(it, fast); });
  return true;
}

void copy(const Tensor& dst, const Tensor& src) {
  if (dst.dtype() == src.dtype() && dst.is_contiguous() && src.is_contiguous() &&
      dst.sizes() == src.sizes()) {
    const int64_t item = dst.itemsize();
    char* to = dst.raw();
    const char* from = src.raw();
    if (to == from) return;
    parallel_for(dst.numel(), kGrain * 4,
                 [&](int64_t b, int64_t e) { std::memmove(to + b * item, from + b * item, (e - b) * item); });
    return;
  }
  StridedIterator it(dst.sizes());
  it.add(dst, dst.dtype());
  it.add(src, src.dtype());
  it.finish();
  if (try_transpose(it)) return;
  const CastFn cast = cast_fn(src.dtype(), dst.dtype());
  const auto& to = it.operand(0);
  const auto& from = it.operand(1);
  const Dims& sizes = it.sizes();
  // A short innermost dimension makes many short rows: the next one out is then the better loop.
  const int along = it.ndim() > 1 && sizes[0] < 16 && sizes[1] > 2 * sizes[0] ? 1 : 0;
  const int64_t inner = sizes[along];
  if (it.ndim() == 1) {
    parallel_for(inner, kGrain, [&](int64_t b, int64_t e) {
      cast(from.data + b * from.strides[0], from.strides[0], to.data + b * to.strides[0], to.strides[0],
           e - b);
    });
    return;
  }
  const int64_t rows = it.numel() / inner;
  parallel_for(rows, std::max<int64_t>(1, kGrain / inner), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      int64_t rest = r, x = 0, y = 0;
      for (int d = 0; d < it.ndim(); ++d) {
        if (d == along) continue;
        const int64_t i = rest % sizes[d];
        rest /= sizes[d];
        x += i * to.strides[d];
        y += i * from.strides[d];
      }
      cast(from.data + y, from.strides[along], to.data + x, to.strides[along], inner);
    }
  });
}

FL_ATTACH(copy, CPU, copy);

}  // namespace
}  // namespace fl
