#include "distributed/reduce.h"

#include <algorithm>
#include <cstring>

namespace fl::dist {

namespace {

constexpr int64_t kBlock = 2048;

template <class T>
using Accumulator = std::conditional_t<is_reduced_type<T>, float, T>;

template <Reduction reduction, class T>
T combine(T a, T b) {
  if constexpr (reduction == Reduction::Sum || reduction == Reduction::Average) return static_cast<T>(a + b);
  if constexpr (reduction == Reduction::Product) return static_cast<T>(a * b);
  // A NaN on either side stays one.
  if constexpr (reduction == Reduction::Min) return b < a || b != b ? b : a;
  if constexpr (reduction == Reduction::Max) return a < b || b != b ? b : a;
  if constexpr (reduction == Reduction::And) return static_cast<T>(a & b);
  if constexpr (reduction == Reduction::Or) return static_cast<T>(a | b);
  if constexpr (reduction == Reduction::Xor) return static_cast<T>(a ^ b);
}

template <Reduction reduction, class T>
void run(void* to, const void* const* sources, int count, int64_t elements, void* also) {
  using A = Accumulator<T>;
  A sums[kBlock];
  for (int64_t begin = 0; begin < elements; begin += kBlock) {
    const int64_t n = std::min(kBlock, elements - begin);
    const T* first = static_cast<const T*>(sources[0]) + begin;
    for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<A>(first[i]);
    for (int s = 1; s < count; ++s) {
      const T* source = static_cast<const T*>(sources[s]) + begin;
      for (int64_t i = 0; i < n; ++i) sums[i] = combine<reduction, A>(sums[i], static_cast<A>(source[i]));
    }
    if constexpr (reduction == Reduction::Average)
      for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<A>(sums[i] / static_cast<A>(count));
    T* result = static_cast<T*>(to) + begin;
    for (int64_t i = 0; i < n; ++i) result[i] = static_cast<T>(sums[i]);
    if (also) std::memcpy(static_cast<T*>(also) + begin, result, static_cast<size_t>(n) * sizeof(T));
  }
}

template <class T>
void choose(void* to, const void* const* sources, int count, int64_t elements, Reduction reduction,
            void* also) {
  switch (reduction) {
    case Reduction::Average:
      return run<Reduction::Average, T>(to, sources, count, elements, also);
    case Reduction::Product:
      return run<Reduction::Product, T>(to, sources, count, elements, also);
    case Reduction::Min:
      if constexpr (!is_complex_type<T>) return run<Reduction::Min, T>(to, sources, count, elements, also);
      break;
    case Reduction::Max:
      if constexpr (!is_complex_type<T>) return run<Reduction::Max, T>(to, sources, count, elements, also);
      break;
    case Reduction::And:
      if constexpr (std::is_integral_v<T>) return run<Reduction::And, T>(to, sources, count, elements, also);
      break;
    case Reduction::Or:
      if constexpr (std::is_integral_v<T>) return run<Reduction::Or, T>(to, sources, count, elements, also);
      break;
    case Reduction::Xor:
      if constexpr (std::is_integral_v<T>) return run<Reduction::Xor, T>(to, sources, count, elements, also);
      break;
    default:
      break;
  }
  return run<Reduction::Sum, T>(to, sources, count, elements, also);
}

// Booleans are bytes 0 and 1: sums and maxima are "or", products and minima "and".
Reduction of_booleans(Reduction reduction) {
  switch (reduction) {
    case Reduction::Product:
    case Reduction::Min:
    case Reduction::And:
    case Reduction::Average:
      return Reduction::And;
    case Reduction::Xor:
      return Reduction::Xor;
    default:
      return Reduction::Or;
  }
}

}  // namespace

void check_reduction(const char* op, DType dtype, Reduction reduction) {
  const bool bitwise =
      reduction == Reduction::And || reduction == Reduction::Or || reduction == Reduction::Xor;
  FL_CHECK(!bitwise || is_integral(dtype, true), "[", op, "] Cannot use ReduceOp.", name_of(reduction),
           " with non-integral dtype ", name_of(dtype));
  const bool ordered = reduction == Reduction::Min || reduction == Reduction::Max;
  FL_CHECK(!ordered || !is_complex(dtype), "[", op, "] expected numbers with an order for ",
           name_of(reduction), ", got ", name_of(dtype));
  FL_CHECK(!is_float8(dtype) && dtype != DType::ComplexHalf, "[", op,
           "] expected a dtype that can be computed with, got ", name_of(dtype));
}

void reduce(void* to, const void* const* sources, int count, int64_t elements, DType dtype,
            Reduction reduction, void* also) {
  switch (dtype) {
    case DType::Bool:
      return choose<uint8_t>(to, sources, count, elements, of_booleans(reduction), also);
    case DType::UInt16:
      return choose<uint16_t>(to, sources, count, elements, reduction, also);
    case DType::UInt32:
      return choose<uint32_t>(to, sources, count, elements, reduction, also);
    case DType::UInt64:
      return choose<uint64_t>(to, sources, count, elements, reduction, also);
    default:
      break;
  }
  dispatch(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (!std::is_same_v<T, bool>) choose<T>(to, sources, count, elements, reduction, also);
  });
}

}  // namespace fl::dist
