// The choice of a conversion between two dtypes. Those from and to dtypes that are only stored are here:
// block by block through a dtype that kernels compute with.
#include <algorithm>
#include <array>
#include <utility>

#include "core/stored_dtypes.h"
#include "cpu/engine/arch.h"
#include "cpu/engine/cast.h"

namespace fl {

FL_DECLARE_ARCH(const CastTable, cast_table);

namespace {

constexpr int64_t kBlock = 256;

// What the elements of two dtypes have in common.
DType between(DType from, DType to) {
  if (from == DType::ComplexHalf || to == DType::ComplexHalf) return DType::ComplexFloat;
  if (is_float8(from) || is_float8(to)) return DType::Float;
  const DType other = is_stored_only(from) ? to : from;
  return is_floating(other) || is_complex(other) ? DType::Double : DType::Int64;
}

// The dtype that kernels know, of the same size: to copy elements as they are.
DType carrier(DType t) {
  constexpr DType by_size[] = {DType::UInt8, DType::Int16, DType::Int32, DType::Int64};
  return by_size[size_of(t) == 1 ? 0 : size_of(t) == 2 ? 1 : size_of(t) == 4 ? 2 : 3];
}

template <class M>
void load(DType t, const char* src, int64_t stride, M* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i, src += stride) {
    if (t == DType::ComplexHalf) {
      to[i] = convert<M>(load_complex_half(src));
    } else if (is_float8(t)) {
      to[i] = static_cast<M>(load_float8(t, static_cast<uint8_t>(*src)));
    } else {
      const int64_t value = load_unsigned(t, src);
      to[i] = std::is_integral_v<M> ? static_cast<M>(value) : static_cast<M>(static_cast<uint64_t>(value));
    }
  }
}

template <class M>
void store(DType t, const M* from, char* dst, int64_t stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i, dst += stride) {
    if (t == DType::ComplexHalf)
      store_complex_half(dst, convert<complex64>(from[i]));
    else if (is_float8(t))
      *dst = static_cast<char>(store_float8(t, convert<float>(from[i])));
    else if constexpr (std::is_integral_v<M>)
      store_unsigned(t, dst, from[i]);
    else
      store_unsigned(t, dst, static_cast<int64_t>(to_unsigned(convert<double>(from[i]))));
  }
}

template <class M>
void convert_through(DType middle, DType from, DType to, const char* src, int64_t src_stride, char* dst,
                     int64_t dst_stride, int64_t n) {
  M block[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t m = std::min(kBlock, n - at);
    const char* s = src + at * src_stride;
    char* d = dst + at * dst_stride;
    if (is_stored_only(from))
      load(from, s, src_stride, block, m);
    else
      cast_fn(from, middle)(s, src_stride, reinterpret_cast<char*>(block), sizeof(M), m);
    if (is_stored_only(to))
      store(to, block, d, dst_stride, m);
    else
      cast_fn(middle, to)(reinterpret_cast<const char*>(block), sizeof(M), d, dst_stride, m);
  }
}

void convert_run(DType from, DType to, const char* src, int64_t src_stride, char* dst, int64_t dst_stride,
                 int64_t n) {
  if (from == to) return cast_fn(carrier(from), carrier(from))(src, src_stride, dst, dst_stride, n);
  switch (const DType middle = between(from, to)) {
    case DType::Float:
      return convert_through<float>(middle, from, to, src, src_stride, dst, dst_stride, n);
    case DType::ComplexFloat:
      return convert_through<complex64>(middle, from, to, src, src_stride, dst, dst_stride, n);
    case DType::Double:
      return convert_through<double>(middle, from, to, src, src_stride, dst, dst_stride, n);
    default:
      return convert_through<int64_t>(middle, from, to, src, src_stride, dst, dst_stride, n);
  }
}

// Casts are plain functions: one for each pair, which only names it.
template <int F, int T>
void named(const char* src, int64_t src_stride, char* dst, int64_t dst_stride, int64_t n) {
  convert_run(static_cast<DType>(F), static_cast<DType>(T), src, src_stride, dst, dst_stride, n);
}

template <int F, size_t... T>
constexpr std::array<CastFn, kAllDTypes> row(std::index_sequence<T...>) {
  return {{(F >= kDTypes || static_cast<int>(T) >= kDTypes ? &named<F, static_cast<int>(T)> : nullptr)...}};
}
template <size_t... F>
constexpr std::array<std::array<CastFn, kAllDTypes>, kAllDTypes> rows(std::index_sequence<F...>) {
  return {{row<static_cast<int>(F)>(std::make_index_sequence<kAllDTypes>())...}};
}

}  // namespace

CastFn cast_fn(DType from, DType to) {
  static constexpr auto stored = rows(std::make_index_sequence<kAllDTypes>());
  const int row = static_cast<int>(from), column = static_cast<int>(to);
  if (__builtin_expect(is_stored_only(from) || is_stored_only(to), 0)) return stored[row][column];
  return picked_cast_table().fn[row][column];
}

}  // namespace fl
