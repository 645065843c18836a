// Order as unsigned integers: every element becomes a key whose integer order is PyTorch's order of values
// (NaN greatest, -0 equal to 0), and lines of a tensor are read as keys packed with their positions.
#pragma once

#include <cstring>
#include <vector>

#include "core/tensor.h"

namespace fl {

// Keys of 32 bits for types of at most 4 bytes, else of 64.
template <class S>
using SortKey = std::conditional_t<sizeof(S) <= 4, uint32_t, uint64_t>;

template <class S>
inline SortKey<S> key_of(S value) {
  using K = SortKey<S>;
  if constexpr (std::is_integral_v<S>) {
    if constexpr (std::is_same_v<S, bool> || std::is_unsigned_v<S>)
      return static_cast<K>(value);
    else
      return static_cast<K>(value) ^ (K(1) << (sizeof(K) * 8 - 1));
  } else {
    using F = std::conditional_t<sizeof(S) <= 4, float, double>;
    const F x = static_cast<F>(value) + F(0);  // -0 + 0 is 0
    K u;
    std::memcpy(&u, &x, sizeof u);
    const K sign = K(1) << (sizeof(K) * 8 - 1);
    const K key = u & sign ? ~u : u | sign;
    return x != x ? ~K(0) : key;
  }
}
// A key with its position; comparing pairs orders equal keys by position. 32-bit keys and positions share one
// word.
template <class K>
struct Packed;
template <>
struct Packed<uint32_t> {
  uint64_t word;
  Packed() = default;
  Packed(uint32_t key, int64_t index)
      : word(static_cast<uint64_t>(key) << 32 | static_cast<uint32_t>(index)) {}
  uint32_t key() const { return static_cast<uint32_t>(word >> 32); }
  int64_t index() const { return static_cast<int64_t>(word & 0xffffffffu); }
  bool operator<(const Packed& o) const { return word < o.word; }
};
template <>
struct Packed<uint64_t> {
  uint64_t k;
  int64_t i;
  Packed() = default;
  Packed(uint64_t key, int64_t index) : k(key), i(index) {}
  uint64_t key() const { return k; }
  int64_t index() const { return i; }
  bool operator<(const Packed& o) const { return k != o.k ? k < o.k : i < o.i; }
};

// Calls f(K(0)) for the type of the keys of a dtype with an order. What works on keys exists twice, not once
// for each dtype.
template <class F>
void dispatch_keys(DType t, const F& f) {
  if (size_of(t) > 4)
    f(uint64_t(0));
  else
    f(uint32_t(0));
}

// The keys of n elements, with their bits flipped where `flip` has ones: all ones turn the order around.
template <class K>
void keys_of(DType dtype, const void* x, int64_t n, K flip, K* to);
// The same, each with its position.
template <class K>
void fill_keys(DType dtype, const void* x, int64_t n, bool descending, Packed<K>* to);
// Whether a key is that of NaN, which sorts last.
template <class K>
bool is_nan_key(DType dtype, K key) {
  return is_floating(dtype) && key == static_cast<K>(~K(0));
}

// to[i] = from[at[i]] for elements of the given size.
void take(int64_t itemsize, const char* from, const int64_t* at, int64_t n, char* to);

// Sorts pairs that come in order of position. `other` is room for as many.
template <class K>
void sort_packed(Packed<K>* data, Packed<K>* other, int64_t n);

// The tensor with `dim` moved to the end, contiguous: lines lie one after the other.
Tensor lines_of(const Tensor& t, int64_t dim);
// An uninitialised tensor of lines for a result of the given sizes, and the result itself as a view of it in
// normal order.
struct LineResult {
  Tensor lines, result;
  LineResult(IntSpan sizes, int64_t dim, Options options);
  Tensor finish(const Tensor& like = {}) const;  // in normal order, laid out as `like` or contiguous
};

}  // namespace fl
